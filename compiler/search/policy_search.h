#pragma once

/* `order auto` without `overlap`: passes are F, I and W. The search varies the policy of a list scheduler. */

#include "compiler/search/search_task.h"

/* Does the work of search_order for a task without `overlap`. `control` is not NULL. */
void search_policies(Schedule *schedule, const SearchTask *task, const SearchControl *control, Span span, Arena *arena,
                     SearchProgress *found);
