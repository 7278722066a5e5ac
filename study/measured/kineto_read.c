#include "study/measured/kineto_read.h"

#include "study/measured/json_read.h"
#include "study/measured/kineto_tidy.h"
#include "base/counted.h"
#include "base/text.h"

#include <string.h>

enum { NAME_BYTES = 4096 };

/* What an event of the trace is read as. USE_UNKNOWN: it has no category. */
typedef enum EventUse { USE_UNKNOWN, USE_NONE, USE_KERNEL, USE_LAUNCH, USE_ANNOTATION } EventUse;

static const int64_t no_time = INT64_MIN;

/* The event that is being read. Numbers < 0 are not given. */
typedef struct Event {
    EventUse use;
    char phase;
    char name[NAME_BYTES];
    int64_t start, duration; /* ns; no_time: not given, or no time */
    bool on_gpu;             /* without Kineto: the event is a kernel */
    int64_t process, thread, correlation, stream, device, blocks;
} Event;

typedef struct Reader {
    JsonReader json;
    Arena *arena;
    KinetoTrace *trace;
    /* [bucket_count]: hash table of names. An entry is the index of a name + 1; 0: the bucket is free */
    uint32_t *buckets;
    size_t bucket_count;
    int64_t base; /* ns; -1: it is wrong */
    Event event;
} Reader;

/* Adds a value at the end of an array of the trace. */
#define ADD(reader, array, count, ...)                                              \
    do {                                                                            \
        (array) = arena_extend((reader)->arena, (array), (count), sizeof *(array)); \
        (array)[(count)++] = __VA_ARGS__;                                           \
    } while (0)

/* --- names, each kept once --- */

static size_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
    return (size_t)(hash ^ hash >> 32);
}

static uint32_t *find_bucket(const Reader *reader, const char *name)
{
    const char *const *names = reader->trace->names;
    size_t bucket = hash_text(name) & (reader->bucket_count - 1);
    while (reader->buckets[bucket] && strcmp(names[reader->buckets[bucket] - 1], name) != 0)
        bucket = (bucket + 1) & (reader->bucket_count - 1);
    return &reader->buckets[bucket];
}

static void grow_buckets(Reader *reader)
{
    const char *const *names = reader->trace->names;
    reader->bucket_count = reader->bucket_count ? 2 * reader->bucket_count : 1024;
    reader->buckets = arena_array(reader->arena, reader->bucket_count, sizeof *reader->buckets);
    for (size_t i = 0; i < reader->trace->name_count; i++)
        *find_bucket(reader, names[i]) = (uint32_t)i + 1;
}

static uint32_t number_of_name(Reader *reader, const char *name)
{
    if (reader->trace->name_count >= reader->bucket_count / 2)
        grow_buckets(reader);
    uint32_t *bucket = find_bucket(reader, name);
    if (!*bucket) {
        ADD(reader, reader->trace->names, reader->trace->name_count, arena_text(reader->arena, name, strlen(name)));
        *bucket = reader->trace->name_count;
    }
    return *bucket - 1;
}

/* --- an event --- */

static void keep_event(Reader *reader)
{
    Event *event = &reader->event;
    KinetoTrace *trace = reader->trace;
    if (event->phase != 'X')
        return;
    if (event->use == USE_UNKNOWN)
        event->use = event->on_gpu ? USE_KERNEL : USE_ANNOTATION;
    if (event->on_gpu) { /* the thread is the device */
        event->device = event->thread;
        event->thread = KINETO_NO_STREAM;
    }
    if (event->start == no_time || (event->duration < 0 && event->use != USE_LAUNCH)) {
        trace->incomplete++;
        return;
    }
    const int64_t end = event->start + event->duration;
    const uint32_t correlation = event->correlation > 0 ? (uint32_t)event->correlation : 0;
    const uint32_t process = (uint32_t)event->process, thread = (uint32_t)event->thread;
    if (event->use == USE_LAUNCH && correlation)
        ADD(reader, trace->launches, trace->launch_count,
            (KinetoLaunch){event->start, correlation, process, thread, strstr(event->name, "LaunchKernel"), false});
    else if (event->use == USE_ANNOTATION)
        ADD(reader, trace->annotations, trace->annotation_count,
            (KinetoAnnotation){event->start, end, number_of_name(reader, event->name), process, thread});
    else if (event->use == USE_KERNEL)
        ADD(reader, trace->kernels, trace->kernel_count,
            (KinetoKernel){
                .start = event->start,
                .end = end,
                .name = number_of_name(reader, event->name),
                .correlation = correlation,
                .blocks = event->blocks > 0 && event->blocks < UINT32_MAX ? (uint32_t)event->blocks : 0,
                .device = (uint16_t)(event->device >= 0 ? event->device : event->process),
                .stream = (uint16_t)(event->stream >= 0 ? event->stream : event->thread),
            });
}

static EventUse use_of(const JsonReader *json)
{
    static const char *const runtimes[] = {"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver"};
    if (json_is(json, "kernel") || json_is(json, "gpu_memcpy") || json_is(json, "gpu_memset"))
        return USE_KERNEL;
    if (json_is(json, "user_annotation"))
        return USE_ANNOTATION;
    for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes; i++)
        if (json_is(json, runtimes[i]))
            return USE_LAUNCH;
    return USE_NONE;
}

/* The last token as a whole number of at least 0; -1: it is none. */
static int64_t whole(const JsonReader *json)
{
    int64_t value = 0;
    for (size_t i = 0; i < json->length; i++) {
        const char c = json->text[i];
        if (c < '0' || c > '9' || value > (INT64_MAX - (c - '0')) / 10)
            return -1;
        value = 10 * value + (c - '0');
    }
    return json->length ? value : -1;
}

/* More than 95 years, in ns. The sum of three such times fits into an int64_t. */
static const int64_t most_time = 3000000000000000000;

/* The last token, microseconds with a fraction, as nanoseconds. Not converted through a double, which has too few
   digits for times since 1970. no_time: it is not a time, or more than most_time. */
static int64_t nanoseconds(const JsonReader *json)
{
    enum { DIGITS_MAX = 16 };
    const bool negative = json->length && *json->text == '-';
    const size_t first = negative;
    int64_t value = 0;
    size_t i = first;
    int fraction = 0;
    for (; i < json->length && json->text[i] >= '0' && json->text[i] <= '9' && i - first < DIGITS_MAX; i++)
        value = 10 * value + (json->text[i] - '0');
    if (i == first || value > most_time / 1000)
        return no_time;
    if (i < json->length && json->text[i] == '.')
        for (i++; i < json->length && json->text[i] >= '0' && json->text[i] <= '9'; i++)
            if (fraction < 3) {
                value = 10 * value + (json->text[i] - '0');
                fraction++;
            }
    for (; fraction < 3; fraction++)
        value *= 10;
    if (i < json->length) { /* an exponent */
        const double slow = json_number(json) * 1e3;
        return slow > -(double)most_time && slow < (double)most_time ? (int64_t)slow : no_time;
    }
    return negative ? -value : value;
}

/* Reads an array such as "grid" and returns the product of its numbers, the number of blocks; -1: it is wrong. */
static int64_t read_product(JsonReader *json, JsonKind kind)
{
    double product = 1;
    if (kind != JSON_ARRAY) {
        json_skip(json, kind);
        return -1;
    }
    while ((kind = json_next(json)) != JSON_ARRAY_END && kind != JSON_END)
        if (kind == JSON_NUMBER)
            product *= json_number(json);
        else
            json_skip(json, kind);
    return product >= 1 && product < 1e9 ? (int64_t)product : -1;
}

static void read_arguments(JsonReader *json, Event *event)
{
    while (json_next(json) == JSON_KEY) {
        int64_t *number = json_is(json, "correlation") ? &event->correlation
                          : json_is(json, "stream")    ? &event->stream
                          : json_is(json, "device")    ? &event->device
                                                       : NULL;
        const bool grid = json_is(json, "grid");
        const JsonKind kind = json_next(json);
        if (grid)
            event->blocks = read_product(json, kind);
        else if (number && kind == JSON_NUMBER)
            *number = whole(json);
        else
            json_skip(json, kind);
    }
}

/* The keys of an event in Chrome's trace format. */
typedef enum EventKey {
    KEY_PHASE,
    KEY_CATEGORY,
    KEY_NAME,
    KEY_PROCESS,
    KEY_THREAD,
    KEY_TIME,
    KEY_DURATION,
    KEY_ARGUMENTS,
    KEY_OTHER
} EventKey;

static EventKey event_key(const JsonReader *json)
{
    static const char *const words[KEY_OTHER] = {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"};
    EventKey key = 0;
    while (key < KEY_OTHER && !json_is(json, words[key]))
        key++;
    return key;
}

static void take_text(const JsonReader *json, char *text, size_t size)
{
    const size_t length = json->length < size - 1 ? json->length : size - 1;
    memcpy(text, json->text, length);
    text[length] = '\0';
}

/* Stores the value of a key. Skips objects and arrays, except the arguments. */
static void take_field(Reader *reader, EventKey key, JsonKind kind)
{
    JsonReader *json = &reader->json;
    Event *event = &reader->event;
    if (key == KEY_ARGUMENTS && kind == JSON_OBJECT) {
        read_arguments(json, event);
    } else if (kind == JSON_TEXT && key == KEY_PHASE) {
        event->phase = json->length == 1 ? *json->text : '\0';
    } else if (kind == JSON_TEXT && key == KEY_CATEGORY) {
        event->use = use_of(json);
    } else if (kind == JSON_TEXT && key == KEY_NAME) {
        take_text(json, event->name, sizeof event->name);
    } else if ((kind == JSON_NUMBER || kind == JSON_TEXT) && (key == KEY_TIME || key == KEY_DURATION)) {
        *(key == KEY_TIME ? &event->start : &event->duration) = nanoseconds(json);
    } else if (kind == JSON_NUMBER && (key == KEY_PROCESS || key == KEY_THREAD)) {
        *(key == KEY_PROCESS ? &event->process : &event->thread) = whole(json);
    } else if (kind == JSON_TEXT && key == KEY_PROCESS) {
        event->on_gpu = json_is(json, "CUDA functions");
    } else {
        json_skip(json, kind);
    }
}

static void read_event(Reader *reader)
{
    JsonReader *json = &reader->json;
    Event *event = &reader->event;
    event->use = USE_UNKNOWN;
    event->phase = *event->name = '\0';
    event->on_gpu = false;
    event->start = event->duration = no_time;
    event->process = event->thread = event->correlation = event->stream = event->device = event->blocks = -1;
    while (json_next(json) == JSON_KEY) {
        const EventKey key = event_key(json);
        take_field(reader, key, json_next(json));
        if (event->use == USE_NONE || (key == KEY_PHASE && event->phase != 'X')) {
            reader->trace->begun += event->phase == 'B';
            /* skip the rest of the event: most events of a trace are calls of operators, which are not needed */
            json_leave(json);
            return;
        }
    }
    keep_event(reader);
}

/* --- the whole file --- */

static void read_events(Reader *reader)
{
    JsonKind kind;
    while ((kind = json_next(&reader->json)) != JSON_ARRAY_END && kind != JSON_END)
        if (kind == JSON_OBJECT)
            read_event(reader);
        else
            json_skip(&reader->json, kind);
}

static void read_distributed(Reader *reader)
{
    JsonReader *json = &reader->json;
    while (json_next(json) == JSON_KEY) {
        int64_t *number = json_is(json, "rank")         ? &reader->trace->rank
                          : json_is(json, "world_size") ? &reader->trace->world
                                                        : NULL;
        const JsonKind kind = json_next(json);
        if (number && kind == JSON_NUMBER)
            *number = whole(json);
        else
            json_skip(json, kind);
    }
}

static void read_device(Reader *reader)
{
    JsonReader *json = &reader->json;
    while (json_next(json) == JSON_KEY) {
        const bool count = json_is(json, "numSms"), name = json_is(json, "name");
        const JsonKind kind = json_next(json);
        if (count && kind == JSON_NUMBER) {
            const int64_t multiprocessors = whole(json);
            reader->trace->multiprocessors =
                multiprocessors > 0 && multiprocessors < 65536 ? (uint32_t)multiprocessors : 0;
        } else if (name && kind == JSON_TEXT) {
            char *text = arena_text(reader->arena, json->text, json->length);
            text_make_printable(text);
            reader->trace->device = text;
        } else {
            json_skip(json, kind);
        }
    }
}

/* Reads the first device of the machine; the others are assumed to be the same. */
static void read_devices(Reader *reader)
{
    JsonKind kind = json_next(&reader->json);
    if (kind == JSON_OBJECT) {
        read_device(reader);
        json_leave(&reader->json);
    } else if (kind != JSON_ARRAY_END) {
        json_skip(&reader->json, kind);
        json_leave(&reader->json);
    }
}

/* Reads the whole file: {"traceEvents": [...], ...}, or [...] alone. */
static void read_top(Reader *reader, JsonKind kind)
{
    JsonReader *json = &reader->json;
    if (kind == JSON_ARRAY) {
        read_events(reader);
        return;
    }
    while (kind == JSON_OBJECT && json_next(json) == JSON_KEY) {
        const bool events = json_is(json, "traceEvents"), distributed = json_is(json, "distributedInfo"),
                   devices = json_is(json, "deviceProperties"), base = json_is(json, "baseTimeNanoseconds");
        const JsonKind value = json_next(json);
        if (events && value == JSON_ARRAY)
            read_events(reader);
        else if (distributed && value == JSON_OBJECT)
            read_distributed(reader);
        else if (devices && value == JSON_ARRAY)
            read_devices(reader);
        else if (base && (value == JSON_NUMBER || value == JSON_TEXT))
            reader->base = whole(json) <= most_time ? whole(json) : -1;
        else
            json_skip(json, value);
    }
}

Status kineto_read(const char *path, Arena *arena, KinetoTrace *trace, Error *error)
{
    *trace = (KinetoTrace){.path = text_printable(path, arena), .rank = -1, .world = -1, .device = ""};
    Reader *reader = arena_allocate(arena, sizeof *reader);
    reader->arena = arena;
    reader->trace = trace;
    TRY(json_open(&reader->json, path, arena, error));
    read_top(reader, json_next(&reader->json));
    while (json_next(&reader->json) != JSON_END)
        ;
    TRY(json_close(&reader->json, error));
    for (uint32_t i = 0; i < trace->name_count; i++)
        text_make_printable((char *)trace->names[i]);
    if (reader->base < 0)
        return error_set(error, STATUS_BAD_INPUT, "%s: baseTimeNanoseconds is not a whole number from 0 to %lld", path,
                         (long long)most_time);
    if (!trace->kernel_count && !trace->annotation_count)
        return error_set(error, STATUS_BAD_INPUT,
                         trace->begun
                             ? "%s: neither kernels nor annotations in it, only %s whose begin and end are two events "
                               "(ph B and E): dpc reads events with a duration (ph X), as the PyTorch profiler writes"
                             : "%s: neither kernels nor annotations in it: is this a trace of the PyTorch profiler "
                               "(torch.profiler.profile, export_chrome_trace)?",
                         path, counted(trace->begun, "event").text);
    kineto_tidy(trace, reader->base);
    return STATUS_OK;
}
