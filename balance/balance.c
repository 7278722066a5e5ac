#include "balance/balance.h"

#include <string.h>

bool balance_is_hierarchical(const BalanceShape *shape)
{
    return shape->nodes > 1 && shape->groups % shape->nodes == 0;
}

uint32_t balance_first_slot(const BalanceShape *shape, uint32_t gpu)
{
    const uint32_t each = shape->replicas / shape->gpus, longer = shape->replicas % shape->gpus;
    return gpu * each + (gpu < longer ? gpu : longer);
}

static Status check_hierarchical(const BalanceShape *shape, Error *error)
{
    const uint32_t experts = shape->experts / shape->nodes, gpus = shape->gpus / shape->nodes;
    /* the number of slots of the last node; no node has fewer */
    const uint32_t slots = shape->replicas - balance_first_slot(shape, shape->gpus - gpus);
    if (shape->gpus % shape->nodes)
        return error_set(error, STATUS_BAD_USAGE, "%s%u is not a multiple of %s%u",
                         front_before(shape->front_end, SET_GPUS), shape->gpus,
                         front_before(shape->front_end, SET_NODES), shape->nodes);
    if (slots < experts)
        return error_set(error, STATUS_BAD_USAGE,
                         "%s%u: the last node has room for %u physical experts, but its groups have %u experts; "
                         "use a multiple of %s%u",
                         front_before(shape->front_end, SET_REPLICAS), shape->replicas, slots, experts,
                         front_before(shape->front_end, SET_GPUS), shape->gpus);
    return STATUS_OK;
}

Status balance_check(const BalanceShape *shape, bool eplb, Error *error)
{
    if (!shape->experts || !shape->gpus)
        return error_set(error, STATUS_BAD_USAGE, "there must be at least one expert and one GPU");
    if (shape->replicas < shape->experts || shape->replicas > BALANCE_REPLICAS_MAX)
        return error_set(error, STATUS_BAD_USAGE,
                         "%s%u: a layer needs a physical expert for each of its %u experts, and can have at "
                         "most %d",
                         front_before(shape->front_end, SET_REPLICAS), shape->replicas, shape->experts,
                         BALANCE_REPLICAS_MAX);
    if (shape->replicas < shape->gpus)
        return error_set(error, STATUS_BAD_USAGE, "%s%u is less than %s%u: each GPU needs at least one physical expert",
                         front_before(shape->front_end, SET_REPLICAS), shape->replicas,
                         front_before(shape->front_end, SET_GPUS), shape->gpus);
    if (shape->groups % shape->nodes == 0 && shape->experts % shape->groups)
        return error_set(error, STATUS_BAD_USAGE, "%s%u does not divide the number of experts, %u",
                         front_before(shape->front_end, SET_GROUPS), shape->groups, shape->experts);
    if (balance_is_hierarchical(shape))
        TRY(check_hierarchical(shape, error));
    if (eplb && shape->replicas % shape->gpus)
        return error_set(error, STATUS_BAD_USAGE, "%s%u: eplb wants a multiple of %s%u; %s takes any number",
                         front_before(shape->front_end, SET_REPLICAS), shape->replicas,
                         front_before(shape->front_end, SET_GPUS), shape->gpus,
                         front_name(shape->front_end, SET_ALL_METHODS));
    return STATUS_OK;
}

void balance_in_order(const BalanceShape *shape, uint32_t *placement)
{
    const uint32_t nodes = balance_is_hierarchical(shape) ? shape->nodes : 1;
    const uint32_t experts = shape->experts / nodes, gpus = shape->gpus / nodes;
    for (uint32_t node = 0; node < nodes; node++) {
        const uint32_t first = balance_first_slot(shape, node * gpus),
                       end = balance_first_slot(shape, (node + 1) * gpus);
        for (uint32_t slot = first; slot < end; slot++)
            placement[slot] = node * experts + (slot - first) % experts;
    }
}

void balance_counts(const BalanceShape *shape, const uint32_t *placement, uint32_t *count)
{
    memset(count, 0, shape->experts * sizeof *count);
    for (uint32_t slot = 0; slot < shape->replicas; slot++)
        count[placement[slot]]++;
}

void balance_gpu_loads(const BalanceShape *shape, const double *loads, const uint32_t *placement, double *gpu_loads,
                       Arena *arena)
{
    uint32_t *count = arena_array(arena, shape->experts, sizeof *count);
    balance_counts(shape, placement, count);
    for (uint32_t gpu = 0; gpu < shape->gpus; gpu++) {
        gpu_loads[gpu] = 0;
        for (uint32_t slot = balance_first_slot(shape, gpu); slot < balance_first_slot(shape, gpu + 1); slot++)
            gpu_loads[gpu] += loads[placement[slot]] / count[placement[slot]];
    }
}

double balance_of_largest(const BalanceShape *shape, const double *loads, double largest)
{
    double sum = 0;
    for (uint32_t e = 0; e < shape->experts; e++)
        sum += loads[e];
    const double balance = largest > 0 ? sum / shape->gpus / largest : 1;
    return balance < 1 ? balance : 1; /* rounding of the sums may give slightly more than 1 */
}

double balance_of(const BalanceShape *shape, const double *loads, const uint32_t *placement, Arena *arena)
{
    double *gpu_loads = arena_array(arena, shape->gpus, sizeof *gpu_loads), largest = 0;
    balance_gpu_loads(shape, loads, placement, gpu_loads, arena);
    for (uint32_t gpu = 0; gpu < shape->gpus; gpu++)
        largest = gpu_loads[gpu] > largest ? gpu_loads[gpu] : largest;
    return balance_of_largest(shape, loads, largest);
}

/* Counts how often each expert occurs on one GPU, for functions that visit one GPU after the other. gpu[e]: the GPU on
   which expert e was seen last, UINT32_MAX if on none yet; times[e]: how often it was seen there. */
typedef struct Seen {
    uint32_t *gpu, *times; /* [experts] */
} Seen;

static Seen seen_new(const BalanceShape *shape, Arena *arena)
{
    Seen seen = {arena_array(arena, shape->experts, sizeof *seen.gpu),
                 arena_array(arena, shape->experts, sizeof *seen.times)};
    memset(seen.gpu, 0xff, shape->experts * sizeof *seen.gpu);
    return seen;
}

/* A pointer to the number of times that `expert` has been seen on `gpu` so far. The caller may change the number. */
static uint32_t *times_seen(Seen *seen, uint32_t gpu, uint32_t expert)
{
    if (seen->gpu[expert] != gpu)
        seen->times[expert] = 0;
    seen->gpu[expert] = gpu;
    return &seen->times[expert];
}

uint32_t balance_moves(const BalanceShape *shape, const uint32_t *from, const uint32_t *to, Arena *arena)
{
    Seen held = seen_new(shape, arena);
    uint32_t moves = 0;
    for (uint32_t gpu = 0; gpu < shape->gpus; gpu++) {
        const uint32_t first = balance_first_slot(shape, gpu), end = balance_first_slot(shape, gpu + 1);
        for (uint32_t slot = first; slot < end; slot++)
            *times_seen(&held, gpu, from[slot]) += 1;
        for (uint32_t slot = first; slot < end; slot++)
            moves += *times_seen(&held, gpu, to[slot]) == 0;
    }
    return moves;
}

uint32_t balance_duplicates(const BalanceShape *shape, const uint32_t *placement, Arena *arena)
{
    Seen held = seen_new(shape, arena);
    uint32_t duplicates = 0;
    for (uint32_t gpu = 0; gpu < shape->gpus; gpu++)
        for (uint32_t slot = balance_first_slot(shape, gpu); slot < balance_first_slot(shape, gpu + 1); slot++)
            duplicates += (*times_seen(&held, gpu, placement[slot]))++ > 0;
    return duplicates;
}

/* Checks that all experts of a group are on one node. If not, *slot is the first slot whose expert is on another node
   than an expert of the same group in an earlier slot. */
static Status check_groups(const BalanceShape *shape, const uint32_t *placement, uint32_t *slot, Arena *arena,
                           Error *error)
{
    const uint32_t none = UINT32_MAX, size = shape->experts / shape->groups, gpus = shape->gpus / shape->nodes;
    uint32_t *node_of = arena_array(arena, shape->groups, sizeof *node_of);
    memset(node_of, 0xff, shape->groups * sizeof *node_of);
    for (uint32_t gpu = 0; gpu < shape->gpus; gpu++)
        for (*slot = balance_first_slot(shape, gpu); *slot < balance_first_slot(shape, gpu + 1); ++*slot) {
            const uint32_t group = placement[*slot] / size, node = gpu / gpus;
            if (node_of[group] != none && node_of[group] != node)
                return error_set(error, STATUS_BAD_INPUT,
                                 "expert %u is on node %u, but its group %u is on node %u: a group must be on one node",
                                 placement[*slot], node, group, node_of[group]);
            node_of[group] = node;
        }
    return STATUS_OK;
}

Status balance_check_placement(const BalanceShape *shape, const uint32_t *placement, uint32_t *slot, Arena *arena,
                               Error *error)
{
    bool *is_there = arena_array(arena, shape->experts, sizeof *is_there);
    for (*slot = 0; *slot < shape->replicas; ++*slot) {
        if (placement[*slot] >= shape->experts)
            return error_set(error, STATUS_BAD_INPUT, "there is no expert %u: experts are numbered from 0 to %u",
                             placement[*slot], shape->experts - 1);
        is_there[placement[*slot]] = true;
    }
    *slot = 0;
    for (uint32_t e = 0; e < shape->experts; e++)
        if (!is_there[e])
            return error_set(error, STATUS_BAD_INPUT,
                             "expert %u is on no GPU: each expert needs at least one of the %u places", e,
                             shape->replicas);
    return balance_is_hierarchical(shape) ? check_groups(shape, placement, slot, arena, error) : STATUS_OK;
}
