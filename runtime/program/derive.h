#ifndef PROGRAM_DERIVE_H
#define PROGRAM_DERIVE_H

/* Shared by derive.c and reference.c. */

#include "runtime/program/program.h"

/* A program with the names and sizes of another one; the caller fills in pipes, groups and ranks. NULL: out of
   memory. */
Program *derive_begin(const Program *program, Arena *arena);
/* slots_assign on a rank of it. STATUS_BAD_INPUT: the rank needs more slots than there can be. */
Status derive_slots(const Program *derived, RankProgram *rank, const Instruction *instructions, uint32_t count,
                    Arena *arena, Error *error);
Status derive_no_memory(Error *error);

#endif
