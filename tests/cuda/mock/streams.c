/* Streams and memory of the mock runtime, and the order of accesses. */

#include "tests/cuda/mock/streams.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, TABLE = 1 << 20 };

typedef struct Block {
    char *memory;
    size_t bytes;
} Block;

/* The last write to a line of memory (64 bytes), and the last read by each stream since that write. */
typedef struct Shadow {
    uintptr_t line; /* 0: unused */
    unsigned writer;
    uint32_t written;
    uint32_t read[STREAMS_MAX];
    const char *writer_name, *reader_name;
} Shadow;

pthread_mutex_t mock_lock = PTHREAD_MUTEX_INITIALIZER;
static void **to_free; /* memory that was passed to mock_at_end */
static size_t to_free_count;
MockSetting mock_setting;
MockReport mock_counts;
static uint64_t state; /* state of the random order */
static Block *blocks;
static size_t block_count;
CudaStream *mock_streams[STREAMS_MAX];
unsigned mock_stream_count;
static Shadow **shadows;
static unsigned generation;
_Thread_local Clock mock_known;
static _Thread_local unsigned known_in;

void streams_begin(void)
{
    state = mock_setting.seed;
    mock_stream_count = 0;
    generation++;
    while (to_free_count > 0)
        free(to_free[--to_free_count]);
    for (size_t i = 0; shadows && i < TABLE; i++)
        free(shadows[i]);
    free(shadows);
    free(blocks);
    blocks = NULL;
    block_count = 0;
    shadows = calloc(TABLE, sizeof *shadows);
}

bool mock_fails(const char *name)
{
    mock_counts.calls++;
    if (known_in != generation) {
        memset(&mock_known, 0, sizeof mock_known);
        known_in = generation;
    }
    if (mock_setting.fail_at == 0 || mock_counts.calls < mock_setting.fail_at ||
        (mock_counts.calls > mock_setting.fail_at && !mock_setting.sticky))
        return false;
    if (!mock_counts.failed)
        mock_counts.failed = name;
    return true;
}

/* --- the order of operations --- */

void clock_join(Clock *clock, const Clock *other)
{
    for (unsigned i = 0; i < mock_stream_count; i++)
        clock->of[i] = clock->of[i] > other->of[i] ? clock->of[i] : other->of[i];
}

/* Where the shadow of a line of memory is stored, or would be stored if it has none. */
static Shadow **find_shadow(uintptr_t line)
{
    size_t i = (line / LINE * 0x9e3779b97f4a7c15u >> 20) % TABLE;
    while (shadows[i] && shadows[i]->line != line)
        i = (i + 1) % TABLE;
    return &shadows[i];
}

static Shadow *shadow_of(uintptr_t line)
{
    Shadow **place = find_shadow(line);
    if (!*place) {
        *place = calloc(1, sizeof **place);
        (*place)->line = line;
    }
    return *place;
}

static void note_race(const char *first, const char *second, const void *memory)
{
    if (mock_counts.races++ == 0)
        snprintf(mock_counts.first_race, sizeof mock_counts.first_race, "%s and %s, unordered, at %p", first, second,
                 memory);
}

void mock_note(const char *problem)
{
    if (mock_counts.races++ == 0)
        snprintf(mock_counts.first_race, sizeof mock_counts.first_race, "%s", problem);
}

void block_add(void *memory, size_t bytes)
{
    blocks = realloc(blocks, (block_count + 1) * sizeof *blocks);
    blocks[block_count++] = (Block){memory, bytes};
    mock_counts.bytes += bytes;
}

bool block_remove(const void *memory)
{
    size_t i = 0;
    while (i < block_count && blocks[i].memory != memory)
        i++;
    if (i == block_count)
        return false;
    for (uintptr_t line = (uintptr_t)memory; line < (uintptr_t)memory + blocks[i].bytes; line += LINE) {
        Shadow *shadow = *find_shadow(line);
        if (shadow)
            *shadow = (Shadow){.line = line};
    }
    mock_counts.bytes -= blocks[i].bytes;
    blocks[i] = blocks[--block_count];
    return true;
}

static bool is_ours(const void *memory, size_t bytes)
{
    for (size_t i = 0; i < block_count; i++)
        if ((const char *)memory >= blocks[i].memory &&
            (const char *)memory + bytes <= blocks[i].memory + blocks[i].bytes)
            return true;
    return false;
}

void stream_touch(const CudaStream *stream, const char *name, const void *memory, size_t bytes, bool writes)
{
    const Clock *now = &stream->clock;
    if (!is_ours(memory, bytes))
        return; /* not memory of the GPU, or NULL: accesses to host memory are checked by the address sanitizer */
    for (uintptr_t line = (uintptr_t)memory / LINE * LINE; line < (uintptr_t)memory + bytes; line += LINE) {
        Shadow *shadow = shadow_of(line);
        if (shadow->written > now->of[shadow->writer])
            note_race(shadow->writer_name, name, (const void *)line);
        for (unsigned i = 0; writes && i < mock_stream_count; i++)
            if (shadow->read[i] > now->of[i])
                note_race(shadow->reader_name, name, (const void *)line);
        if (writes) {
            shadow->writer = stream->id;
            shadow->written = now->of[stream->id];
            shadow->writer_name = name;
            memset(shadow->read, 0, sizeof shadow->read);
        } else {
            shadow->read[stream->id] = now->of[stream->id];
            shadow->reader_name = name;
        }
    }
}

/* --- running --- */

static uint64_t next_random(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static void run_fused(MockFused *fused)
{
    const char *problem = mock_setting.dry ? NULL : mock_fused_run(fused, next_random);
    if (problem)
        mock_note(problem);
    mock_fused_free(fused);
}

/* Runs the first operation of the stream. False: it cannot run yet. It is then an ATTEMPT that is not complete, or a
   WAIT for another stream whose operations cannot run yet. */
static bool run_one(CudaStream *stream)
{
    Work *operation = stream->first;
    if (operation->kind == WAIT && !stream_run_to(operation->other, operation->other_number))
        return false;
    if (operation->kind == ATTEMPT && !operation->attempt(operation->parameters))
        return false;
    stream->first = operation->next;
    if (!stream->first)
        stream->end = &stream->first;
    stream->run = operation->number;
    switch (operation->kind) {
    case LAUNCH:
        if (!mock_setting.dry)
            mock_run(operation->kernel, operation->element_size, operation->parameters);
        break;
    case LAUNCH_FUSED: run_fused(operation->fused); break;
    case COPY: memmove(operation->destination, operation->source, operation->bytes); break;
    case SET: memset(operation->destination, operation->value, operation->bytes); break;
    case RECORD:
        if (operation->event)
            operation->event->time = clock_nanoseconds();
        break;
    case WAIT:
    case ATTEMPT: break;
    }
    free(operation->parameters);
    free(operation);
    return true;
}

bool stream_run_to(CudaStream *stream, uint64_t number)
{
    while (stream->run < number)
        if (!run_one(stream))
            return false;
    return true;
}

void streams_run(void)
{
    for (unsigned i = 0; i < mock_stream_count; i++)
        if (mock_streams[i])
            stream_run_to(mock_streams[i], mock_streams[i]->enqueued);
}

void stream_enqueue(CudaStream *stream, Work operation)
{
    Work *own = malloc(sizeof *own);
    *own = operation;
    own->number = ++stream->enqueued;
    own->next = NULL;
    *stream->end = own;
    stream->end = &own->next;
    if (mock_setting.order == MOCK_EARLY)
        stream_run_to(stream, stream->enqueued);
    for (uint64_t i = mock_setting.order == MOCK_RANDOM ? next_random() % 3 : 0; i > 0; i--) {
        CudaStream *any = mock_streams[next_random() % mock_stream_count];
        if (any && any->run < any->enqueued)
            run_one(any);
    }
}

void stream_advance(CudaStream *stream)
{
    clock_join(&stream->clock, &mock_known);
    stream->clock.of[stream->id]++;
}

void mock_enqueue(CudaStream *stream, bool (*attempt)(void *data), void *data, const MockAccess *accesses, size_t count)
{
    pthread_mutex_lock(&mock_lock);
    mock_fails("a library's operation");
    stream_advance(stream);
    for (size_t i = 0; i < count; i++)
        stream_touch(stream, "a library's transfer", accesses[i].memory, accesses[i].bytes, accesses[i].writes);
    stream_enqueue(stream, (Work){.kind = ATTEMPT, .attempt = attempt, .parameters = data});
    pthread_mutex_unlock(&mock_lock);
}

void mock_at_end(void *memory)
{
    pthread_mutex_lock(&mock_lock);
    to_free = realloc(to_free, (to_free_count + 1) * sizeof *to_free);
    to_free[to_free_count++] = memory;
    pthread_mutex_unlock(&mock_lock);
}

void mock_read(const CudaStream *stream, const void *memory, size_t bytes, void *copy)
{
    memcpy(copy, memory, bytes);
    for (const Work *work = stream->first; work; work = work->next) {
        const char *const to = work->destination, *const from = memory;
        if ((work->kind != COPY && work->kind != SET) || to >= from + bytes || from >= to + work->bytes)
            continue;
        const char *const begin = to > from ? to : from, *const end = to + work->bytes < from + bytes ? to + work->bytes
                                                                                                      : from + bytes;
        if (work->kind == COPY)
            memcpy((char *)copy + (begin - from), (const char *)work->source + (begin - to), (size_t)(end - begin));
        else
            memset((char *)copy + (begin - from), work->value, (size_t)(end - begin));
    }
}
