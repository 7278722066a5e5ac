#ifndef BALANCE_DOMAIN_H
#define BALANCE_DOMAIN_H

/* A part of a layer that is placed by itself: the experts of a node on its GPUs, or all experts on all GPUs.
   Experts, GPUs and slots are numbered from 0 within it. */

#include "runtime/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { BALANCE_STEPS = 300000 }; /* of exact search for a layer: some ten milliseconds */

typedef struct Domain {
    uint32_t experts, gpus, slots;
    const double *loads;    /* [experts] */
    const uint32_t *first;  /* [gpus + 1]: the first slot of each GPU */
    const uint32_t *gpu_of; /* [slots] */
    bool distinct;          /* no expert twice on a GPU */
    int64_t *steps;         /* that filling_exact may still take, in all domains of a layer together */
    /* where a placement is in force; else NULL */
    const uint32_t *held; /* [slots]: what is there now */
    uint32_t moves;       /* slots that may get an expert that their GPU does not hold now */
    const uint32_t *home; /* [experts]: an expert stays on this node; NULL: on any */
    uint32_t node_gpus;   /* GPUs of a node */
} Domain;

/* Which expert is in which slot, and what follows from it. */
typedef struct Filling {
    uint32_t *expert; /* [slots] */
    uint32_t *count;  /* [experts]: replicas */
    double *share;    /* [slots]: load of the replica there */
    double *load;     /* [gpus] */
} Filling;

/* Loads that differ by this part or less count as equal: the same loads, added in another order, do. */
static const double equal_loads = 1e-12;

static inline bool is_less(double load, double than) { return load < than * (1 - equal_loads); }

static inline double larger_of(double one, double other) { return one > other ? one : other; }

/* GPU g has the slots first[g] to first[g + 1] - 1. The arrays stay the caller's. */
Domain domain_new(uint32_t experts, const double *loads, uint32_t gpus, const uint32_t *first, int64_t *steps,
                  Arena *arena);
double domain_mean(const Domain *domain);

Filling filling_new(const Domain *domain, Arena *arena);
void filling_copy(const Domain *domain, Filling *to, const Filling *from);
/* Counts, shares and loads anew, from the experts. */
void filling_update(const Domain *domain, Filling *filling);
uint32_t filling_lightest(const Domain *domain, const Filling *filling);
uint32_t filling_fullest(const Domain *domain, const Filling *filling);
double filling_largest(const Domain *domain, const Filling *filling);
/* Whether the GPU has the expert in a slot other than `except`. */
bool filling_holds(const Domain *domain, const Filling *filling, uint32_t gpu, uint32_t expert, uint32_t except);
bool filling_is_distinct(const Domain *domain, const Filling *filling);
void filling_swap(const Domain *domain, Filling *filling, uint32_t slot, uint32_t other);

/* Replicas as EPLB gives them, by falling share to the lightest GPU with room; no expert twice on a GPU where that
   is possible. */
void filling_start(const Domain *domain, Filling *filling, Arena *arena);

/* No filling has a smaller largest load of a GPU than what this returns, at most `known`, which a filling has. */
double domain_bound(const Domain *domain, double known, Arena *arena);

/* Swaps and, where these no longer help, other counts of replicas, until the largest load is at most `goal` or the
   effort is spent. The largest load never grows. */
void filling_improve(const Domain *domain, Filling *filling, double goal, Arena *arena);

/* The same from a placement in force, `held`, that the filling has: each step is the one that wins most for a move. */
void filling_improve_held(const Domain *domain, Filling *filling, double goal, Arena *arena);
/* Moves from the placement in force: slots whose expert the GPU does not hold there. */
uint32_t filling_moves(const Domain *domain, const Filling *filling);
/* By how many these grow, or fall, if the slot gets the expert. */
int filling_cost(const Domain *domain, const Filling *filling, uint32_t slot, uint32_t expert);
/* Whether the expert may be on the GPU, in the place of what is in the slot. */
bool filling_may_hold(const Domain *domain, const Filling *filling, uint32_t slot, uint32_t expert);

/* All fillings of a small domain, without those that cannot be better than `filling`, which becomes the best. False:
   there are too many, and `filling` is the best of those that were tried. */
bool filling_exact(const Domain *domain, Filling *filling, Arena *arena);

/* All of the above: the best filling that is found, and the best without an expert twice on a GPU, if there is one.
   Returns a bound of the largest load. */
double domain_solve(const Domain *domain, Filling *filling, Filling *distinct, Arena *arena);

#endif
