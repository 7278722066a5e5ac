#include "compiler/output/picture.h"

bool picture_next(const Picture *picture, uint32_t rank, uint32_t *position, Cell *cell)
{
    const Order *order = &picture->schedule->orders[rank];
    uint32_t i = *position;
    while (i < order->count && action_is_message(&order->actions[i]))
        i++;
    if (i == order->count)
        return false;
    const Action *first = &order->actions[i];
    *cell = (Cell){
        .first = first, .position = i, .start = picture->times->start[rank][i], .end = picture->times->end[rank][i]};
    cell->middle = cell->end;
    if (first->overlap) {
        cell->second = first + 1;
        const double forward = costs_pass(picture->times->costs, first->stage, COST_F);
        const double both =
            forward + costs_pass(picture->times->costs, cell->second->stage, (StageCost)action_cost(cell->second));
        cell->middle = cell->start + (cell->end - cell->start) * (both > 0 ? forward / both : 0.5);
    }
    *position = i + (cell->second ? 2 : 1);
    return true;
}

/* The number of chunks of the pipe among the rank's chunks 0..end-1. */
static uint32_t chunks_of_pipe(const Schedule *schedule, uint32_t rank, uint32_t end, uint32_t pipe)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < end; c++)
        count += schedule->chunks[rank][c].pipe == pipe;
    return count;
}

uint32_t picture_variants(const Schedule *schedule)
{
    uint32_t most = 1;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t p = 0; p < schedule->pipe_count; p++) {
            const uint32_t chunks = chunks_of_pipe(schedule, r, schedule->chunk_counts[r], p);
            most = chunks > most ? chunks : most;
        }
    return schedule->pipe_count * most;
}

uint32_t picture_variant(const Schedule *schedule, uint32_t variants, uint32_t rank, uint8_t chunk)
{
    const uint32_t pipe = schedule->chunks[rank][chunk].pipe;
    return pipe * (variants / schedule->pipe_count) + chunks_of_pipe(schedule, rank, chunk, pipe);
}
