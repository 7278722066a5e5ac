#include "balance/domain.h"

#include <string.h>

Domain domain_new(uint32_t experts, const double *loads, uint32_t gpus, const uint32_t *first, int64_t *steps,
                  Arena *arena)
{
    uint32_t *gpu_of = arena_array(arena, first[gpus], sizeof *gpu_of);
    for (uint32_t g = 0; g < gpus; g++)
        for (uint32_t slot = first[g]; slot < first[g + 1]; slot++)
            gpu_of[slot] = g;
    return (Domain){.experts = experts,
                    .gpus = gpus,
                    .slots = first[gpus],
                    .loads = loads,
                    .first = first,
                    .gpu_of = gpu_of,
                    .steps = steps};
}

double domain_mean(const Domain *domain)
{
    double sum = 0;
    for (uint32_t e = 0; e < domain->experts; e++)
        sum += domain->loads[e];
    return sum / domain->gpus;
}

Filling filling_new(const Domain *domain, Arena *arena)
{
    return (Filling){.expert = arena_array(arena, domain->slots, sizeof(uint32_t)),
                     .count = arena_array(arena, domain->experts, sizeof(uint32_t)),
                     .share = arena_array(arena, domain->slots, sizeof(double)),
                     .load = arena_array(arena, domain->gpus, sizeof(double))};
}

void filling_copy(const Domain *domain, Filling *to, const Filling *from)
{
    memcpy(to->expert, from->expert, domain->slots * sizeof *to->expert);
    memcpy(to->count, from->count, domain->experts * sizeof *to->count);
    memcpy(to->share, from->share, domain->slots * sizeof *to->share);
    memcpy(to->load, from->load, domain->gpus * sizeof *to->load);
}

void filling_update(const Domain *domain, Filling *filling)
{
    memset(filling->count, 0, domain->experts * sizeof *filling->count);
    memset(filling->load, 0, domain->gpus * sizeof *filling->load);
    for (uint32_t slot = 0; slot < domain->slots; slot++)
        filling->count[filling->expert[slot]]++;
    for (uint32_t slot = 0; slot < domain->slots; slot++) {
        const uint32_t e = filling->expert[slot];
        filling->share[slot] = domain->loads[e] / filling->count[e];
        filling->load[domain->gpu_of[slot]] += filling->share[slot];
    }
}

uint32_t filling_lightest(const Domain *domain, const Filling *filling)
{
    uint32_t lightest = 0;
    for (uint32_t g = 1; g < domain->gpus; g++)
        if (filling->load[g] < filling->load[lightest])
            lightest = g;
    return lightest;
}

uint32_t filling_fullest(const Domain *domain, const Filling *filling)
{
    uint32_t fullest = 0;
    for (uint32_t g = 1; g < domain->gpus; g++)
        if (filling->load[g] > filling->load[fullest])
            fullest = g;
    return fullest;
}

double filling_largest(const Domain *domain, const Filling *filling)
{
    return filling->load[filling_fullest(domain, filling)];
}

bool filling_holds(const Domain *domain, const Filling *filling, uint32_t gpu, uint32_t expert, uint32_t except)
{
    for (uint32_t slot = domain->first[gpu]; slot < domain->first[gpu + 1]; slot++)
        if (filling->expert[slot] == expert && slot != except)
            return true;
    return false;
}

bool filling_is_distinct(const Domain *domain, const Filling *filling)
{
    for (uint32_t slot = 0; slot < domain->slots; slot++)
        if (filling->count[filling->expert[slot]] > 1 &&
            filling_holds(domain, filling, domain->gpu_of[slot], filling->expert[slot], slot))
            return false;
    return true;
}

void filling_swap(const Domain *domain, Filling *filling, uint32_t slot, uint32_t other)
{
    const uint32_t expert = filling->expert[slot];
    const double share = filling->share[slot], difference = share - filling->share[other];
    filling->load[domain->gpu_of[slot]] -= difference;
    filling->load[domain->gpu_of[other]] += difference;
    filling->expert[slot] = filling->expert[other];
    filling->share[slot] = filling->share[other];
    filling->expert[other] = expert;
    filling->share[other] = share;
}

static bool is_new(const Domain *domain, uint32_t gpu, uint32_t expert)
{
    for (uint32_t slot = domain->first[gpu]; slot < domain->first[gpu + 1]; slot++)
        if (domain->held[slot] == expert)
            return false;
    return true;
}

int filling_cost(const Domain *domain, const Filling *filling, uint32_t slot, uint32_t expert)
{
    const uint32_t gpu = domain->gpu_of[slot];
    return domain->held ? is_new(domain, gpu, expert) - is_new(domain, gpu, filling->expert[slot]) : 0;
}

uint32_t filling_moves(const Domain *domain, const Filling *filling)
{
    uint32_t moves = 0;
    for (uint32_t slot = 0; domain->held && slot < domain->slots; slot++)
        moves += is_new(domain, domain->gpu_of[slot], filling->expert[slot]);
    return moves;
}

bool filling_may_hold(const Domain *domain, const Filling *filling, uint32_t slot, uint32_t expert)
{
    const uint32_t gpu = domain->gpu_of[slot];
    return (!domain->home || domain->home[expert] == gpu / domain->node_gpus) &&
           !(domain->distinct && filling_holds(domain, filling, gpu, expert, slot));
}
