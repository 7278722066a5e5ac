#ifndef ORDER_EXPAND_H
#define ORDER_EXPAND_H

/* Runs the steps of the file for every rank: the orders, passes only. */

#include "compiler/tree/values.h"

/* After place, with the same tree and parameters. Errors that many ranks share are reported once. */
bool expand(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics, Schedule *schedule);

#endif
