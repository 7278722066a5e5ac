#pragma once

/* Finds the order of a placement's passes (`order auto`). The zero-bubble papers schedule one chunk per rank with
   hand-made heuristics (Qi et al., ICLR 2024, section 3). This search takes any placement in which a stage of a pipe is
   on one rank, and improves on such heuristics. */

#include "compiler/search/search_task.h"

/* Fills in the orders of a placed schedule. Every pass gets `span`. On each chunk, the F run the microbatches in
   ascending order; so do the backwards (I and B), and so do the W. `control` and `found` may be NULL. */
void search_order(Schedule *schedule, const SearchTask *task, const SearchControl *control, Span span, Arena *arena,
                  SearchProgress *found);

/* The memory that one microbatch takes on all stages of one pipe that the rank holds, if an F takes `forward`; of
   several pipes, the largest. If every rank has at least this much, an order exists. */
int64_t search_least_memory(const Schedule *schedule, uint32_t rank, int64_t forward);
