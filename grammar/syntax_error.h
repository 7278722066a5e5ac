#ifndef GRAMMAR_SYNTAX_ERROR_H
#define GRAMMAR_SYNTAX_ERROR_H

/* What the parser says about a syntax error, in the words of somebody who writes schedules. */

#include "grammar/reader.h"

enum { TOKEN_CODES = 512 }; /* over every token's code; the parser asserts it */

typedef struct SyntaxError {
    Span span;                  /* of the token that does not fit */
    int found;                  /* its code */
    bool expected[TOKEN_CODES]; /* what would have fitted, by code */
} SyntaxError;

void syntax_error(Reader *reader, const SyntaxError *error);

#endif
