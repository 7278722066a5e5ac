#ifndef TREE_PARSE_H
#define TREE_PARSE_H

/* bytes → tokens → tree. */

#include "compiler/tree/ast.h"

/* NULL when there was any syntax error; several are reported in one run. */
Ast *parse(const Source *source, Arena *arena, Diagnostics *diagnostics);

typedef struct Token {
    const char *kind; /* "name", "number", "pass", ...; a word or a mark of the language stands for itself */
    Span span;
} Token;

/* All tokens up to the end of the file, which is none. */
Token *read_tokens(const Source *source, Arena *arena, uint32_t *count);

/* A token a line: line, column, kind, text. */
void dump_tokens(const Source *source, FILE *stream);
/* The tree as indented text, an item a line. */
void dump_tree(const Ast *ast, FILE *stream);

#endif
