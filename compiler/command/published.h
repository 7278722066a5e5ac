#ifndef COMMAND_PUBLISHED_H
#define COMMAND_PUBLISHED_H

/* Bubbles in the closed forms in which papers give them, and for which sizes and times they hold. The language knows
   nothing of them: a schedule is recognised by its name. A bubble is the largest end - start of a rank less its work.

   The formulas have one time for all stages. Of uneven stages they take the mean over all but the slowest: (P-1)(F+B)
   is then what a microbatch takes in the others. That is the order's part of the bubble (BubbleCauses) of GPipe;
   imbalance comes on top. */

#include "compiler/schedule/timeline.h"

typedef struct PublishedBubble {
    /* as text: P ranks, S stages, M microbatches, k activations at the peak, F, I, W, B, and FB of an F&B */
    const char *formula;
    const char *source;
    bool is_bound; /* no order with this peak has less; else it is the bubble itself */
    double value;
    char breach[128]; /* "W > F": why sizes or times lie outside of its domain; empty: they lie in it */
} PublishedBubble;

/* False when there is none for a schedule of this name. */
bool published_bubble(const Schedule *schedule, const Costs *costs, uint32_t peak_activations,
                      PublishedBubble *published);

#endif
