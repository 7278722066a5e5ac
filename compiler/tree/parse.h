#pragma once

/* From bytes to tokens to a tree. */

#include "compiler/tree/ast.h"

/* Parses a schedule file. NULL: there are errors, and the diagnostics have those that were found. */
Ast *parse(const Source *source, Arena *arena, Diagnostics *diagnostics);

typedef struct Token {
    const char *kind; /* "name", "number", "pass", ...; of a keyword or punctuation mark, its text */
    Span span;
} Token;

/* Returns all tokens of the file; its end is not one of them. NULL and count 0: the file has no tokens, or the scanner
   failed. Reports no errors: parse does that. */
Token *read_tokens(const Source *source, Arena *arena, uint32_t *count);

/* Prints one token per line: line, column, kind, text. */
void dump_tokens(const Source *source, FILE *stream);
/* Prints the tree as indented text, one item per line. */
void dump_tree(const Ast *ast, FILE *stream);
