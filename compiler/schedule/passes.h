#ifndef COMPILER_PASSES_H
#define COMPILER_PASSES_H

/* Where every pass of a schedule stands: (pipe, stage, microbatch) → position in the order of the rank that holds the stage. */

#include "compiler/schedule/schedule.h"

enum { POSITION_NONE = UINT32_MAX };

typedef struct PassTable {
    uint32_t **forward;  /* [pipe][stage * microbatches + microbatch] */
    uint32_t **backward; /* the B or the I */
    uint32_t **weight;   /* the W; for a B the same position as in `backward` */
} PassTable;

static inline size_t pass_index(const PlacedPipe *pipe, uint32_t stage, uint32_t microbatch)
{
    return (size_t)stage * pipe->microbatches + microbatch;
}

/* Another pass that a pass has to wait for, on whichever rank. */
typedef struct Dependence {
    uint16_t rank;
    uint32_t position;
} Dependence;

/* What F needs of the stage before, or B or I of the stage after: true and where it stands, false when it needs nothing of
   another stage. W only needs its I, which its own rank's order puts before it. */
bool pass_dependence(const Schedule *schedule, const PassTable *table, const Action *pass, Dependence *dependence);

/* Checks that every order is legal as far as one rank can tell, and fills the table: microbatches and stages in range; every
   F, and every B or I and W, exactly once and on the rank of its stage; F before its backward, I before its W; the halves of
   an F&B are an F and a B or I of different microbatches. Every breach is a diagnostic naming rank and pass. */
bool legal(const Schedule *schedule, Arena *arena, Diagnostics *diagnostics, PassTable *table);

/* Fills in the positions again after the orders of a legal schedule have grown. */
void passes_index(const Schedule *schedule, PassTable *table);

#endif
