#include "compiler/search/search.h"

#include "compiler/search/pair_search.h"
#include "compiler/search/policy_search.h"

int64_t search_least_memory(const Schedule *schedule, uint32_t rank, int64_t forward)
{
    uint32_t most = 0;
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        uint32_t stages = 0;
        for (uint32_t c = 0; c < schedule->chunk_counts[rank]; c++)
            stages += schedule->chunks[rank][c].pipe == p;
        most = stages > most ? stages : most;
    }
    return forward * most;
}

void search_order(Schedule *schedule, const SearchTask *task, const SearchControl *control, Span span, Arena *arena,
                  SearchProgress *found)
{
    static const SearchControl none = {.stop = NULL};
    (task->overlap ? search_pairs : search_policies)(schedule, task, control ? control : &none, span, arena, found);
}
