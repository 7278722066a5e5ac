#pragma once

/* `dpc balance` places replicas of experts on GPUs (balance/balance.h). It has its own command line. */

#include "base/arena.h"
#include "base/status.h"

/* Runs `dpc balance` with the arguments after `balance`. Errors in its input files are printed to stderr at once; other
   errors are returned in `error`. */
Status balance_command(int argc, char **argv, Arena *arena, Error *error);
