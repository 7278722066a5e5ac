/* Hosts that fail or make mistakes while ranks run: a function of the host fails, at each of its calls in turn; calls
   come in the wrong order; ranks have different programs; the host has another version of
   dps.h. */

#include "tests/library/ranks.h"

#include <glob.h>

/* --- functions that fail --- */

/* Runs all ranks. The functions of rank `failing` fail at call number `at`. False: the rank makes fewer calls, so none
   has failed. */
static bool fail_one(dps *d, dps_program *program, Way way, uint32_t failing, int at)
{
    Thread threads[RANKS];
    Run run;
    start(&run, d, program, way, threads, RANKS);
    threads[failing].fail_at = at;
    run_all(threads, RANKS);
    const bool failed = threads[failing].calls >= at;
    const char *const error = dps_rank_error(threads[failing].host.rank);
    char place[20];
    snprintf(place, sizeof place, "rank %u, ", failing);
    if (failed) {
        assert_int_equal(threads[failing].status, DPS_FAILED);
        assert_memory_equal(error, place, strlen(place));
        assert_non_null(strstr(error, "broken on purpose"));
        assert_int_equal(dps_step(threads[failing].host.rank, &functions), DPS_FAILED);
    }
    for (uint32_t r = 0; r < RANKS; r++)
        /* the message of another rank contains that of the failing rank */
        if (threads[r].status != DPS_OK && r != failing)
            assert_non_null(strstr(dps_rank_error(threads[r].host.rank), error));
        else if (!failed)
            assert_int_equal(threads[r].status, DPS_OK);
    finish(&run, threads, RANKS);
    return failed;
}

TEST(a_rank_that_fails_ends_all_others)
{
    static const char *const names[] = {"zb-v", "dualpipe", "pipedream"};
    dps *d = dps_new(NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[80];
        snprintf(path, sizeof path, "schedules/%s.dps", names[i]);
        dps_program *program = compiled(d, path, RANKS, MICROBATCHES);
        for (Way way = PUSH; way < WAYS; way++)
            /* In each Way call number `at` fails on another rank. The loop ends when no rank makes so many calls. */
            for (int at = 1, ended = 0; ended < RANKS; at++)
                ended = fail_one(d, program, way, (uint32_t)(at + (int)way) % RANKS, at) ? 0 : ended + 1;
        dps_program_free(program);
    }
    dps_free(d);
}

/* --- functions that fail on a rank alone: it has joined no threads, so all its functions are called --- */

typedef struct Alone {
    const dps_program *program;
    uint32_t number;
    dps_rank *rank;
    int fail_at, calls;     /* fail_at: the number of the call that fails */
    dps_instruction failed; /* the instruction of the call that has failed */
} Alone;

static int nothing_or_fail(void *user, const dps_instruction *instruction)
{
    Alone *alone = user;
    if (++alone->calls != alone->fail_at)
        return 0;
    alone->failed = *instruction;
    dps_reason(alone->rank, "broken on purpose");
    return 7;
}

static dps_functions functions_alone(Alone *alone, Way way)
{
    dps_functions all = {.size = sizeof all, .user = alone};
    dps_function *const members[] = {
        &all.forward,     &all.backward_input, &all.backward_weight, &all.backward,    &all.overlap, &all.send,
        &all.receive,     &all.wait,           &all.reduce,          &all.wait_reduce, &all.norm,    &all.update,
        &all.update_async};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        *members[i] = nothing_or_fail;
    if (way == PUSH_HALVES)
        all.backward = all.overlap = NULL;
    return all;
}

/* The error names rank, instruction, line and reason. */
static void assert_error_of(const Alone *alone)
{
    dps_program_info info = {.size = sizeof info};
    char text[200], expected[400];
    dps_get_program_info(alone->program, &info);
    dps_instruction_text(alone->program, alone->number, (uint32_t)alone->failed.index, text, sizeof text);
    snprintf(expected, sizeof expected, "rank %u, instruction %d (%s, %s:%d): broken on purpose", alone->number,
             alone->failed.index, text, info.source, alone->failed.line);
    assert_string_equal(dps_rank_error(alone->rank), expected);
}

/* Runs a step. Every later step of a rank that has failed is refused. */
static void step_alone(Alone *alone, Way way)
{
    const dps_functions own = functions_alone(alone, way);
    const dps_status status = dps_step(alone->rank, &own);
    const bool failed = alone->calls >= alone->fail_at;
    assert_int_equal(status, failed ? DPS_FAILED : DPS_OK);
    if (!failed)
        return;
    assert_error_of(alone);
    assert_int_equal(dps_step(alone->rank, &own), DPS_FAILED);
    assert_int_equal(alone->calls, alone->fail_at);
    assert_error_of(alone);
}

/* Runs the rank as often as it makes calls. A different call fails each time. Adds the opcodes that have failed to
   `opcodes`, as bits. */
static void fail_at_every_call(dps *d, const dps_program *program, uint32_t rank, Way way, uint32_t *opcodes)
{
    const dps_rank_options options = {.size = sizeof options, .post_early = way == PUSH_EARLY};
    bool failed = true;
    for (int at = 1; failed; at++) {
        Alone alone = {.program = program, .number = rank, .fail_at = at};
        assert_int_equal(dps_rank_open(d, program, rank, &options, &alone.rank), DPS_OK);
        step_alone(&alone, way);
        failed = alone.calls >= at;
        *opcodes |= failed ? 1u << alone.failed.opcode : 0;
        dps_rank_free(alone.rank);
    }
}

TEST(every_call_of_every_function_may_fail)
{
    glob_t files;
    uint32_t opcodes = 0;
    dps *d = dps_new(NULL);
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &files), 0);
    assert_int_equal(glob("tests/library/after.dps", GLOB_APPEND, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        dps_program *program = compiled(d, files.gl_pathv[i], RANKS, MICROBATCHES);
        for (Way way = PUSH; way <= PUSH_HALVES; way++)
            for (uint32_t r = 0; r < RANKS; r++)
                fail_at_every_call(d, program, r, way, &opcodes);
        dps_program_free(program);
    }
    assert_int_equal(opcodes | 1u << DPS_END, (1u << (DPS_OVERLAP_FORWARD + 1)) - 1);
    globfree(&files);
    dps_free(d);
}

/* --- calls in the wrong order --- */

static dps_rank *running; /* call_everything runs within a step of this rank */
static int calls_made;

static int call_everything(void *user, const dps_instruction *pass)
{
    const dps_instruction *action;
    double number = 0;
    (void)user;
    assert_int_equal(dps_next(running, &action), DPS_BAD_USAGE);
    assert_null(action);
    assert_int_equal(dps_step(running, &functions), DPS_BAD_USAGE);
    assert_int_equal(dps_gather(running, &number, sizeof number, &number), DPS_BAD_USAGE);
    assert_string_equal(dps_rank_error(running),
                        "rank 0: dps_gather: the rank has joined no threads: call dps_join first");
    assert_int_equal(dps_done(running, pass, DPS_FAILED), DPS_BAD_USAGE);
    calls_made++;
    return 0;
}

static int nothing(void *user, const dps_instruction *instruction)
{
    (void)user, (void)instruction;
    return 0;
}

TEST(calls_in_the_wrong_order_are_refused)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, "schedules/1f1b.dps", 2, 4);
    dps_threads *threads;
    const dps_instruction *action;
    const dps_functions calls = {.size = sizeof calls,
                                 .forward = call_everything,
                                 .backward = call_everything,
                                 .send = nothing,
                                 .receive = nothing,
                                 .wait = nothing};
    void *messages[10];
    const dps_buffers buffers = {.size = sizeof buffers, .messages = messages};
    assert_int_equal(dps_threads_new(d, program, 1, &threads), DPS_OK);
    assert_int_equal(dps_rank_open(d, program, 0, NULL, &running), DPS_OK);
    assert_int_equal(dps_step(running, &calls), DPS_OK);
    assert_int_equal(calls_made, 2 * 4);
    assert_int_equal(dps_next(running, &action), DPS_OK);
    assert_int_equal(dps_step(running, &calls), DPS_BAD_USAGE);
    assert_string_equal(dps_rank_error(running), "rank 0: dps_step: this rank is within a step: end that step first");
    assert_int_equal(dps_join(running, threads, &buffers), DPS_BAD_USAGE);
    assert_int_equal(dps_done(running, action, DPS_OK), DPS_OK);
    assert_int_equal(dps_step(running, &calls), DPS_BAD_USAGE); /* refused: the rank is in the middle of a step */
    dps_rank_free(running);
    dps_threads_free(threads);
    dps_threads_free(NULL);
    dps_program_free(program);
    dps_free(d);
}

TEST(ranks_join_the_threads_of_their_program_once)
{
    dps *d = dps_new(NULL);
    dps_program *two = compiled(d, "schedules/1f1b.dps", 2, 4), *four = compiled(d, "schedules/1f1b.dps", 4, 4);
    dps_threads *threads;
    dps_rank *rank, *again, *other;
    void *messages[10];
    float *gradient = NULL;
    const dps_buffers buffers = {.size = sizeof buffers, .messages = messages};
    const dps_buffers wrong[] = {
        {0}, {.size = sizeof *wrong}, {.size = sizeof *wrong, .messages = messages, .gradients = (void **)&gradient}};
    assert_int_equal(dps_threads_new(d, two, 1, &threads), DPS_OK);
    assert_int_equal(dps_rank_open(d, two, 0, NULL, &rank), DPS_OK);
    assert_int_equal(dps_rank_open(d, two, 0, NULL, &again), DPS_OK);
    assert_int_equal(dps_rank_open(d, four, 3, NULL, &other), DPS_OK);
    assert_int_equal(dps_join(other, threads, &buffers), DPS_BAD_USAGE);
    assert_string_equal(
        dps_rank_error(other),
        "rank 3: dps_join: these threads run another program: make threads for this one with dps_threads_new");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(dps_join(rank, threads, &wrong[i]), DPS_BAD_USAGE);
        assert_non_null(strstr(dps_rank_error(rank), "dps_join: dps_buffers "));
    }
    assert_int_equal(dps_join(rank, threads, &buffers), DPS_OK);
    assert_int_equal(dps_join(again, threads, &buffers), DPS_BAD_USAGE);
    assert_non_null(strstr(dps_rank_error(again), "has joined these threads already"));
    dps_rank_free(rank);
    dps_rank_free(again);
    dps_rank_free(other);
    dps_threads_free(threads);
    dps_program_free(two);
    dps_program_free(four);
    dps_free(d);
}

/* A rank cannot join the threads that another rank has joined if its copy of a stage has another number or size of
   elements, or no gradient. */
TEST(copies_of_a_stage_sum_the_same)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, "schedules/dualpipe.dps", 2, 4);
    dps_threads *threads;
    dps_rank *ranks[2];
    void *messages[100];
    float gradients[2][10] = {{0}};
    void *const both[] = {gradients[0], gradients[1]};
    const size_t ten[] = {10, 10}, five[] = {5, 5};
    const dps_buffers good = {
        .size = sizeof good, .messages = messages, .gradients = both, .elements = ten, .element_bytes = 4};
    dps_buffers fewer = good, other = good, none = good;
    fewer.elements = five;
    other.element_bytes = 8;
    none.gradients = NULL;
    const dps_buffers wrong[] = {fewer, other, none};
    assert_int_equal(dps_threads_new(d, program, 1, &threads), DPS_OK);
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(dps_rank_open(d, program, r, NULL, &ranks[r]), DPS_OK);
    assert_int_equal(dps_join(ranks[0], threads, &good), DPS_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(dps_join(ranks[1], threads, &wrong[i]), DPS_BAD_USAGE);
        assert_non_null(strstr(dps_rank_error(ranks[1]), "other `elements` or `element_bytes`"));
    }
    assert_int_equal(dps_join(ranks[1], threads, &good), DPS_OK);
    for (uint32_t r = 0; r < 2; r++)
        dps_rank_free(ranks[r]);
    dps_threads_free(threads);
    dps_program_free(program);
    dps_free(d);
}

/* Only rank 1 runs. At the deadline its error names the rank that is missing. */
TEST(a_missing_rank_is_named)
{
    dps *d = dps_new(NULL);
    Thread thread;
    Run run = {.program = compiled(d, "schedules/1f1b.dps", RANKS, MICROBATCHES), .way = PUSH};
    assert_int_equal(dps_threads_new(d, run.program, 0.05, &run.threads), DPS_OK);
    join(&thread, &run, d, 1);
    run_rank(&thread);
    assert_int_equal(thread.status, DPS_FAILED);
    assert_non_null(strstr(dps_rank_error(thread.host.rank), "(WAIT "));
    assert_non_null(strstr(dps_rank_error(thread.host.rank), "no answer from rank 0 within 0.05 s"));
    assert_null(strstr(dps_rank_error(thread.host.rank), "--deadline")); /* a library has no options */
    finish(&run, &thread, 1);
    dps_program_free(run.program);
    dps_free(d);
}

/* --- versions of the header --- */

TEST(structs_of_other_versions_are_taken)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, "schedules/1f1b.dps", 1, 4);
    dps_rank *rank;
    struct {
        dps_rank_options known;
        void *newer;
    } options = {.known = {.size = sizeof options}, .newer = d};
    assert_int_equal(dps_rank_open(d, program, 0, &options.known, &rank), DPS_BAD_USAGE);
    options.newer = NULL;
    assert_int_equal(dps_rank_open(d, program, 0, &options.known, &rank), DPS_OK);

    /* An older version of the struct ends before `norm`. The library must not use the memory after it. */
    dps_functions older;
    memset(&older, 0xee, sizeof older);
    memset(&older, 0, offsetof(dps_functions, norm));
    older.size = offsetof(dps_functions, norm);
    older.forward = older.backward = nothing;
    assert_int_equal(dps_step(rank, &older), DPS_OK);
    assert_int_equal(dps_step(rank, NULL), DPS_BAD_USAGE);
    struct {
        dps_functions known;
        dps_function newer;
    } newer = {.known = {.size = sizeof newer, .forward = nothing, .backward = nothing}, .newer = nothing};
    assert_int_equal(dps_step(rank, &newer.known), DPS_BAD_USAGE);
    assert_non_null(strstr(dps_rank_error(rank), "sets a member that this libdps does not know"));
    newer.newer = NULL;
    assert_int_equal(dps_step(rank, &newer.known), DPS_OK);

    const dps_instruction *action;
    assert_int_equal(dps_next(rank, &action), DPS_OK);
    assert_int_equal(action->size, sizeof *action);
    dps_rank_free(rank);
    dps_program_free(program);
    dps_free(d);
}

int main(void) { return test_program("hostile", NULL, NULL); }
