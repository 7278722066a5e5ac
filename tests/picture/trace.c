/* dpc --emit=trace and dprun --trace write the documented form of Chrome trace events, with the same instructions in
   the same order and arrows of the same messages. The last event of dpc ends at the makespan. */
#include "program/times/trace.h"
#include "tests/picture/json.h"

#include <math.h>

enum { EVENTS_MAX = 20000, NAME_SIZE = 400, RANKS_MAX = 64 };
static const double nanosecond = 0.001; /* in microseconds */

typedef struct Event {
    char name[NAME_SIZE], category[16], phase;
    char pass[40], message[40]; /* from `args` */
    int rank, lane, step;
    double start, duration;
    long long id;
} Event;

static Event events[EVENTS_MAX];

static void take_text(const char *object, const char *name, char *text, size_t size)
{
    *text = '\0';
    if (json_member(object, name))
        json_text(object, name, text, size);
}

static void read_instruction(const char *text, Event *event)
{
    const char *arguments = json_member(text, "args");
    assert_non_null(arguments);
    event->duration = json_number(text, "dur");
    assert_true(event->duration >= 0);
    event->step = (int)json_number(arguments, "step");
    assert_true(event->step >= 1);
    assert_true(json_number(arguments, "instruction") >= 0 && json_number(arguments, "line") >= 1);
    take_text(arguments, "pass", event->pass, sizeof event->pass);
    take_text(arguments, "message", event->message, sizeof event->message);
    assert_int_equal(event->lane != LANE_COMPUTE, *event->message != '\0');
    assert_int_equal(strcmp(event->category, "compute") == 0, *event->pass != '\0');
    if (event->lane == LANE_WAITS)
        assert_true(strncmp(event->name, "wait ", 5) == 0 && strcmp(event->name + 5, event->message) == 0);
    else if (*event->pass || *event->message)
        assert_string_equal(event->name, *event->pass ? event->pass : event->message);
}

/* Checks the name or the sort index of a process (a rank) or of a thread (a lane), and counts it in `named`. */
static void read_names(const char *text, const Event *event, int *named)
{
    static const char *const kinds[] = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"};
    int kind = 0;
    while (kind < 4 && strcmp(kinds[kind], event->name) != 0)
        kind++;
    assert_in_range(kind, 0, 3);
    const char *arguments = json_member(text, "args");
    assert_non_null(arguments);
    char name[32], wanted[32];
    if (kind % 2) {
        /* the lane of components has the sort index of the lane of passes, so that it is right below it */
        const int lane = event->lane == LANE_COMPONENTS ? LANE_COMPUTE : event->lane;
        assert_true(json_number(arguments, "sort_index") == (kind == 1 ? event->rank : lane));
    } else {
        json_text(arguments, "name", name, sizeof name);
        snprintf(wanted, sizeof wanted, "rank %d", event->rank);
        assert_string_equal(name, kind == 0 ? wanted : trace_lane_names[event->lane]);
    }
    named[event->rank] += event->lane < TRACE_LANES; /* lanes from TRACE_LANES on are not in every trace */
}

/* For each rank: the last value of its counter of activations, its largest value, and the time of its last event. */
static int held[RANKS_MAX], most_held[RANKS_MAX];
static double counted_at[RANKS_MAX];

static void read_counter(const char *text, const Event *event)
{
    const int now = (int)json_number(json_member(text, "args"), "held"), r = event->rank;
    assert_string_equal(event->name, "activations");
    assert_string_equal(event->category, "memory");
    assert_true(now == held[r] + 1 || (now == held[r] - 1 && now >= 0));
    assert_true(event->start > counted_at[r] - nanosecond);
    held[r] = now;
    most_held[r] = now > most_held[r] ? now : most_held[r];
    counted_at[r] = event->start;
}

/* For each rank: the number of sums that have started and not ended. */
static int sums_open[RANKS_MAX];

static void read_sum(const char *text, const Event *event)
{
    sums_open[event->rank] += event->phase == 'b' ? 1 : -1;
    assert_true(sums_open[event->rank] >= 0);
    assert_string_equal(event->category, "sum");
    assert_int_equal(event->lane, LANE_COMMUNICATION);
    assert_true(json_number(json_member(text, "args"), "waited") >= 0);
}

/* Each counter returns to 0, and its largest value is the one that the compiler counts. */
static void check_counters(const char *stats, int ranks)
{
    const char *peak = stats;
    for (int r = 0; r < ranks; r++) {
        peak = strstr(peak, "\"peak_activations\": ") + 20;
        assert_int_equal(held[r], 0);
        assert_int_equal(most_held[r], strtol(peak, NULL, 10));
    }
}

/* Reads all events, and checks the members that each kind of event ("ph") needs. Returns their number. */
static int read_events(const char *trace)
{
    int count = 0, named[RANKS_MAX] = {0};
    assert_int_equal(*json_blank(json_skip(trace)), '\0');
    const char *about = json_member(trace, "otherData"), *list = json_member(trace, "traceEvents");
    assert_non_null(about);
    assert_non_null(list);
    const int ranks = (int)json_number(about, "ranks");
    assert_in_range(ranks, 1, RANKS_MAX);
    memset(held, 0, sizeof held);
    memset(most_held, 0, sizeof most_held);
    memset(counted_at, 0, sizeof counted_at);
    assert_true(json_number(about, "stages") >= ranks && json_number(about, "unit") >= 0);
    for (const char *text = json_next(list, NULL); text; text = json_next(list, text)) {
        assert_true(count < EVENTS_MAX);
        Event *event = &events[count];
        *event = (Event){0};
        char phase[4];
        json_text(text, "name", event->name, sizeof event->name);
        json_text(text, "ph", phase, sizeof phase);
        assert_true(strlen(phase) == 1 && strchr("XMCsfbe", phase[0]));
        event->phase = phase[0];
        event->rank = (int)json_number(text, "pid");
        event->lane = (int)json_number(text, "tid");
        assert_in_range(event->rank, 0, ranks - 1);
        assert_in_range(event->lane, 0, TRACE_LANES_MOST - 1);
        if (event->phase == 'M') {
            read_names(text, event, named);
            continue;
        }
        json_text(text, "cat", event->category, sizeof event->category);
        if (event->lane >= TRACE_LANES) { /* tests/exec/components checks these */
            assert_string_equal(event->category, "component");
            continue;
        }
        count++;
        event->start = json_number(text, "ts");
        assert_true(event->start >= 0);
        if (event->phase == 'X') {
            read_instruction(text, event);
            continue;
        }
        if (event->phase == 'C') {
            read_counter(text, event);
            continue;
        }
        event->id = (long long)json_number(text, "id");
        if (event->phase == 'b' || event->phase == 'e') {
            read_sum(text, event);
            continue;
        }
        assert_int_equal(event->lane, LANE_COMPUTE);
        if (event->phase == 'f') {
            char binding[4];
            json_text(text, "bp", binding, sizeof binding);
            assert_string_equal(binding, "e");
        }
    }
    for (int r = 0; r < ranks; r++)
        assert_true(named[r] == 2 + 2 * TRACE_LANES && sums_open[r] == 0);
    return count;
}

static bool same_category(const Event *event, const char *category) { return strcmp(event->category, category) == 0; }

/* The pass during which an arrow starts or ends, on the rank of that end; NULL: none. */
static const Event *around(int count, const Event *arrow)
{
    for (int i = 0; i < count; i++)
        if (events[i].phase == 'X' && same_category(&events[i], "compute") && events[i].rank == arrow->rank &&
            events[i].start <= arrow->start + 1e-9 && arrow->start < events[i].start + events[i].duration)
            return &events[i];
    return NULL;
}

/* The events of a rank are in order and do not overlap, even if they are on different lanes: a rank does one thing at a
   time. In a predicted trace a rank is idle only before a pass. */
static void check_order(int count, bool modelled)
{
    double clock[RANKS_MAX] = {0};
    for (int i = 0; i < count; i++) {
        if (events[i].phase != 'X')
            continue;
        double *now = &clock[events[i].rank];
        assert_true(events[i].start > *now - nanosecond);
        assert_true(!modelled || events[i].start < *now + 2 * nanosecond || same_category(&events[i], "compute"));
        *now = events[i].start + events[i].duration;
    }
}

/* Reads the stage and the microbatch of "3F5" or "p1:3F5". */
static void read_pass(const char *text, int *stage, int *microbatch)
{
    const char *colon = strchr(text, ':');
    char letters[8];
    assert_int_equal(sscanf(colon ? colon + 1 : text, "%d%7[A-Z_]%d", stage, letters, microbatch), 3);
}

static bool holds(const Event *pass, int stage, char kinds[2], int microbatch)
{
    char text[40], *rest = NULL;
    snprintf(text, sizeof text, "%s", pass->pass);
    for (char *one = strtok_r(text, "&", &rest); one; one = strtok_r(NULL, "&", &rest)) {
        int of, number;
        read_pass(one, &of, &number);
        if (of == stage && number == microbatch && (strchr(one, kinds[0]) || strchr(one, kinds[1])))
            return true;
    }
    return false;
}

/* Checks the arrows among `count` events: each connects passes of neighbouring stages for the same microbatch, and
   takes at least the latency. Returns the number of arrows. */
static int check_arrows(int count, double latency)
{
    int arrows = 0;
    for (int i = 0; i < count; i++) {
        if (events[i].phase != 's')
            continue;
        const Event *tail = &events[i], *head = NULL;
        for (int k = 0; k < count; k++)
            if (events[k].phase == 'f' && events[k].id == tail->id) {
                assert_null(head);
                head = &events[k];
            }
        assert_non_null(head);
        assert_string_equal(head->name, tail->name);
        assert_string_equal(head->category, tail->category);
        const Event *from = around(count, tail), *to = around(count, head);
        assert_non_null(from);
        assert_non_null(to);
        assert_int_not_equal(from->rank, to->rank);
        assert_true(from->start + from->duration + latency < to->start + 2 * nanosecond);
        const bool forward = strcmp(tail->name, "activation") == 0;
        int stage, microbatch, fits = 0;
        char text[40], *rest = NULL;
        snprintf(text, sizeof text, "%s", from->pass);
        for (char *one = strtok_r(text, "&", &rest); one; one = strtok_r(NULL, "&", &rest)) {
            read_pass(one, &stage, &microbatch);
            fits += forward ? strchr(one, 'F') && holds(to, stage + 1, (char[]){'F', 'F'}, microbatch)
                            : !strchr(one, 'F') && holds(to, stage - 1, (char[]){'B', 'I'}, microbatch);
        }
        assert_int_equal(fits, 1);
        arrows++;
    }
    return arrows;
}

TEST(test_form)
{
    static const double latencies[PICTURED] = {0, 100, 0, 601, 0, 0, 50, 0}; /* comm of `pictured`, in microseconds */
    for (int i = 0; i < PICTURED; i++) {
        char *trace = run("dpc --emit=trace %s", pictured[i]), *comms = run("dpc --emit=comms %s", pictured[i]);
        char *stats = run("dpc --emit=stats %s", pictured[i]);
        const int count = read_events(trace);
        check_order(count, true);
        check_counters(stats, (int)json_number(json_member(trace, "otherData"), "ranks"));
        int messages = 0;
        for (const char *send = comms; (send = strstr(send, "SEND_")); send++)
            messages++;
        assert_true(messages > 0);
        assert_int_equal(check_arrows(count, latencies[i]), messages);
        double last = 0;
        for (int k = 0; k < count; k++)
            last = fmax(last, events[k].start + events[k].duration);
        assert_true(fabs(last - 1000 * strtod(strstr(stats, "\"makespan\": ") + 12, NULL)) < 2 * nanosecond);
        free(trace);
        free(comms);
        free(stats);
    }
}

/* The instructions of one step as text, without their times. */
static char *instructions(int count, int step)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    for (int i = 0; i < count; i++)
        if (events[i].phase == 'X' && events[i].step == step)
            fprintf(stream, "%d %d %.15s %s %s %s\n", events[i].rank, events[i].lane, events[i].category,
                    events[i].name, events[i].pass, events[i].message);
    fclose(stream);
    return text;
}

TEST(test_measured_has_the_same_form)
{
    static const char *const schedules[] = {"--ranks 4 --microbatches 8 schedules/dualpipe.dps",
                                            "--ranks 3 schedules/zb-v.dps"};
    const char *build = getenv("BUILD");
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        char folder[] = "/tmp/picture.XXXXXX";
        assert_non_null(mkdtemp(folder));
        char *measured =
            run("dpc -o %s/prog.bin %s && "
                "%s/dprun --steps 3 --model mlp --set hidden=8 --trace %s/trace.json %s/prog.bin > %s/out && "
                "cat %s/trace.json; rm -r %s",
                folder, schedules[i], build ? build : "build", folder, folder, folder, folder, folder);
        char *modelled = run("dpc --emit=trace %s", schedules[i]);
        int count = read_events(modelled);
        const int arrows = check_arrows(count, 0);
        char *one = instructions(count, 1);
        count = read_events(measured);
        check_order(count, false);
        char *stats = run("dpc --emit=stats %s", schedules[i]);
        check_counters(stats, (int)json_number(json_member(measured, "otherData"), "ranks"));
        free(stats);
        assert_int_equal(check_arrows(count, 0), 3 * arrows);
        for (int step = 1; step <= 3; step++) {
            char *other = instructions(count, step);
            assert_string_equal(one, other);
            free(other);
        }
        free(measured);
        free(modelled);
        free(one);
    }
}

int main(void) { return test_program("trace", NULL, NULL); }
