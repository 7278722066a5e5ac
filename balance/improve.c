/* Descent. The fullest GPU swaps a replica for a smaller one of another GPU, whichever makes the larger of the two
   loads smallest. Where no swap helps, an expert gives one of its slots to another expert: this changes the shares
   of both everywhere, and swaps may help again. */

#include "balance/domain.h"

#include <math.h>
#include <string.h>

enum {
    EFFORT = 200, /* for each slot: pairs of slots compared, or GPUs counted; */
    EFFORT_LEAST = 50000,
    CHANGES_TRIED = 6,
};

typedef struct Descent {
    const Domain *domain;
    Filling *filling;
    double goal;
    bool duplicates; /* may arise */
    int64_t effort;  /* left */
} Descent;

/* --- swaps --- */

typedef struct Swap {
    uint32_t slot, other;
    double largest; /* of the two GPUs, afterwards */
} Swap;

static bool may_swap(const Descent *d, uint32_t slot, uint32_t other)
{
    const Domain *domain = d->domain;
    const uint32_t *expert = d->filling->expert;
    return d->duplicates || (!filling_holds(domain, d->filling, domain->gpu_of[other], expert[slot], other) &&
                             !filling_holds(domain, d->filling, domain->gpu_of[slot], expert[other], slot));
}

/* Better ones than `best` of two GPUs. */
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
            /* both loads afterwards are below the best so far if the other share is between these */
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

static bool swap_once(Descent *d)
{
    const Domain *domain = d->domain;
    const uint32_t full = filling_fullest(domain, d->filling);
    const double load = d->filling->load[full];
    Swap best = {.slot = domain->slots, .largest = load};
    const uint32_t lightest = filling_lightest(domain, d->filling);
    consider_gpus(d, full, lightest, &best); /* first: most of the others can be no better then */
    for (uint32_t g = 0; g < domain->gpus; g++)
        if (g != lightest && is_less((load + d->filling->load[g]) / 2, best.largest))
            consider_gpus(d, full, g, &best);
    if (best.slot == domain->slots)
        return false;
    filling_swap(domain, d->filling, best.slot, best.other);
    return true;
}

static bool is_done(const Descent *d) { return d->effort <= 0 || filling_largest(d->domain, d->filling) <= d->goal; }

static void descend(Descent *d)
{
    while (!is_done(d) && swap_once(d))
        ;
}

/* --- counts --- */

/* Another expert in a slot. */
typedef struct Change {
    uint32_t slot, expert;
    double largest; /* of all GPUs, afterwards */
} Change;

/* The slots of each expert. */
typedef struct Chains {
    uint32_t *head, *next; /* [experts], [slots]; `slots` ends a chain */
    double *load;          /* [gpus] */
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

/* The largest load after a change. */
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
    const uint32_t gpu = d->domain->gpu_of[slot];
    if (expert == d->filling->expert[slot] ||
        (!d->duplicates && filling_holds(d->domain, d->filling, gpu, expert, slot)))
        return;
    Change change = {slot, expert, load_after(d, chains, slot, expert)};
    for (int i = 0; i < CHANGES_TRIED; i++)
        if (change.largest < best[i].largest) {
            const Change pushed = best[i];
            best[i] = change;
            change = pushed;
        }
}

/* Those that may relieve the fullest GPU: a smaller expert in one of its slots, or a further replica of one of its
   experts. */
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

/* Whether one of the changes, and swaps after it, make the largest load smaller; else nothing has changed. */
static bool change_counts(Descent *d, const Chains *chains, Filling *before)
{
    Change best[CHANGES_TRIED];
    const double largest = filling_largest(d->domain, d->filling);
    find_changes(d, chains, best);
    filling_copy(d->domain, before, d->filling);
    for (int i = 0; i < CHANGES_TRIED && best[i].largest < INFINITY; i++) {
        d->filling->expert[best[i].slot] = best[i].expert;
        filling_update(d->domain, d->filling);
        descend(d);
        if (is_less(filling_largest(d->domain, d->filling), largest))
            return true;
        filling_copy(d->domain, d->filling, before);
    }
    return false;
}

void filling_improve(const Domain *domain, Filling *filling, double goal, Arena *arena)
{
    Descent d = {domain, filling, goal, !domain->distinct, (int64_t)EFFORT * domain->slots};
    d.effort = d.effort < EFFORT_LEAST ? EFFORT_LEAST : d.effort;
    descend(&d);
    if (is_done(&d))
        return;
    Filling before = filling_new(domain, arena);
    const Chains chains = {arena_array(arena, domain->experts, sizeof(uint32_t)),
                           arena_array(arena, domain->slots, sizeof(uint32_t)),
                           arena_array(arena, domain->gpus, sizeof(double))};
    while (!is_done(&d) && change_counts(&d, &chains, &before))
        descend(&d);
    filling_update(domain, filling);
}
