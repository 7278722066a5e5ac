#include "runtime/simulator/simulator.h"

#include "base/clock.h"
#include "base/link.h"
#include "program/times/costs_parts.h"
#include "runtime/simulator/components.h"

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    /* a rank stops sleeping this long before its time, because sleeps end late; then it yields its processor until
       its time */
    EARLY_NANOSECONDS = 100000,
    /* the longest single sleep: a rank that wakes up uses processor time, so the watchdog sees that it is not stuck */
    NAP_NANOSECONDS = 10000000,
    MOST_SECONDS = 24 * 60 * 60,
};

void simulator_begin(void)
{
    /* in ns: how late a sleep may end. The default, 50 us, is too long for passes of a millisecond */
    prctl(PR_SET_TIMERSLACK, 1);
}

size_t simulator_orders(const Program *program) { return program->recipes.count + 1; }

/* The order in which F&Bs or F&Fs with this recipe are walked. `of_pairs`: their costs. If each of them is one sleep,
   the recipe of the result is NULL. */
static PairOrder order_of_recipe(const Recipe *recipe, const Costs *costs, const Costs *of_pairs)
{
    return recipe && of_pairs->follows_recipe ? pair_order(recipe, costs) : (PairOrder){.entries.recipe = NULL};
}

Simulator simulator_of(const Program *program, int rank, const Costs *costs, const ClockSample *compared,
                       PairOrder *orders)
{
    const Recipes *recipes = &program->recipes;
    for (uint32_t i = 0; i < recipes->count; i++) {
        const ChunkRecipe *own = &recipes->own[i];
        orders[i] = order_of_recipe(&own->recipe, costs, costs_of_pair(costs, own->first, own->second));
    }
    orders[recipes->count] = order_of_recipe(recipes->common, costs, costs);
    return (Simulator){.costs = costs,
                       .program = &program->ranks[rank],
                       .rank = rank,
                       .compared = compared,
                       .recipes = recipes,
                       .orders = orders,
                       .stages = program->stages};
}

/* The sizes that a simulated chunk needs. A message holds only a time. Sums run only in an asynchronous program, where
   they make the copies of a stage wait for each other within the step. */
ChunkPlan simulator_chunk(const Program *program)
{
    return (ChunkPlan){
        .message = sizeof(int64_t), .weight_gradient = program->asynchronous ? 1 : 0, .element = sizeof(double)};
}

static void sleep_until(int64_t end)
{
    for (int64_t now; (now = clock_nanoseconds()) < end - EARLY_NANOSECONDS;) {
        const struct timespec time = clock_timespec(
            end - EARLY_NANOSECONDS < now + NAP_NANOSECONDS ? end - EARLY_NANOSECONDS : now + NAP_NANOSECONDS);
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
        return error_set(
            error, STATUS_BAD_USAGE,
            "a pass or message would take %g s, more than a day: --cost counts in units of %g s (unit=SECONDS)",
            seconds, costs_seconds(simulator->costs));
    *nanoseconds = (int64_t)(seconds * 1e9);
    return STATUS_OK;
}

/* Sleeps until `units` units of the costs after `begun` (ns). */
static Status sleep_for(const Simulator *simulator, int64_t begun, double units, Error *error)
{
    int64_t nanoseconds = 0;
    TRY(duration(simulator, units, &nanoseconds, error));
    sleep_until(begun + nanoseconds);
    return STATUS_OK;
}

/* Writes the present time on rank 0's clock into the message that a pass produces. NULL: the pass produces none. */
static void stamp(const Simulator *simulator, void *message)
{
    if (!message)
        return;
    const int64_t now = clock_common(simulator->compared, clock_nanoseconds());
    memcpy(message, &now, sizeof now);
}

size_t simulator_spans_most(const Simulator *simulator, const Instruction *pass)
{
    const uint32_t stage = simulator->program->chunks[pass->chunk].stage;
    return costs_stage_layers(simulator->costs, simulator->stages, stage) * (size_t)RECIPE_NAMES + MODEL_PARTS;
}

static Status run_pass(void *host, StagePass pass, const PassSlots *slots, Error *error)
{
    static const StageCost pass_costs[] = {[STAGE_FORWARD] = COST_F,
                                           [STAGE_BACKWARD] = COST_B,
                                           [STAGE_BACKWARD_INPUT] = COST_I,
                                           [STAGE_BACKWARD_WEIGHT] = COST_W};
    const Simulator *simulator = host;
    const StageCost cost = pass_costs[pass];
    const double units = costs_pass(simulator->costs, slots->stage, cost);
    const int64_t begun = clock_nanoseconds();
    if (slots->put_off) {
        const double after = costs_put_off(simulator->costs, simulator->stages, slots->stage, slots->put_off);
        return sleep_for(simulator, begun, slots->only_put_off ? after : units - after, error);
    }
    TRY(sleep_for(simulator, begun, units, error));
    components_note_pass(simulator, slots->stage, cost, units, begun);
    stamp(simulator, slots->y ? slots->y : slots->dx);
    return STATUS_OK;
}

/* --- an F&B or F&F --- */

/* The order in which an F&B or F&F of these chunks is walked; NULL: it is one sleep. */
static const PairOrder *order_of(const Simulator *simulator, uint32_t first_chunk, uint32_t second_chunk)
{
    const PairOrder *order = &simulator->orders[recipes_find(simulator->recipes, first_chunk, second_chunk)];
    return order->entries.recipe ? order : NULL;
}

/* The cost of the pass that is the second half of an F&B or F&F: COST_B also for an I that puts off only some weight
   gradients. */
static StageCost second_pass(const PassPair *pair)
{
    return pair->both_forward ? COST_F : pair->weights ? COST_B : COST_I;
}

static Status run_whole(const Simulator *simulator, const PassPair *pair, Error *error)
{
    const Costs *costs = costs_of_pair(simulator->costs, pair->forward.chunk, pair->backward.chunk);
    const double units = costs_pair(costs, pair->forward.stage, pair->backward.stage, second_pass(pair));
    return sleep_for(simulator, clock_nanoseconds(), units, error);
}

/* The time of both halves of an F&B or F&F in the parts of their stages that the recipe does not order, in units of the
   costs. */
static double time_outside(const Simulator *simulator, const PassPair *pair, const Recipe *recipe)
{
    const uint32_t stages = simulator->stages;
    const PassRange second = pass_range(second_pass(pair));
    double time = costs_outside_recipe(simulator->costs, recipe, stages, pair->forward.stage, RECIPE_F);
    for (RecipePass pass = second.first; pass <= second.last; pass++)
        time += costs_outside_recipe(simulator->costs, recipe, stages, pair->backward.stage, pass);
    return time;
}

/* The link on which the communications of an F&B or F&F run. Times in ns. */
typedef struct PairLink {
    int64_t free;            /* when the link has finished everything that was posted so far */
    int64_t arrival[2];      /* [half] when its latest post arrives */
    size_t number[2];        /* [half] number of its latest post in Simulator.flights */
    uint32_t first_layer[2]; /* [half] the first layer of its stage, in the whole model */
} PairLink;

/* The pass of an operation: RECIPE_F (also in both halves of an F&F), RECIPE_B or RECIPE_W. */
static uint8_t pass_of(const PairOp *op) { return op->entry.pass < RECIPE_PASSES ? op->entry.pass : RECIPE_F; }

static uint32_t layer_of(const PairWalk *walk, const PairLink *link, const PairOp *op)
{
    const uint32_t last = walk->entries.layers[op->half] - 1;
    return link->first_layer[op->half] + (pass_of(op) == RECIPE_F ? op->layer : last - op->layer);
}

static Flight flight_of(const PairWalk *walk, const PairLink *link, const PairOp *op)
{
    return (Flight){
        .layer = layer_of(walk, link, op), .component = op->entry.component, .pass = pass_of(op), .half = op->half};
}

/* The component that a recipe's entry names. If it names a part of a component: attention for qkv and core, mlp for
   shared. */
static uint8_t component_of(RecipeEntry entry)
{
    switch (entry.component) {
    case RECIPE_QKV:
    case RECIPE_CORE: return RECIPE_ATTENTION;
    case RECIPE_SHARED: return RECIPE_MLP;
    default: return entry.component;
    }
}

/* Posts a communication: computes when it arrives. The link runs communications one after the other. */
static Status post(const Simulator *simulator, const PairWalk *walk, const PairOp *op, PairLink *link, Error *error)
{
    const Flight flight = flight_of(walk, link, op);
    int64_t time = 0;
    TRY(duration(simulator, op->time, &time, error));
    link->number[op->half] = flights_post(simulator->flights, &flight);
    const int64_t now = clock_nanoseconds();
    link->arrival[op->half] = link_occupy(&link->free, now, time);
    flights_release(simulator->flights, link->number[op->half]);
    return STATUS_OK;
}

static void await(const Simulator *simulator, const PairOp *op, const PairLink *link)
{
    flights_await(simulator->flights, link->number[op->half]);
    sleep_until(link->arrival[op->half]);
    flights_end(simulator->flights, link->number[op->half], link->arrival[op->half]);
}

/* Notes when the component of an operation ran: from `begun` (ns) to now. Notes nothing if the component has no
   cost. */
static void note_operation(const Simulator *simulator, const PairWalk *walk, const PairOp *op, const PairLink *link,
                           int64_t begun)
{
    const uint8_t part = component_of(op->entry), pass = pass_of(op);
    if (simulator->costs->parts[part][pass] > 0)
        components_note(simulator, op->half,
                        (PartSpan){.layer = layer_of(walk, link, op),
                                   .part = part,
                                   .pass = pass,
                                   .start = begun,
                                   .end = clock_nanoseconds()});
}

static Status run_operation(const Simulator *simulator, const PairWalk *walk, const PairOp *op, PairLink *link,
                            Error *error)
{
    if (op->kind == PAIR_POST)
        return post(simulator, walk, op, link, error);
    const int64_t begun = clock_nanoseconds();
    if (op->kind == PAIR_COMPUTE)
        TRY(sleep_for(simulator, begun, op->time, error));
    else
        await(simulator, op, link);
    note_operation(simulator, walk, op, link, begun);
    return STATUS_OK;
}

/* The walk over an F&B or F&F whose halves are of these stages. */
static PairWalk walk_of(const Simulator *simulator, const PairOrder *order, uint32_t first, uint32_t second,
                        bool weights)
{
    const Costs *costs = simulator->costs;
    return pair_walk(order, costs_stage_layers(costs, simulator->stages, first),
                     costs_stage_layers(costs, simulator->stages, second), weights);
}

static Status run_walk(const Simulator *simulator, const PassPair *pair, const PairOrder *order, Error *error)
{
    const Costs *costs = simulator->costs;
    PairWalk walk = walk_of(simulator, order, pair->forward.stage, pair->backward.stage, pair->weights);
    PairLink link = {.first_layer = {costs_stage_first_layer(costs, simulator->stages, pair->forward.stage),
                                     costs_stage_first_layer(costs, simulator->stages, pair->backward.stage)}};
    const int64_t begun = clock_nanoseconds();
    TRY(sleep_for(simulator, begun, time_outside(simulator, pair, order->entries.recipe), error));
    components_note_outside(simulator, pair->backward.stage, second_pass(pair), 1,
                            components_note_outside(simulator, pair->forward.stage, COST_F, 0, begun));
    for (PairOp op; pair_next(&walk, &op);)
        TRY(run_operation(simulator, &walk, &op, &link, error));
    return STATUS_OK;
}

size_t simulator_flights(const Simulator *simulator, const Instruction *instruction)
{
    const Chunk *chunks = simulator->program->chunks;
    size_t count = 0;
    const Instruction *second = instruction->second;
    const PairOrder *order = second ? order_of(simulator, instruction->chunk, second->chunk) : NULL;
    if (!order)
        return 0;
    PairWalk walk = walk_of(simulator, order, chunks[instruction->chunk].stage, chunks[second->chunk].stage, false);
    for (PairOp op; pair_next(&walk, &op);)
        count += op.kind == PAIR_POST;
    return count;
}

static Status overlap(void *host, PassPair *pair, Error *error)
{
    const Simulator *simulator = host;
    const PairOrder *order = order_of(simulator, pair->forward.chunk, pair->backward.chunk);
    TRY(order ? run_walk(simulator, pair, order, error) : run_whole(simulator, pair, error));
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
    .pass = run_pass,
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
