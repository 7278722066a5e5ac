#ifndef ORDER_EXPAND_H
#define ORDER_EXPAND_H

/* Runs the steps of the file for every rank. The result is the orders, without messages. */

#include "compiler/tree/values.h"

/* After place, with the same tree and parameters. Errors of many ranks are reported once. */
bool expand(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics, Schedule *schedule);

#endif
