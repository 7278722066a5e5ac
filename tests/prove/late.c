/* The positions of messages: receives are directly before the passes that need them. Counts the steps of a run in which
   ranks run messages strictly in order and block at each one until the peer joins it. */

#include "tests/parse/front.h"

#include "compiler/order/communicate.h"
#include "compiler/prove/prove.h"

#include <glob.h>

static void with_messages(Front *front, const char *path, const Parameters *parameters)
{
    front_run_file(front, path, parameters);
    if (!front->good)
        return;
    PassTable table;
    Diagnostics *diagnostics = diag_new(&front->arena, &front->source);
    front->schedule.forward_only = schedule_runs_forward_only(&front->schedule);
    assert_true(prove_passes(&front->schedule, &front->arena, diagnostics, &table));
    copies_find(&front->schedule, &table, &front->arena);
    assert_true(prove_versions(&front->schedule, &table, &front->arena, diagnostics));
    communicate(&front->schedule, &table, &front->arena);
}

static void release(Front *front)
{
    free(front->report);
    arena_free(&front->arena);
}

static bool is_message(const Action *action) { return action_is_message(action); }

/* Whether two actions are the two ends of one message. */
static bool meet(const Action *a, const Action *b)
{
    static const uint8_t opposite[] = {[ACTION_SEND_F] = ACTION_RECV_F,
                                       [ACTION_RECV_F] = ACTION_SEND_F,
                                       [ACTION_SEND_B] = ACTION_RECV_B,
                                       [ACTION_RECV_B] = ACTION_SEND_B};
    const int up = a->kind == ACTION_SEND_F || a->kind == ACTION_RECV_B ? 1 : -1;
    return b->kind == opposite[a->kind] && b->pipe == a->pipe && b->stage == a->stage + up &&
           b->microbatch == a->microbatch;
}

/* Number of steps of a run in which a rank needs one step for a pass, an F&B, or a message. Both ranks of a message
   take this step together. */
static unsigned steps(const Schedule *schedule)
{
    uint32_t *next = calloc(schedule->ranks, sizeof *next), *acted = calloc(schedule->ranks, sizeof *acted);
    unsigned step = 0;
    for (bool moved = true; moved; step += moved) {
        moved = false;
        for (uint32_t r = 0; r < schedule->ranks; r++) {
            const Order *order = &schedule->orders[r];
            if (acted[r] == step + 1 || next[r] == order->count)
                continue;
            const Action *action = &order->actions[next[r]];
            if (!is_message(action)) {
                next[r] += action->overlap ? 2 : 1;
            } else {
                const uint32_t peer = action->peer;
                const Order *other = &schedule->orders[peer];
                if (acted[peer] == step + 1 || next[peer] == other->count || !meet(action, &other->actions[next[peer]]))
                    continue;
                next[r]++;
                next[peer]++;
                acted[peer] = step + 1;
            }
            acted[r] = step + 1;
            moved = true;
        }
    }
    for (uint32_t r = 0; r < schedule->ranks; r++)
        assert_int_equal(next[r], schedule->orders[r].count); /* there is no deadlock */
    free(next);
    free(acted);
    return step;
}

static unsigned steps_of(const char *path, int ranks, int microbatches, int chunks)
{
    Front front;
    Arena arena = {0};
    Parameters parameters = {0};
    parameters_set_ranks(&parameters, ranks);
    parameters_set_microbatches(&parameters, microbatches);
    if (chunks)
        parameters_set(&parameters, &arena, "chunks", chunks);
    with_messages(&front, path, &parameters);
    assert_true(front.good);
    const unsigned count = steps(&front.schedule);
    release(&front);
    arena_free(&arena);
    return count;
}

/* interleaved-1f1b with 8 ranks, 64 microbatches and 2 chunks: a middle rank has 768 actions. The last rank but one can
   start only after 11 steps, and ends at least 11 steps before the last rank to end: so 790 is the least. (With
   messages directly after the passes that produce them it would take 1060.) */
TEST(test_steps)
{
    assert_int_equal(steps_of("schedules/1f1b.dps", 2, 1, 0), 6); /* F, message, F, B, message, B */
    assert_int_equal(steps_of("schedules/naive.dps", 4, 2, 0), 2 * (4 + 3) * 2);
    assert_int_equal(steps_of("schedules/interleaved-1f1b.dps", 8, 64, 2), 790);
    assert_int_equal(steps_of("schedules/1f1b.dps", 8, 32, 0), 6 * 32 + 2 * 11);
    assert_true(steps_of("schedules/zb-h1.dps", 8, 32, 0) <= 240);
    assert_true(steps_of("schedules/zb-v.dps", 8, 32, 0) <= 464);
    assert_true(steps_of("schedules/dualpipe.dps", 8, 32, 0) <= 207);
    assert_true(steps_of("schedules/dualpipev.dps", 8, 32, 0) <= 423);
}

static bool needs(const Action *pass, const Action *receive)
{
    return pass->pipe == receive->pipe && pass->stage == receive->stage && pass->microbatch == receive->microbatch &&
           (receive->kind == ACTION_RECV_F ? pass->kind == ACTION_F : pass->kind == ACTION_B || pass->kind == ACTION_I);
}

/* Between a receive and the pass that needs it there are only other messages. */
static void check_late(const Schedule *schedule)
{
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const Order *order = &schedule->orders[r];
        const Action *pass = NULL;
        for (uint32_t i = order->count; i-- > 0;) {
            const Action *action = &order->actions[i];
            if (!is_message(action))
                pass = i > 0 && action[-1].overlap ? &action[-1] : action;
            else if (action->kind == ACTION_RECV_F || action->kind == ACTION_RECV_B)
                assert_true(pass && (needs(pass, action) || (pass->overlap && needs(pass + 1, action))));
        }
    }
}

TEST(test_receives_late)
{
    glob_t found;
    int checked = 0;
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        for (int ranks = 2; ranks <= 8; ranks += 2) {
            Front front;
            Parameters parameters = {0};
            parameters_set_ranks(&parameters, ranks);
            parameters_set_microbatches(&parameters, 3 * ranks);
            with_messages(&front, found.gl_pathv[i], &parameters);
            if (front.good) { /* the schedule refuses the other sizes */
                check_late(&front.schedule);
                assert_true(steps(&front.schedule) > 0);
                checked++;
            }
            release(&front);
        }
    assert_true(checked > 30);
    globfree(&found);
}

int main(void) { return test_program("late", NULL, NULL); }
