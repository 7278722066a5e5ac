#include "study/measured/trace_read.h"

#include "study/measured/json_read.h"
#include "study/measured/trace_align.h"
#include "program/recipe.h"
#include "base/compare.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 96 };

/* The objects of the file whose keys are read: otherData, an event, the args of an event. */
typedef enum Where { ABOUT, EVENT, ARGUMENTS } Where;

/* The keys that are read: a name for this file, the text, and the object that has the key. */
#define KEY_LIST                             \
    KEY(SCHEDULE, "schedule", ABOUT)         \
    KEY(SOURCE, "source", ABOUT)             \
    KEY(RANKS, "ranks", ABOUT)               \
    KEY(REPLICAS, "replicas", ABOUT)         \
    KEY(REFERENCE, "reference", ABOUT)       \
    KEY(STAGES, "stages", ABOUT)             \
    KEY(MICROBATCHES, "microbatches", ABOUT) \
    KEY(UNIT, "unit", ABOUT)                 \
    KEY(BYTES, "message_bytes", ABOUT)       \
    KEY(PROCESSORS, "processors", ABOUT)     \
    KEY(CATEGORY, "cat", EVENT)              \
    KEY(PHASE, "ph", EVENT)                  \
    KEY(PROCESS, "pid", EVENT)               \
    KEY(TIME, "ts", EVENT)                   \
    KEY(DURATION, "dur", EVENT)              \
    KEY(ARGUMENTS, "args", EVENT)            \
    KEY(STEP, "step", ARGUMENTS)             \
    KEY(LINE, "line", ARGUMENTS)             \
    KEY(PASS, "pass", ARGUMENTS)             \
    KEY(MESSAGE, "message", ARGUMENTS)       \
    KEY(HALVES, "halves", ARGUMENTS)         \
    KEY(PUT_OFF, "put_off", ARGUMENTS)       \
    KEY(COMPONENT, "component", ARGUMENTS)   \
    KEY(DIRECTION, "direction", ARGUMENTS)   \
    KEY(LAYER, "layer", ARGUMENTS)           \
    KEY(WAITED, "waited", ARGUMENTS)         \
    KEY(NAME, "name", EVENT)

#define KEY(name, text, where) KEY_##name,
typedef enum Key { KEY_OTHER, KEY_LIST KEYS } Key;
#undef KEY

static const struct {
    const char *name; /* NULL for KEY_OTHER */
    Where where;
} keys[KEYS] = {
#define KEY(name, text, where) [KEY_##name] = {text, where},
    KEY_LIST
#undef KEY
};

typedef struct Reader {
    JsonReader json;
    Trace *trace;
    Arena *arena;
    Error *error;
    uint64_t number;      /* number of the current event in the file, from 1, for errors */
    double numbers[KEYS]; /* numbers that the current event has under each key; NAN: not given */
    char texts[KEYS][TEXT_BYTES];
} Reader;

/* --- one event --- */

static Status fail_event(const Reader *reader, const char *what, const char *text)
{
    return error_set(reader->error, STATUS_BAD_INPUT, "%s: event %llu: '%s' %s", reader->trace->path,
                     (unsigned long long)reader->number, text, what);
}

static bool read_number(const char **text, uint32_t limit, uint32_t *value)
{
    char *end;
    if (!isdigit((unsigned char)**text))
        return false;
    errno = 0;
    const unsigned long number = strtoul(*text, &end, 10);
    *text = end;
    *value = (uint32_t)number;
    return errno == 0 && number < limit;
}

/* Reads the name of a pass or message, such as "3F5", "p1:3F5" or "4RECV_F5", and moves *text after it. False: there is
   none, or the schedule of the trace has no such pipe, stage or microbatch. */
static bool read_name(const Trace *trace, const char **text, TraceEvent *event)
{
    uint32_t pipe = 0, stage;
    if (**text == 'p') {
        ++*text;
        if (!read_number(text, trace->pipe_count, &pipe) || *(*text)++ != ':')
            return false;
    }
    if (!read_number(text, trace->stages, &stage))
        return false;
    const size_t length = strspn(*text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    const uint8_t kind = action_kind_named(*text, length);
    *text += length;
    event->kind = kind;
    event->pipe = (uint16_t)pipe;
    event->stage = (uint16_t)stage;
    if (kind == ACTION_U) /* the number of a U is that of the version that it makes, from 1 */
        return read_number(text, PROGRAM_MICROBATCHES_MAX + 1, &event->microbatch) && event->microbatch > 0;
    return kind < ACTION_KINDS && read_number(text, trace->microbatches[pipe], &event->microbatch);
}

static void append(Reader *reader, const TraceEvent *event)
{
    Trace *trace = reader->trace;
    trace->events = arena_extend(reader->arena, trace->events, trace->count, sizeof *event);
    trace->events[trace->count++] = *event;
}

static bool is_count(double value) { return value >= 0 && value < UINT32_MAX; }

/* Reads the entry, the pass and, if given, the layer of a component or all-to-all. False: the event has no valid entry
   or pass, or is the all-to-all that exchanges numbers of rows. */
static bool read_component(const Reader *reader, TraceComponent *component)
{
    static const char directions[] = "FBW";
    const char *name = reader->texts[KEY_PASS], *direction = reader->texts[KEY_DIRECTION];
    const char *found = *direction ? strchr(directions, *direction) : NULL;
    const double layer = reader->numbers[KEY_LAYER];
    const ModelPart part = part_named(reader->texts[KEY_COMPONENT], strlen(reader->texts[KEY_COMPONENT]));
    TraceEvent pass = {0};
    if (part == MODEL_PARTS || !found || !read_name(reader->trace, &name, &pass) || pass.kind >= ACTION_U ||
        strncmp(reader->texts[KEY_NAME], "counts", 6) == 0)
        return false;
    component->entry = (RecipeEntry){(uint8_t)part, (uint8_t)(found - directions)};
    component->pipe = pass.pipe;
    component->stage = pass.stage;
    component->microbatch = pass.microbatch;
    component->layer = is_count(layer) ? (uint32_t)layer : NO_LAYER;
    return !component->all_to_all || (part < RECIPE_NAMES && recipe_communicates[part]);
}

/* Keeps the event as a component or all-to-all if it is of the first replica and lacks nothing. */
static void take_component(Reader *reader, bool all_to_all)
{
    Trace *trace = reader->trace;
    const double *numbers = reader->numbers;
    const double start = numbers[KEY_TIME], time = numbers[KEY_DURATION], waited = numbers[KEY_WAITED];
    const double step = numbers[KEY_STEP];
    TraceComponent component = {.all_to_all = all_to_all};
    if (!(start >= 0 && time >= 0 && start + time < INFINITY && (!all_to_all || (waited >= 0 && waited < INFINITY))) ||
        !(numbers[KEY_PROCESS] >= 0 && numbers[KEY_PROCESS] < trace->ranks && step >= 1 && is_count(step)) ||
        !read_component(reader, &component))
        return;
    component.rank = (uint16_t)numbers[KEY_PROCESS];
    component.step = (uint32_t)step;
    component.start = start * 1e-3;
    component.end = (start + time) * 1e-3;
    component.waited = all_to_all ? waited * 1e-3 : 0;
    trace->components = arena_extend(reader->arena, trace->components, trace->component_count, sizeof component);
    trace->components[trace->component_count++] = component;
}

/* Keeps the event if it is a pass, a wait for a message, a component or an all-to-all. */
static Status take_event(Reader *reader)
{
    const Trace *trace = reader->trace;
    const double *numbers = reader->numbers;
    const bool all_to_all = strcmp(reader->texts[KEY_CATEGORY], "all-to-all") == 0;
    if (all_to_all || strcmp(reader->texts[KEY_CATEGORY], "component") == 0)
        take_component(reader, all_to_all);
    const bool is_pass = strcmp(reader->texts[KEY_CATEGORY], "compute") == 0;
    const char *name = reader->texts[is_pass ? KEY_PASS : KEY_MESSAGE];
    if (strcmp(reader->texts[KEY_PHASE], "X") != 0 || (!is_pass && strcmp(reader->texts[KEY_CATEGORY], "wait") != 0))
        return STATUS_OK;
    if (!trace->ranks)
        return fail_event(reader, "comes before the ranks of otherData: is this a trace of dprun or dpc?", name);
    if (!(numbers[KEY_TIME] >= 0 && numbers[KEY_DURATION] >= 0 && numbers[KEY_TIME] + numbers[KEY_DURATION] < INFINITY))
        return fail_event(reader, "has no finite ts and dur of at least 0", name);
    if (!(numbers[KEY_PROCESS] >= 0 && numbers[KEY_PROCESS] < trace_all_ranks(trace)))
        return fail_event(reader, "has no pid that is a rank", name);
    if (numbers[KEY_PROCESS] >= trace->ranks)
        return STATUS_OK; /* the event is of another replica */
    if (!(numbers[KEY_STEP] >= 1 && numbers[KEY_STEP] < UINT32_MAX))
        return fail_event(reader, "has no step of at least 1", name);
    TraceEvent event = {.rank = (uint16_t)numbers[KEY_PROCESS],
                        .step = (uint32_t)numbers[KEY_STEP],
                        .line =
                            numbers[KEY_LINE] >= 0 && numbers[KEY_LINE] < UINT32_MAX ? (uint32_t)numbers[KEY_LINE] : 0,
                        .start = numbers[KEY_TIME] * 1e-3,
                        .end = (numbers[KEY_TIME] + numbers[KEY_DURATION]) * 1e-3};
    const char *next = name;
    if (!read_name(trace, &next, &event) || (is_pass ? event.kind > ACTION_U : event.kind <= ACTION_U))
        return fail_event(reader, "is no pass or message of this schedule", name);
    if (!is_pass && (event.kind == ACTION_SEND_F || event.kind == ACTION_SEND_B))
        return STATUS_OK;
    event.overlap = is_pass && *next == '&';
    const double whole = event.end - event.start, first = numbers[KEY_HALVES] * 1e-3;
    const bool told_apart = event.overlap && first > 0 && first < whole;
    event.half = told_apart ? first : 0;
    event.put_off = event.kind == ACTION_W && numbers[KEY_PUT_OFF] > 0;
    append(reader, &event);
    if (event.overlap) {
        next++;
        event.overlap = false;
        event.half = told_apart ? whole - first : 0;
        event.put_off = numbers[KEY_PUT_OFF] > 0;
        if (event.kind != ACTION_F || !read_name(trace, &next, &event) || event.kind > ACTION_I)
            return fail_event(reader, "is no F&B or F&F", name);
        append(reader, &event);
    }
    return *next ? fail_event(reader, "is no pass or message of this schedule", name) : STATUS_OK;
}

/* --- the JSON text --- */

static Key read_key(const Reader *reader, Where where)
{
    for (Key key = KEY_OTHER + 1; key < KEYS; key++)
        if (keys[key].where == where && json_is(&reader->json, keys[key].name))
            return key;
    return KEY_OTHER;
}

/* Stores a number that is about the whole trace. The numbers of ranks, replicas, stages and microbatches must be
   whole. */
static Status take_about(Reader *reader, Key key)
{
    Trace *trace = reader->trace;
    const double value = json_number(&reader->json);
    const double most = key == KEY_RANKS || key == KEY_REPLICAS ? PROGRAM_RANKS_MAX
                        : key == KEY_STAGES                     ? PROGRAM_STAGES_MAX
                        : key == KEY_MICROBATCHES               ? PROGRAM_MICROBATCHES_MAX
                                                                : 1e18;
    if (key == KEY_OTHER || key == KEY_SCHEDULE || key == KEY_SOURCE || key == KEY_REFERENCE)
        return STATUS_OK;
    if (trace->count) /* earlier events were checked against the numbers read before them */
        return error_set(reader->error, STATUS_BAD_INPUT,
                         "%s: otherData is given again after events: it must come before them", trace->path);
    if (!(value >= 0 && value <= most) || (most < 1e18 && (value < 1 || value != floor(value))))
        return error_set(reader->error, STATUS_BAD_INPUT, "%s: otherData: %s is %.15g; it must be a %s to %.15g",
                         trace->path, keys[key].name, value, most < 1e18 ? "whole number from 1" : "number from 0",
                         most);
    switch (key) {
    case KEY_RANKS: trace->ranks = (uint32_t)value; break;
    case KEY_REPLICAS: trace->replicas = (uint32_t)value; break;
    case KEY_STAGES: trace->stages = (uint32_t)value; break;
    case KEY_UNIT: trace->unit = value; break;
    case KEY_BYTES: trace->message_bytes = value; break;
    case KEY_PROCESSORS: trace->processors = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX; break;
    default:
        if (trace->pipe_count == PROGRAM_PIPES_MAX)
            return error_set(reader->error, STATUS_BAD_INPUT, "%s: otherData: there can be at most %d pipes",
                             trace->path, PROGRAM_PIPES_MAX);
        trace->microbatches[trace->pipe_count++] = (uint32_t)value;
    }
    return STATUS_OK;
}

static Status read_about(Reader *reader)
{
    JsonReader *json = &reader->json;
    while (json_next(json) == JSON_KEY) {
        const Key key = read_key(reader, ABOUT);
        JsonKind kind = json_next(json);
        if (kind == JSON_NUMBER) {
            TRY(take_about(reader, key));
        } else if (kind == JSON_TEXT && (key == KEY_SCHEDULE || key == KEY_SOURCE)) {
            char *text = arena_text(reader->arena, json->text, json->length);
            text_make_printable(text);
            *(key == KEY_SCHEDULE ? &reader->trace->schedule : &reader->trace->source) = text;
        } else if (kind == JSON_ARRAY && key == KEY_MICROBATCHES) {
            while ((kind = json_next(json)) != JSON_ARRAY_END && kind != JSON_END)
                if (kind == JSON_NUMBER)
                    TRY(take_about(reader, key));
                else
                    json_skip(json, kind);
        } else if (kind == JSON_WORD && key == KEY_REFERENCE) {
            reader->trace->reference = json_is(json, "true");
        } else {
            json_skip(json, kind);
        }
    }
    return STATUS_OK;
}

/* Reads the fields of an event (EVENT), or those of its args (ARGUMENTS). */
static void read_fields(Reader *reader, Where where)
{
    JsonReader *json = &reader->json;
    while (json_next(json) == JSON_KEY) {
        const Key key = read_key(reader, where);
        JsonKind kind = json_next(json);
        if (kind == JSON_OBJECT && key == KEY_ARGUMENTS) {
            read_fields(reader, ARGUMENTS);
        } else if (kind == JSON_ARRAY && key == KEY_HALVES) {
            kind = json_next(json);
            if (kind == JSON_NUMBER)
                reader->numbers[key] = json_number(json);
            if (kind != JSON_ARRAY_END) {
                json_skip(json, kind);
                json_leave(json);
            }
        } else if (kind == JSON_NUMBER) {
            reader->numbers[key] = json_number(json);
        } else if (kind == JSON_TEXT) {
            snprintf(reader->texts[key], TEXT_BYTES, "%.*s", (int)json->length, json->text);
        } else {
            json_skip(json, kind);
        }
    }
}

static Status read_events(Reader *reader)
{
    JsonKind kind;
    while ((kind = json_next(&reader->json)) != JSON_ARRAY_END && kind != JSON_END) {
        if (kind != JSON_OBJECT) {
            json_skip(&reader->json, kind);
            continue;
        }
        reader->number++;
        for (Key key = 0; key < KEYS; key++) {
            reader->numbers[key] = NAN;
            reader->texts[key][0] = '\0';
        }
        read_fields(reader, EVENT);
        TRY(take_event(reader));
    }
    return STATUS_OK;
}

static Status read_top(Reader *reader)
{
    JsonReader *json = &reader->json;
    JsonKind kind = json_next(json);
    if (kind != JSON_OBJECT)
        json_skip(json, kind);
    while (kind == JSON_OBJECT && json_next(json) == JSON_KEY) {
        const bool events = json_is(json, "traceEvents"), about = json_is(json, "otherData");
        const JsonKind value = json_next(json);
        if (events && value == JSON_ARRAY)
            TRY(read_events(reader));
        else if (about && value == JSON_OBJECT)
            TRY(read_about(reader));
        else
            json_skip(json, value);
    }
    return STATUS_OK;
}

static Status parse(Reader *reader, const char *path)
{
    JsonReader *json = &reader->json;
    TRY(json_open(json, path, reader->arena, reader->error));
    const Status status = read_top(reader);
    if (status != STATUS_OK)
        json_stop(json);
    while (json_next(json) != JSON_END)
        ;
    TRY(json_close(json, reader->error));
    return status;
}

/* The index in trace->steps of a step. */
static uint32_t step_number(const Trace *trace, uint32_t step)
{
    const uint32_t *found = bsearch(&step, trace->steps, trace->step_count, sizeof step, compare_uint32);
    return (uint32_t)(found - trace->steps);
}

void trace_sort_by_step(Trace *trace, Arena *arena)
{
    uint32_t *steps = arena_array(arena, trace->count, sizeof *steps), count = 0;
    for (size_t i = 0; i < trace->count; i++)
        if (!count || steps[count - 1] != trace->events[i].step)
            steps[count++] = trace->events[i].step;
    qsort(steps, count, sizeof *steps, compare_uint32);
    trace->steps = steps;
    for (uint32_t i = 0; i < count; i++)
        if (!trace->step_count || steps[trace->step_count - 1] != steps[i])
            steps[trace->step_count++] = steps[i];
    trace->step_events = arena_array(arena, trace->step_count + 1, sizeof *trace->step_events);
    size_t *next = arena_array(arena, trace->step_count + 1, sizeof *next);
    TraceEvent *events = arena_array(arena, trace->count, sizeof *events);
    for (size_t i = 0; i < trace->count; i++)
        trace->step_events[step_number(trace, trace->events[i].step) + 1]++;
    for (uint32_t s = 0; s < trace->step_count; s++)
        trace->step_events[s + 1] += next[s] = trace->step_events[s];
    for (size_t i = 0; i < trace->count; i++)
        events[next[step_number(trace, trace->events[i].step)]++] = trace->events[i];
    trace->events = events;
}

Status trace_read(const char *path, Arena *arena, Trace *trace, Error *error)
{
    *trace = (Trace){.path = text_printable(path, arena), .schedule = "", .source = "", .notes = ""};
    *error = (Error){""};
    Reader *reader = arena_allocate(arena, sizeof *reader);
    reader->trace = trace;
    reader->arena = arena;
    reader->error = error;
    TRY(parse(reader, path));
    if (!trace->count)
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: no passes in it: is this a trace of dprun --trace or dpc --emit=trace? A trace of the "
                         "PyTorch profiler needs --map FILE",
                         path);
    trace_sort_by_step(trace, arena);
    trace_align(trace, arena);
    return STATUS_OK;
}

void trace_note(Trace *trace, Arena *arena, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    trace->notes = arena_format(arena, "%s%s\n", trace->notes, text);
}

/* --- lookups --- */

TraceStep trace_step_events(const Trace *trace, uint32_t step)
{
    const size_t *begin = &trace->step_events[step_number(trace, step)];
    return (TraceStep){trace->events + begin[0], trace->events + begin[1]};
}

const TraceComponent **trace_step_components(const Trace *trace, uint32_t step,
                                             int (*compare)(const void *, const void *), Arena *arena, size_t *count)
{
    const TraceComponent **sorted = arena_array(arena, trace->component_count, sizeof *sorted);
    *count = 0;
    for (size_t i = 0; i < trace->component_count; i++)
        if (trace->components[i].step == step)
            sorted[(*count)++] = &trace->components[i];
    if (*count)
        qsort(sorted, *count, sizeof *sorted, compare);
    return sorted;
}

void trace_keep_steps(Trace *trace, uint32_t *steps, uint32_t count)
{
    size_t kept = 0;
    for (uint32_t s = 0; s < count; s++) {
        const TraceStep step = trace_step_events(trace, steps[s]);
        const size_t events = (size_t)(step.end - step.first);
        memmove(trace->events + kept, step.first, events * sizeof *trace->events);
        trace->step_events[s] = kept;
        kept += events;
    }
    trace->step_events[count] = trace->count = kept;
    trace->steps = steps;
    trace->step_count = count;
}

static size_t place_of(const TraceIndex *index, uint8_t kind, uint32_t pipe, uint32_t stage, uint32_t microbatch)
{
    const Trace *trace = index->trace;
    return kind * index->places + (size_t)index->first[pipe] * trace->stages +
           (size_t)stage * trace->microbatches[pipe] + microbatch;
}

static int compare_updates(const void *left, const void *right)
{
    const TraceEvent *a = *(const TraceEvent *const *)left, *b = *(const TraceEvent *const *)right;
    COMPARE(a->rank, b->rank);
    COMPARE(a->stage, b->stage);
    COMPARE(a->microbatch, b->microbatch);
    return 0;
}

TraceIndex trace_index(const Trace *trace, uint32_t step, Arena *arena)
{
    TraceIndex index = {.trace = trace};
    uint32_t microbatches = 0;
    for (uint32_t p = 0; p < trace->pipe_count; p++) {
        index.first[p] = microbatches;
        microbatches += trace->microbatches[p];
    }
    index.places = (size_t)microbatches * trace->stages;
    index.events = arena_array(arena, index.places * ACTION_KINDS, sizeof *index.events);
    const TraceStep of = trace_step_events(trace, step);
    for (const TraceEvent *event = of.first; event < of.end; event++)
        index.update_count += event->kind == ACTION_U;
    index.updates = arena_array(arena, index.update_count, sizeof *index.updates);
    index.update_count = 0;
    for (const TraceEvent *event = of.first; event < of.end; event++) {
        if (event->kind == ACTION_U)
            index.updates[index.update_count++] = event;
        else
            index.events[place_of(&index, event->kind, event->pipe, event->stage, event->microbatch)] = event;
    }
    if (index.update_count)
        qsort(index.updates, index.update_count, sizeof *index.updates, compare_updates);
    return index;
}

const TraceEvent *trace_find_update(const TraceIndex *index, uint32_t rank, uint32_t stage, uint32_t version)
{
    const TraceEvent wanted = {.rank = (uint16_t)rank, .stage = (uint16_t)stage, .microbatch = version}, *key = &wanted;
    const TraceEvent *const *found = index->update_count ? bsearch(&key, index->updates, index->update_count,
                                                                   sizeof *index->updates, compare_updates)
                                                         : NULL;
    return found ? *found : NULL;
}

const TraceEvent *trace_find(const TraceIndex *index, uint8_t kind, uint32_t pipe, uint32_t stage, uint32_t microbatch)
{
    return index->events[place_of(index, kind, pipe, stage, microbatch)];
}

const TraceEvent *trace_needed(const TraceIndex *index, const TraceEvent *event)
{
    const bool forward = event->kind == ACTION_F || event->kind == ACTION_RECV_F;
    if (event->kind == ACTION_W || event->kind == ACTION_U ||
        (forward ? event->stage == 0 : event->stage + 1u == index->trace->stages))
        return NULL;
    const uint32_t stage = event->stage + (forward ? -1u : 1u);
    if (forward)
        return trace_find(index, ACTION_F, event->pipe, stage, event->microbatch);
    const TraceEvent *full = trace_find(index, ACTION_B, event->pipe, stage, event->microbatch);
    return full ? full : trace_find(index, ACTION_I, event->pipe, stage, event->microbatch);
}

TraceExtent trace_extent(const Trace *trace, uint32_t step)
{
    TraceExtent extent = {INFINITY, -INFINITY};
    const TraceStep of = trace_step_events(trace, step);
    for (const TraceEvent *event = of.first; event < of.end; event++) {
        if (event->kind > ACTION_U)
            continue;
        extent.start = fmin(extent.start, event->start);
        extent.end = fmax(extent.end, event->end);
    }
    return extent;
}

typedef struct StepLength {
    uint32_t step;
    double length;
} StepLength;

static int compare_lengths(const void *left, const void *right)
{
    const StepLength *a = left, *b = right;
    return a->length != b->length ? (a->length > b->length) - (a->length < b->length)
                                  : (a->step > b->step) - (a->step < b->step);
}

uint32_t *trace_steps_by_makespan(const Trace *trace, Arena *arena, uint32_t *count)
{
    const uint32_t skipped = trace->step_count > 1 && trace->steps[0] == 1;
    *count = trace->step_count - skipped;
    StepLength *lengths = arena_array(arena, *count, sizeof *lengths);
    for (uint32_t i = 0; i < *count; i++) {
        const TraceExtent extent = trace_extent(trace, trace->steps[i + skipped]);
        lengths[i] = (StepLength){trace->steps[i + skipped], extent.end - extent.start};
    }
    qsort(lengths, *count, sizeof *lengths, compare_lengths);
    uint32_t *steps = arena_array(arena, *count, sizeof *steps);
    for (uint32_t i = 0; i < *count; i++)
        steps[i] = lengths[i].step;
    return steps;
}

uint32_t trace_typical_step(const Trace *trace, Arena *arena)
{
    uint32_t count;
    const uint32_t *steps = trace_steps_by_makespan(trace, arena, &count);
    return steps[(count - 1) / 2];
}
