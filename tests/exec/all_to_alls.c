/* How much of the time of all-to-alls a run hides behind computation, in its report and in its trace. */
#include "tests/sanitized.h"
#include "tests/exec/divided.h"

enum {
    LINE_BYTES = 1024,
    EVENTS_MOST = 2000,
    REPLICAS = 2,
    RANKS = 2,
    LAYERS_WITH_EXPERTS = 7,
    FIRST_LANE = 3,
    TRIES = 5
};
static const double rounding = 0.01; /* microseconds: the trace rounds times to ns */

/* Runs a step of dualpipe, whose F&Bs overlap unless `options` has --in-turn. Returns the share of the time of
   all-to-alls that was hidden. */
static double run_step(const char *before, const char *options)
{
    char arguments[300];
    snprintf(arguments, sizeof arguments, "--steps 1 --json --replicas %d --expert-parallel %d %s --trace %s/trace",
             REPLICAS, REPLICAS, options, folder);
    assert_runs(before, arguments);
    return assert_hidden_share();
}

static void set_up_program(void)
{
    char program[200];
    compile_schedule("dualpipe", RANKS, program);
}

/* In turn a rank computes next to nothing between a post and its wait: it only copies rows while their counts are
   exchanged. In an F&B it computes components of the other half. A busy machine may stop a thread right after a post;
   this seems to be computing. So of several tries in turn the least share counts, and of several tries with F&Bs the
   largest. */
TEST(overlapping_hides_all_to_alls)
{
    set_up_program();
    double overlapped = 0, in_turn = 1;
    for (int try = 0; try < TRIES && overlapped <= in_turn; try++) {
        overlapped = fmax(overlapped, run_step("", "--link latency=1ms"));
        in_turn = fmin(in_turn, run_step("", "--link latency=1ms --in-turn"));
    }
    assert_true(overlapped > in_turn);
    run_step("", "");
    assert_runs("", "--steps 1 --replicas 2 --expert-parallel 2");
    assert_prints("hidden     ");
    assert_runs("", "--steps 1 --json --replicas 2"); /* every replica has all experts: there are no all-to-alls */
    assert_lacks("all_to_all");
}

/* An all-to-all in the trace. */
typedef struct Event {
    int member, lane;
    double start, duration, waited;
    char name[80], component[20], direction, pass[20];
} Event;

static double number_of(const char *line, const char *key)
{
    const char *found = strstr(line, key);
    assert_non_null(found);
    return strtod(found + strlen(key), NULL);
}

static void text_of(const char *line, const char *key, char *text, size_t size)
{
    const char *found = strstr(line, key);
    assert_non_null(found);
    found += strlen(key);
    snprintf(text, size, "%.*s", (int)strcspn(found, "\""), found);
}

static size_t read_events(Event *events)
{
    char path[100], line[LINE_BYTES], direction[2];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/trace", folder);
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    while (fgets(line, sizeof line, stream)) {
        if (!strstr(line, "\"cat\":\"all-to-all\""))
            continue;
        assert_true(count < EVENTS_MOST);
        Event *event = &events[count++];
        *event = (Event){.member = (int)number_of(line, "\"pid\":"),
                         .lane = (int)number_of(line, "\"tid\":"),
                         .start = number_of(line, "\"ts\":"),
                         .duration = number_of(line, "\"dur\":"),
                         .waited = number_of(line, "\"waited\":")};
        text_of(line, "\"name\":\"", event->name, sizeof event->name);
        text_of(line, "\"component\":\"", event->component, sizeof event->component);
        text_of(line, "\"direction\":\"", direction, sizeof direction);
        text_of(line, "\"pass\":\"", event->pass, sizeof event->pass);
        event->direction = *direction;
    }
    fclose(stream);
    return count;
}

/* The trace has the right number of all-to-alls of each kind, named after layer, component and direction. The name of
   the pass contains an F for a forward all-to-all and none for a backward one. */
static void assert_complete(const Event *events, size_t count)
{
    size_t kinds[2][2] = {{0}};
    for (size_t i = 0; i < count; i++) {
        const Event *event = &events[i];
        const bool combines = strcmp(event->component, "combine") == 0, backward = event->direction == 'B';
        const bool counts = strncmp(event->name, "counts for ", 11) == 0;
        char expected[80];
        kinds[combines][backward]++;
        snprintf(expected, sizeof expected, "%s%s(%c) of layer %d", counts ? "counts for " : "",
                 combines ? "combine" : "dispatch", event->direction, (int)number_of(event->name, "of layer "));
        assert_string_equal(event->name, expected);
        assert_int_equal(strcspn(event->pass, "F") == strlen(event->pass), backward);
        if (event->duration < 0 || event->waited < 0 || event->waited > event->duration + rounding)
            fail_msg("%s takes %.3f us, and %.3f us of them are waited for", event->name, event->duration,
                     event->waited);
    }
    const size_t each = (size_t)REPLICAS * LAYERS_WITH_EXPERTS * MICROBATCHES;
    assert_int_equal(kinds[0][0], 2 * each); /* the counts of dispatch, then the rows */
    assert_int_equal(kinds[0][1], each);
    assert_int_equal(kinds[1][0], each);
    assert_int_equal(kinds[1][1], each);
}

/* Events of one lane of a member do not overlap. Returns how many are in the second lane: all-to-alls of the second
   half of an F&B. */
static size_t assert_lanes(const Event *events, size_t count)
{
    double ends[REPLICAS * RANKS][2] = {{0}};
    size_t second = 0;
    for (size_t i = 0; i < count; i++) {
        const Event *event = &events[i];
        assert_in_range(event->member, 0, REPLICAS * RANKS - 1);
        assert_in_range(event->lane, FIRST_LANE, FIRST_LANE + 1);
        double *end = &ends[event->member][event->lane - FIRST_LANE];
        assert_true(event->start >= *end - rounding);
        *end = event->start + event->duration;
        second += event->lane > FIRST_LANE;
    }
    return second;
}

/* In turn no two all-to-alls of a member are in flight at once, so the sums over the trace are the times of the
   report. */
static void assert_sums(const Event *events, size_t count)
{
    double in_flight = 0, waited = 0;
    for (size_t i = 0; i < count; i++) {
        in_flight += events[i].duration;
        waited += events[i].waited;
    }
    const double told = 1000 * printed_number("\"all_to_all_ms\":");
    const double hidden = printed_number("\"all_to_all_hidden\":") * told,
                 error = (double)count * rounding + 1e-5 * told;
    assert_true(fabs(in_flight - told) <= error);
    assert_true(fabs(in_flight - waited - hidden) <= error);
}

TEST(a_trace_has_all_to_alls)
{
    static Event events[EVENTS_MOST];
    char before[300];
    set_up_program();
    snprintf(before, sizeof before, "%s -n %d", mpirun_command(), REPLICAS * RANKS);
    for (int processes = 0; processes <= mpirun_is_there(); processes++)
        for (int in_turn = 0; in_turn < 2; in_turn++)
            for (int link = 0; link < 2; link++) {
                if (processes && (in_turn != link || (SANITIZED && !link)))
                    continue; /* processes start slowly, so only some of the cases run in processes */
                char options[100];
                snprintf(options, sizeof options, "%s %s", in_turn ? "--in-turn" : "",
                         link ? "--link latency=1ms" : "");
                run_step(processes ? before : "", options);
                const size_t count = read_events(events);
                assert_complete(events, count);
                assert_int_equal(assert_lanes(events, count) == 0, in_turn);
                if (in_turn)
                    assert_sums(events, count);
            }
}

int main(void) { return test_program("all_to_alls", make_model, remove_folder); }
