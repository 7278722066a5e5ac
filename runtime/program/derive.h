#ifndef PROGRAM_DERIVE_H
#define PROGRAM_DERIVE_H

/* Shared by derive.c and reference.c. */

#include "runtime/program/program.h"

/* A program with the names and numbers of another; pipes, groups and ranks are still to be filled in. NULL: no
   memory. */
Program *derive_begin(const Program *program, Arena *arena);

#endif
