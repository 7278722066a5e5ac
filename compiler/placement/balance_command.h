#ifndef PLACEMENT_BALANCE_COMMAND_H
#define PLACEMENT_BALANCE_COMMAND_H

/* `dpc balance` places replicas of experts on GPUs (balance/balance.h). It has its own command line. */

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

/* Runs with the arguments after `balance`. Diagnostics of the input go to stderr at once. */
Status balance_command(int argc, char **argv, Arena *arena, Error *error);

#endif
