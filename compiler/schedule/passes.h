#ifndef SCHEDULE_PASSES_H
#define SCHEDULE_PASSES_H

/* The positions of all passes: (pipe, stage, microbatch) → position in the order of the rank that holds the stage. */

#include "compiler/schedule/schedule.h"

enum { POSITION_NONE = UINT32_MAX };

/* The U of a chunk. at[k]: the position of the U that makes version k + 1, for k = 0, 1, ... */
typedef struct Updates {
    uint32_t count;
    uint32_t *at;
} Updates;

/* Filled by prove_passes and copies_find. */
typedef struct PassTable {
    uint32_t **forward;  /* [pipe][stage * microbatches + microbatch] */
    uint32_t **backward; /* the B or the I */
    uint32_t **weight;   /* the W; for a B the same position as in `backward` */
    Updates **updates;   /* [rank][chunk] */
} PassTable;

static inline size_t pass_index(const PlacedPipe *pipe, uint32_t stage, uint32_t microbatch)
{
    return (size_t)stage * pipe->microbatches + microbatch;
}

/* A new table, with POSITION_NONE as the position of each pass. */
PassTable pass_table_new(const Schedule *schedule, Arena *arena);

/* Another pass that a pass has to wait for, on any rank. */
typedef struct Dependence {
    uint16_t rank;
    uint32_t position;
} Dependence;

/* The dependence of F on the stage before it, and of B or I on the stage after it. False: the pass needs nothing
   from another stage. W needs only its I, which comes earlier in the order of its own rank. */
bool pass_dependence(const Schedule *schedule, const PassTable *table, const Action *pass, Dependence *dependence);

/* The U that make one version of a stage, one on each copy, are one event: they sum their gradients, and none
   continues before all have arrived. Sets the position of the U of the stage's i-th copy. False: the stage has no
   i-th copy, or the pass is not a U. */
static inline bool pass_meets(const Schedule *schedule, const PassTable *table, const Action *pass, uint32_t i,
                              Dependence *there)
{
    if (pass->kind != ACTION_U || i >= schedule->copies[pass->stage].count)
        return false;
    const Home home = schedule->copies[pass->stage].homes[i];
    *there = (Dependence){home.rank, table->updates[home.rank][home.chunk].at[pass->microbatch - 1]};
    return true;
}

/* For a schedule that prove_passes has accepted. Finds the copies of each stage, whether they are updated within the
   step, and how many gradients each version is made of, and fills in the table's updates. */
void copies_find(Schedule *schedule, PassTable *table, Arena *arena);

/* Fills in the positions again after actions were added to the orders of a legal schedule. */
void passes_index(const Schedule *schedule, PassTable *table);

#endif
