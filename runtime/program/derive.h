#ifndef PROGRAM_DERIVE_H
#define PROGRAM_DERIVE_H

/* Shared by derive.c, reference.c and replicate.c. */

#include "runtime/program/program.h"

/* A program with the names and sizes of another one; the caller fills in pipes, groups and ranks. NULL: out of
   memory. */
Program *derive_begin(const Program *program, Arena *arena);
/* slots_assign on a rank of it. STATUS_BAD_INPUT: the rank needs more slots than there can be. */
Status derive_slots(const Program *derived, RankProgram *rank, const Instruction *instructions, uint32_t count,
                    Arena *arena, Error *error);
/* replicate.c: the passes of `replicas` copies of the pipeline as one program, to be read by program_reference. Its
   streams are the program's own, so the peers of messages are those of one replica. It uses the program's memory. NULL:
   out of memory. */
Program *derive_mesh(const Program *program, uint32_t replicas, Arena *arena);
Status derive_no_memory(Error *error);

#endif
