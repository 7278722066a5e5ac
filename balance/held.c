#include "balance/held.h"

#include "balance/domain.h"

#include <math.h>
#include <string.h>

/* --- improving --- */

static uint32_t nodes_of(const BalanceShape *shape) { return balance_is_hierarchical(shape) ? shape->nodes : 1; }

/* One domain of all GPUs, in which each expert stays on the node that has it in request->from. If the shape is not
   hierarchical, all GPUs are one node. */
static Domain domain_of(const BalanceShape *shape, const BalanceRequest *request, const double *loads, int64_t *steps,
                        Arena *arena)
{
    uint32_t *first = arena_array(arena, (size_t)shape->gpus + 1, sizeof *first);
    uint32_t *home = arena_array(arena, shape->experts, sizeof *home);
    for (uint32_t g = 0; g <= shape->gpus; g++)
        first[g] = balance_first_slot(shape, g);
    Domain domain = domain_new(shape->experts, loads, shape->gpus, first, steps, arena);
    domain.distinct = true; /* no step puts an expert on a GPU that already holds it */
    domain.front_end = shape->front_end;
    domain.held = request->from;
    domain.moves = request->moves;
    domain.home = home;
    domain.node_gpus = shape->gpus / nodes_of(shape);
    for (uint32_t slot = 0; slot < domain.slots; slot++)
        home[request->from[slot]] = domain.gpu_of[slot] / domain.node_gpus;
    return domain;
}

/* Gives the slot another expert: the one that makes the largest load of all GPUs smallest. False: no other expert may
   be in this slot. */
static bool replace_duplicate(const Domain *domain, Filling *filling, uint32_t slot)
{
    const uint32_t old = filling->expert[slot];
    uint32_t found = domain->experts;
    double least = INFINITY;
    for (uint32_t e = 0; e < domain->experts; e++) {
        filling->expert[slot] = old;
        if (e == old || !filling_may_hold(domain, filling, slot, e))
            continue;
        filling->expert[slot] = e;
        filling_update(domain, filling);
        const double largest = filling_largest(domain, filling);
        if (largest < least) {
            least = largest;
            found = e;
        }
    }
    filling->expert[slot] = found < domain->experts ? found : old;
    filling_update(domain, filling);
    return found < domain->experts;
}

static Status remove_duplicates(const Domain *domain, Filling *filling, Error *error)
{
    for (uint32_t slot = 0; slot < domain->slots; slot++)
        if (filling_holds(domain, filling, domain->gpu_of[slot], filling->expert[slot], slot) &&
            !replace_duplicate(domain, filling, slot))
            return error_set(
                error, STATUS_BAD_INPUT,
                "%s: GPU %u has expert %u twice in the current placement, and its node has too few experts "
                "to replace one",
                front_name(domain->front_end, SET_DISTINCT), domain->gpu_of[slot], filling->expert[slot]);
    const uint32_t needed = filling_moves(domain, filling);
    if (needed > domain->moves)
        return error_set(
            error, STATUS_BAD_INPUT, "%s needs at least %s%u: the current placement has experts twice on a GPU",
            front_name(domain->front_end, SET_DISTINCT), front_before(domain->front_end, SET_MOVES), needed);
    return STATUS_OK;
}

Status held_improve(const BalanceShape *shape, const BalanceRequest *request, const double *loads, double bound,
                    uint32_t *placement, Arena *arena, Error *error)
{
    int64_t steps = 0;
    const Domain domain = domain_of(shape, request, loads, &steps, arena);
    Filling filling = filling_new(&domain, arena);
    memcpy(filling.expert, request->from, domain.slots * sizeof *filling.expert);
    filling_update(&domain, &filling);
    if (request->distinct)
        TRY(remove_duplicates(&domain, &filling, error));
    filling_improve_held(&domain, &filling, bound, arena);
    memcpy(placement, filling.expert, domain.slots * sizeof *placement);
    return STATUS_OK;
}

/* --- matching --- */

/* The number of slots of GPU `gpu` in `placement` with an expert that GPU `other` holds in `from`. */
static uint32_t overlap(const BalanceShape *shape, const uint32_t *placement, uint32_t gpu, const uint32_t *from,
                        uint32_t other)
{
    uint32_t common = 0;
    for (uint32_t slot = balance_first_slot(shape, gpu); slot < balance_first_slot(shape, gpu + 1); slot++)
        for (uint32_t s = balance_first_slot(shape, other); s < balance_first_slot(shape, other + 1); s++)
            if (placement[slot] == from[s]) {
                common++;
                break;
            }
    return common;
}

static uint32_t slots_of(const BalanceShape *shape, uint32_t gpu)
{
    return balance_first_slot(shape, gpu + 1) - balance_first_slot(shape, gpu);
}

/* Matches the GPUs of a node of `placement`, which begin at `gpu`, with those of a node of `from`, which begin at
   `other`. place_of[g] becomes the GPU of `from` that has most experts in common with g, among those that are not
   taken yet and have as many slots. */
static void match_gpus(const BalanceShape *shape, const uint32_t *from, const uint32_t *placement, uint32_t gpu,
                       uint32_t other, uint32_t *place_of, bool *taken)
{
    const uint32_t gpus = shape->gpus / nodes_of(shape);
    for (uint32_t g = gpu; g < gpu + gpus; g++) {
        uint32_t best = UINT32_MAX, most = 0;
        for (uint32_t o = other; o < other + gpus; o++) {
            if (taken[o] || slots_of(shape, o) != slots_of(shape, g))
                continue;
            const uint32_t common = overlap(shape, placement, g, from, o);
            if (best == UINT32_MAX || common > most) {
                best = o;
                most = common;
            }
        }
        place_of[g] = best;
        taken[best] = true;
    }
}

/* place_of[n] becomes the node of `from` that has most experts in common with node n of `placement`, among those that
   are not taken yet. */
static void match_nodes(const BalanceShape *shape, const uint32_t *from, const uint32_t *placement, uint32_t *place_of,
                        Arena *arena)
{
    const uint32_t nodes = nodes_of(shape), gpus = shape->gpus / nodes;
    uint32_t *new_node = arena_array(arena, shape->experts, sizeof *new_node);
    uint32_t *old_node = arena_array(arena, shape->experts, sizeof *old_node);
    uint32_t *common = arena_array(arena, (size_t)nodes * nodes, sizeof *common);
    bool *taken = arena_array(arena, nodes, sizeof *taken);
    for (uint32_t gpu = 0; gpu < shape->gpus; gpu++)
        for (uint32_t slot = balance_first_slot(shape, gpu); slot < balance_first_slot(shape, gpu + 1); slot++) {
            new_node[placement[slot]] = gpu / gpus;
            old_node[from[slot]] = gpu / gpus;
        }
    for (uint32_t e = 0; e < shape->experts; e++)
        common[new_node[e] * nodes + old_node[e]]++;
    for (uint32_t n = 0; n < nodes; n++) {
        uint32_t best = n;
        for (uint32_t o = 0; o < nodes; o++)
            if (!taken[o] && (taken[best] || common[n * nodes + o] > common[n * nodes + best]))
                best = o;
        place_of[n] = best;
        taken[best] = true;
    }
}

void held_match(const BalanceShape *shape, const uint32_t *from, uint32_t *placement, Arena *arena)
{
    const uint32_t nodes = nodes_of(shape), gpus = shape->gpus / nodes;
    uint32_t *node_of = arena_array(arena, nodes, sizeof *node_of);
    uint32_t *place_of = arena_array(arena, shape->gpus, sizeof *place_of);
    uint32_t *matched = arena_array(arena, shape->replicas, sizeof *matched);
    bool *taken = arena_array(arena, shape->gpus, sizeof *taken);
    for (uint32_t n = 0; n < nodes; n++)
        node_of[n] = n;
    if (shape->replicas % shape->gpus == 0)
        match_nodes(shape, from, placement, node_of, arena);
    for (uint32_t n = 0; n < nodes; n++)
        match_gpus(shape, from, placement, n * gpus, node_of[n] * gpus, place_of, taken);
    for (uint32_t g = 0; g < shape->gpus; g++)
        memcpy(matched + balance_first_slot(shape, place_of[g]), placement + balance_first_slot(shape, g),
               slots_of(shape, g) * sizeof *matched);
    memcpy(placement, matched, shape->replicas * sizeof *placement);
}

void held_align(const BalanceShape *shape, const uint32_t *from, uint32_t *placement, Arena *arena)
{
    enum { NONE = UINT32_MAX };
    uint32_t *old = arena_array(arena, shape->replicas, sizeof *old);
    memcpy(old, placement, shape->replicas * sizeof *old);
    for (uint32_t g = 0; g < shape->gpus; g++) {
        const uint32_t first = balance_first_slot(shape, g), end = balance_first_slot(shape, g + 1);
        for (uint32_t slot = first; slot < end; slot++) {
            placement[slot] = NONE;
            for (uint32_t s = first; s < end && placement[slot] == NONE; s++)
                if (old[s] == from[slot]) {
                    placement[slot] = old[s];
                    old[s] = NONE;
                }
        }
        for (uint32_t slot = first, s = first; slot < end; slot++) {
            while (s < end && old[s] == NONE)
                s++;
            if (placement[slot] == NONE)
                placement[slot] = old[s++];
        }
    }
}
