/* --emit=trace keeps to the documented form of Chrome trace events, says the same as --dump=times, and names what dprun does as
   dprun's own trace names it. */
#include "tests/picture/json.h"

#include <math.h>

enum { EVENTS_MAX = 20000, NAME_SIZE = 400 };
static const double nanosecond = 0.001; /* in microseconds */

typedef struct Event {
    char name[NAME_SIZE], category[16], phase;
    int thread;
    double start, duration;
    long long id;
} Event;

static Event events[EVENTS_MAX];

/* Every event, with all that its phase asks for. */
static int read_events(const char *trace)
{
    const char *end = json_blank(json_skip(trace));
    assert_int_equal(*end, '\0');
    int count = 0;
    const char *list = json_member(trace, "traceEvents");
    assert_non_null(list);
    for (const char *text = json_next(list, NULL); text; text = json_next(list, text)) {
        assert_true(count < EVENTS_MAX);
        Event *event = &events[count++];
        *event = (Event){0};
        char phase[4];
        json_text(text, "name", event->name, sizeof event->name);
        json_text(text, "ph", phase, sizeof phase);
        assert_true(strlen(phase) == 1 && strchr("XMsf", phase[0]));
        event->phase = phase[0];
        assert_true(json_number(text, "pid") == 0);
        event->thread = (int)json_number(text, "tid");
        if (event->phase == 'M') {
            assert_non_null(json_member(json_member(text, "args"), "name"));
            continue;
        }
        json_text(text, "cat", event->category, sizeof event->category);
        event->start = json_number(text, "ts");
        assert_true(event->start >= 0);
        if (event->phase == 'X') {
            event->duration = json_number(text, "dur");
            assert_true(event->duration >= 0);
        } else {
            event->id = (long long)json_number(text, "id");
        }
        if (event->phase == 'f') {
            char binding[4];
            json_text(text, "bp", binding, sizeof binding);
            assert_string_equal(binding, "e");
        }
    }
    return count;
}

static bool same_category(const Event *event, const char *category) { return strcmp(event->category, category) == 0; }

/* The pass that an arrow's end lies in. */
static const Event *around(int count, const Event *arrow)
{
    for (int i = 0; i < count; i++)
        if (events[i].phase == 'X' && same_category(&events[i], "compute") && events[i].thread == arrow->thread &&
            events[i].start <= arrow->start + 1e-9 && arrow->start < events[i].start + events[i].duration)
            return &events[i];
    return NULL;
}

static void check_threads(int count)
{
    double clock[64] = {0};
    for (int i = 0; i < count; i++) {
        if (events[i].phase != 'X')
            continue;
        assert_in_range(events[i].thread, 0, 63);
        assert_true(events[i].start > clock[events[i].thread] - nanosecond); /* in order, none over another */
        assert_true(events[i].start < clock[events[i].thread] + 2 * nanosecond || same_category(&events[i], "compute"));
        clock[events[i].thread] = events[i].start + events[i].duration;
    }
}

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
        assert_int_not_equal(from->thread, to->thread);
        assert_true(from->start + from->duration + latency < to->start + 2 * nanosecond);
        arrows++;
    }
    return arrows;
}

static void test_form(void **state)
{
    (void)state;
    static const double latencies[PICTURED] = {0, 100, 0, 601, 0, 0, 50, 0}; /* microseconds, as `pictured` says */
    for (int i = 0; i < PICTURED; i++) {
        char *trace = run("dpc --emit=trace %s", pictured[i]), *comms = run("dpc --emit=comms %s", pictured[i]);
        char *stats = run("dpc --emit=stats %s", pictured[i]);
        const int count = read_events(trace);
        check_threads(count);
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

static int by_text(const void *one, const void *other) { return strcmp(*(char *const *)one, *(char *const *)other); }

/* Names and categories of a trace's instructions: in order, rank by rank, but messages, which dprun posts as early as it can,
   by name behind all others. */
static char *instructions(const char *trace)
{
    const int count = read_events(trace);
    char *text = NULL, **messages = calloc((size_t)count, sizeof *messages);
    size_t size = 0, posted = 0;
    FILE *stream = open_memstream(&text, &size);
    for (int i = 0; i < count; i++) {
        char line[NAME_SIZE + 64];
        if (events[i].phase != 'X')
            continue;
        snprintf(line, sizeof line, "%d %.15s %.*s\n", events[i].thread, events[i].category, NAME_SIZE, events[i].name);
        if (same_category(&events[i], "message"))
            messages[posted++] = strdup(line);
        else
            fputs(line, stream);
    }
    qsort(messages, posted, sizeof *messages, by_text);
    for (size_t i = 0; i < posted; i++) {
        fputs(messages[i], stream);
        free(messages[i]);
    }
    fclose(stream);
    free(messages);
    return text;
}

static void test_measured_has_the_same_events(void **state)
{
    (void)state;
    char folder[] = "/tmp/picture.XXXXXX";
    assert_non_null(mkdtemp(folder));
    const char *build = getenv("BUILD");
    char *measured = run("dpc --ranks 4 --microbatches 8 -o %s/prog.bin schedules/dualpipe.dps && "
                         "%s/dprun --steps 1 --model mlp --set hidden=8 --trace %s/trace.json %s/prog.bin > %s/out && "
                         "cat %s/trace.json; rm -r %s",
                         folder, build ? build : "build", folder, folder, folder, folder, folder);
    char *modelled = run("dpc --ranks 4 --microbatches 8 --emit=trace schedules/dualpipe.dps");
    char *one = instructions(modelled), *other = instructions(measured);
    assert_string_equal(one, other);
    free(measured);
    free(modelled);
    free(one);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_form), cmocka_unit_test(test_measured_has_the_same_events)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
