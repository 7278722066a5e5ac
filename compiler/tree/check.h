#pragma once

/* Resolves the names of the tree to slots, and reports the errors that do not depend on the values of parameters.
   False: an error was reported, here or before. */

#include "compiler/tree/ast.h"

bool check(Ast *ast, Arena *arena, Diagnostics *diagnostics);
