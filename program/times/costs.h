#pragma once

/* The modelled costs of passes and messages: times in any one unit, sizes in bytes. --cost of dpc and dprun reads them.
   A cost file has one setting per line (base/settings.h). On the command line commas separate the settings.

     F = 1                 the time of an F
     I, W, B, U            the same for I and W, the halves of a backward; for B, a full backward; for U, an update of
                           the weights
     FB                    the time of an F&B, without the weight gradients that its recipe puts off
     FF                    the time of an F&F
     F[3] = 1.2            the time of an F of stage 3 only; likewise I[3] and so on. All copies of a stage have the
                           same costs
     overlap = 0.8         if FB or FF is not given: the time of an F&B or F&F over the sum of its halves
     memory_I = 34M        the bytes of a stage that a microbatch holds from its F to the end of its I or B
     memory_W = 32M        the bytes of a stage that a microbatch holds from the end of its I to the end of its W
     comm = 0.1            the latency of a message between two ranks
     comm[0->1] = 0.5      the latency of a message from rank 0 to rank 1
     bytes = 96M           the bytes of a message. A message takes comm + bytes / bandwidth
     bandwidth = 25G       bytes per unit of time, or per second if `unit` is given; also bandwidth[0->1]
     gradients = 400M      the bytes of a stage's gradient, which all copies of the stage sum (dpc compare --replicas)
     unit = 1e-3           the seconds of a unit of time
     stages = 8            the times and the memory of stages are those of a model in 8 stages; in a schedule with
                           another number of stages, each stage has its share of these
     attention.F = 0.3     the time of a component of a layer (base/parts.h): F, B (its input half), W, U. If some
                           components have times, the others take none
     layers = 4            the layers of a stage: F, I, W and U of the stage follow from its components, and FB or FF
                           from the recipe if there is one
     compute_share = 0.85  the share of the multiprocessors on which computation was measured; the others were
                           reserved for communication
     multiprocessors = 20  communication within a layer takes the given time on this many multiprocessors or more. It
                           takes longer if a recipe reserves fewer (recipe_times.h)

     model_layers = 8      the layers of the whole model. If times of parts are given, F, I, W and U of every stage
                           are the sums over its parts, for any number of stages. `layers` has no effect then, and
                           `stages` applies only to `gradients`: costs of single stages are then for the stages of the
                           schedule
     qkv.F = 0.1           the time of what comes before the core of attention; attention.F includes it
     shared.F = 0.2        the time of the shared experts; mlp.F includes it
     head.F = 0.5          the time of a part outside the layers (embedding, rows, head, squared_error) in one of its
                           passes (base/parts.h). first_layer.B is the time of the I of the first layer. dprun --profile
                           measures the times of the parts

   If a setting is given more than once, the last one counts. Bytes may end in K, M, G or T, powers of 1024. */

#include "base/arena.h"
#include "base/front_end.h"
#include "program/recipes.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The costs that may be given per stage. The first seven are times: of passes, of U, and of F&Bs and F&Fs (FB, FF). */
typedef enum StageCost {
    COST_F,
    COST_B,
    COST_I,
    COST_W,
    COST_U,
    COST_FB,
    COST_FF,
    COST_MEMORY_I,
    COST_MEMORY_W,
    COST_GRADIENTS,
    STAGE_COSTS
} StageCost;

typedef struct LinkCost {
    uint32_t from, to;         /* ranks */
    double latency, bandwidth; /* < 0: the value for all links */
} LinkCost;

/* A cost that was not given, for all stages that got it by the same rule: it was derived from other costs, or it is the
   default although costs of single stages are given. */
typedef struct DerivedCost {
    StageCost cost;
    uint32_t count;
    const uint32_t *stages; /* [count], ascending: the stages, numbered as in the given costs */
    const double *values;   /* [count] */
    const char *where;      /* the stages as text: "[0..3,5]"; "" if costs are given for all stages alike */
    const char *rule;       /* as text */
} DerivedCost;

/* Costs as they were given, or as costs_resolve completed them. */
typedef struct Costs Costs;
struct Costs {
    FrontEnd front_end;      /* who gives them */
    double all[STAGE_COSTS]; /* the cost of every stage that has none of its own in `stages`; < 0: not given */
    /* [stage_count], owned by the arena: costs of single stages; < 0: the stage has the cost in `all` */
    double (*stages)[STAGE_COSTS];
    uint32_t stage_count;
    double overlap;            /* < 0: not given, which means 1 */
    double latency, bandwidth; /* bandwidth < 0: a message takes only its latency */
    LinkCost *links;           /* [link_count], sorted; owned by the arena */
    uint32_t link_count;
    double bytes; /* of a message */
    double unit;  /* in seconds; < 0: not given */
    /* the time of a part's pass; for parts of a layer, in one layer; < 0: not given */
    double parts[MODEL_PARTS][PART_PASSES];
    double layers;       /* layers of a stage; < 1: one */
    double model_stages; /* number of stages that the costs are for; 0: not given, so as many as the schedule has */
    double model_layers; /* layers of the whole model; < 1: not given */
    /* communication within a layer takes the given time on this many multiprocessors or more; 0: on any number */
    double multiprocessors;
    double compute_share; /* the share of the multiprocessors on which computation was measured; 0: all */
    /* set by costs_resolve: the time of each F&B or F&F follows from its recipe and the times of `parts` */
    bool follows_recipe;
    uint32_t put_off;           /* of this recipe: bits 1 << ModelPart: components whose W come after the F&B */
    uint32_t said;              /* bits 1 << StageCost: which costs of `all` were given, and are no default */
    const DerivedCost *derived; /* [derived_count], owned by the arena; set by costs_resolve */
    uint32_t derived_count;
    const Recipes *recipes;    /* set by costs_resolve if pairs of chunks have recipes of their own; otherwise NULL */
    const Costs *with_recipes; /* [recipes->count]; [i]: these costs, but FB or FF follows from recipes->own[i] */
};

extern const Costs costs_unit; /* F = I = W = 1, U = comm = 0 */

/* `text` follows --cost: NAME=VALUE,... or @FILE ("@-": standard input). Its settings replace those in `costs`, up to
   the first that is wrong. STATUS_BAD_USAGE: a setting in `text` is wrong. STATUS_BAD_INPUT: the file cannot be read,
   or a setting in it is wrong; then the error has FILE:LINE. STATUS_NO_MEMORY: out of memory. */
Status costs_set(Costs *costs, const char *text, Arena *arena, Error *error);

/* "F", "memory_I": the key of a cost. */
const char *stage_cost_name(StageCost cost);

/* Whether there is a cost for all stages (given, or a default as for F) or for any single stage. */
bool costs_have(const Costs *costs, StageCost cost);
/* The cost that is given for the stage; if there is none, the one given for all stages; if there is none either, the
   default. < 0: there is no default. */
double costs_given(const Costs *costs, uint32_t stage, StageCost cost);
/* The time of a pass. If no B is given for the stage or for all stages, the time of a B is I + W. < 0: `kind` is FB or
   FF, and it is not given. */
double costs_pass(const Costs *costs, uint32_t stage, StageCost kind);
/* The costs that hold for an F&B or F&F whose halves are of these chunks: an element of with_recipes if the chunks have
   a recipe of their own, otherwise `costs`. */
const Costs *costs_of_pair(const Costs *costs, uint32_t first_chunk, uint32_t second_chunk);
/* The time of an F&B or F&F: the F of stage `forward` and a B, I (F&B) or F (F&F) of stage `backward`. The time of an
   F&B is the sum of the times of its halves, each multiplied by FB / (F + B) of its stage, or by `overlap` if that FB
   is not given or F + B is 0. If FB follows from a recipe, an F&B of two stages overlaps as many layers as the smaller
   one has, and the other layers run alone: it saves what the F&B of that stage saves. The time of an F&F is the mean of
   the FF of both stages; if one of them is not given, it is the sum of both F multiplied by `overlap`. Call it with the
   result of costs_of_pair if chunks may have recipes of their own. */
double costs_pair(const Costs *costs, uint32_t forward, uint32_t backward, StageCost backward_kind);
/* The time of a message between two ranks; 0 if from == to. */
double costs_message(const Costs *costs, uint32_t from, uint32_t to);
/* COST_MEMORY_I: the bytes that a microbatch holds on the stage from its F to its I or B; COST_MEMORY_W: from then to
   its W; COST_GRADIENTS: the bytes of the stage's gradient. 0: not given. */
double costs_memory(const Costs *costs, uint32_t stage, StageCost memory);
/* costs_sum_bytes: the bytes that each copy of a stage sends when the `copies` copies sum their gradients. costs_sum:
   the time of this sum. The sum is a reduce-scatter and an all-gather: each copy adds up one slice of the gradient,
   which it gets from every other copy, and sends the sum of the slice to all others. */
double costs_sum_bytes(const Costs *costs, uint32_t stage, uint32_t copies);
double costs_sum(const Costs *costs, uint32_t stage, uint32_t copies);
/* A checksum of the times and sizes. */
uint32_t costs_checksum(const Costs *costs);
/* The seconds of a unit of time; 1e-3 if not given. */
double costs_seconds(const Costs *costs);
/* The unit of time after a figure: " ms". "" if it is not given or has no name. */
const char *costs_unit_text(const Costs *costs);
