#pragma once

/* Runs the steps of a schedule file for every rank. The result is the order of each rank, without messages. */

#include "compiler/tree/values.h"

/* Call expand() after place(), with the same tree and parameters. False, with diagnostics: the steps have errors. An
   error that several ranks have is reported once. */
bool expand(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics, Schedule *schedule);
