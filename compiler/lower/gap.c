#include "compiler/lower/gap.h"

#include <math.h>

/* What --slot-bytes and a limit in bytes leave for microbatches: F takes a context and a stash, I gives the context
   back, W the stash. Other slots only take more. */
static MemoryLimits limits_in_bytes(const Schedule *schedule, const Memory *memory, double *most)
{
    for (uint32_t r = 0; r < schedule->ranks; r++)
        most[r] = (double)memory->limit - (double)schedule->chunk_counts[r] * (double)memory->weights;
    return (MemoryLimits){
        .input = (double)memory->slot[SLOT_CONTEXT], .weight = (double)memory->slot[SLOT_STASH], .most = most};
}

static MemoryLimits limits_in_activations(const Schedule *schedule, const Memory *memory, double *most)
{
    for (uint32_t r = 0; r < schedule->ranks; r++)
        most[r] = memory->limit_activations;
    return (MemoryLimits){.input = 0, .weight = 1, .most = most};
}

static double bound_of(const Schedule *schedule, const Costs *costs, const MemoryLimits *searched, const Memory *memory,
                       Arena *arena)
{
    double *most = arena_array(arena, schedule->ranks, sizeof *most);
    double bound = searched ? makespan_bound(schedule, costs, searched, arena) : 0;
    if (memory && memory->limit && memory->slot[SLOT_CONTEXT] + memory->slot[SLOT_STASH] > 0) {
        const MemoryLimits bytes = limits_in_bytes(schedule, memory, most);
        bound = fmax(bound, makespan_bound(schedule, costs, &bytes, arena));
    }
    if (memory && memory->limit_activations) {
        const MemoryLimits activations = limits_in_activations(schedule, memory, most);
        bound = fmax(bound, makespan_bound(schedule, costs, &activations, arena));
    }
    if (bound > 0)
        return bound;
    const MemoryLimits own = limits_of_orders(schedule, arena);
    return makespan_bound(schedule, costs, &own, arena);
}

Gap gap_of(const Schedule *schedule, const Costs *costs, double makespan, const MemoryLimits *searched,
           const Memory *memory, Arena *arena)
{
    return gap_to(makespan, bound_of(schedule, costs, searched, memory, arena));
}
