/* A rank keeps exactly as many versions of weights as are alive: the newest, and those on which a microbatch has run forward and
   not yet backward, or is still to run forward. */

#include "compiler/compile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* Most versions of a rank's one stage alive at once, counted over its whole order. */
static uint32_t most_alive(const Schedule *schedule, uint32_t rank)
{
    const Order *order = &schedule->orders[rank];
    const PlacedPipe *pipe = &schedule->pipes[0];
    uint32_t *used = calloc(pipe->microbatches, sizeof *used), newest = 0, most = 1;
    bool *forward = calloc(pipe->microbatches, sizeof *forward), *backward = calloc(pipe->microbatches, sizeof *backward);
    for (uint32_t i = 0; i < order->count; i++) {
        const Action *action = &order->actions[i];
        if (action->kind == ACTION_F) {
            forward[action->microbatch] = true;
            used[action->microbatch] = pipe->versions ? pipe->versions[action->microbatch] : newest;
        }
        if (action->kind == ACTION_B || action->kind == ACTION_I)
            backward[action->microbatch] = true;
        newest += action->kind == ACTION_U;
        uint32_t alive = 1;
        for (uint32_t version = 0; version < newest; version++) {
            bool needed = false;
            for (uint32_t m = 0; m < pipe->microbatches; m++)
                needed |= !backward[m] && (forward[m] ? used[m] == version : pipe->versions && pipe->versions[m] == version);
            alive += needed;
        }
        most = alive > most ? alive : most;
    }
    free(used);
    free(forward);
    free(backward);
    return most;
}

static void check(const char *text, const char *path, uint32_t ranks, uint32_t microbatches, uint32_t group, uint32_t *most)
{
    Arena arena = {0};
    Error error = {""};
    Parameters parameters = {0};
    Source source = {.path = path, .text = text, .size = strlen(text)};
    source_lines(&source, &arena);
    parameters_set_ranks(&parameters, ranks);
    parameters_set_microbatches(&parameters, microbatches);
    if (group)
        parameters_set(&parameters, &arena, "G", group);
    Compilation c = {.arena = &arena, .source = &source, .parameters = &parameters};
    if (compile(&c, &error) != STATUS_OK) {
        diag_print(c.diagnostics, stderr);
        fail_msg("%s: %u ranks, %u microbatches, G = %u: %s", path, ranks, microbatches, group, error.text);
    }
    assert_true(c.program->asynchronous);
    for (uint32_t r = 0; r < ranks; r++) {
        most[r] = c.plans[r].slots[SLOT_WEIGHTS];
        assert_int_equal(most[r], most_alive(&c.schedule, r));
        assert_int_equal(c.program->ranks[r].slots[SLOT_WEIGHTS], most[r]);
    }
    arena_free(&arena);
}

static void check_file(const char *path, uint32_t ranks, uint32_t microbatches, uint32_t group, uint32_t *most)
{
    Arena arena = {0};
    Error error = {""};
    Source source;
    if (source_read(path, &arena, &source, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    check(source.text, path, ranks, microbatches, group, most);
    arena_free(&arena);
}

/* Harlap et al., SOSP 2019: as many as microbatches are on their way. */
static void pipedream_keeps_one_for_each_on_its_way(void **state)
{
    (void)state;
    uint32_t most[64];
    for (uint32_t ranks = 1; ranks <= 7; ranks++)
        for (uint32_t microbatches = 1; microbatches <= 3 * ranks; microbatches++) {
            check_file("schedules/pipedream.dps", ranks, microbatches, 0, most);
            for (uint32_t r = 0; r < ranks; r++)
                if (microbatches >= 2 * (ranks - 1 - r))
                    assert_int_equal(most[r], ranks - r);
        }
}

/* Narayanan et al., ICML 2021: two. */
static void double_buffering_keeps_two(void **state)
{
    (void)state;
    uint32_t most[64];
    for (uint32_t ranks = 1; ranks <= 5; ranks++)
        for (uint32_t group = ranks; group <= ranks + 2; group++)
            for (uint32_t microbatches = 1; microbatches <= 4 * group + 1; microbatches += ranks) {
                check_file("schedules/pipedream-2bw.dps", ranks, microbatches, group, most);
                for (uint32_t r = 0; r < ranks; r++)
                    assert_int_equal(most[r], microbatches > group ? 2 : 1);
            }
}

/* SOSP 2019, section 3.3: with vertical sync every stage keeps as many as the first. A split backward needs its version until I. */
static void versions_named_by_the_pipe_are_kept(void **state)
{
    (void)state;
    uint32_t most[64];
    static const char vertical[] = "schedule vertical; ranks P = 4; microbatches M = 8;\n"
                                   "pipe a: P stages, stage s on s, M microbatches, microbatch m on version max(m-P+1, 0);\n"
                                   "let w = min(P-1-r, M);\n"
                                   "nF : w; nFBU : M-w; nBU : w;\n";
    static const char split[] = "schedule split; ranks P = 4; microbatches M = 8;\n"
                                "pipe a: P stages, stage s on s, M microbatches;\n"
                                "let w = min(P-r, M);\n"
                                "nF : w; nIFWU : M-w; nIWU : w;\n";
    for (uint32_t microbatches = 1; microbatches <= 16; microbatches += 3) {
        check(vertical, "vertical.dps", 4, microbatches, 0, most);
        for (uint32_t r = 0; r < 4 && microbatches >= 8; r++)
            assert_int_equal(most[r], 4);
        check(split, "split.dps", 4, microbatches, 0, most);
        for (uint32_t r = 0; r < 4; r++)
            assert_true(most[r] <= 5 - r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipedream_keeps_one_for_each_on_its_way),
        cmocka_unit_test(double_buffering_keeps_two),
        cmocka_unit_test(versions_named_by_the_pipe_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
