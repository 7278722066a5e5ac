#pragma once

/* `order auto` with `overlap`: passes may also be B and F&Bs. Simulated annealing over orders starts from published
   orders and their variants. Each step changes one rank's passes at random; while the temperature is high, it also
   accepts changes that make the order longer. If each pipe has more than stages + 4 microbatches (a loop: stages +
   ranks + 1), it anneals orders with fewer microbatches, of which the smallest pipe has stages + 2 (a loop: up to
   ranks - 1 more), and repeats the middle of these orders. */

#include "compiler/search/search_task.h"

/* Does the work of search_order for a task with `overlap`: minimizes the makespan. `control` is not NULL. */
void search_pairs(Schedule *schedule, const SearchTask *task, const SearchControl *control, Span span, Arena *arena,
                  SearchProgress *found);
