#ifndef TREE_CHECK_H
#define TREE_CHECK_H

/* Resolves the names of the tree to slots, and reports what is wrong for any values of the parameters. False: something
   is wrong. */

#include "compiler/tree/ast.h"

bool check(Ast *ast, Arena *arena, Diagnostics *diagnostics);

#endif
