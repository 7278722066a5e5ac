#ifndef COMPILER_CALIBRATE_H
#define COMPILER_CALIBRATE_H

/* `dpc calibrate [-o FILE] [--fastest N] TRACE...`: what passes and messages took in a measured run, as a cost file. */

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

/* `arguments` are those behind the word calibrate. */
Status calibrate_command(int count, char **arguments, Arena *arena, Error *error);

#endif
