#pragma once

/* The position of each pass in the order of its rank. */

#include "compiler/schedule/schedule.h"

enum { POSITION_NONE = UINT32_MAX };

/* The U of a chunk. at[k]: the position, in the order of its rank, of the U that makes version k + 1, for k = 0, 1, ...
   Version 0 is the weights at the beginning of the step. */
typedef struct Updates {
    uint32_t count;
    uint32_t *at;
} Updates;

/* The positions of passes in the orders of their ranks. Filled by prove_passes and copies_find. */
typedef struct PassTable {
    uint32_t **forward;  /* [pipe][stage * microbatches + microbatch] */
    uint32_t **backward; /* the B or the I, indexed as `forward` */
    uint32_t **weight;   /* the W, indexed as `forward`; for a B the same position as in `backward` */
    /* of a pass in `forward` or `backward`: the last pass before its output is sent; the same arrays as `forward` and
       `backward` unless passes_take_sends has been called: then outputs are sent as soon as they are computed */
    uint32_t **forward_sent, **backward_sent;
    Updates **updates; /* [rank][chunk] */
    /* [rank][position], set by prove_messages. Of a message: the position of its other end in the order of its peer; of
       a pass: that of the RECV of its input. POSITION_NONE: the pass receives nothing */
    uint32_t **ends;
} PassTable;

static inline size_t pass_index(const PlacedPipe *pipe, uint32_t stage, uint32_t microbatch)
{
    return (size_t)stage * pipe->microbatches + microbatch;
}

/* A new table, with POSITION_NONE as the position of each pass. Does not set `updates`: copies_find makes it. */
PassTable pass_table_new(const Schedule *schedule, Arena *arena);

/* A pass, on any rank, that another pass has to wait for. */
typedef struct Dependence {
    uint16_t rank;
    uint32_t position;
} Dependence;

/* Finds the pass of another stage whose result `pass` needs: for an F, the F of the stage before; for a B or I, the B
   or I of the stage after. False: `pass` needs nothing from another stage. (A W needs only its I, which is on the same
   rank.) */
bool pass_dependence(const Schedule *schedule, const PassTable *table, const Action *pass, Dependence *dependence);

/* Like pass_dependence, but finds the last pass before the result is sent (PassTable.forward_sent). */
bool pass_sender(const Schedule *schedule, const PassTable *table, const Action *pass, Dependence *dependence);

/* The U that make one version of a stage, one on each copy, run together: they sum their gradients, and none continues
   before the ranks of all copies have reached theirs. Sets `there` to the U of the stage's i-th copy that makes the
   same version as `pass`. False: the stage has no i-th copy, or `pass` is not a U. */
static inline bool pass_meets(const Schedule *schedule, const PassTable *table, const Action *pass, uint32_t i,
                              Dependence *there)
{
    if (pass->kind != ACTION_U || i >= schedule->copies[pass->stage].count)
        return false;
    const Home home = schedule->copies[pass->stage].homes[i];
    *there = (Dependence){home.rank, table->updates[home.rank][home.chunk].at[pass->microbatch - 1]};
    return true;
}

/* Finds the copies of each stage, whether the schedule updates weights within the step, and the number of gradients of
   each version, and fills in the table's `updates`. prove_passes must have accepted the schedule. */
void copies_find(Schedule *schedule, PassTable *table, Arena *arena);

/* Fills in the positions of the table again after actions were added to the orders or moved. The schedule must be
   legal. */
void passes_index(const Schedule *schedule, PassTable *table);

/* From now on, outputs are sent where the orders have their SENDs. The messages must have been proven. */
void passes_take_sends(const Schedule *schedule, PassTable *table, Arena *arena);
