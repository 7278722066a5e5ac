/* Measures what libdps costs if the stages do nothing: processor time per action, with the messages, sums and updates
   that belong to it. An action is an F, B, I or W; an F&B is two. Prints lines: name value unit. */

#include "library/dps.h"

#include "base/compare.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RANKS = 2, MICROBATCHES = 2000, STEPS = 31 };

static void ok(dps_status status, const char *error)
{
    if (status == DPS_OK)
        return;
    fprintf(stderr, "library: %s\n", error);
    exit(1);
}

static double processor_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int nothing(void *calls, const dps_instruction *instruction)
{
    (void)instruction;
    ++*(uint64_t *)calls;
    return 0;
}

static uint64_t calls; /* calls of the host's functions */

static const dps_functions functions = {
    .size = sizeof functions,
    .user = &calls,
    .forward = nothing,
    .backward_input = nothing,
    .backward_weight = nothing,
    .backward = nothing,
    .overlap = nothing,
    .send = nothing,
    .receive = nothing,
    .wait = nothing,
    .reduce = nothing,
    .wait_reduce = nothing,
    .norm = nothing,
    .update = nothing,
};

static void push(dps_rank *rank) { ok(dps_step(rank, &functions), dps_rank_error(rank)); }

static void pull(dps_rank *rank)
{
    const dps_instruction *action;
    while (dps_next(rank, &action) == DPS_OK && action->opcode != DPS_END) {
        nothing(&calls, action);
        ok(dps_done(rank, action, DPS_OK), dps_rank_error(rank));
    }
}

/* The number of actions of a rank in a step. */
static uint32_t count(const dps_program *program, uint32_t rank)
{
    dps_instruction i = {.size = sizeof i};
    uint32_t actions = 0;
    for (uint32_t n = 0; dps_get_instruction(program, rank, n, 0, &i) == DPS_OK; n++)
        actions += i.opcode <= DPS_OVERLAP ? (uint32_t)i.halves : 0;
    return actions;
}

static void measure(dps *d, const dps_program *program, const char *schedule, const char *way, void (*step)(dps_rank *),
                    double goal)
{
    double times[STEPS];
    dps_rank *rank;
    ok(dps_rank_open(d, program, 0, NULL, &rank), dps_error(d));
    for (int i = 0; i < STEPS; i++) {
        const double begun = processor_time();
        step(rank);
        times[i] = (processor_time() - begun) / count(program, 0);
    }
    qsort(times, STEPS, sizeof *times, compare_doubles);
    printf("library.%s.%s %.0f ns an action (median of %d steps, %.0f..%.0f; goal %.0f)\n", way, schedule,
           times[STEPS / 2], STEPS, times[0], times[STEPS - 1], goal);
    dps_rank_free(rank);
}

/* --- ranks are threads; the library carries their messages --- */

typedef struct Thread {
    dps_rank *rank;
    void **messages;
    double times[STEPS];
    pthread_t thread;
} Thread;

static void *run_thread(void *argument)
{
    Thread *thread = argument;
    for (int i = 0; i < STEPS; i++) {
        const double begun = processor_time();
        push(thread->rank);
        thread->times[i] = processor_time() - begun;
    }
    return NULL;
}

static void measure_threads(dps *d, const dps_program *program, const char *schedule)
{
    Thread threads[RANKS];
    dps_threads *together;
    const dps_rank_options options = {.size = sizeof options, .post_early = 1};
    ok(dps_threads_new(d, program, 60, &together), dps_error(d));
    for (uint32_t r = 0; r < RANKS; r++) {
        dps_rank_info info = {.size = sizeof info};
        dps_get_rank_info(program, r, &info);
        threads[r].messages = calloc(info.slots[DPS_SLOT_MESSAGE], sizeof(void *));
        const dps_buffers buffers = {.size = sizeof buffers, .messages = threads[r].messages};
        ok(dps_rank_open(d, program, r, &options, &threads[r].rank), dps_error(d));
        ok(dps_join(threads[r].rank, together, &buffers), dps_rank_error(threads[r].rank));
    }
    for (int r = 0; r < RANKS; r++)
        if (pthread_create(&threads[r].thread, NULL, run_thread, &threads[r]) != 0)
            exit(1);
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r].thread, NULL);
    qsort(threads[0].times, STEPS, sizeof *threads[0].times, compare_doubles);
    printf("library.threads.%s %.0f ns an action (median of %d steps; two threads, with the time they wait)\n",
           schedule, threads[0].times[STEPS / 2] / count(program, 0), STEPS);
    for (int r = 0; r < RANKS; r++) {
        dps_rank_free(threads[r].rank);
        free(threads[r].messages);
    }
    dps_threads_free(together);
}

int main(void)
{
    static const char *const names[] = {"1f1b", "zb-h1", "dualpipe"};
    dps *d = dps_new(NULL);
    for (size_t i = 0; d && i < sizeof names / sizeof *names; i++) {
        char path[80];
        dps_program *program;
        const dps_options options = {.size = sizeof options, .ranks = RANKS, .microbatches = MICROBATCHES};
        snprintf(path, sizeof path, "schedules/%s.dps", names[i]);
        ok(dps_compile_file(d, path, &options, &program), dps_error(d));
        measure(d, program, names[i], "push", push, 300);
        measure(d, program, names[i], "pull", pull, 400);
        measure_threads(d, program, names[i]);
        dps_program_free(program);
    }
    dps_free(d);
    return calls == 0;
}
