#ifndef BALANCE_DOMAIN_H
#define BALANCE_DOMAIN_H

/* A part of a layer that is placed by itself: the experts of a node on its GPUs, or all experts on all GPUs.
   Experts, GPUs and slots are numbered from 0 within it. */

#include "runtime/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { BALANCE_STEPS = 300000 }; /* of the exact search for a layer: about ten milliseconds */

typedef struct Domain {
    uint32_t experts, gpus, slots;
    const double *loads;    /* [experts] */
    const uint32_t *first;  /* [gpus + 1]: the first slot of each GPU */
    const uint32_t *gpu_of; /* [slots] */
    bool distinct;          /* no expert twice on a GPU */
    int64_t *steps;         /* steps that filling_exact may still take, in all domains of a layer together */
    /* NULL without a current placement */
    const uint32_t *held; /* [slots]: the current experts */
    uint32_t moves;       /* number of slots that may get an expert that their GPU does not hold now */
    const uint32_t *home; /* [experts]: an expert stays on this node; NULL: on any */
    uint32_t node_gpus;   /* GPUs of a node */
} Domain;

/* The expert of each slot, and what follows from it. */
typedef struct Filling {
    uint32_t *expert; /* [slots] */
    uint32_t *count;  /* [experts]: replicas */
    double *share;    /* [slots]: load of the replica there */
    double *load;     /* [gpus] */
} Filling;

/* Loads that differ by at most this share count as equal: sums of the same loads in another order do differ. */
static const double equal_loads = 1e-12;

static inline bool is_less(double load, double than) { return load < than * (1 - equal_loads); }

static inline double larger_of(double one, double other) { return one > other ? one : other; }

/* GPU g has the slots first[g] to first[g + 1] - 1. The caller owns the arrays. */
Domain domain_new(uint32_t experts, const double *loads, uint32_t gpus, const uint32_t *first, int64_t *steps,
                  Arena *arena);
double domain_mean(const Domain *domain);

Filling filling_new(const Domain *domain, Arena *arena);
void filling_copy(const Domain *domain, Filling *to, const Filling *from);
/* Computes counts, shares and loads from the experts. */
void filling_update(const Domain *domain, Filling *filling);
uint32_t filling_lightest(const Domain *domain, const Filling *filling);
uint32_t filling_fullest(const Domain *domain, const Filling *filling);
double filling_largest(const Domain *domain, const Filling *filling);
/* Whether the GPU has the expert in a slot other than `except`. */
bool filling_holds(const Domain *domain, const Filling *filling, uint32_t gpu, uint32_t expert, uint32_t except);
bool filling_is_distinct(const Domain *domain, const Filling *filling);
void filling_swap(const Domain *domain, Filling *filling, uint32_t slot, uint32_t other);

/* Gives replicas as EPLB does, and places them by descending share on the lightest GPU with room; no expert twice on
   a GPU if that is possible. */
void filling_start(const Domain *domain, Filling *filling, Arena *arena);

/* A lower bound of the largest load of a GPU. It is at most `known`, which some filling has. */
double domain_bound(const Domain *domain, double known, Arena *arena);

/* Improves the filling by swaps, and where these no longer help by other counts of replicas, until the largest load
   is at most `goal` or the effort is spent. The largest load never grows. */
void filling_improve(const Domain *domain, Filling *filling, double goal, Arena *arena);

/* Improves the filling like filling_improve, but starts from the current placement, `held`, which the filling must be
   at first. Each step is the one that gains most per move. */
void filling_improve_held(const Domain *domain, Filling *filling, double goal, Arena *arena);
/* The number of moves from the current placement: slots whose expert the GPU does not hold there. */
uint32_t filling_moves(const Domain *domain, const Filling *filling);
/* The change of that number if the slot gets the expert. */
int filling_cost(const Domain *domain, const Filling *filling, uint32_t slot, uint32_t expert);
/* Whether the expert may be on the GPU of the slot, instead of the slot's expert. */
bool filling_may_hold(const Domain *domain, const Filling *filling, uint32_t slot, uint32_t expert);

/* Enumerates the fillings of a small domain, without those that cannot be better than `filling`, which becomes the
   best. False: there are too many, and `filling` is the best one that was tried. */
bool filling_exact(const Domain *domain, Filling *filling, Arena *arena);

/* All of the above: the best filling found, and the best one without an expert twice on a GPU, if there is one.
   Returns a lower bound of the largest load. */
double domain_solve(const Domain *domain, Filling *filling, Filling *distinct, Arena *arena);

#endif
