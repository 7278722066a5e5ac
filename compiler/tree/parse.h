#ifndef TREE_PARSE_H
#define TREE_PARSE_H

/* bytes → tokens → tree. */

#include "compiler/tree/ast.h"

/* Parses a schedule file. NULL: there are syntax errors; all that were found are in the diagnostics. */
Ast *parse(const Source *source, Arena *arena, Diagnostics *diagnostics);

typedef struct Token {
    const char *kind; /* "name", "number", "pass", ...; for a word or a punctuation mark of the language its text */
    Span span;
} Token;

/* All tokens up to the end of the file, which is not a token. */
Token *read_tokens(const Source *source, Arena *arena, uint32_t *count);

/* Prints one token per line: line, column, kind, text. */
void dump_tokens(const Source *source, FILE *stream);
/* Prints the tree as indented text, one item per line. */
void dump_tree(const Ast *ast, FILE *stream);

#endif
