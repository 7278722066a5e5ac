#include "runtime/simulator/simulator.h"

#include "runtime/base/clock.h"
#include "runtime/base/link.h"
#include "runtime/program/costs_parts.h"

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    /* with more ranks than processors, a rank sleeps until so long before its time, and then yields until its time */
    EARLY_NANOSECONDS = 100000,
    /* the longest single sleep: the watchdog would take a rank that sleeps longer for stuck */
    NAP_NANOSECONDS = 10000000,
    MOST_SECONDS = 24 * 60 * 60,
};

void simulator_begin(void)
{
    /* in ns: how late a sleep may end. The default of 50 us is long compared to passes of a millisecond */
    prctl(PR_SET_TIMERSLACK, 1);
}

Simulator simulator_of(const Program *program, int rank, const Costs *costs, const ClockSample *compared)
{
    return (Simulator){.costs = costs,
                       .program = &program->ranks[rank],
                       .rank = rank,
                       .compared = compared,
                       .recipes = &program->recipes,
                       .stages = program->stages};
}

/* The sizes that a simulated chunk needs. Messages have a few bytes. Only in an asynchronous program a sum is run:
   there the copies of a stage wait for each other within the step. */
ChunkPlan simulator_chunk(const Program *program)
{
    return (ChunkPlan){
        .message = sizeof(int64_t), .weight_gradient = program->asynchronous ? 1 : 0, .element = sizeof(double)};
}

static void sleep_until(int64_t end)
{
    for (int64_t now; (now = clock_nanoseconds()) < end - EARLY_NANOSECONDS;) {
        const int64_t wake =
            end - EARLY_NANOSECONDS < now + NAP_NANOSECONDS ? end - EARLY_NANOSECONDS : now + NAP_NANOSECONDS;
        const struct timespec time = {.tv_sec = wake / 1000000000, .tv_nsec = wake % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
    }
    while (clock_nanoseconds() < end)
        sched_yield();
}

/* Converts a time in units of the costs to nanoseconds. Fails if it is longer than MOST_SECONDS. */
static Status duration(const Simulator *simulator, double units, int64_t *nanoseconds, Error *error)
{
    const double seconds = units * costs_seconds(simulator->costs);
    if (seconds > MOST_SECONDS)
        return error_set(error, STATUS_BAD_USAGE,
                         "it would take %g s, more than a day: --cost unit=SECONDS says how long a unit of time is",
                         seconds);
    *nanoseconds = (int64_t)(seconds * 1e9);
    return STATUS_OK;
}

/* Sleeps until `begun` (ns) plus `units` units of the costs. */
static Status sleep_for(const Simulator *simulator, int64_t begun, double units, Error *error)
{
    int64_t nanoseconds = 0;
    TRY(duration(simulator, units, &nanoseconds, error));
    sleep_until(begun + nanoseconds);
    return STATUS_OK;
}

/* Writes the present time on rank 0's clock into the message that a pass produces. message NULL: the pass produces
   none. */
static void stamp(const Simulator *simulator, void *message)
{
    if (!message)
        return;
    const int64_t now = clock_common(simulator->compared, clock_nanoseconds());
    memcpy(message, &now, sizeof now);
}

static Status run_pass(void *host, const PassSlots *slots, StageCost cost, Error *error)
{
    const Simulator *simulator = host;
    const double units = costs_pass(simulator->costs, slots->stage, cost);
    TRY(sleep_for(simulator, clock_nanoseconds(), units, error));
    stamp(simulator, slots->y ? slots->y : slots->dx);
    return STATUS_OK;
}

static Status forward(void *host, const PassSlots *slots, Error *error) { return run_pass(host, slots, COST_F, error); }

static Status backward(void *host, const PassSlots *slots, Error *error)
{
    return run_pass(host, slots, COST_B, error);
}

static Status backward_input(void *host, const PassSlots *slots, Error *error)
{
    return run_pass(host, slots, COST_I, error);
}

static Status backward_weight(void *host, const PassSlots *slots, Error *error)
{
    return run_pass(host, slots, COST_W, error);
}

/* --- an F&B or F&F --- */

/* The recipe that the walk over a pair of these chunks follows; NULL: the pair takes its time as a whole. */
static const Recipe *recipe_of(const Simulator *simulator, uint32_t first_chunk, uint32_t second_chunk)
{
    const bool follows = costs_of_pair(simulator->costs, first_chunk, second_chunk)->follows_recipe;
    return follows ? recipes_of_pair(simulator->recipes, first_chunk, second_chunk) : NULL;
}

static Status run_whole(const Simulator *simulator, const PassPair *pair, Error *error)
{
    const StageCost second = pair->both_forward ? COST_F : pair->weights ? COST_B : COST_I;
    const Costs *costs = costs_of_pair(simulator->costs, pair->forward.chunk, pair->backward.chunk);
    const double units = costs_pair(costs, pair->forward.stage, pair->backward.stage, second);
    return sleep_for(simulator, clock_nanoseconds(), units, error);
}

/* The time of both halves of a pair in the parts of their stages that the recipe does not order, in units of the
   costs. */
static double time_outside(const Simulator *simulator, const PassPair *pair, const Recipe *recipe)
{
    const uint32_t stages = simulator->stages, second = pair->backward.stage;
    double time = 0;
    const RecipePass begin = pair->both_forward ? RECIPE_F : RECIPE_B, last = pair->both_forward ? RECIPE_F
                                                                              : pair->weights    ? RECIPE_W
                                                                                                 : RECIPE_B;
    for (RecipePass pass = begin; pass <= last; pass++)
        time += costs_outside_recipe(simulator->costs, recipe, stages, second, pass);
    return time + costs_outside_recipe(simulator->costs, recipe, stages, pair->forward.stage, RECIPE_F);
}

/* The link on which a pair's communications run. Times in ns. */
typedef struct PairLink {
    int64_t free;            /* when the link has finished everything that was posted */
    int64_t arrival[2];      /* when the latest post of each half arrives */
    size_t number[2];        /* of that post, in Simulator.flights */
    uint32_t first_layer[2]; /* of the stage of each half */
} PairLink;

/* A link that takes 1 ns per byte: a communication counts as so many bytes as it takes nanoseconds. */
static const LinkModel pair_link = {.bandwidth = 1e9};

static Flight flight_of(const PairWalk *walk, const PairLink *link, const PairOp *op)
{
    const bool forward = op->entry.pass != RECIPE_B;
    const uint32_t layer = forward ? op->layer : walk->entries.layers[op->half] - 1 - op->layer;
    return (Flight){.layer = link->first_layer[op->half] + layer,
                    .component = op->entry.component,
                    .pass = forward ? RECIPE_F : RECIPE_B,
                    .half = op->half};
}

/* Posts a communication: computes when it arrives. The link runs communications one after the other. */
static Status post(const Simulator *simulator, const PairWalk *walk, const PairOp *op, PairLink *link, Error *error)
{
    const Flight flight = flight_of(walk, link, op);
    int64_t time = 0;
    TRY(duration(simulator, op->time, &time, error));
    link->number[op->half] = flights_post(simulator->flights, &flight);
    const int64_t now = clock_nanoseconds();
    link->arrival[op->half] = link_arrival(&pair_link, &link->free, now, (size_t)time);
    flights_release(simulator->flights, link->number[op->half]);
    return STATUS_OK;
}

static void await(const Simulator *simulator, const PairOp *op, const PairLink *link)
{
    flights_await(simulator->flights, link->number[op->half]);
    sleep_until(link->arrival[op->half]);
    flights_end(simulator->flights, link->number[op->half], link->arrival[op->half]);
}

static Status run_operation(const Simulator *simulator, const PairWalk *walk, const PairOp *op, PairLink *link,
                            Error *error)
{
    if (op->kind == PAIR_COMPUTE)
        return sleep_for(simulator, clock_nanoseconds(), op->time, error);
    if (op->kind == PAIR_POST)
        return post(simulator, walk, op, link, error);
    await(simulator, op, link);
    return STATUS_OK;
}

/* The walk over a pair whose halves are of these stages. */
static PairWalk walk_of(const Simulator *simulator, const PairOrder *order, uint32_t first, uint32_t second,
                        bool weights)
{
    const Costs *costs = simulator->costs;
    return pair_walk(order, costs_stage_layers(costs, simulator->stages, first),
                     costs_stage_layers(costs, simulator->stages, second), weights);
}

static Status walk(const Simulator *simulator, const PassPair *pair, Error *error)
{
    const Costs *costs = simulator->costs;
    const Recipe *recipe = recipe_of(simulator, pair->forward.chunk, pair->backward.chunk);
    const PairOrder order = pair_order(recipe, costs);
    PairWalk walk = walk_of(simulator, &order, pair->forward.stage, pair->backward.stage, pair->weights);
    PairLink link = {.first_layer = {costs_stage_first_layer(costs, simulator->stages, pair->forward.stage),
                                     costs_stage_first_layer(costs, simulator->stages, pair->backward.stage)}};
    TRY(sleep_for(simulator, clock_nanoseconds(), time_outside(simulator, pair, recipe), error));
    for (PairOp op; pair_next(&walk, &op);)
        TRY(run_operation(simulator, &walk, &op, &link, error));
    return STATUS_OK;
}

size_t simulator_flights(const Simulator *simulator, const Instruction *instruction)
{
    const Chunk *chunks = simulator->program->chunks;
    size_t count = 0;
    const Instruction *second = instruction->second;
    const Recipe *recipe = second ? recipe_of(simulator, instruction->chunk, second->chunk) : NULL;
    if (!recipe)
        return 0;
    const PairOrder order = pair_order(recipe, simulator->costs);
    PairWalk walk = walk_of(simulator, &order, chunks[instruction->chunk].stage, chunks[second->chunk].stage, false);
    for (PairOp op; pair_next(&walk, &op);)
        count += op.kind == PAIR_POST;
    return count;
}

static Status overlap(void *host, PassPair *pair, Error *error)
{
    const Simulator *simulator = host;
    const bool walks = recipe_of(simulator, pair->forward.chunk, pair->backward.chunk);
    TRY((walks ? walk : run_whole)(simulator, pair, error));
    stamp(simulator, pair->forward.y);
    stamp(simulator, pair->both_forward ? pair->backward.y : pair->backward.dx);
    return STATUS_OK;
}

static Status update_async(void *host, uint32_t chunk, uint32_t microbatches, uint16_t newest, uint16_t next,
                           Error *error)
{
    const Simulator *simulator = host;
    (void)microbatches, (void)newest, (void)next;
    const double units = costs_pass(simulator->costs, simulator->program->chunks[chunk].stage, COST_U);
    return sleep_for(simulator, clock_nanoseconds(), units, error);
}

static Status received(void *host, int peer, const void *block, Error *error)
{
    const Simulator *simulator = host;
    int64_t sent;
    memcpy(&sent, block, sizeof sent);
    const double latency = costs_message(simulator->costs, (uint32_t)peer, (uint32_t)simulator->rank);
    const int64_t now = clock_nanoseconds();
    return sleep_for(simulator, now + sent - clock_common(simulator->compared, now), latency, error);
}

static void *weight_gradient(void *host, uint32_t chunk)
{
    (void)chunk;
    return &((Simulator *)host)->sum;
}

const StageTable simulator_stages = {
    .forward = forward,
    .backward = backward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .overlap = overlap,
    .weight_gradient = weight_gradient,
    .update_async = update_async,
    .received = received,
};

/* Opcodes without an entry get COST_F (0), which every program uses anyway. */
static const StageCost kinds[OPCODE_COUNT] = {
    [OP_FORWARD] = COST_F,          [OP_FORWARD_ONLY] = COST_F,    [OP_BACKWARD] = COST_B,
    [OP_BACKWARD_INPUT] = COST_I,   [OP_BACKWARD_WEIGHT] = COST_W, [OP_OVERLAP] = COST_FB,
    [OP_OVERLAP_FORWARD] = COST_FF, [OP_ASYNC_UPDATE] = COST_U,
};

uint32_t simulator_costs_used(const Program *program)
{
    uint32_t used = 0;
    for (uint32_t r = 0; r < program->rank_count; r++)
        for (uint32_t i = 0; i < program->ranks[r].instruction_count; i++)
            for (const Instruction *half = &program->ranks[r].instructions[i]; half; half = half->second)
                used |= 1u << kinds[half->opcode] | (half->second ? 1u << COST_F : 0);
    return used;
}
