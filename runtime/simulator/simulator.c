#include "runtime/simulator/simulator.h"

#include "runtime/base/clock.h"

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    /* if there are more ranks than processors, a rank that wakes up yields until its time has come */
    EARLY_NANOSECONDS = 100000,
    NAP_NANOSECONDS = 10000000, /* a longer sleep would look to the watchdog as if the rank were stuck */
    MOST_SECONDS = 24 * 60 * 60,
};

void simulator_begin(void)
{
    prctl(PR_SET_TIMERSLACK, 1); /* ns; the default of 50 us is long compared to passes of a millisecond */
}

/* Messages have a few bytes. Gradients are summed only in an asynchronous program, where the copies of a stage wait for
   each other within the step. */
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

/* Sleeps until `units` of the costs after `begun`. */
static Status sleep_for(const Simulator *simulator, int64_t begun, double units, Error *error)
{
    const double seconds = units * costs_seconds(simulator->costs);
    if (seconds > MOST_SECONDS)
        return error_set(error, STATUS_BAD_USAGE,
                         "it would take %g s, more than a day: --cost unit=SECONDS says how long a unit of time is",
                         seconds);
    sleep_until(begun + (int64_t)(seconds * 1e9));
    return STATUS_OK;
}

/* Writes the time, on the clock of rank 0, into a message that a pass produces. */
static void stamp(const Simulator *simulator, void *message)
{
    const int64_t now = clock_common(simulator->compared, clock_nanoseconds());
    if (message)
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

static Status overlap(void *host, PassPair *pair, Error *error)
{
    const Simulator *simulator = host;
    const StageCost second = pair->both_forward ? COST_F : pair->weights ? COST_B : COST_I;
    const double units = costs_pair(simulator->costs, pair->forward.stage, pair->backward.stage, second);
    TRY(sleep_for(simulator, clock_nanoseconds(), units, error));
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

static const StageCost kinds[OPCODE_COUNT] = {
    [OP_FORWARD] = COST_F,
    [OP_FORWARD_ONLY] = COST_F,
    [OP_BACKWARD] = COST_B,
    [OP_BACKWARD_INPUT] = COST_I,
    /* other opcodes: COST_F, which every program uses */
    [OP_BACKWARD_WEIGHT] = COST_W,
    [OP_OVERLAP] = COST_FB,
    [OP_OVERLAP_FORWARD] = COST_FF,
    [OP_ASYNC_UPDATE] = COST_U,
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
