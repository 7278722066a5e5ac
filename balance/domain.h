#pragma once

/* A part of a layer that is placed by itself: the experts of a node on its GPUs, or all experts on all GPUs. (groups.c
   places groups of experts on nodes in the same way.) Experts, GPUs and slots are numbered from 0 within it. */

#include "base/arena.h"
#include "base/front_end.h"

#include <stdbool.h>
#include <stdint.h>

/* Most steps of filling_exact for the GPUs of a layer, about ten milliseconds. groups_partitions may take as many steps
   once more. */
enum { BALANCE_STEPS = 300000 };

typedef struct Domain {
    FrontEnd front_end;
    uint32_t experts, gpus, slots;
    const double *loads;    /* [experts] */
    const uint32_t *first;  /* [gpus + 1]: the first slot of each GPU; first[gpus] is the number of slots */
    const uint32_t *gpu_of; /* [slots] */
    bool distinct;          /* true: no expert may be twice on a GPU */
    int64_t *steps;         /* steps that filling_exact may still take; all domains of a layer share this number */
    /* The following describe the current placement; `held` and `home` are NULL if there is none. */
    const uint32_t *held; /* [slots]: the expert that each slot has in the current placement */
    uint32_t moves;       /* at most this many slots may get an expert that their GPU does not hold in `held` */
    const uint32_t *home; /* [experts]: the node on which the expert must stay */
    uint32_t node_gpus;   /* number of GPUs of a node */
} Domain;

/* A placement of a domain: the expert of each slot, and what follows from that. */
typedef struct Filling {
    uint32_t *expert; /* [slots] */
    uint32_t *count;  /* [experts]: number of replicas */
    /* [slots]: load of the replica in the slot: its expert's load / the expert's number of replicas */
    double *share;
    double *load; /* [gpus] */
} Filling;

/* Loads whose relative difference is at most this count as equal: sums of the same numbers in another order may differ
   by rounding. */
static const double equal_loads = 1e-12;

static inline bool is_less(double load, double than) { return load < than * (1 - equal_loads); }

static inline double larger_of(double one, double other) { return one > other ? one : other; }

/* GPU g has the slots first[g] to first[g + 1] - 1. The domain points to `loads` and `first`, which the caller owns. */
Domain domain_new(uint32_t experts, const double *loads, uint32_t gpus, const uint32_t *first, int64_t *steps,
                  Arena *arena);
double domain_mean(const Domain *domain);

Filling filling_new(const Domain *domain, Arena *arena);
void filling_copy(const Domain *domain, Filling *to, const Filling *from);
/* Computes count, share and load of the filling from filling->expert, the expert of each slot. */
void filling_update(const Domain *domain, Filling *filling);
uint32_t filling_lightest(const Domain *domain, const Filling *filling);
uint32_t filling_fullest(const Domain *domain, const Filling *filling);
double filling_largest(const Domain *domain, const Filling *filling);
/* Whether the GPU has the expert in a slot other than `except`. */
bool filling_holds(const Domain *domain, const Filling *filling, uint32_t gpu, uint32_t expert, uint32_t except);
bool filling_is_distinct(const Domain *domain, const Filling *filling);
void filling_swap(const Domain *domain, Filling *filling, uint32_t slot, uint32_t other);

/* Makes a first filling. Chooses the number of replicas of each expert as EPLB does, but gives no expert more replicas
   than there are GPUs, if the slots can be filled so. Then puts each replica, the largest load first, on the least
   loaded GPU that has room and does not hold the expert. Puts an expert twice on a GPU only if it finds no exchange
   with another replica that avoids this. */
void filling_start(const Domain *domain, Filling *filling, Arena *arena);

/* A lower bound of the largest load of a GPU over all fillings (if domain->distinct: those without an expert twice on a
   GPU). `known`: the largest load of some filling, which the result does not exceed. */
double domain_bound(const Domain *domain, double known, Arena *arena);

/* Swaps replicas of two GPUs or, if no swap helps, changes numbers of replicas. Ends when the largest load of a GPU
   is at most `goal`, when nothing helps, or when the effort is spent. The largest load never grows. */
void filling_improve(const Domain *domain, Filling *filling, double goal, Arena *arena);

/* Like filling_improve, for a filling near the current placement, domain->held. At the end the filling has at most
   domain->moves moves from it. Each step is the swap or change that reduces the largest load most per move; at the end
   filling_improve's own steps use the moves that are left. */
void filling_improve_held(const Domain *domain, Filling *filling, double goal, Arena *arena);
/* The number of moves from the current placement: slots with an expert that their GPU does not hold in domain->held. */
uint32_t filling_moves(const Domain *domain, const Filling *filling);
/* By how much filling_moves changes if the slot gets the expert. */
int filling_cost(const Domain *domain, const Filling *filling, uint32_t slot, uint32_t expert);
/* Whether the slot may have this expert instead of its own: domain->home and domain->distinct allow it. */
bool filling_may_hold(const Domain *domain, const Filling *filling, uint32_t slot, uint32_t expert);

/* Sets `filling` to the best filling of a small domain. Enumerates all fillings that may be better than `filling`.
   False: the domain is too large or the steps are used up; `filling` is then the best one found so far. */
bool filling_exact(const Domain *domain, Filling *filling, Arena *arena);

/* Solves a domain with the functions above. `filling`: the best filling found; `distinct`: the best one found without
   an expert twice on a GPU or, if none was found, some filling. Returns a lower bound of the largest load. */
double domain_solve(const Domain *domain, Filling *filling, Filling *distinct, Arena *arena);
