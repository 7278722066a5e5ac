/* A step that calls the host's functions: dps_step. */

#include "library/internal.h"

#include <stdio.h>

static int run_backward(const dps_functions *f, const dps_instruction *pass)
{
    if (f->backward)
        return f->backward(f->user, pass);
    const int failed = f->backward_input(f->user, pass);
    return failed ? failed : f->backward_weight(f->user, pass);
}

static int run_overlap(const dps_functions *f, const dps_instruction *pair)
{
    const dps_instruction *second = pair->second;
    if (f->overlap)
        return f->overlap(f->user, pair);
    const int failed = f->forward(f->user, pair);
    if (failed)
        return failed;
    return second->opcode == DPS_BACKWARD ? run_backward(f, second) : f->backward_input(f->user, second);
}

/* Runs the two F of an F&F one after the other. */
static int run_forwards(const dps_functions *f, const dps_instruction *pair)
{
    const int failed = f->forward(f->user, pair);
    return failed ? failed : f->forward(f->user, pair->second);
}

static int run_if_given(const dps_functions *f, dps_function function, const dps_instruction *instruction)
{
    return function ? function(f->user, instruction) : 0;
}

static int call_host(const dps_functions *f, const dps_instruction *i)
{
    switch ((dps_opcode)i->opcode) {
    case DPS_FORWARD:
    case DPS_FORWARD_ONLY: return f->forward(f->user, i);
    case DPS_BACKWARD: return run_backward(f, i);
    case DPS_BACKWARD_INPUT: return f->backward_input(f->user, i);
    case DPS_BACKWARD_WEIGHT: return f->backward_weight(f->user, i);
    case DPS_OVERLAP: return run_overlap(f, i);
    case DPS_OVERLAP_FORWARD: return run_forwards(f, i);
    case DPS_SEND_FORWARD:
    case DPS_SEND_BACKWARD: return f->send(f->user, i);
    case DPS_RECEIVE_FORWARD:
    case DPS_RECEIVE_BACKWARD: return f->receive(f->user, i);
    case DPS_WAIT: return f->wait(f->user, i);
    case DPS_REDUCE: return run_if_given(f, f->reduce, i);
    case DPS_WAIT_REDUCE: return run_if_given(f, f->wait_reduce, i);
    case DPS_NORM: return run_if_given(f, f->norm, i);
    case DPS_UPDATE: return run_if_given(f, f->update, i);
    case DPS_ASYNC_UPDATE: return f->update_async(f->user, i);
    case DPS_END: break;
    }
    return 0;
}

/* --- which functions a rank needs --- */

static uint32_t exchanges(void)
{
    uint32_t opcodes = 0;
    for (uint8_t opcode = 0; opcode < OPCODE_COUNT; opcode++)
        opcodes |= exchange_has(opcode) ? 1u << opcode : 0;
    return opcodes;
}

/* The name of a function that the rank needs and the host does not have; NULL: none. */
static const char *missing(const dps_rank *rank, const dps_functions *f)
{
#define ONE(opcode) (1u << DPS_##opcode)
    const uint32_t opcodes =
        (rank->threads ? rank->opcodes & ~exchanges() : rank->opcodes) | (f->overlap ? 0 : rank->opcodes_in_pairs);
    const uint32_t halves = f->backward ? 0 : ONE(BACKWARD);
    const struct {
        const char *name;
        dps_function function;
        uint32_t opcodes; /* as bits: a rank with any of these opcodes needs the function */
    } all[] = {
        {"forward", f->forward, ONE(FORWARD) | ONE(FORWARD_ONLY) | ONE(OVERLAP_FORWARD)},
        {"backward_input", f->backward_input, ONE(BACKWARD_INPUT) | halves},
        {"backward_weight", f->backward_weight, ONE(BACKWARD_WEIGHT) | halves},
        {"send", f->send, ONE(SEND_FORWARD) | ONE(SEND_BACKWARD)},
        {"receive", f->receive, ONE(RECEIVE_FORWARD) | ONE(RECEIVE_BACKWARD)},
        {"wait", f->wait, ONE(WAIT)},
        {"reduce", f->reduce, ONE(REDUCE)},
        {"wait_reduce", f->wait_reduce, ONE(WAIT_REDUCE)},
        {"update_async", f->update_async, ONE(ASYNC_UPDATE)},
    };
#undef ONE
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!all[i].function && opcodes & all[i].opcodes)
            return all[i].name;
    return NULL;
}

/* --- the step --- */

static Status perform(dps_rank *rank, const dps_functions *f, const Instruction *next)
{
    if (rank_carries(rank, next->opcode))
        return exchange_run(&rank->exchange, next, &rank->error);
    return call_host(f, &rank->actions[rank->walk.place]) == 0 ? STATUS_OK : rank_host_failed(rank);
}

static dps_status run_step(dps_rank *rank, const dps_functions *f)
{
    rank_begin(rank);
    rank->state = RANK_PUSHES;
    do {
        const Status status = perform(rank, f, walk_next(&rank->walk));
        if (status != STATUS_OK)
            return rank_fail(rank, (dps_status)status);
    } while (walk_done(&rank->walk));
    rank->state = RANK_BETWEEN_STEPS;
    return DPS_OK;
}

dps_status dps_step(dps_rank *rank, const dps_functions *given)
{
    dps_functions functions;
    char text[200];
    if (!rank)
        return DPS_BAD_USAGE;
    if (rank->state == RANK_FAILED)
        return rank->failure;
    if (rank->state != RANK_BETWEEN_STEPS)
        return rank_refuse(rank, "dps_step: this rank is within a step: end that step first");
    if (!STRUCT_IN(&functions, given)) {
        snprintf(text, sizeof text, STRUCT_REFUSED, "dps_functions");
        return rank_refuse(rank, text);
    }
    const char *const name = missing(rank, &functions);
    if (!name)
        return run_step(rank, &functions);
    snprintf(text, sizeof text, "dps_step: the program needs your function `%s`, which is NULL", name);
    return rank_refuse(rank, text);
}
