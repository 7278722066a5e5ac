/* The orders that steps expand to, and the values of their expressions. */

#include "compiler/order/slots.h"
#include "compiler/output/emit.h"
#include "tests/parse/front.h"

static char *csv_of(const Schedule *schedule, bool messages)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    emit_csv(schedule, messages, stream);
    fclose(stream);
    return text;
}

static void assert_order(const char *text, const char *expected)
{
    Front front;
    front_run(&front, text);
    if (!front.good)
        fail_msg("%s", front.report);
    char *order = csv_of(&front.schedule, false);
    assert_string_equal(order, expected);
    free(order);
    front_close(&front);
}

/* Removes empty cells, which are idle time. */
static void drop_empty_cells(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        const bool empty_before = to == text || to[-1] == ',' || to[-1] == '\n';
        if (*from != ',' || !empty_before)
            *to++ = *from;
    }
    *to = '\0';
}

static void assert_equals_fixture(const char *schedule, int ranks, int microbatches, const char *fixture)
{
    Arena arena = {0};
    Error error;
    char *expected;
    size_t size;
    assert_int_equal(file_read(fixture, &arena, &expected, &size, &error), STATUS_OK);
    drop_empty_cells(expected);
    Parameters parameters = {0};
    parameters_set_ranks(&parameters, ranks);
    parameters_set_microbatches(&parameters, microbatches);
    Front front;
    front_run_file(&front, schedule, &parameters);
    assert_true(front.good);
    char *order = csv_of(&front.schedule, false);
    assert_string_equal(order, expected);
    free(order);
    front_close(&front);
    arena_free(&arena);
}

/* The fixtures are from pytorch/pytorch, test/distributed/pipelining/artifacts. Their empty cells (idle steps) are left
   out. */
TEST(orders_equal_pytorch)
{
    assert_equals_fixture("schedules/dualpipev.dps", 4, 10, "tests/parse/dualpipev_4rank_10mb.csv");
    assert_equals_fixture("schedules/interleaved-zb.dps", 2, 8, "tests/parse/zb1p_2rank_2stagep_compute.csv");
}

#define ONE(stages) \
    "schedule t; ranks P = 1; microbatches M = 3; pipe a: " #stages " stages, stage s on 0, M microbatches;\n"

TEST(words)
{
    assert_order(ONE(2) "nF0F1 : M; nB1B0 : M;", "0F0,1F0,0F1,1F1,0F2,1F2,1B0,0B0,1B1,0B1,1B2,0B2\n");
    assert_order(ONE(2) "F0 F1; F0F1 : 2; B1 : 3; B0 : 3;", "0F0,1F0,0F1,1F1,0F2,1F2,1B0,1B1,1B2,0B0,0B1,0B2\n");
    assert_order(ONE(1) "F B : 2; F0; I0; W0;", "0F0,0B0,0F1,0B1,0F2,0I2,0W2\n");
    /* in a step with a W, B is I; W takes the oldest I of the rank, W0 the oldest of its chunk */
    assert_order(ONE(2) "nF0F1 : 3; nI1 : 3; nI0 : 3; nW0 : 1; W : 4; W0;",
                 "0F0,1F0,0F1,1F1,0F2,1F2,1I0,1I1,1I2,0I0,0I1,0I2,0W0,1W0,1W1,1W2,0W1,0W2\n");
    assert_order(ONE(1) "nF : 3; nB; nBW : 1; nB;", "0F0,0F1,0F2,0B0,0I1,0W1,0B2\n");
}

TEST(named_and_computed)
{
    assert_order(ONE(2) "repeat k < 6 { F{k/3}; } repeat k < 3 { B1[2-k]; } repeat k < 3 { B{1-1}[k]; }",
                 "0F0,0F1,0F2,1F0,1F1,1F2,1B2,1B1,1B0,0B0,0B1,0B2\n");
    /* a named microbatch does not change the order of the others */
    assert_order(ONE(1) "F[2]; F : 2; I : 2; W[1]; W; B[2];", "0F2,0F0,0F1,0I0,0I1,0W1,0W0,0B2\n");
}

TEST(overlaps_and_splits)
{
    assert_order(ONE(1) "F; nFB : 2 overlap; B;", "0F0,(0F1;0B0)OVERLAP_F_B,(0F2;0B1)OVERLAP_F_B,0B2\n");
    assert_order(ONE(1) "F; nFB : 2 overlap from 1; B;", "0F0,0F1,0B0,(0F2;0B1)OVERLAP_F_B,0B2\n");
    assert_order(ONE(1) "F; F&B : 2; B;", "0F0,(0F1;0B0)OVERLAP_F_B,(0F2;0B1)OVERLAP_F_B,0B2\n");
    assert_order(ONE(1) "F; nFB : 2 split from 1 overlap; B; W;",
                 "0F0,(0F1;0B0)OVERLAP_F_B,(0F2;0I1)OVERLAP_F_B,0B2,0W1\n");
    /* F1 and B1 form the F&B, as they follow each other; `split from` counts the backwards of all repetitions of the
       step */
    assert_order(ONE(2) "F0F1; nF0F1B1B0 : 2 overlap from 1 split from 1; B1B0; W : 3;",
                 "0F0,1F0,0F1,1F1,1B0,0I0,0F2,(1F2;1I1)OVERLAP_F_B,0I1,1B2,0B2,0W0,1W1,0W1\n");
}

/* `M of N`: the order for N without the microbatches that do not exist, and without their halves of F&Bs. */
TEST(microbatches_that_do_not_exist)
{
    const char *const text =
        "schedule t; ranks P = 1; microbatches M = 2; pipe a: 1 stages, stage s on 0, M of 4 microbatches;\n"
        "nF : 2; nFI : 2 overlap; nI : 2; nW : 4;";
    assert_order(text, "0F0,0F1,0I0,0I1,0W0,0W1\n");
    REPORTS("schedule t; ranks P = 1; microbatches M = 2; pipe a: 1 stages, stage s on 0, M of 4 microbatches; F : 5;",
            "rank 0: too many passes: 5 F for 4 microbatches");
}

TEST(slots)
{
    /* passes run in the order of their time slots, within a slot in that of the file; microbatches are numbered in this
       order */
    assert_order(ONE(2) "repeat m < M { at 4*m+3 : B0; at 4*m : F0; at 4*m+2 : B1; at 4*m+1 : F1; }",
                 "0F0,1F0,1B0,0B0,0F1,1F1,1B1,0B1,0F2,1F2,1B2,0B2\n");
    assert_order(ONE(1) "at 1 : B : 3; at -5 : F : 2; at 1 : F[2];", "0F0,0F1,0B0,0B1,0B2,0F2\n");
    assert_order(ONE(1) "at P ? 2 : 3 : F; at 4 : F&B; at 3 : F; at 6 : B; at 5 : B;",
                 "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n");
    /* W takes the first free slots in which a weight pass waits; without free slots it comes last */
    assert_order(ONE(1) "repeat m < M { at 3*m : F; at 3*m+1 : I; } W : 3;", "0F0,0I0,0W0,0F1,0I1,0W1,0F2,0I2,0W2\n");
    assert_order(ONE(1) "repeat m < M { at 2*m : F; at 2*m+3 : I; } W : 3;", "0F0,0F1,0I0,0F2,0I1,0W0,0I2,0W1,0W2\n");
    assert_order(ONE(2) "W0 : 3; at 0 : F0 F1 : 3; at 10 : I1; at 12 : I0 : 3; at 20 : I1 : 2; W1 : 3;",
                 "0F0,1F0,0F1,1F1,0F2,1F2,1I0,0I0,0I1,0I2,0W0,0W1,0W2,1W0,1I1,1I2,1W1,1W2\n");
    assert_order(ONE(1) "W[2]; at 0 : F I : 3; W[0]; at 4 : W;", "0F0,0I0,0F1,0I1,0F2,0I2,0W2,0W0,0W1\n");
    /* if the passes of one rank have time slots, those of other ranks need not have any */
    assert_order("schedule t; ranks P = 2; microbatches M = 2; pipe a: P stages, stage s on s, M microbatches;\n"
                 "if r == 0 { at 1 : B : M; at 0 : F : M; } else { nFIW : M; }",
                 "0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1I1,1W1\n");
}

TEST(slots_that_are_wrong)
{
    REPORTS(ONE(1) "F; at 0 : F : 2; at 1 : B : 3;",
            "t.dps:2:1: error: rank 0: this pass has no time slot, but others of this rank have one: then");
    REPORTS(ONE(1) "at 4 : F; at 1/(M-3) : F;", "division by zero");
    REPORTS(ONE(1) "at 4 : F : 3; at 7 : F; at 5 : B : 3;",
            "2:22: error: rank 0: too many passes: 3 + 1 = 4 F for 3 microbatches", "2:8: note: 3 of them",
            "help: here in slot 7");
    REPORTS(ONE(1) "at 4 : F; at 3 : W; at 5 : I;", "2:18: error: rank 0: no I is left for this W to complete",
            "help: here in slot 3");
    REPORTS(ONE(1) "at 4 : F : 2; W : 3; at 5 : I : 2;", "rank 0: no I is left for this W to complete");
    REPORTS(ONE(1) "at 0 F;", "expected `:`, not `F`");
    REPORTS(ONE(1) "at 0 : repeat i < 2 { F; }", "expected a pass, not `repeat`");
    REPORTS(ONE(1) "att 0 : F;", "expected an item of the schedule, not `att`", "help: did you mean `at`?");
}

/* Slots far apart and unordered are sorted, and equal ones keep their order. */
TEST(many_slots)
{
    enum { COUNT = 3000 };
    SlotKey *keys = calloc(COUNT, sizeof *keys), *scratch = calloc(COUNT, sizeof *scratch);
    const int64_t ranges[] = {1, 7, 2048, 5000, INT64_C(1) << 33, INT64_MAX};
    uint64_t random = 1;
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const int64_t slot = (int64_t)(random >> 1) % ranges[k];
            keys[i] = (SlotKey){.slot = random & 1 ? slot : -slot, .index = i};
        }
        keys[COUNT / 2].slot = ranges[k] == INT64_MAX ? INT64_MIN : 0;
        slots_sort(keys, scratch, COUNT);
        bool seen[COUNT] = {false};
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_false(seen[keys[i].index]);
            seen[keys[i].index] = true;
            assert_true(i == 0 || keys[i - 1].slot < keys[i].slot ||
                        (keys[i - 1].slot == keys[i].slot && keys[i - 1].index < keys[i].index));
        }
    }
    slots_sort(keys, scratch, 0);
    free(keys);
    free(scratch);
}

TEST(blocks)
{
    assert_order("schedule t; ranks P = 3; microbatches M = 2; pipe a: P stages, stage s on s, M microbatches;\n"
                 "let late = r > 0; if !late { F : M; B : M; } else if r == 1 { let n = M; repeat i < n { let j = 1; "
                 "FB : j; } }\n"
                 "else { FIW : M; }",
                 "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n2F0,2I0,2W0,2F1,2I1,2W1\n");
}

TEST(pipes_and_messages)
{
    Front front;
    front_run(&front,
              "schedule t; ranks P = 2; microbatches M = 2; pipe down: P stages, stage s on s, 1 microbatches;\n"
              "pipe up: P stages, stage s on P-1-s, 1 microbatches; chunk 0 = r == 0 ? down : up; chunk 1 = r == 0 ? "
              "up : down;\n"
              "nF0F1 : 1; nB1B0 : 1;");
    assert_true(front.good);
    const Schedule *schedule = &front.schedule;
    char *order = csv_of(schedule, false);
    assert_string_equal(order, "p0:0F0,p1:1F0,p1:1B0,p0:0B0\np1:0F0,p0:1F0,p0:1B0,p1:0B0\n");
    free(order);
    assert_int_equal(schedule->pipes[1].first, 1);
    assert_int_equal(stage_home(&schedule->pipes[1], 0, 0).rank, 1);
    assert_int_equal(stage_home(&schedule->pipes[1], 0, 0).chunk, 0);
    assert_int_equal(stage_home(&schedule->pipes[0], 1, 0).chunk, 1);
    assert_int_equal(source_line(&front.source, schedule->orders[0].actions[0].span.begin), 3);
    assert_int_equal(source_column(&front.source, schedule->orders[0].actions[1].span.begin), 4); /* the F1 in nF0F1 */
    const Action message = {.kind = ACTION_RECV_B, .pipe = 1, .stage = 0, .microbatch = 0};
    order_append(&schedule->orders[0], &front.arena, &message);
    order = csv_of(schedule, true);
    assert_non_null(strstr(order, "p0:0B0,p1:0RECV_B0\n"));
    free(order);
    order = csv_of(schedule, false);
    assert_non_null(strstr(order, "p0:0B0\n"));
    free(order);
    front_close(&front);
}

/* --- stages on several ranks --- */

/* The first stage is on ranks 0 and 1, the second on rank 2. */
#define REPLICAS                                                                                          \
    "schedule t; ranks P = 3; microbatches M = 5; pipe a: 2 stages, stage s of m on s == 0 ? m%2 : 2, M " \
    "microbatches;\n"

TEST(replicas)
{
    /* ranks 0 and 1 each have a copy of stage 0, and run only the microbatches of their copy, in order */
    assert_order(REPLICAS "nF : r == 2 ? M : 3-r; nB : r == 2 ? M : 3-r;",
                 "0F0,0F2,0F4,0B0,0B2,0B4\n0F1,0F3,0B1,0B3\n1F0,1F1,1F2,1F3,1F4,1B0,1B1,1B2,1B3,1B4\n");
    /* in F[e], e is the number of a microbatch in the whole pipe: rank 0 has F[0], F[2], F[4] */
    assert_order(
        REPLICAS "if r == 2 { nFB : M; } else { let n = 3-r; repeat k < n { F[2*k+r]; } nBW : n; }",
        "0F0,0F2,0F4,0I0,0W0,0I2,0W2,0I4,0W4\n0F1,0F3,0I1,0W1,0I3,0W3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4\n");
    /* `M of 4 microbatches` with M = 3; a stage whose next stage is on the same rank for some microbatches only */
    assert_order("schedule t; ranks P = 2; microbatches M = 3; pipe a: 2 stages, stage s of m on s == 0 ? m%2 : m/2%2, "
                 "M of 4 microbatches;\n"
                 "nF0 : 2; nF1 : 2; nB1 : 2; nB0 : 2;",
                 "0F0,0F2,1F0,1F1,1B0,1B1,0B0,0B2\n0F1,1F2,1B2,0B1\n");
    /* a second pipe on another rank: `chunk 0` names the pipe whose stage a rank has */
    assert_order("schedule t; ranks P = 3; microbatches M = 4; pipe a: 1 stages, stage s of m on m%2, 3 microbatches;\n"
                 "pipe b: 1 stages, stage s on 2, 1 microbatches; chunk 0 = r < 2 ? a : b; nFB : r == 0 ? 2 : 1;",
                 "p0:0F0,p0:0B0,p0:0F2,p0:0B2\np0:0F1,p0:0B1\np1:0F0,p1:0B0\n");
    /* an expression that names the microbatch but does not depend on it: the stage is not on several ranks */
    Front front;
    front_run(&front, "schedule t; ranks P = 2; microbatches M = 2; pipe a: P stages, stage s of m on s + 0*m, M "
                      "microbatches; nFB : M;");
    assert_true(front.good);
    assert_false(front.schedule.pipes[0].replicated);
    front_close(&front);
}

TEST(replicas_that_are_wrong)
{
    REPORTS(REPLICAS "F[1]; nFB : M;",
            "2:1: error: rank 0: microbatch 1 of pipe a goes through stage 0 on rank 1, not here",
            "stage 0 has microbatches 0, 2, 4 here", "rank 1: too many passes: 5 F for 2 microbatches on this rank");
    REPORTS(REPLICAS "nF : 3;", "2:2: error: rank 1: too many passes: 3 F for 2 microbatches on this rank",
            "repetition 3 of 3");
    REPORTS(
        "schedule t; ranks P = 2; microbatches M = 1; pipe a: 1 stages, stage s of m on m%2, M microbatches; nF : 1;",
        "rank 1: no stage lives on this rank");
    REPORTS("schedule t; ranks P = 2; microbatches M = 1; pipe a: 1 stages, stage s of m on m%2, M of 2 microbatches; "
            "nF : 1;",
            "rank 1: this rank has a copy of stage 0 of pipe a, but no microbatch goes through it: the pipe has 1 "
            "microbatch");
    REPORTS("schedule t; ranks P = 2; microbatches M = 3; pipe a: 1 stages, stage s of m on m, M microbatches; nF : 1;",
            "stage 0 would live on rank 2: the ranks are 0 to 1", "here m = 2");
    REPORTS(
        "schedule t; ranks P = 2; microbatches M = 3; pipe a: 1 stages, stage s of m on 1/m, M microbatches; nF : 1;",
        "division by zero: 1 / 0", "here m = 0");
    REPORTS("schedule t; ranks P = 2; microbatches M = 3; pipe a: 1 stages, stage s of s on s, M microbatches; nF : 1;",
            "`s` is declared twice");
    REPORTS("schedule t; ranks P = 2; microbatches M = 3; pipe a: 1 stages, stage s of m on r, M microbatches; nF : 1;",
            "r, the rank, cannot be used here");
    REPORTS(
        "schedule t; ranks P = 2; microbatches M = 3; pipe a: 1 stages, stage s of m on m%2, M microbatches; nF : m;",
        "unknown name `m`");
    REPORTS("schedule t; ranks P = 1; microbatches M = 1048576; pipe a: 65535 stages, stage s of m on 0, M "
            "microbatches; nF : 1;",
            "137436856320 forward and backward passes: a schedule can have at most 134217728");
}

/* --- values --- */

static void assert_value(const char *expression, int64_t expected)
{
    char text[512];
    snprintf(text, sizeof text, TWO "let x = %s; require x == %lld, \"wrong\"; nFB : M;", expression,
             (long long)expected);
    Front front;
    front_run(&front, text);
    if (!front.good)
        fail_msg("%s", front.report);
    front_close(&front);
}

TEST(values)
{
    static const struct {
        const char *expression;
        int64_t value;
    } cases[] = {
        {"1+2*3", 7},
        {"(1+2)*3", 9},
        {"7/2", 3},
        {"-7/2", -3},
        {"-7%3", -1},
        {"7-3-2", 2},
        {"2*-3", -6},
        {"!3", 0},
        {"!!3", 1},
        {"1 < 2 && 2 < 3", 1},
        {"0 || 5", 1},
        {"0 && 1/0", 0},
        {"1 || 1/0", 1},
        {"1 ? 2 : 1/0", 2},
        {"0 ? 1/0 : 3", 3},
        {"0 ? 1 : 0 ? 2 : 3", 3},
        {"1 ? 2 : 0 ? 3 : 4", 2},
        {"1 ? 0 ? 5 : 6 : 7", 6},
        {"1 || 0 && 0", 1},
        {"1 + 1 == 2", 1},
        {"3 != 3", 0},
        {"2 >= 2", 1},
        {"2 <= 1", 0},
        {"min(3,1,2)", 1},
        {"max(3,1,7,2)", 7},
        {"abs(-4)", 4},
        {"abs(4)", 4},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775807 - 1 < 0", 1},
        {"- - 3", 3},
        {"P*M + 1", 5},
        {"cost(F)", 1000000},
        {"cost(B) - cost(I) - cost(W)", 0},
        {"cost(FB)", 3000000},
        {"cost(comm) + cost(U)", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_value(cases[i].expression, cases[i].value);
}

TEST(expressions_without_value)
{
    REPORTS(TWO "let x = 9223372036854775807 + P;", "2:9: error: 9223372036854775807 + 2 does not fit in 64 bits",
            "P = 2");
    REPORTS(TWO "let x = -9223372036854775807 - P;", "-9223372036854775807 - 2 does not fit in 64 bits");
    REPORTS(TWO "let x = 4611686018427387904 * P;", "4611686018427387904 * 2 does not fit");
    REPORTS(TWO "let low = -9223372036854775807 - 1; let x = low / -1;", "-9223372036854775808 / -1 does not fit");
    REPORTS(TWO "let low = -9223372036854775807 - 1; let x = low % -1;", "-9223372036854775808 % -1 does not fit");
    REPORTS(TWO "let low = -9223372036854775807 - 1; let x = -low;", "-(-9223372036854775808) does not fit");
    REPORTS(TWO "let low = -9223372036854775807 - 1; let x = abs(low);", "abs(-9223372036854775808) does not fit");
    REPORTS(TWO "let x = 10 / (P-2);", "2:9: error: division by zero: 10 / 0", "P = 2");
    REPORTS(TWO "let x = 10 % (r-1);", "rank 1: division by zero: 10 % 0", "here r = 1");
    REPORTS(TWO "F : M/(r-r);", "rank 0 (and 1 more): division by zero: 2 / 0");
    REPORTS("schedule t; ranks P = 1/0; microbatches M = 2; pipe a: P stages, stage s on s, M microbatches;",
            "1:23: error: division by zero");
    REPORTS("schedule t; ranks P = 1; microbatches M = 2; pipe a: P/0 stages, stage s on s, M microbatches;",
            "division by zero: 1 / 0");
    REPORTS("schedule t; ranks P = 1; microbatches M = 2; pipe a: P stages, stage s on s/s, M microbatches;",
            "division by zero: 0 / 0", "here s = 0");
}

/* --- wrong steps --- */

TEST(wrong_steps)
{
    REPORTS(TWO "nF : M+r; nB : M;", "t.dps:2:2: error: rank 1: too many passes: 3 F for 2 microbatches",
            "help: here M = 2, r = 1, in repetition 3 of 3");
    REPORTS(TWO "nF : M; nB : M+1;", "2:10: error: rank 0 (and 1 more): too many passes: 3 B for 2 microbatches");
    REPORTS(TWO "nF : M; B; nI : M;",
            "2:13: error: rank 0 (and 1 more): too many passes: 1 + 2 = 3 B and I for 2 microbatches",
            "2:9: note: 1 of them");
    REPORTS(TWO "F; if 1 { F; repeat i < M { F; nB : i; } }",
            "2:29: error: rank 0 (and 1 more): too many passes: 1 + 1 + 2 = 4 F for 2 microbatches",
            "2:1: note: 1 of them", "2:11: note: 1 of them", "help: here i = 0");
    REPORTS(TWO "F; F; F; F; F; F; F; F;",
            "2:7: error: rank 0 (and 1 more): too many passes: 1 + 1 + 1 + 1 + 1 + 1 + 2 = 8 F for 2 microbatches");
    REPORTS(ONE(2) "nF1 : M; nF0F1 : 2;",
            "2:13: error: rank 0: too many passes: 3 + 2 = 5 F of chunk 1 for 3 microbatches");
    REPORTS(TWO "nF : M-3;", "2:6: error: rank 0 (and 1 more): the number of repetitions is negative: -1",
            "help: here M = 2; max(0, ...)");
    REPORTS(TWO "repeat i < r-1 { F; }", "rank 0: the number of repetitions is negative: -1");
    REPORTS(TWO "nFB : M overlap from -1;", "`from` is negative: -1");
    REPORTS(TWO "nF : M; I; W : 1+r;", "2:12: error: rank 1: no I is left for this W to complete",
            "help: here r = 1, in repetition 2 of 2");
    REPORTS(TWO "nF : M; nI : M; W[1]; W0[1];", "no I of chunk 0, microbatch 1 is left");
    REPORTS(TWO "nF : M; W0;", "no I of chunk 0 is left");
    REPORTS(ONE(2) "F;", "rank 0: F does not say which of the 2 chunks: write F0 or F1");
    REPORTS(ONE(2) "F2;", "rank 0: F2 is of chunk 2, but this rank holds 2 chunks",
            "help: the digit is the chunk: microbatch 2 is F[2], and nF : 2; repeats it");
    REPORTS(TWO "nF1 : M;", "rank 0 (and 1 more): F1 is of chunk 1, but this rank holds only chunk 0",
            "microbatch 1 is F[1]");
    REPORTS(ONE(2) "repeat k < 3 { F{k}; }", "rank 0: there is no chunk 2: this rank holds 2 chunks, numbered from 0",
            "help: here k = 2");
    REPORTS(ONE(1) "F[3];", "there is no microbatch 3: pipe a has 3");
    REPORTS(ONE(1) "F[0-1];", "there is no microbatch -1");
}

TEST(loops_that_run_away)
{
    REPORTS(TWO "repeat i < 2000000000 { }", "rank 0: this loop is too long: 2000000000 iterations");
    REPORTS(TWO "repeat i < 2000000000 { repeat j < 1000000 { if i > 3 { F; } } }",
            "this loop is too long: 1000000 iterations");
    REPORTS(TWO "F[0] : 2000000000;", "rank 0: too many passes: the microbatches of this rank have at most 6");
    REPORTS(TWO "F : 2000000000;", "at least 1025 F for 2 microbatches");
    REPORTS("schedule t; ranks P = 4096; microbatches M = 1048576; pipe a: P stages, stage s on s, M microbatches; nFB "
            ": M;",
            "8589934592 forward and backward passes: a schedule can have at most 134217728");
}

int main(void) { return test_program("expansion", NULL, NULL); }
