#pragma once

/* Evaluates the parameters of a schedule file and finds the rank of each stage. */

#include "compiler/tree/values.h"

/* Checks each `require` that does not depend on costs, and fills in the sizes, pipes, chunks and recipes of the
   schedule, but not its orders, and not the entries of an automatic recipe. The tree must have passed check(). False,
   with diagnostics: something in the file is wrong. */
bool place(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics, Schedule *schedule);
