#pragma once

/* Shared by derive.c, reference.c and replicate.c. */

#include "program/program.h"

/* A new program with the schedule, source, stages and microbatches of another one; everything else is 0 or NULL, and
   the caller fills it in. */
Program *derive_begin(const Program *program, Arena *arena);
/* Calls slots_assign for a rank of a derived program. STATUS_BAD_INPUT: the rank needs more slots than there can
   be. */
Status derive_slots(const Program *derived, RankProgram *rank, const Instruction *instructions, uint32_t count,
                    Arena *arena, Error *error);
/* replicate.c: one program with the passes of `replicas` data-parallel replicas. Only program_reference may read it:
   each replica has the instruction streams of `program`, so PEER operands still number the ranks within one replica. It
   shares memory with `program`. */
Program *derive_mesh(const Program *program, uint32_t replicas, Arena *arena);
