/* Ranks that are threads: dps_step calls the functions of the chain, and the library carries messages and sums. */

#include "tests/library/chain.h"

#include <glob.h>
#include <pthread.h>

enum { STEPS = 3, RANKS = 4, MICROBATCHES = 8 };

typedef enum Way { PUSH, PUSH_EARLY, PUSH_HALVES, PULL, WAYS } Way;

/* What the threads of a run share, and one of them. */
typedef struct Run {
    dps_program *program;
    dps_threads *threads;
    Way way;
    Vector *blocks; /* of all ranks, because they exchange them */
} Run;

typedef struct Thread {
    Host host; /* first: the functions of the chain take it */
    const Run *run;
    double losses[STEPS], norm;
    int pairs, fail_at, calls; /* fail_at: the number of the call that fails; 0: none */
    dps_status status;
    pthread_t thread;
} Thread;

static int backward(void *user, const dps_instruction *pass)
{
    const int failed = chain_backward_input(user, pass);
    return failed ? failed : chain_backward_weight(user, pass);
}

/* Both halves of an F&B, the backward first. */
static int overlap(void *user, const dps_instruction *pair)
{
    const dps_instruction *second = pair->second;
    ((Thread *)user)->pairs++;
    return (second->opcode == DPS_BACKWARD ? backward : chain_backward_input)(user, second) ||
           chain_forward(user, pair);
}

/* The norm of the gradients of all ranks; a stage with several copies counts several times. */
static int norm(void *user, const dps_instruction *instruction)
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

static const dps_functions functions = {.size = sizeof functions,
                                        .forward = chain_forward,
                                        .backward_input = chain_backward_input,
                                        .backward_weight = chain_backward_weight,
                                        .norm = norm,
                                        .update = chain_update,
                                        .renew = chain_renew};

static int call(Thread *thread, const dps_instruction *action)
{
    switch (action->opcode) {
    case DPS_BACKWARD: return backward(thread, action);
    case DPS_BACKWARD_INPUT: return chain_backward_input(thread, action);
    case DPS_BACKWARD_WEIGHT: return chain_backward_weight(thread, action);
    case DPS_OVERLAP: return overlap(thread, action);
    case DPS_NORM: return norm(thread, action);
    case DPS_UPDATE: return chain_update(thread, action);
    case DPS_RENEW: return chain_renew(thread, action);
    default: return chain_forward(thread, action);
    }
}

static dps_status pull(Thread *thread)
{
    const dps_instruction *action;
    dps_status status;
    while (!(status = dps_next(thread->host.rank, &action)) && action->opcode != DPS_END) {
        if (action->opcode >= DPS_SEND_FORWARD && action->opcode <= DPS_WAIT_REDUCE)
            return DPS_BAD_USAGE; /* the library carries these */
        dps_done(thread->host.rank, action, call(thread, action) ? DPS_FAILED : DPS_OK);
    }
    return status;
}

static dps_status push(Thread *thread)
{
    dps_functions own = functions;
    own.user = thread;
    if (thread->run->way != PUSH_HALVES) {
        own.backward = backward;
        own.overlap = overlap;
    }
    return dps_step(thread->host.rank, &own);
}

static void *run_rank(void *user)
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

static void join(Thread *thread, const Run *run, dps *d, uint32_t rank)
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

static void start(Run *run, dps *d, dps_program *program, Way way, Thread *threads, uint32_t ranks)
{
    *run = (Run){.program = program, .way = way};
    assert_int_equal(dps_threads_new(d, program, 60, &run->threads), DPS_OK);
    for (uint32_t r = 0; r < ranks; r++)
        join(&threads[r], run, d, r);
}

static void run_all(Thread *threads, uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(pthread_create(&threads[r].thread, NULL, run_rank, &threads[r]), 0);
    for (uint32_t r = 0; r < ranks; r++)
        pthread_join(threads[r].thread, NULL);
}

static void finish(Run *run, Thread *threads, uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++)
        host_close(&threads[r].host);
    dps_threads_free(run->threads);
}

static double total(const Thread *threads, int step)
{
    double loss = 0;
    for (uint32_t r = 0; r < RANKS; r++)
        loss += threads[r].losses[step];
    return loss;
}

/* --- tests --- */

static void compare_to_sequence(const Thread *threads, const dps_program_info *info)
{
    Vector weights[STAGES_MAX];
    for (uint32_t s = 0; s < info->stages; s++)
        weights[s] = initial_weights(s);
    for (int i = 0; i < STEPS; i++)
        assert_equal_numbers(total(threads, i), chain_step(weights, info->stages, info->microbatches));
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_weights(&threads[r].host, weights);
        assert_true(threads[r].norm > 0 && threads[r].norm == threads[0].norm);
    }
}

static void every_schedule_trains_in_every_way(void **state)
{
    (void)state;
    glob_t files;
    int pairs = 0;
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &files), 0);
    dps *d = dps_new(NULL);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        dps_program *program = compiled(d, files.gl_pathv[i], RANKS, MICROBATCHES);
        dps_program_info info = {.size = sizeof info};
        double losses[STEPS];
        assert_int_equal(dps_get_program_info(program, &info), DPS_OK);
        for (Way way = PUSH; way < WAYS; way++) {
            Thread threads[RANKS];
            Run run;
            start(&run, d, program, way, threads, RANKS);
            run_all(threads, RANKS);
            for (uint32_t r = 0; r < RANKS; r++) {
                if (threads[r].status != DPS_OK)
                    fail_msg("%s", dps_rank_error(threads[r].host.rank));
                pairs += threads[r].pairs;
            }
            if (!info.is_asynchronous)
                compare_to_sequence(threads, &info);
            for (int s = 0; s < STEPS; s++) /* every way gives the same bits */
                if (way == PUSH)
                    losses[s] = total(threads, s);
                else
                    assert_true(total(threads, s) == losses[s]);
            finish(&run, threads, RANKS);
        }
        dps_program_free(program);
    }
    assert_true(pairs > 0);
    globfree(&files);
    dps_free(d);
}

static void needed_functions_are_asked_for(void **state)
{
    (void)state;
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, "schedules/zb-h1.dps", 2, 4), *forward;
    dps_rank *rank;
    dps_functions own = {.size = sizeof own};
    dps_function *const given[] = {&own.forward, &own.backward_input, &own.backward_weight,
                                   &own.send,    &own.receive,        &own.wait};
    static const char *const names[] = {"forward", "backward_input", "backward_weight", "send", "receive", "wait"};
    char text[200];
    assert_int_equal(dps_rank_open(d, program, 0, NULL, &rank), DPS_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(text, sizeof text, "rank 0: dps_step: the program needs your function `%s`, which is NULL", names[i]);
        assert_int_equal(dps_step(rank, &own), DPS_BAD_USAGE);
        assert_string_equal(dps_rank_error(rank), text);
        *given[i] = chain_forward;
    }
    own.size = 0;
    assert_int_equal(dps_step(rank, &own), DPS_BAD_USAGE);
    assert_non_null(strstr(dps_rank_error(rank), "dps_functions has no size"));
    dps_rank_free(rank);

    assert_int_equal(dps_forward_half(d, program, &forward), DPS_OK); /* it needs no backward */
    assert_int_equal(dps_rank_open(d, forward, 0, NULL, &rank), DPS_OK);
    own = (dps_functions){.size = sizeof own, .forward = chain_forward};
    assert_int_equal(dps_step(rank, &own), DPS_BAD_USAGE);
    assert_non_null(strstr(dps_rank_error(rank), "`send`"));
    dps_rank_free(rank);
    dps_program_free(forward);
    dps_program_free(program);
    dps_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_trains_in_every_way),
        cmocka_unit_test(needed_functions_are_asked_for),
    };
    return cmocka_run_group_tests_name("push", tests, NULL, NULL);
}
