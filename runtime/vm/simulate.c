/* --device sim: the streams run as ever, over the transport, but passes take the time that the costs say and compute
   nothing.

   A pass begins when its inputs are there and its rank is free, by the clock and not by the model: what the machine is
   late with stays, so that a measured timeline that is as long as the predicted one says that interpreter and
   transports add nothing. A message is its sending time. The model's latency counts from there, so that what the
   transport needs is part of it. */
#include "runtime/vm/machine.h"

#include "runtime/base/clock.h"

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>

enum {
    /* ranks may be more than processors: who wakes up lets others go first until its time has come */
    EARLY_NANOSECONDS = 100000,
    NAP_NANOSECONDS = 10000000, /* who sleeps on and on would seem not to move */
    MOST_SECONDS = 24 * 60 * 60,
};

const size_t simulated_message_bytes = sizeof(int64_t);

void simulate_begin(void)
{
    prctl(PR_SET_TIMERSLACK, 1); /* ns; the system's own 50 us are much for passes of a millisecond */
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

/* From `begun` on. */
static Status sleep_for(const Rank *rank, int64_t begun, double units, Error *error)
{
    const double seconds = units * costs_seconds(&rank->session->options->costs);
    if (seconds > MOST_SECONDS)
        return error_set(error, STATUS_BAD_USAGE,
                         "it would take %g s, more than a day: --cost unit=SECONDS says how long a unit of time is",
                         seconds);
    sleep_until(begun + (int64_t)(seconds * 1e9));
    return STATUS_OK;
}

/* What a pass makes bears the time at which it was made, on the clock of rank 0. */
static void stamp(const Rank *rank, const Instruction *pass)
{
    const int64_t now = clock_common(rank->compared, clock_nanoseconds());
    if (pass->y != SLOT_NONE) /* or dx */
        memcpy(rank->blocks[pass->y], &now, sizeof now);
}

static const StageCost kinds[OPCODE_COUNT] = {
    [OP_FORWARD] = COST_F,
    [OP_FORWARD_ONLY] = COST_F,
    [OP_BACKWARD] = COST_B,
    [OP_BACKWARD_INPUT] = COST_I,
    /* all else: F, which every program has */
    [OP_BACKWARD_WEIGHT] = COST_W,
    [OP_OVERLAP] = COST_FB,
    [OP_RENEW] = COST_U,
};

uint32_t simulated_costs_used(const Program *program)
{
    uint32_t used = 0;
    for (uint32_t r = 0; r < program->rank_count; r++)
        for (uint32_t i = 0; i < program->ranks[r].instruction_count; i++)
            for (const Instruction *half = &program->ranks[r].instructions[i]; half; half = half->second)
                used |= 1u << kinds[half->opcode] | (half->second ? 1u << COST_F : 0);
    return used;
}

static Status run_pass(Rank *rank, const Instruction *pass, Error *error)
{
    const Costs *costs = &rank->session->options->costs;
    const Instruction *second = pass->second;
    const uint32_t stage = rank->chunks[pass->chunk].number;
    const double units = second ? costs_pair(costs, stage, rank->chunks[second->chunk].number, kinds[second->opcode])
                                : costs_pass(costs, stage, kinds[pass->opcode]);
    TRY(sleep_for(rank, clock_nanoseconds(), units, error));
    stamp(rank, pass);
    if (second)
        stamp(rank, second);
    return STATUS_OK;
}

static Status run_message(Rank *rank, const Instruction *instruction, Error *error)
{
    return execute_computing[instruction->opcode](rank, instruction, error);
}

static Status run_wait(Rank *rank, const Instruction *wait, Error *error)
{
    TRY(run_message(rank, wait, error));
    const Message *message = &rank->messages[wait->message];
    if (message->is_send)
        return STATUS_OK;
    int64_t sent;
    memcpy(&sent, *message->block, sizeof sent);
    const double latency =
        costs_message(&rank->session->options->costs, (uint32_t)message->peer, (uint32_t)rank->number);
    const int64_t now = clock_nanoseconds();
    return sleep_for(rank, now + sent - clock_common(rank->compared, now), latency, error);
}

static Status run_renew(Rank *rank, const Instruction *renew, Error *error)
{
    const double units = costs_pass(&rank->session->options->costs, rank->chunks[renew->chunk].number, COST_U);
    return sleep_for(rank, clock_nanoseconds(), units, error);
}

/* There are no gradients, but within the step their sum is where the copies of a stage wait for each other. */
static Status run_reduce(Rank *rank, const Instruction *reduce, Error *error)
{
    double nothing = 0;
    return rank->session->loaded->program->asynchronous ? rank_reduce(rank, reduce, &nothing, 1, error) : STATUS_OK;
}

static Status run_nothing(Rank *rank, const Instruction *instruction, Error *error)
{
    (void)rank, (void)instruction, (void)error;
    return STATUS_OK;
}

Execute *const execute_simulated[OPCODE_COUNT] = {
    [OP_FORWARD] = run_pass,
    [OP_FORWARD_ONLY] = run_pass,
    [OP_BACKWARD] = run_pass,
    [OP_BACKWARD_INPUT] = run_pass,
    [OP_BACKWARD_WEIGHT] = run_pass,
    [OP_OVERLAP] = run_pass,
    [OP_SEND_FORWARD] = run_message,
    [OP_RECEIVE_FORWARD] = run_message,
    [OP_SEND_BACKWARD] = run_message,
    [OP_RECEIVE_BACKWARD] = run_message,
    [OP_WAIT] = run_wait,
    [OP_REDUCE] = run_reduce,
    [OP_NORM] = run_nothing,
    [OP_UPDATE] = run_nothing,
    [OP_RENEW] = run_renew,
    [OP_END] = run_nothing,
};
