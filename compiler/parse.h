#ifndef COMPILER_PARSE_H
#define COMPILER_PARSE_H

/* bytes → tokens → tree. */

#include "compiler/ast.h"

/* NULL when there was any syntax error; several are reported in one run. */
Ast *parse(const Source *source, Arena *arena, Diagnostics *diagnostics);

/* A token a line: line, column, kind, text. */
void dump_tokens(const Source *source, FILE *stream);
/* The tree as indented text, an item a line. */
void dump_tree(const Ast *ast, FILE *stream);

#endif
