#pragma once

/* Runs the ranks of a program as threads, with the chain (chain.h) as model. The library carries messages and sums
   gradients. `fail_at` of a Thread makes its rank fail at any call of its functions. */

#include "tests/library/chain.h"

#include <pthread.h>

enum { STEPS = 3, RANKS = 4, MICROBATCHES = 8 };

typedef enum Way { PUSH, PUSH_EARLY, PUSH_HALVES, PULL, WAYS } Way;

/* What the threads of a run share. */
typedef struct Run {
    dps_program *program;
    dps_threads *threads;
    Way way;
} Run;

typedef struct Thread {
    Host host; /* must be first: functions of the chain use the Thread as a Host */
    const Run *run;
    double losses[STEPS], norm;
    int pairs, fail_at, calls; /* fail_at: number of the call that fails, from 1; 0: none */
    dps_status status;
    pthread_t thread;
} Thread;

static inline int backward(void *user, const dps_instruction *pass)
{
    const int failed = chain_backward_input(user, pass);
    return failed ? failed : chain_backward_weight(user, pass);
}

/* Runs both halves of an F&B, the backward first. */
static inline int overlap(void *user, const dps_instruction *pair)
{
    const dps_instruction *second = pair->second;
    ((Thread *)user)->pairs++;
    return (second->opcode == DPS_BACKWARD ? backward : chain_backward_input)(user, second) ||
           chain_forward(user, pair);
}

/* Sets the norm of the thread to the sum of squares of the gradients of all ranks; every rank calls it. A stage with
   several copies counts several times. */
static inline int norm(void *user, const dps_instruction *instruction)
{
    Thread *thread = user;
    double own = 0, all[RANKS_MAX];
    (void)instruction;
    for (int c = 0; c < CHUNKS_MAX; c++)
        for (int i = 0; i < WIDTH; i++)
            own += thread->host.gradients[c].of[i] * thread->host.gradients[c].of[i];
    thread->norm = 0;
    if (dps_gather(thread->host.rank, &own, sizeof own, all) != DPS_OK)
        return 1;
    for (int r = 0; r < RANKS; r++)
        thread->norm += all[r];
    return 0;
}

static inline int update(void *user, const dps_instruction *instruction)
{
    return instruction->opcode == DPS_ASYNC_UPDATE ? chain_update_async(user, instruction)
                                                   : chain_update(user, instruction);
}

/* Counts a call. True: this call must fail. */
static inline bool fails(Thread *thread)
{
    if (++thread->calls != thread->fail_at)
        return false;
    dps_reason(thread->host.rank, "broken on purpose");
    return true;
}

#define MAY_FAIL(name, function)                                            \
    static inline int name##_may_fail(void *user, const dps_instruction *i) \
    {                                                                       \
        return fails(user) ? 7 : function(user, i);                         \
    }
MAY_FAIL(forward, chain_forward)
MAY_FAIL(backward_input, chain_backward_input)
MAY_FAIL(backward_weight, chain_backward_weight)
MAY_FAIL(backward, backward)
MAY_FAIL(overlap, overlap)
MAY_FAIL(norm, norm)
MAY_FAIL(update, update)
#undef MAY_FAIL

static const dps_functions functions = {.size = sizeof functions,
                                        .forward = forward_may_fail,
                                        .backward_input = backward_input_may_fail,
                                        .backward_weight = backward_weight_may_fail,
                                        .norm = norm_may_fail,
                                        .update = update_may_fail,
                                        .update_async = update_may_fail};

static inline int call(Thread *thread, const dps_instruction *action)
{
    if (fails(thread))
        return 1;
    switch (action->opcode) {
    case DPS_BACKWARD: return backward(thread, action);
    case DPS_BACKWARD_INPUT: return chain_backward_input(thread, action);
    case DPS_BACKWARD_WEIGHT: return chain_backward_weight(thread, action);
    case DPS_OVERLAP: return overlap(thread, action);
    case DPS_OVERLAP_FORWARD: return chain_forward(thread, action) || chain_forward(thread, action->second);
    case DPS_NORM: return norm(thread, action);
    case DPS_UPDATE:
    case DPS_ASYNC_UPDATE: return update(thread, action);
    default: return chain_forward(thread, action);
    }
}

static inline dps_status pull(Thread *thread)
{
    const dps_instruction *action;
    dps_status status;
    while (!(status = dps_next(thread->host.rank, &action)) && action->opcode != DPS_END) {
        if (action->opcode >= DPS_SEND_FORWARD && action->opcode <= DPS_WAIT_REDUCE)
            return DPS_BAD_USAGE; /* the library runs messages and sums itself, and must not return them */
        dps_done(thread->host.rank, action, call(thread, action) ? DPS_FAILED : DPS_OK);
    }
    return status;
}

static inline dps_status push(Thread *thread)
{
    dps_functions own = functions;
    own.user = thread;
    if (thread->run->way != PUSH_HALVES) {
        own.backward = backward_may_fail;
        own.overlap = overlap_may_fail;
    }
    return dps_step(thread->host.rank, &own);
}

static inline void *run_rank(void *user)
{
    Thread *thread = user;
    for (int i = 0; i < STEPS && thread->status == DPS_OK; i++) {
        thread->host.loss = 0;
        thread->status = thread->run->way == PULL ? pull(thread) : push(thread);
        thread->losses[i] = thread->host.loss;
    }
    return NULL;
}

/* --- a run --- */

static inline void join(Thread *thread, const Run *run, dps *d, uint32_t rank)
{
    const dps_rank_options options = {.size = sizeof options, .post_early = run->way == PUSH_EARLY};
    void *gradients[CHUNKS_MAX];
    size_t elements[CHUNKS_MAX];
    *thread = (Thread){.run = run};
    host_open(&thread->host, d, run->program, rank, &options);
    for (int c = 0; c < CHUNKS_MAX; c++) {
        gradients[c] = &thread->host.gradients[c];
        elements[c] = WIDTH;
    }
    const dps_buffers buffers = {.size = sizeof buffers,
                                 .messages = thread->host.messages,
                                 .gradients = gradients,
                                 .elements = elements,
                                 .element_bytes = sizeof(double)};
    assert_int_equal(dps_join(thread->host.rank, run->threads, &buffers), DPS_OK);
    assert_int_equal(dps_join(thread->host.rank, run->threads, &buffers), DPS_BAD_USAGE);
}

static inline void start(Run *run, dps *d, dps_program *program, Way way, Thread *threads, uint32_t ranks)
{
    *run = (Run){.program = program, .way = way};
    assert_int_equal(dps_threads_new(d, program, 60, &run->threads), DPS_OK);
    for (uint32_t r = 0; r < ranks; r++)
        join(&threads[r], run, d, r);
}

static inline void run_all(Thread *threads, uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(pthread_create(&threads[r].thread, NULL, run_rank, &threads[r]), 0);
    for (uint32_t r = 0; r < ranks; r++)
        pthread_join(threads[r].thread, NULL);
}

static inline void finish(Run *run, Thread *threads, uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++)
        host_close(&threads[r].host);
    dps_threads_free(run->threads);
}

static inline double total(const Thread *threads, int step)
{
    double loss = 0;
    for (uint32_t r = 0; r < RANKS; r++)
        loss += threads[r].losses[step];
    return loss;
}
