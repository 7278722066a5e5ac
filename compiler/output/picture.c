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
    *cell = (Cell){.first = first, .position = i, .start = picture->times->start[rank][i], .end = picture->times->end[rank][i]};
    cell->middle = cell->end;
    if (first->overlap) {
        cell->second = first + 1;
        const double forward = costs_pass(picture->times->costs, first->stage, COST_F);
        const double both = forward + costs_pass(picture->times->costs, cell->second->stage, (StageCost)cell->second->kind);
        cell->middle = cell->start + (cell->end - cell->start) * (both > 0 ? forward / both : 0.5);
    }
    *position = i + (cell->second ? 2 : 1);
    return true;
}

uint32_t picture_variants(const Schedule *schedule)
{
    if (schedule->pipe_count > 1)
        return schedule->pipe_count;
    uint32_t chunks = 1;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        chunks = schedule->chunk_counts[r] > chunks ? schedule->chunk_counts[r] : chunks;
    return chunks;
}

uint32_t picture_variant(const Schedule *schedule, const Action *pass)
{
    return schedule->pipe_count > 1 ? pass->pipe : pass->chunk;
}
