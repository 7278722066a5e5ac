#ifndef TREE_CHECK_H
#define TREE_CHECK_H

/* Gives the tree its meaning: names become slots, what cannot be right whatever the parameters are is reported. */

#include "compiler/tree/ast.h"

bool check(Ast *ast, Arena *arena, Diagnostics *diagnostics);

#endif
