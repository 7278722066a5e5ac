#include "compiler/lower/gap.h"

#include <math.h>

/* The memory limits that follow from --slot-bytes and a --memory-limit in bytes. A rank may use the limit minus the
   weights of its chunks. F takes a slot of activations saved for dgrad and a slot of those saved for wgrad; I frees the
   first, W the second, B both. Slots of other classes are not counted, so a rank really needs more. */
static MemoryLimits limits_in_bytes(const Schedule *schedule, const Memory *memory, Arena *arena)
{
    double *most = arena_array(arena, schedule->ranks, sizeof *most);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        most[r] = (double)memory->limit - (double)schedule->chunk_counts[r] * (double)memory->weights;
    return (MemoryLimits){
        .input = (double)memory->slot[SLOT_CONTEXT], .weight = (double)memory->slot[SLOT_STASH], .most = most};
}

static MemoryLimits limits_in_activations(const Schedule *schedule, const Memory *memory, Arena *arena)
{
    double *most = arena_array(arena, schedule->ranks, sizeof *most);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        most[r] = memory->limit_activations;
    return (MemoryLimits){.input = 0, .weight = 1, .most = most};
}

static bool counts_bytes(const Memory *memory) { return memory->slot[SLOT_CONTEXT] + memory->slot[SLOT_STASH] > 0; }

bool gap_is_limited(const Memory *memory)
{
    return memory->limit_activations || (memory->limit && counts_bytes(memory));
}

uint32_t gap_limits(const Schedule *schedule, const MemoryLimits *searched, const Memory *memory, Arena *arena,
                    MemoryLimits limits[GAP_LIMITS])
{
    uint32_t count = 0;
    if (searched)
        limits[count++] = *searched;
    if (memory && memory->limit && counts_bytes(memory))
        limits[count++] = limits_in_bytes(schedule, memory, arena);
    if (memory && memory->limit_activations)
        limits[count++] = limits_in_activations(schedule, memory, arena);
    if (!count)
        limits[count++] = limits_of_orders(schedule, arena);
    return count;
}

Gap gap_of(const Schedule *schedule, const Costs *costs, double makespan, const MemoryLimits *searched,
           const Memory *memory, Arena *arena)
{
    MemoryLimits limits[GAP_LIMITS];
    const uint32_t count = gap_limits(schedule, searched, memory, arena, limits);
    double bound = 0;
    for (uint32_t i = 0; i < count; i++)
        bound = fmax(bound, makespan_bound(schedule, costs, &limits[i], arena));
    return gap_to(makespan, bound);
}
