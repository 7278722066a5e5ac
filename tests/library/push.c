/* Ranks that are threads: dps_step calls the functions of the chain, and the library carries messages and sums. */

#include "tests/library/ranks.h"

#include <glob.h>

/* --- tests --- */

static void compare_to_sequence(const Thread *threads, const dps_program_info *info)
{
    Vector weights[STAGES_MAX];
    for (uint32_t s = 0; s < info->stages; s++)
        weights[s] = initial_weights(s);
    for (int i = 0; i < STEPS; i++)
        assert_equal_numbers(total(threads, i), chain_step(weights, info));
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_weights(&threads[r].host, weights);
        assert_true(info->is_forward_only || threads[r].norm > 0);
        assert_true(threads[r].norm == threads[0].norm);
    }
}

TEST(every_schedule_trains_in_every_way)
{
    glob_t files;
    int pairs = 0;
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &files), 0);
    /* a schedule that computes weight gradients after its F&Bs */
    assert_int_equal(glob("tests/library/after.dps", GLOB_APPEND, NULL, &files), 0);
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
            for (int s = 0; s < STEPS; s++) /* the losses have the same bits for every Way */
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

TEST(needed_functions_are_asked_for)
{
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
    assert_non_null(strstr(dps_rank_error(rank), "dps_functions is NULL, its `size` is 0"));
    dps_rank_free(rank);

    assert_int_equal(dps_forward_half(d, program, &forward), DPS_OK); /* the forward half needs no backward functions */
    assert_int_equal(dps_rank_open(d, forward, 0, NULL, &rank), DPS_OK);
    own = (dps_functions){.size = sizeof own, .forward = chain_forward};
    assert_int_equal(dps_step(rank, &own), DPS_BAD_USAGE);
    assert_non_null(strstr(dps_rank_error(rank), "`send`"));
    dps_rank_free(rank);
    dps_program_free(forward);
    dps_program_free(program);
    dps_free(d);
}

int main(void) { return test_program("push", NULL, NULL); }
