#ifndef PLACEMENT_BALANCE_COMMAND_H
#define PLACEMENT_BALANCE_COMMAND_H

/* `dpc balance`: replicas of experts placed on GPUs (balance/balance.h). Its command line is its own. */

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

/* The arguments after `balance`. Diagnostics of the input go to stderr as they are found. */
Status balance_command(int argc, char **argv, Arena *arena, Error *error);

#endif
