#ifndef COMMAND_PUBLISHED_H
#define COMMAND_PUBLISHED_H

/* Bubbles in the closed forms of papers, and the sizes and times for which they hold. The language does not know
   them: a schedule is recognised by its name. A bubble is the largest end - start of a rank less its work.

   The formulas have one time for all stages. For uneven stages they use the mean over all stages but the slowest:
   (P-1)(F+B) is then the time of a microbatch in all stages but the slowest. In GPipe that is the part `order` of the
   bubble (BubbleCauses); the part `imbalance` is added to it. */

#include "compiler/schedule/timeline.h"

typedef struct PublishedBubble {
    /* as text: P ranks, S stages, M microbatches, k activations at the peak, F, I, W, B, and FB of an F&B */
    const char *formula;
    const char *source;
    /* the formula is a lower bound of the bubble of all orders with this peak; false: it is the bubble */
    bool is_bound;
    double value;
    char breach[128]; /* "W > F": why sizes or times are outside its domain; empty: they are inside */
} PublishedBubble;

/* The schedule of that row of the table of formulas; NULL: after the last row. */
const char *published_schedule(size_t row);

/* False if there is no formula for a schedule of this name. */
bool published_bubble(const Schedule *schedule, const Costs *costs, uint32_t peak_activations,
                      PublishedBubble *published);

#endif
