#pragma once

/* Bubbles in the closed forms of papers, and the sizes and times for which they hold. The language does not know
   them: a schedule is recognised by its name. A bubble is the largest end - start of a rank minus the mean time that a
   rank is busy.

   The formulas assume that all stages take the same time. For uneven stages, their times are the means over all stages
   but the slowest: (P-1)(F+B) is then the time of a microbatch in all stages but the slowest. In GPipe this is the part
   of the bubble that BubbleCauses calls `order`; the formula does not contain the part `imbalance`. */

#include "compiler/schedule/timeline.h"

typedef struct PublishedBubble {
    /* the formula as text. P ranks, S stages, M microbatches, k activations at the peak; F, I, W, B: times of passes;
       FB: time of an F&B */
    const char *formula;
    const char *source;
    /* the formula is a lower bound of the bubble of all orders with this peak of activations; false: it is the bubble
       itself */
    bool is_bound;
    double value;
    /* why the formula does not hold for these sizes or times, such as "W > F"; empty: it does hold */
    char breach[128];
} PublishedBubble;

/* The name of the schedule in a row of the table of formulas; NULL: there are no more rows. */
const char *published_schedule(size_t row);

/* Evaluates the formula that the table has for the schedule's name. False: the table has none. */
bool published_bubble(const Schedule *schedule, const Costs *costs, uint32_t peak_activations,
                      PublishedBubble *published);
