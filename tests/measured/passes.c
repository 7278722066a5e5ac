/* Traces of two ranks by the PyTorch profiler, with known times: whatever clocks, categories and faults the files have,
   the passes that dpc reads have these times, or a note says what is missing. */

#include "study/measured/kineto_passes.h"
#include "tests/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 2, STEP_US = 200, PASSES = 6 };

/* 1F1B of 2 ranks and 3 microbatches, F 10 us, B 20 us, messages 1 us: the passes of each rank */
static const struct {
    const char *name;
    int start, end; /* us */
} passes[2][PASSES] = {
    {{"0F0", 0, 10}, {"0F1", 10, 20}, {"0B0", 42, 62}, {"0F2", 62, 72}, {"0B1", 72, 92}, {"0B2", 104, 124}},
    {{"1F0", 11, 21}, {"1B0", 21, 41}, {"1F1", 41, 51}, {"1B1", 51, 71}, {"1F2", 73, 83}, {"1B2", 83, 103}},
};

/* What is unusual about the files. */
typedef enum Fault {
    NONE,
    NO_CATEGORIES,  /* as PyTorch 1.13 writes without Kineto */
    STRINGS,        /* times are strings */
    BEGIN_END,      /* of rank 0 one more annotation, as a begin and an end */
    LOST_KERNEL,    /* rank 0 has no kernel of its first pass */
    LOST_LAUNCH,    /* rank 0 has no launch of its first pass */
    NO_NUMBER,      /* the kernel of rank 0's first pass takes NaN */
    NEGATIVE,       /* it takes -3 us */
    LONG_KERNEL,    /* it takes 1000 us, as if it ran at the same time as the kernels after it */
    LONG_ELSEWHERE, /* the same, but on a stream of its own */
    TWICE,          /* all kernels are in the trace twice */
    ONE_STEP_LESS,  /* rank 1 has only the second step */
    FORWARD_CLOCKS  /* both ranks have only F, with clocks that differ */
} Fault;

static void put_event(FILE *stream, Fault fault, const char *category, const char *name, const char *time,
                      const char *duration, unsigned id)
{
    const char *quote = fault == STRINGS ? "\"" : "";
    fprintf(stream, ",\n{\"ph\":\"X\",");
    if (fault != NO_CATEGORIES)
        fprintf(stream, "\"cat\":\"%s\",", category);
    fprintf(stream, "\"name\":\"%s\",\"pid\":%s,\"tid\":%d,\"ts\":%s%s%s,\"dur\":%s%s%s,\"args\":{", name,
            fault == NO_CATEGORIES ? "\"CPU functions\"" : "5", *category == 'k' ? 7 : 1, quote, time, quote, quote,
            duration, quote);
    if (id)
        fprintf(stream, "\"correlation\":%u,\"stream\":%d,\"device\":0", id,
                fault == LONG_ELSEWHERE && *category == 'k' ? 8 : 7);
    fprintf(stream, "}}");
}

/* The text of a time, in us. */
typedef struct Time {
    char text[32];
} Time;

static Time time_of(int64_t microseconds)
{
    Time time;
    snprintf(time.text, sizeof time.text, "%" PRId64 "%s", microseconds, ".250");
    if (microseconds < 0)
        snprintf(time.text, sizeof time.text, "-%" PRId64 "%s", -microseconds - 1, ".750");
    return time;
}

static void put_pass(FILE *stream, int rank, int p, int step, int64_t shift, Fault fault, unsigned id)
{
    const bool odd = rank == 0 && p == 0 && step == 0;
    const int64_t start = passes[rank][p].start + STEP_US * step + shift;
    const int length = passes[rank][p].end - passes[rank][p].start;
    const Time begin = time_of(start), late = time_of(start + 1);
    char name[16], lasts[16];
    snprintf(name, sizeof name, "PP:%s", passes[rank][p].name);
    snprintf(lasts, sizeof lasts, "%d", odd && (fault == LONG_KERNEL || fault == LONG_ELSEWHERE) ? 1000 : length);
    if (odd && fault == NO_NUMBER)
        strcpy(lasts, "NaN");
    if (odd && fault == NEGATIVE)
        strcpy(lasts, "-3");
    if (fault == NO_CATEGORIES) {
        put_event(stream, fault, "", name, begin.text, lasts, 0);
        put_event(stream, fault, "", "aten::mm", late.text, "2", 0);
        return;
    }
    put_event(stream, fault, "user_annotation", name, begin.text, "2", 0);
    if (!odd || fault != LOST_LAUNCH)
        put_event(stream, fault, "cuda_runtime", "cudaLaunchKernel", late.text, "0.5", id);
    for (int copy = 0; copy <= (fault == TWICE) && !(odd && fault == LOST_KERNEL); copy++)
        put_event(stream, fault == LONG_ELSEWHERE && !odd ? NONE : fault, "kernel", "gemm", begin.text, lasts, id);
}

/* Writes the trace of a rank whose file has this base, in ns, and whose times are later by so much, in us. */
static void write_rank(char *path, int rank, const char *base, int64_t shift, Fault fault)
{
    FILE *stream = fdopen(mkstemp(path), "w");
    assert_non_null(stream);
    if (fault == NO_CATEGORIES)
        fputs("[{\"ph\":\"M\"}", stream);
    else
        fprintf(stream, "{%s%s\"distributedInfo\":{\"rank\":%d},\"traceEvents\":[{\"ph\":\"M\"}", base,
                *base ? "," : "", rank);
    if (fault == BEGIN_END && rank == 0)
        fputs(",{\"ph\":\"B\",\"cat\":\"user_annotation\",\"name\":\"PP:0F0\",\"ts\":1},{\"ph\":\"E\",\"ts\":2}",
              stream);
    for (int step = fault == ONE_STEP_LESS && rank == 1; step < STEPS; step++)
        for (int p = 0; p < PASSES; p++)
            if (fault != FORWARD_CLOCKS || passes[rank][p].name[1] == 'F')
                put_pass(stream, rank, p, step, shift, fault, (unsigned)(step * PASSES + p + 1));
    fputs(fault == NO_CATEGORIES ? "]\n" : "]}\n", stream);
    assert_int_equal(fclose(stream), 0);
}

static Status read_ranks(const char *const *bases, const int64_t *shifts, Fault fault, Arena *arena, Trace *trace,
                         Error *error)
{
    char map_path[] = "/tmp/passes.XXXXXX", paths[2][32] = {"/tmp/passes.XXXXXX", "/tmp/passes.XXXXXX"};
    FILE *stream = fdopen(mkstemp(map_path), "w");
    KinetoMap map;
    fputs("F = PP:{stage}F{microbatch}\nB = PP:{stage}B{microbatch}\n", stream);
    fclose(stream);
    for (int rank = 0; rank < 2; rank++)
        write_rank(paths[rank], rank, bases[rank], shifts[rank], fault);
    assert_int_equal(kineto_map_read(map_path, arena, &map, error), STATUS_OK);
    const Status status = kineto_passes(&map, 2, (char *[]){paths[0], paths[1]}, arena, trace, error);
    unlink(map_path);
    unlink(paths[0]);
    unlink(paths[1]);
    return status;
}

/* Compares all passes of both ranks in a step with the table, from the first pass on. */
static void expect_times(const Trace *trace, uint32_t step, Arena *arena)
{
    const TraceIndex index = trace_index(trace, step, arena);
    const double begin = trace_extent(trace, step).start;
    for (int rank = 0; rank < 2; rank++)
        for (int p = 0; p < PASSES; p++) {
            const char *name = passes[rank][p].name;
            const TraceEvent *event = trace_find(&index, name[1] == 'F' ? ACTION_F : ACTION_B, 0,
                                                 (uint32_t)(name[0] - '0'), (uint32_t)(name[2] - '0'));
            assert_non_null(event);
            assert_true(fabs(1e3 * (event->start - begin) - passes[rank][p].start) < 1e-6);
            assert_true(fabs(1e3 * (event->end - begin) - passes[rank][p].end) < 1e-6);
        }
}

static const char real[] = "\"baseTimeNanoseconds\":1730000000000000000";

TEST(clocks_of_all_kinds_are_read)
{
    static const char later[] = "\"baseTimeNanoseconds\":1730000000000500000",
                      text[] = "\"baseTimeNanoseconds\":\"1730000000000500000\"";
    static const struct {
        const char *bases[2];
        int64_t shifts[2]; /* us */
        Fault fault;
        const char *note; /* NULL: none */
    } cases[] = {
        {{real, real}, {0, 0}, NONE, NULL},
        {{real, later}, {0, -500}, NONE, NULL},
        {{real, text}, {0, -500}, NONE, NULL},
        {{later, real}, {0, 500}, NONE, NULL},
        {{"", real}, {1730000000000000, 0}, NONE, NULL},
        {{"", ""}, {1730000000000000, 1730000000000000}, NONE, NULL},
        {{"", ""}, {-5000, -5000}, NONE, NULL},
        {{real, real}, {0, 0}, STRINGS, NULL},
        {{"", ""}, {77, 77}, NO_CATEGORIES, NULL},
        /* different clocks, which the messages bound to within a microsecond on either side */
        {{real, real}, {0, 50}, NONE, "rank 1 by -0.05 ms; ranks may still be apart by 0.001 ms"},
        {{real, later}, {0, 0}, NONE, "rank 1 by -0.5 ms"},
        {{"", ""}, {33, 7}, NO_CATEGORIES, "rank 1 by 0.026 ms"},
        {{real, ""}, {0, 0}, NONE, "different origins"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena arena = {0};
        Error error = {""};
        Trace trace;
        const Status status = read_ranks(cases[i].bases, cases[i].shifts, cases[i].fault, &arena, &trace, &error);
        assert_string_equal(error.text, "");
        assert_int_equal(status, STATUS_OK);
        for (uint32_t step = 1; step <= STEPS; step++)
            expect_times(&trace, step, &arena);
        if (cases[i].note)
            assert_non_null(strstr(trace.notes, cases[i].note));
        else
            assert_string_equal(trace.notes, "");
        arena_free(&arena);
    }
}

TEST(what_is_missing_is_said)
{
    static const struct {
        Fault fault;
        int64_t shift;
        bool first; /* the first step is complete too */
        const char *notes[2];
    } cases[] = {
        {BEGIN_END, 0, true, {"left out: 1 event whose begin and end are two events"}},
        {LOST_KERNEL, 0, false, {"launched, but not in the trace: 1 kernel", "left out: 1 pass without a kernel"}},
        {LOST_LAUNCH, 0, false, {"not launched in the trace", "left out: 1 pass without a kernel"}},
        {NO_NUMBER, 0, false, {"left out: 1 event without a time", "left out: 1 pass without a kernel"}},
        {NEGATIVE, 0, false, {"left out: 1 event without a time", "left out: 1 pass without a kernel"}},
        {LONG_KERNEL, 0, true, {"cut by 990.000 us in all: 1 kernel that lasted into the next kernel"}},
        {LONG_ELSEWHERE, 0, true, {"cut by 990.000 us in all: 1 pass that lasted into the next one"}},
        {TWICE, 0, true, {"cut by 180.000 us in all: 12 kernels"}},
        {ONE_STEP_LESS,
         0,
         true,
         {"the clocks of its ranks differ; they were aligned by the messages in both directions, rank 1 by -0.2 ms"}},
        {FORWARD_CLOCKS, -50, false, {"1F0 on rank 1 starts 0.049 ms before its input is sent by rank 0"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena arena = {0};
        Error error = {""};
        Trace trace;
        const Fault fault = cases[i].fault;
        assert_int_equal(
            read_ranks((const char *[]){real, real}, (int64_t[]){0, cases[i].shift}, fault, &arena, &trace, &error),
            STATUS_OK);
        if (cases[i].first)
            expect_times(&trace, 1, &arena);
        if (fault != ONE_STEP_LESS && fault != FORWARD_CLOCKS)
            expect_times(&trace, 2, &arena);
        for (int n = 0; n < 2 && cases[i].notes[n]; n++)
            assert_non_null(strstr(trace.notes, cases[i].notes[n]));
        arena_free(&arena);
    }
}

TEST(a_wrong_base_is_refused)
{
    static const char *const wrong[] = {"-5", "1.5", "99999999999999999999", "\"yesterday\""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Arena arena = {0};
        Error error = {""};
        Trace trace;
        char base[64];
        snprintf(base, sizeof base, "\"baseTimeNanoseconds\":%s", wrong[i]);
        assert_int_equal(read_ranks((const char *[]){base, real}, (int64_t[]){0, 0}, NONE, &arena, &trace, &error),
                         STATUS_BAD_INPUT);
        assert_non_null(strstr(error.text, "baseTimeNanoseconds is not a whole number from 0 to 3000000000000000000"));
        arena_free(&arena);
    }
}

int main(void) { return test_program("passes", NULL, NULL); }
