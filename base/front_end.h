#pragma once

/* How messages name what a user sets: dpc has options, dps.h has members, the Python package has arguments. */

typedef enum FrontEnd { FRONT_DPC, FRONT_C, FRONT_PYTHON, FRONT_ENDS } FrontEnd;

typedef enum Settable {
    SET_RANKS,
    SET_MICROBATCHES,
    SET_PARAMETER,
    SET_COST,
    SET_SLOT_BYTES,
    SET_MEMORY_LIMIT,
    SET_REPLICAS,
    SET_SECONDS,
    SET_GPUS,
    SET_GROUPS,
    SET_NODES,
    SET_DISTINCT,
    SET_MOVES,
    SET_ALL_METHODS, /* balance by any method but eplb */
    SET_ALLOW_ASYNC,
    SET_ALLOW_NAIVE,
    SETTABLE
} Settable;

/* The name: --ranks, ranks, ranks. */
const char *front_name(FrontEnd front_end, Settable what);
/* The name with what separates it from its value: "--ranks ", "ranks = ", "ranks=". */
const char *front_before(FrontEnd front_end, Settable what);
