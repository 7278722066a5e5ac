#pragma once

/* Reports a syntax error in the words of a person who writes schedules. */

#include "grammar/reader.h"

enum { TOKEN_CODES = 512 }; /* more than the largest code of a token; the parser asserts it */

typedef struct SyntaxError {
    Span span;                  /* span of the token that does not fit */
    int found;                  /* its code */
    bool expected[TOKEN_CODES]; /* [code of a token]: whether it would have fitted */
} SyntaxError;

void syntax_error(Reader *reader, const SyntaxError *error);
