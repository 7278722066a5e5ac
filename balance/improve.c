/* Descent. The fullest GPU swaps a replica for a smaller one of another GPU, so that the larger of the two loads
   becomes as small as possible. If no swap helps, an expert gives one of its slots to another expert: this changes the
   load per replica of both experts on all GPUs, and swaps may help again. */

#include "balance/domain.h"

#include <math.h>
#include <string.h>

enum {
    /* the effort that filling_improve may spend for each slot of the domain, but at least EFFORT_LEAST in all.
       Comparing two slots costs 1; considering the swaps with a GPU also costs the number of GPUs. Considering a change
       costs the number of GPUs plus the replicas of both experts */
    EFFORT = 200,
    EFFORT_LEAST = 50000,
    CHANGES_TRIED = 6,
};

typedef struct Descent {
    const Domain *domain;
    Filling *filling;
    double goal;
    int64_t effort; /* effort that is left */
    int64_t moves;  /* moves that are left; INT32_MAX, as good as unlimited, if there is no current placement */
} Descent;

/* --- swaps --- */

typedef struct Swap {
    uint32_t slot, other;
    double largest; /* the larger load of the two GPUs after the swap */
} Swap;

static int swap_cost(const Descent *d, uint32_t slot, uint32_t other)
{
    const uint32_t *expert = d->filling->expert;
    return filling_cost(d->domain, d->filling, slot, expert[other]) +
           filling_cost(d->domain, d->filling, other, expert[slot]);
}

static bool may_swap(const Descent *d, uint32_t slot, uint32_t other)
{
    const uint32_t *expert = d->filling->expert;
    return filling_may_hold(d->domain, d->filling, slot, expert[other]) &&
           filling_may_hold(d->domain, d->filling, other, expert[slot]) && swap_cost(d, slot, other) <= d->moves;
}

/* Compares all allowed swaps (may_swap) of a slot of GPU `full` with a slot of `gpu`. If one leaves both loads below
   best->largest, `best` becomes the best of these. */
static void consider_gpus(Descent *d, uint32_t full, uint32_t gpu, Swap *best)
{
    const Domain *domain = d->domain;
    const Filling *filling = d->filling;
    const double load = filling->load[full], other_load = filling->load[gpu];
    const uint32_t begin = domain->first[gpu], end = domain->first[gpu + 1];
    for (uint32_t slot = domain->first[full]; slot < domain->first[full + 1]; slot++) {
        const double most = filling->share[slot] - (load - best->largest),
                     least = filling->share[slot] + other_load - best->largest;
        for (uint32_t other = begin; other < end; other++) {
            /* the loads of both GPUs fall below best->largest if the other replica's load is between these two limits
               */
            const double share = filling->share[other];
            if (share < most && share > least && may_swap(d, slot, other)) {
                const double difference = filling->share[slot] - share;
                const double largest = larger_of(load - difference, other_load + difference);
                if (is_less(largest, best->largest))
                    *best = (Swap){slot, other, largest};
            }
        }
    }
    d->effort -= domain->gpus + (int64_t)(domain->first[full + 1] - domain->first[full]) * (end - begin);
}

/* Finds the best swap of a replica of the fullest GPU. False: no swap leaves both GPUs below the present load of the
   fullest one. */
static bool find_swap(Descent *d, Swap *best)
{
    const Domain *domain = d->domain;
    const uint32_t full = filling_fullest(domain, d->filling), lightest = filling_lightest(domain, d->filling);
    const double load = d->filling->load[full];
    *best = (Swap){.slot = domain->slots, .largest = load};
    /* the lightest GPU first: once a swap with it is known, most other GPUs need not be considered */
    consider_gpus(d, full, lightest, best);
    for (uint32_t g = 0; g < domain->gpus; g++)
        if (g != lightest && is_less((load + d->filling->load[g]) / 2, best->largest))
            consider_gpus(d, full, g, best);
    return best->slot < domain->slots;
}

static void swap(Descent *d, const Swap *swap)
{
    d->moves -= swap_cost(d, swap->slot, swap->other);
    filling_swap(d->domain, d->filling, swap->slot, swap->other);
}

static bool is_done(const Descent *d) { return d->effort <= 0 || filling_largest(d->domain, d->filling) <= d->goal; }

static void descend(Descent *d)
{
    for (Swap best; !is_done(d) && find_swap(d, &best);)
        swap(d, &best);
}

/* --- counts --- */

/* A change: the slot gets another expert. So two experts get another number of replicas; in a swap none does. */
typedef struct Change {
    uint32_t slot, expert;
    double largest; /* the largest load of all GPUs after the change */
} Change;

/* For each expert a linked list of its slots. */
typedef struct Chains {
    /* head[expert]: the expert's first slot; next[slot]: the next slot with the same expert. After the last slot of a
       list comes domain->slots, which is no slot */
    uint32_t *head, *next;
    double *load; /* [gpus] */
} Chains;

static void link_slots(const Descent *d, const Chains *chains)
{
    const uint32_t none = d->domain->slots;
    for (uint32_t e = 0; e < d->domain->experts; e++)
        chains->head[e] = none;
    for (uint32_t slot = none; slot-- > 0;) {
        chains->next[slot] = chains->head[d->filling->expert[slot]];
        chains->head[d->filling->expert[slot]] = slot;
    }
}

/* The largest load of a GPU if the slot gets the expert. */
static double load_after(Descent *d, const Chains *chains, uint32_t slot, uint32_t expert)
{
    const Domain *domain = d->domain;
    const Filling *filling = d->filling;
    const uint32_t old = filling->expert[slot];
    const double old_share = domain->loads[old] / (filling->count[old] - 1);
    const double new_share = domain->loads[expert] / (filling->count[expert] + 1);
    const double rise = old_share - filling->share[slot];
    memcpy(chains->load, filling->load, domain->gpus * sizeof *chains->load);
    chains->load[domain->gpu_of[slot]] += new_share - old_share;
    for (uint32_t s = chains->head[old]; s < domain->slots; s = chains->next[s])
        chains->load[domain->gpu_of[s]] += rise;
    for (uint32_t s = chains->head[expert]; s < domain->slots; s = chains->next[s])
        chains->load[domain->gpu_of[s]] += new_share - filling->share[s];
    double largest = 0;
    for (uint32_t g = 0; g < domain->gpus; g++)
        largest = larger_of(largest, chains->load[g]);
    d->effort -= domain->gpus + filling->count[old] + filling->count[expert];
    return largest;
}

static void consider_change(Descent *d, const Chains *chains, uint32_t slot, uint32_t expert, Change *best)
{
    if (expert == d->filling->expert[slot] || !filling_may_hold(d->domain, d->filling, slot, expert) ||
        filling_cost(d->domain, d->filling, slot, expert) > d->moves)
        return;
    Change change = {slot, expert, load_after(d, chains, slot, expert)};
    for (int i = 0; i < CHANGES_TRIED; i++)
        if (change.largest < best[i].largest) {
            const Change pushed = best[i];
            best[i] = change;
            change = pushed;
        }
}

/* Finds the CHANGES_TRIED best changes that may reduce the load of the fullest GPU: another expert in one of its slots,
   or a further replica of one of its experts on another GPU. If there are fewer, the others have the largest load
   INFINITY. */
static void find_changes(Descent *d, const Chains *chains, Change *best)
{
    const Domain *domain = d->domain;
    const Filling *filling = d->filling;
    const uint32_t full = filling_fullest(domain, filling);
    for (int i = 0; i < CHANGES_TRIED; i++)
        best[i] = (Change){.largest = INFINITY};
    link_slots(d, chains);
    for (uint32_t slot = 0; slot < domain->slots && d->effort > 0; slot++) {
        if (filling->count[filling->expert[slot]] == 1)
            continue;
        if (domain->gpu_of[slot] == full)
            for (uint32_t e = 0; e < domain->experts; e++)
                consider_change(d, chains, slot, e, best);
        else
            for (uint32_t s = domain->first[full]; s < domain->first[full + 1]; s++)
                consider_change(d, chains, slot, filling->expert[s], best);
    }
}

static void change(Descent *d, const Change *change)
{
    d->moves -= filling_cost(d->domain, d->filling, change->slot, change->expert);
    d->filling->expert[change->slot] = change->expert;
    filling_update(d->domain, d->filling);
}

/* Tries the best changes in turn, each followed by swaps, and keeps the first that reduces the largest load. False:
   none does, and the filling is as before. */
static bool change_counts(Descent *d, const Chains *chains, Filling *before)
{
    Change best[CHANGES_TRIED];
    const double largest = filling_largest(d->domain, d->filling);
    const int64_t moves = d->moves;
    find_changes(d, chains, best);
    filling_copy(d->domain, before, d->filling);
    for (int i = 0; i < CHANGES_TRIED && best[i].largest < INFINITY; i++) {
        change(d, &best[i]);
        descend(d);
        if (is_less(filling_largest(d->domain, d->filling), largest))
            return true;
        filling_copy(d->domain, d->filling, before);
        d->moves = moves;
    }
    return false;
}

/* --- swaps and changes --- */

static Descent descent_new(const Domain *domain, Filling *filling, double goal)
{
    const int64_t effort = (int64_t)EFFORT * domain->slots;
    return (Descent){.domain = domain,
                     .filling = filling,
                     .goal = goal,
                     .effort = effort < EFFORT_LEAST ? EFFORT_LEAST : effort,
                     .moves = domain->held ? (int64_t)domain->moves - filling_moves(domain, filling) : INT32_MAX};
}

static Chains chains_new(const Domain *domain, Arena *arena)
{
    return (Chains){arena_array(arena, domain->experts, sizeof(uint32_t)),
                    arena_array(arena, domain->slots, sizeof(uint32_t)),
                    arena_array(arena, domain->gpus, sizeof(double))};
}

static void improve(Descent *d, const Chains *chains, Arena *arena)
{
    Filling before = filling_new(d->domain, arena);
    descend(d);
    while (!is_done(d) && change_counts(d, chains, &before))
        descend(d);
    filling_update(d->domain, d->filling);
}

void filling_improve(const Domain *domain, Filling *filling, double goal, Arena *arena)
{
    Descent d = descent_new(domain, filling, goal);
    const Chains chains = chains_new(domain, arena);
    improve(&d, &chains, arena);
}

/* The largest load of all GPUs after a swap. */
static double load_after_swap(const Descent *d, const Swap *swap)
{
    double largest = swap->largest;
    for (uint32_t g = 0; g < d->domain->gpus; g++)
        if (g != d->domain->gpu_of[swap->slot] && g != d->domain->gpu_of[swap->other])
            largest = larger_of(largest, d->filling->load[g]);
    return largest;
}

/* Makes the best swap or the best change, whichever reduces the largest load more per move. False: no swap lowers the
   load of the fullest GPU, and no change reduces the largest load. */
static bool step(Descent *d, const Chains *chains)
{
    const double largest = filling_largest(d->domain, d->filling);
    Swap best_swap;
    Change best[CHANGES_TRIED];
    const bool swaps = find_swap(d, &best_swap);
    find_changes(d, chains, best);
    const bool changes = is_less(best[0].largest, largest);
    double of_swap = 0, of_change = 0;
    if (swaps)
        of_swap =
            (largest - load_after_swap(d, &best_swap)) / larger_of(1, swap_cost(d, best_swap.slot, best_swap.other));
    if (changes)
        of_change = (largest - best[0].largest) /
                    larger_of(1, filling_cost(d->domain, d->filling, best[0].slot, best[0].expert));
    if (changes && of_change >= of_swap)
        change(d, &best[0]);
    else if (swaps)
        swap(d, &best_swap);
    return swaps || changes;
}

void filling_improve_held(const Domain *domain, Filling *filling, double goal, Arena *arena)
{
    enum { PATIENCE = 20 }; /* this function may spend this many times the effort of filling_improve */
    Descent d = descent_new(domain, filling, goal);
    const Chains chains = chains_new(domain, arena);
    d.effort *= PATIENCE;
    while (!is_done(&d) && d.moves > 0 && step(&d, &chains))
        ;
    improve(&d, &chains, arena);
}
