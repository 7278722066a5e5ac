/* Places the experts of a layer. A hierarchical placement is solved node by node, for several partitions of the groups
   among the nodes; a global one is solved for all GPUs at once. A part that is solved by itself is a Domain
   (domain.h). */

#include "balance/balance.h"

#include "balance/domain.h"
#include "balance/groups.h"
#include "balance/held.h"
#include "base/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* limits the search roughly: (number of partitions of the groups that are tried) * (slots of the layer) */
enum { SLOTS_TRIED = 1024 };

/* The layer that is being placed. */
typedef struct Layer {
    const BalanceShape *shape; /* for a global placement a copy with groups = nodes = 1 */
    const double *loads;       /* [experts] */
    bool distinct;
    int64_t steps; /* how many steps the exact search may still take */
    Arena *arena;
} Layer;

/* How good a placement of one node or of all nodes is. largest: the largest load of a GPU; bound: a lower bound of this
   load over all placements with the same experts on each node. The result of solve_layer has a lower bound over all
   placements of the layer. */
typedef struct Solution {
    double largest, bound;
    /* the largest load of a GPU in the best placement without an expert twice on a GPU; INFINITY: none was found */
    double largest_distinct;
} Solution;

/* The GPUs first_gpu to first_gpu + gpus - 1, which hold `count` experts with these loads. */
static Domain domain_of(Layer *layer, uint32_t first_gpu, uint32_t gpus, const double *loads, uint32_t count)
{
    const uint32_t start = balance_first_slot(layer->shape, first_gpu);
    uint32_t *first = arena_array(layer->arena, (size_t)gpus + 1, sizeof *first);
    for (uint32_t g = 0; g <= gpus; g++)
        first[g] = balance_first_slot(layer->shape, first_gpu + g) - start;
    Domain domain = domain_new(count, loads, gpus, first, &layer->steps, layer->arena);
    domain.distinct = layer->distinct;
    return domain;
}

/* Places the `count` experts of one node. Writes the node's part of two placements of the layer, each [replicas]: the
   best one found, and into `distinct` the best one found without an expert twice on a GPU; if none was found,
   `distinct` gets some placement. */
static Solution solve_node(Layer *layer, uint32_t node, const uint32_t *experts, uint32_t count, uint32_t *placement,
                           uint32_t *distinct)
{
    const uint32_t gpus = layer->shape->gpus / layer->shape->nodes;
    const uint32_t start = balance_first_slot(layer->shape, node * gpus);
    double *loads = arena_array(layer->arena, count, sizeof *loads);
    for (uint32_t i = 0; i < count; i++)
        loads[i] = layer->loads[experts[i]];
    const Domain domain = domain_of(layer, node * gpus, gpus, loads, count);
    Filling any = filling_new(&domain, layer->arena), apart = filling_new(&domain, layer->arena);
    Solution solution = {.largest_distinct = INFINITY};
    solution.bound = domain_solve(&domain, &any, &apart, layer->arena);
    solution.largest = filling_largest(&domain, &any);
    if (filling_is_distinct(&domain, &apart))
        solution.largest_distinct = filling_largest(&domain, &apart);
    for (uint32_t slot = 0; slot < domain.slots; slot++) {
        placement[start + slot] = experts[any.expert[slot]];
        distinct[start + slot] = experts[apart.expert[slot]];
    }
    return solution;
}

/* Writes the experts of all groups that node_of puts on `node`, and returns their number. */
static uint32_t experts_of(const BalanceShape *shape, const uint32_t *node_of, uint32_t node, uint32_t *experts)
{
    const uint32_t size = shape->experts / shape->groups;
    uint32_t count = 0;
    for (uint32_t g = 0; g < shape->groups; g++)
        for (uint32_t i = 0; node_of[g] == node && i < size; i++)
            experts[count++] = g * size + i;
    return count;
}

/* Places the experts of all nodes. node_of: [groups], the node of each group. Stops after the first node on which a GPU
   has a load above `most`; the placement may then be incomplete. */
static Solution solve_nodes(Layer *layer, const uint32_t *node_of, double most, uint32_t *placement)
{
    const BalanceShape *shape = layer->shape;
    uint32_t *experts = arena_array(layer->arena, shape->experts, sizeof *experts);
    uint32_t *distinct = arena_array(layer->arena, shape->replicas, sizeof *distinct);
    Solution *nodes = arena_array(layer->arena, shape->nodes, sizeof *nodes), all = {0, 0, 0};
    for (uint32_t n = 0; n < shape->nodes && all.largest <= most; n++) {
        const uint32_t count = experts_of(shape, node_of, n, experts);
        nodes[n] = solve_node(layer, n, experts, count, placement, distinct);
        all.largest = larger_of(all.largest, nodes[n].largest);
        all.bound = larger_of(all.bound, nodes[n].bound);
        all.largest_distinct = larger_of(all.largest_distinct, nodes[n].largest_distinct);
    }
    for (uint32_t n = 0; n < shape->nodes && all.largest <= most; n++) {
        const uint32_t gpus = shape->gpus / shape->nodes, start = balance_first_slot(shape, n * gpus);
        /* the placement without duplicates on this node does not raise the largest load */
        if (!is_less(all.largest, nodes[n].largest_distinct))
            memcpy(placement + start, distinct + start,
                   (balance_first_slot(shape, (n + 1) * gpus) - start) * sizeof *placement);
    }
    return all;
}

static bool has_duplicates(const Solution *solution) { return is_less(solution->largest, solution->largest_distinct); }

/* Whether `one` is better than `other`: its largest load is smaller or, if both are equal, only `other` has an expert
   twice on a GPU. */
static bool is_better(const Solution *one, const Solution *other)
{
    return is_less(one->largest, other->largest) ||
           (!is_less(other->largest, one->largest) && has_duplicates(other) && !has_duplicates(one));
}

typedef struct ExpertLoad {
    double load;
    uint32_t group;
} ExpertLoad;

static int by_load(const void *left, const void *right)
{
    const double one = ((const ExpertLoad *)left)->load, other = ((const ExpertLoad *)right)->load;
    return (one > other) - (one < other);
}

/* A lower bound of the largest load of a GPU over all partitions, at most `known`: the larger one of that of all
   experts on all GPUs, and of that of the node of each group. The other experts of this node have at least the loads of
   the least loaded experts of other groups. */
static double bound_of_partitions(Layer *layer, double known)
{
    const BalanceShape *shape = layer->shape;
    const uint32_t gpus = shape->gpus / shape->nodes, size = shape->experts / shape->groups;
    const uint32_t count = shape->experts / shape->nodes, kinds = shape->replicas % shape->gpus ? shape->nodes : 1;
    const Domain all = domain_of(layer, 0, shape->gpus, layer->loads, shape->experts);
    double bound = domain_bound(&all, known, layer->arena);
    double *loads = arena_array(layer->arena, count, sizeof *loads);
    ExpertLoad *sorted = arena_array(layer->arena, shape->experts, sizeof *sorted);
    for (uint32_t e = 0; e < shape->experts; e++)
        sorted[e] = (ExpertLoad){layer->loads[e], e / size};
    qsort(sorted, shape->experts, sizeof *sorted, by_load);
    for (uint32_t group = 0; group < shape->groups && is_less(bound, known); group++) {
        double of_group = known;
        uint32_t used = size;
        memcpy(loads, layer->loads + (size_t)group * size, size * sizeof *loads);
        for (uint32_t i = 0; used < count; i++)
            if (sorted[i].group != group)
                loads[used++] = sorted[i].load;
        for (uint32_t node = 0; node < kinds && is_less(bound, of_group); node++) {
            const Domain domain = domain_of(layer, node * gpus, gpus, loads, count);
            of_group = fmin(of_group, domain_bound(&domain, known, layer->arena));
        }
        bound = larger_of(bound, of_group);
    }
    return bound;
}

static Solution solve_layer(Layer *layer, uint32_t *placement)
{
    const BalanceShape *shape = layer->shape;
    const uint32_t gpus = shape->gpus / shape->nodes, most = 1 + SLOTS_TRIED / shape->replicas;
    const Partitions partitions = groups_partitions(shape, layer->loads, layer->arena);
    uint32_t *tried = arena_array(layer->arena, shape->replicas, sizeof *tried);
    Solution best = {INFINITY, INFINITY, INFINITY};
    double bound = INFINITY;
    uint32_t i = 0;
    for (; i < partitions.count && i < most; i++) {
        /* a lower bound of the largest load of a GPU in this partition */
        const double least = partitions.largest[i] / gpus;
        if (has_duplicates(&best) ? is_less(best.largest, least) : !is_less(least, best.largest))
            break;
        const uint32_t *node_of = partitions.node_of + (size_t)i * shape->groups;
        const Solution one = solve_nodes(layer, node_of, best.largest * (1 + equal_loads), tried);
        bound = fmin(bound, one.bound);
        if (is_better(&one, &best)) {
            best = one;
            memcpy(placement, tried, shape->replicas * sizeof *tried);
        }
    }
    const double others = i < partitions.count ? partitions.largest[i] : partitions.others;
    best.bound = fmin(best.largest, fmin(bound, others / gpus));
    if (shape->nodes > 1 && is_less(best.bound, best.largest))
        best.bound = larger_of(best.bound, bound_of_partitions(layer, best.largest));
    return best;
}

/* Replaces the placement by the one that balance_eplb makes, if balance_eplb accepts the shape and its placement has a
   higher balance. Returns that balance; 0: balance_eplb does not accept the shape. */
static double keep_better(const BalanceShape *shape, const double *loads, uint32_t *placement, Arena *arena)
{
    Error error;
    if (balance_check(shape, true, &error) != STATUS_OK)
        return 0;
    uint32_t *published = arena_array(arena, shape->replicas, sizeof *published);
    balance_eplb(shape, 1, loads, published, arena);
    const double balance = balance_of(shape, loads, published, arena);
    if (is_less(balance_of(shape, loads, placement, arena), balance))
        memcpy(placement, published, shape->replicas * sizeof *placement);
    return balance;
}

/* Sorts the slots of each GPU by expert. */
static void sort_slots(const BalanceShape *shape, uint32_t *placement)
{
    for (uint32_t g = 0; g < shape->gpus; g++) {
        const uint32_t first = balance_first_slot(shape, g);
        qsort(placement + first, balance_first_slot(shape, g + 1) - first, sizeof *placement, compare_uint32);
    }
}

/* Finds a placement without regard to a current one. *published becomes the balance of balance_eplb; 0: it does not
   accept the request. Returns a lower bound of the largest load of a GPU. */
static double place_anew(const BalanceShape *shape, bool distinct, const double *loads, uint32_t *placement,
                         double *published, Arena *arena)
{
    BalanceShape parts = *shape;
    if (!balance_is_hierarchical(shape))
        parts.groups = parts.nodes = 1;
    Layer layer = {&parts, loads, distinct, BALANCE_STEPS, arena};
    const Solution solution = solve_layer(&layer, placement);
    *published = distinct ? 0 : keep_better(shape, loads, placement, arena);
    sort_slots(shape, placement);
    return solution.bound;
}

/* Writes one of three placements: the current one; the current one improved by at most request->moves moves; or
   `anew`, after its GPUs and slots were renumbered to match the current one, if that takes at most request->moves
   moves. published: the balance of balance_eplb. */
static Status place_from(const BalanceShape *shape, const BalanceRequest *request, const double *loads, double bound,
                         double published, uint32_t *anew, uint32_t *placement, Arena *arena, Error *error)
{
    static const double alike = 1e-3; /* balances that differ by less count as equal: fewer moves then decide */
    const uint32_t *from = request->from;
    const size_t bytes = shape->replicas * sizeof *placement;
    TRY(held_improve(shape, request, loads, bound, placement, arena, error));
    held_match(shape, from, anew, arena);
    double balance = balance_of(shape, loads, placement, arena);
    const double other = balance_of(shape, loads, anew, arena);
    const uint32_t moves = balance_moves(shape, from, placement, arena),
                   doubles = balance_duplicates(shape, from, arena);
    const uint32_t others = balance_moves(shape, from, anew, arena);
    if (others <= request->moves &&
        (other > balance + alike || is_less(balance, published) || (others < moves && other > balance - alike))) {
        memcpy(placement, anew, bytes);
        balance = other;
    }
    const double rise = balance - balance_of(shape, loads, from, arena);
    if ((!request->distinct || !doubles) && (rise <= 0 || rise < request->threshold))
        memcpy(placement, from, bytes);
    held_align(shape, from, placement, arena);
    return STATUS_OK;
}

static Status check_distinct(const BalanceShape *shape, Error *error)
{
    const uint32_t gpus = balance_is_hierarchical(shape) ? shape->gpus / shape->nodes : shape->gpus;
    if (shape->replicas <= (uint64_t)shape->experts * gpus)
        return STATUS_OK;
    return error_set(error, STATUS_BAD_USAGE, "%s: %s%u is too large; one copy of each expert on each GPU%s makes %llu",
                     front_name(shape->front_end, SET_DISTINCT), front_before(shape->front_end, SET_REPLICAS),
                     shape->replicas, gpus < shape->gpus ? " of its node" : "",
                     (unsigned long long)shape->experts * gpus);
}

Status balance_best(const BalanceShape *shape, const BalanceRequest *request, const double *loads, uint32_t *placement,
                    double *bound, Arena *arena, Error *error)
{
    if (request->distinct)
        TRY(check_distinct(shape, error));
    uint32_t *anew = arena_array(arena, shape->replicas, sizeof *anew);
    double published;
    const double least = place_anew(shape, request->distinct, loads, anew, &published, arena);
    *bound = balance_of_largest(shape, loads, least);
    if (!request->from && least <= 0)
        balance_in_order(shape, anew);
    if (request->from)
        return place_from(shape, request, loads, least, published, anew, placement, arena, error);
    memcpy(placement, anew, shape->replicas * sizeof *placement);
    return STATUS_OK;
}

Status balance_layer(const BalanceShape *shape, const BalanceRequest *request, bool eplb, const double *loads,
                     uint32_t *before, uint32_t *placement, LayerBalance *layer, Arena *arena, Error *error)
{
    if (request->from)
        memcpy(before, request->from, shape->replicas * sizeof *before);
    else
        balance_in_order(shape, before);
    TRY(balance_best(shape, request, loads, placement, &layer->bound, arena, error));
    if (eplb)
        balance_eplb(shape, 1, loads, placement, arena);
    layer->before = balance_of(shape, loads, before, arena);
    layer->after = balance_of(shape, loads, placement, arena);
    layer->moves = balance_moves(shape, before, placement, arena);
    return STATUS_OK;
}
