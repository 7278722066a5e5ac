/* Streams, events and memory of the mock runtime, and the order of accesses. */

#include "tests/cuda/mock/fused.h"

#include "runtime/base/clock.h"
#include "runtime/device/cuda.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS_MAX = 64, LINE = 64, TABLE = 1 << 20, POISONED = 1 << 20 };
enum { FAILED = 719 };

/* A vector clock: for each stream, the number of operations that have happened before. */
typedef struct Clock {
    uint32_t of[STREAMS_MAX];
} Clock;

typedef enum WorkKind { LAUNCH, LAUNCH_FUSED, COPY, SET, RECORD, WAIT, ATTEMPT } WorkKind;

typedef struct Work Work;
struct Work {
    WorkKind kind;
    Work *next;
    uint64_t number; /* the number of this operation in its stream, counted from 1 */
    const MockKernel *kernel;
    size_t element_size;
    void *parameters;
    MockFused *fused;
    void *destination;
    const void *source;
    size_t bytes;
    int value;
    CudaEvent *event;  /* RECORD */
    CudaStream *other; /* WAIT: operation `other_number` of this stream must have run */
    uint64_t other_number;
    bool (*attempt)(void *data); /* ATTEMPT */
};

struct CUstream_st {
    unsigned id;
    uint64_t enqueued, run;
    Work *first, **end;
    Clock clock;
};

struct CUevent_st {
    CudaStream *stream; /* the stream in which the event was recorded last; NULL: never recorded */
    uint64_t number;
    unsigned looks; /* calls of EventQuery since the record */
    Clock clock;
    int64_t time;
};

struct CUkern_st {
    const MockKernel *kernel;
    size_t element_size;
    int shared;
};

enum { KERNELS_MAX = 64 };
struct CUlib_st {
    const char *unit;
    struct CUkern_st kernels[KERNELS_MAX];
    size_t count;
};

typedef struct Block {
    char *memory;
    size_t bytes;
} Block;

/* The last accesses to a line of memory. */
typedef struct Shadow {
    uintptr_t line; /* 0: unused */
    unsigned writer;
    uint32_t written;
    uint32_t read[STREAMS_MAX];
    const char *writer_name, *reader_name;
} Shadow;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void **to_free; /* memory that was passed to mock_at_end */
static size_t to_free_count;
static MockSetting setting;
static MockReport report;
static uint64_t state; /* state of the random order */
static Block *blocks;
static size_t block_count;
static CudaStream *streams[STREAMS_MAX]; /* a destroyed stream's index is not reused within a run */
static unsigned stream_count;
static Shadow **shadows;
static unsigned generation;
static _Thread_local Clock known; /* operations that the calling thread has waited for */
static _Thread_local unsigned known_in;

void mock_begin(const MockSetting *new_setting)
{
    pthread_mutex_lock(&lock);
    setting = *new_setting;
    report = (MockReport){0};
    state = setting.seed;
    stream_count = 0;
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
    pthread_mutex_unlock(&lock);
}

MockReport mock_report(void)
{
    pthread_mutex_lock(&lock);
    const MockReport now = report;
    pthread_mutex_unlock(&lock);
    return now;
}

/* Counts the call. True: it must fail. The caller holds the lock. */
static bool fails(const char *name)
{
    report.calls++;
    if (known_in != generation) {
        memset(&known, 0, sizeof known);
        known_in = generation;
    }
    if (setting.fail_at == 0 || report.calls < setting.fail_at || (report.calls > setting.fail_at && !setting.sticky))
        return false;
    if (!report.failed)
        report.failed = name;
    return true;
}

#define ENTER(name)                  \
    pthread_mutex_lock(&lock);       \
    if (fails(#name)) {              \
        pthread_mutex_unlock(&lock); \
        return FAILED;               \
    }
/* A call that frees something frees it even if the call must fail. So every leak is a mistake of the caller. */
#define ENTER_TO_TIDY(name)    \
    pthread_mutex_lock(&lock); \
    const CudaError tidied = fails(#name) ? FAILED : CUDA_OK;
#define LEAVE(code)                  \
    do {                             \
        pthread_mutex_unlock(&lock); \
        return code;                 \
    } while (0)

/* --- the order of operations --- */

static void join(Clock *clock, const Clock *other)
{
    for (unsigned i = 0; i < stream_count; i++)
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
    if (report.races++ == 0)
        snprintf(report.first_race, sizeof report.first_race, "%s and %s, unordered, at %p", first, second, memory);
}

static void note(const char *problem)
{
    if (report.races++ == 0)
        snprintf(report.first_race, sizeof report.first_race, "%s", problem);
}

static bool is_ours(const void *memory, size_t bytes)
{
    for (size_t i = 0; i < block_count; i++)
        if ((const char *)memory >= blocks[i].memory &&
            (const char *)memory + bytes <= blocks[i].memory + blocks[i].bytes)
            return true;
    return false;
}

static void touch(const CudaStream *stream, const char *name, const void *memory, size_t bytes, bool writes)
{
    const Clock *now = &stream->clock;
    if (!is_ours(memory, bytes))
        return; /* not memory of the GPU, or NULL: accesses to host memory are checked by the address sanitizer */
    for (uintptr_t line = (uintptr_t)memory / LINE * LINE; line < (uintptr_t)memory + bytes; line += LINE) {
        Shadow *shadow = shadow_of(line);
        if (shadow->written > now->of[shadow->writer])
            note_race(shadow->writer_name, name, (const void *)line);
        for (unsigned i = 0; writes && i < stream_count; i++)
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

static void note_accesses(const CudaStream *stream, const MockKernel *kernel, size_t element_size,
                          const void *parameters)
{
    MockOperand operands[MOCK_OPERANDS];
    const size_t count = kernel->operands(parameters, operands);
    for (size_t i = 0; i < count; i++) {
        void *memory;
        memcpy(&memory, (const char *)parameters + operands[i].offset, sizeof memory);
        const size_t bytes = operands[i].count * (operands[i].size ? operands[i].size : element_size);
        if (operands[i].read)
            touch(stream, kernel->name, memory, bytes, false);
        if (operands[i].written)
            touch(stream, kernel->name, memory, bytes, true);
    }
}

/* --- running --- */

static bool run_to(CudaStream *stream, uint64_t number);

static uint64_t next_random(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static void run_fused(MockFused *fused)
{
    const char *problem = setting.dry ? NULL : mock_fused_run(fused, next_random);
    if (problem)
        note(problem);
    mock_fused_free(fused);
}

/* Runs the first operation of the stream. False: it cannot run yet. It is then an ATTEMPT that is not complete, or a
   WAIT for another stream whose operations cannot run yet. */
static bool run_one(CudaStream *stream)
{
    Work *operation = stream->first;
    if (operation->kind == WAIT && !run_to(operation->other, operation->other_number))
        return false;
    if (operation->kind == ATTEMPT && !operation->attempt(operation->parameters))
        return false;
    stream->first = operation->next;
    if (!stream->first)
        stream->end = &stream->first;
    stream->run = operation->number;
    switch (operation->kind) {
    case LAUNCH:
        if (!setting.dry)
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

static bool run_to(CudaStream *stream, uint64_t number)
{
    while (stream->run < number)
        if (!run_one(stream))
            return false;
    return true;
}

static void run_all(void)
{
    for (unsigned i = 0; i < stream_count; i++)
        if (streams[i])
            run_to(streams[i], streams[i]->enqueued);
}

static void enqueue(CudaStream *stream, Work operation)
{
    Work *own = malloc(sizeof *own);
    *own = operation;
    own->number = ++stream->enqueued;
    own->next = NULL;
    *stream->end = own;
    stream->end = &own->next;
    if (setting.order == MOCK_EARLY)
        run_to(stream, stream->enqueued);
    for (uint64_t i = setting.order == MOCK_RANDOM ? next_random() % 3 : 0; i > 0; i--) {
        CudaStream *any = streams[next_random() % stream_count];
        if (any && any->run < any->enqueued)
            run_one(any);
    }
}

/* Advances the stream's vector clock: its next operation comes after all earlier operations of the stream, and after
   all operations that the calling thread has waited for. */
static void advance(CudaStream *stream)
{
    join(&stream->clock, &known);
    stream->clock.of[stream->id]++;
}

void mock_enqueue(CudaStream *stream, bool (*attempt)(void *data), void *data, const MockAccess *accesses, size_t count)
{
    pthread_mutex_lock(&lock);
    fails("a library's operation");
    advance(stream);
    for (size_t i = 0; i < count; i++)
        touch(stream, "a library's transfer", accesses[i].memory, accesses[i].bytes, accesses[i].writes);
    enqueue(stream, (Work){.kind = ATTEMPT, .attempt = attempt, .parameters = data});
    pthread_mutex_unlock(&lock);
}

void mock_at_end(void *memory)
{
    pthread_mutex_lock(&lock);
    to_free = realloc(to_free, (to_free_count + 1) * sizeof *to_free);
    to_free[to_free_count++] = memory;
    pthread_mutex_unlock(&lock);
}

/* --- the functions of the table --- */

static const char *GetErrorString(CudaError error)
{
    return error == FAILED                ? "unspecified launch failure"
           : error == CUDA_DRIVER_TOO_OLD ? "driver too old"
                                          : "no device";
}

static CudaError DriverGetVersion(int *version)
{
    *version = setting.driver_version;
    return CUDA_OK;
}

static CudaError GetDeviceCount(int *count)
{
    ENTER(GetDeviceCount)
    *count = setting.devices < 0 ? 0 : setting.devices > 0 ? setting.devices : 1;
    LEAVE(setting.count_error);
}

static CudaError GetDeviceProperties(CudaProperties *properties, int device)
{
    ENTER(GetDeviceProperties)
    *properties = (CudaProperties){.name = "mock",
                                   .major = setting.major ? setting.major : 8,
                                   .minor = setting.minor,
                                   .multiprocessors = setting.multiprocessors ? setting.multiprocessors : 4,
                                   .shared_bytes = setting.shared_bytes ? setting.shared_bytes : 227 << 10};
    properties->uuid[0] = (unsigned char)(1 + setting.first_device + device);
    LEAVE(CUDA_OK);
}

static CudaError SetDevice(int device)
{
    ENTER(SetDevice)
    LEAVE(device == 0 || device < setting.devices ? CUDA_OK : 101);
}

static CudaError Malloc(void **memory, size_t bytes)
{
    ENTER(Malloc)
    *memory = bytes > (size_t)1 << 40 ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!*memory)
        LEAVE(CUDA_OUT_OF_MEMORY);
    memset(*memory, 0xff, bytes < POISONED ? bytes : POISONED); /* NaN in every type */
    blocks = realloc(blocks, (block_count + 1) * sizeof *blocks);
    blocks[block_count++] = (Block){*memory, bytes};
    report.bytes += bytes;
    report.live++;
    LEAVE(CUDA_OK);
}

static CudaError Free(void *memory)
{
    ENTER_TO_TIDY(Free)
    run_all(); /* this call of CUDA waits for all streams of the device */
    size_t i = 0;
    while (i < block_count && blocks[i].memory != memory)
        i++;
    if (i == block_count)
        LEAVE(1);
    for (uintptr_t line = (uintptr_t)memory; line < (uintptr_t)memory + blocks[i].bytes; line += LINE) {
        Shadow *shadow = *find_shadow(line);
        if (shadow)
            *shadow = (Shadow){.line = line};
    }
    report.bytes -= blocks[i].bytes;
    blocks[i] = blocks[--block_count];
    free(memory);
    report.live--;
    LEAVE(tidied);
}

static CudaError MemsetAsync(void *memory, int value, size_t bytes, CudaStream *stream)
{
    ENTER(MemsetAsync)
    advance(stream);
    touch(stream, "cudaMemsetAsync", memory, bytes, true);
    enqueue(stream, (Work){.kind = SET, .destination = memory, .value = value, .bytes = bytes});
    LEAVE(CUDA_OK);
}

static CudaError MemcpyAsync(void *destination, const void *source, size_t bytes, CudaStream *stream)
{
    ENTER(MemcpyAsync)
    report.copies++;
    advance(stream);
    touch(stream, "cudaMemcpyAsync", source, bytes, false);
    touch(stream, "cudaMemcpyAsync", destination, bytes, true);
    enqueue(stream, (Work){.kind = COPY, .destination = destination, .source = source, .bytes = bytes});
    LEAVE(CUDA_OK);
}

static CudaError StreamCreate(CudaStream **stream, int urgent)
{
    (void)urgent;
    ENTER(StreamCreate)
    if (stream_count == STREAMS_MAX)
        LEAVE(2);
    *stream = calloc(1, sizeof **stream);
    (*stream)->id = stream_count;
    (*stream)->end = &(*stream)->first;
    streams[stream_count++] = *stream;
    report.live++;
    LEAVE(CUDA_OK);
}

static CudaError StreamDestroy(CudaStream *stream)
{
    ENTER_TO_TIDY(StreamDestroy)
    run_all(); /* other streams may wait for these operations */
    streams[stream->id] = NULL;
    free(stream);
    report.live--;
    LEAVE(tidied);
}

static CudaError StreamSynchronize(CudaStream *stream)
{
    ENTER(StreamSynchronize)
    const uint64_t end = stream->enqueued;
    while (!run_to(stream, end)) { /* other operations must run first */
        pthread_mutex_unlock(&lock);
        sched_yield();
        pthread_mutex_lock(&lock);
    }
    join(&known, &stream->clock);
    LEAVE(CUDA_OK);
}

static CudaError StreamWaitEvent(CudaStream *stream, CudaEvent *event)
{
    ENTER(StreamWaitEvent)
    if (event->stream && !setting.forget_waits) {
        join(&stream->clock, &event->clock);
        enqueue(stream, (Work){.kind = WAIT, .other = event->stream, .other_number = event->number});
    }
    LEAVE(CUDA_OK);
}

static CudaError EventCreate(CudaEvent **event, int timing)
{
    (void)timing;
    ENTER(EventCreate)
    *event = calloc(1, sizeof **event);
    report.live++;
    LEAVE(CUDA_OK);
}

static CudaError EventDestroy(CudaEvent *event)
{
    ENTER_TO_TIDY(EventDestroy)
    for (unsigned i = 0; i < stream_count; i++)
        for (Work *operation = streams[i] ? streams[i]->first : NULL; operation; operation = operation->next)
            if (operation->event == event)
                operation->event = NULL;
    free(event);
    report.live--;
    LEAVE(tidied);
}

static CudaError EventRecord(CudaEvent *event, CudaStream *stream)
{
    ENTER(EventRecord)
    enqueue(stream, (Work){.kind = RECORD, .event = event});
    event->stream = stream;
    event->number = stream->enqueued;
    event->looks = 0;
    join(&stream->clock, &known);
    event->clock = stream->clock;
    LEAVE(CUDA_OK);
}

static CudaError EventQuery(CudaEvent *event)
{
    ENTER(EventQuery)
    if (!event->stream)
        LEAVE(CUDA_OK);
    if (event->looks++ < 2 && event->stream->run < event->number)
        LEAVE(CUDA_NOT_READY);
    if (!run_to(event->stream, event->number))
        LEAVE(CUDA_NOT_READY);
    join(&known, &event->clock);
    LEAVE(CUDA_OK);
}

static CudaError EventElapsedTime(float *milliseconds, CudaEvent *from, CudaEvent *to)
{
    ENTER(EventElapsedTime)
    if (!from->stream || !to->stream || from->stream->run < from->number || to->stream->run < to->number)
        LEAVE(CUDA_NOT_READY);
    *milliseconds = (float)((double)(to->time - from->time) * 1e-6);
    LEAVE(CUDA_OK);
}

static CudaError LibraryLoadData(CudaLibrary **library, const void *image)
{
    ENTER(LibraryLoadData)
    *library = calloc(1, sizeof **library);
    (*library)->unit = image;
    report.live++;
    LEAVE(CUDA_OK);
}

static CudaError LibraryUnload(CudaLibrary *library)
{
    ENTER_TO_TIDY(LibraryUnload)
    run_all();
    free(library);
    report.live--;
    LEAVE(tidied);
}

static CudaError LibraryGetKernel(CudaKernel **kernel, CudaLibrary *library, const char *name)
{
    ENTER(LibraryGetKernel)
    if (library->count == KERNELS_MAX)
        LEAVE(2);
    *kernel = &library->kernels[library->count];
    (*kernel)->kernel = mock_kernel(name, &(*kernel)->element_size);
    if (!(*kernel)->kernel || !mock_is_in(library->unit, (*kernel)->kernel, name))
        LEAVE(500);
    library->count++;
    LEAVE(CUDA_OK);
}

static CudaError KernelSetAttributeForDevice(CudaKernel *kernel, int bytes, int device)
{
    ENTER(KernelSetAttributeForDevice)
    kernel->shared = bytes;
    LEAVE(device == 0 || device < setting.devices ? CUDA_OK : 101);
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

static void launch_fused(const CudaKernel *kernel, unsigned grid, const Fused *table, CudaStream *stream)
{
    char problem[256];
    MockFused *fused = mock_fused_take(stream, table, kernel->element_size, setting.forget_after, problem);
    if (*problem)
        note(problem);
    advance(stream);
    report.fused++;
    report.operations = mock_fused_count(fused);
    report.blocks = grid;
    touch(stream, "a fused launch", table->operations, report.operations * sizeof *table->operations, false);
    touch(stream, "a fused launch", table->runs, table->run_count * sizeof *table->runs, false);
    touch(stream, "a fused launch", table->drawn, sizeof *table->drawn, true);
    touch(stream, "a fused launch", table->done, report.operations * sizeof *table->done, true);
    touch(stream, "a fused launch", table->cleared, table->cleared_count * sizeof *table->cleared, true);
    for (unsigned i = 0; i < report.operations; i++) {
        const void *parameters;
        size_t element_size;
        const MockKernel *operation = mock_fused_operation(fused, i, &parameters, &element_size);
        note_accesses(stream, operation, element_size, parameters);
    }
    enqueue(stream, (Work){.kind = LAUNCH_FUSED, .fused = fused});
}

static CudaError LaunchKernel(CudaKernel *kernel, Launch launch, const void *parameters, CudaStream *stream)
{
    ENTER(LaunchKernel)
    if (launch.grid == 0 || launch.block == 0 || launch.block > 1024 || launch.shared > (unsigned)kernel->shared)
        LEAVE(9);
    if (launch.cluster == 0 || launch.cluster > 8 || launch.grid % launch.cluster ||
        (launch.cluster > 1 && setting.major < 9))
        LEAVE(912); /* cudaErrorInvalidClusterSize */
    report.launches++;
    report.clustered += launch.cluster > 1;
    if (!kernel->kernel->operands) {
        launch_fused(kernel, launch.grid, parameters, stream);
        LEAVE(CUDA_OK);
    }
    void *copy = aligned_alloc(128, (kernel->kernel->parameter_bytes + 127) / 128 * 128);
    memcpy(copy, parameters, kernel->kernel->parameter_bytes);
    advance(stream);
    note_accesses(stream, kernel->kernel, kernel->element_size, copy);
    enqueue(stream,
            (Work){.kind = LAUNCH, .kernel = kernel->kernel, .element_size = kernel->element_size, .parameters = copy});
    LEAVE(CUDA_OK);
}

static CudaError EncodeTensorMap(TensorMap *map, const void *matrix, const TensorMapShape *shape)
{
    ENTER(TensorMapEncodeTiled)
    memcpy(map->bytes, &matrix, sizeof matrix);
    LEAVE((uintptr_t)matrix % 16 == 0 && shape->pitch % 16 == 0 && shape->box[0] <= 256 && shape->box[1] <= 256
              ? CUDA_OK
              : 1);
}

static const CudaRuntime table = {
    .runtime_version = 13000,
    .GetErrorString = GetErrorString,
    .DriverGetVersion = DriverGetVersion,
    .GetDeviceCount = GetDeviceCount,
    .GetDeviceProperties = GetDeviceProperties,
    .SetDevice = SetDevice,
    .Malloc = Malloc,
    .Free = Free,
    .MemsetAsync = MemsetAsync,
    .MemcpyAsync = MemcpyAsync,
    .StreamCreate = StreamCreate,
    .StreamDestroy = StreamDestroy,
    .StreamSynchronize = StreamSynchronize,
    .StreamWaitEvent = StreamWaitEvent,
    .EventCreate = EventCreate,
    .EventDestroy = EventDestroy,
    .EventRecord = EventRecord,
    .EventQuery = EventQuery,
    .EventElapsedTime = EventElapsedTime,
    .LibraryLoadData = LibraryLoadData,
    .LibraryUnload = LibraryUnload,
    .LibraryGetKernel = LibraryGetKernel,
    .KernelSetAttributeForDevice = KernelSetAttributeForDevice,
    .LaunchKernel = LaunchKernel,
    .EncodeTensorMap = EncodeTensorMap,
};

const CudaRuntime *const cuda_runtime = &table;

#define UNITS(file, architecture) \
    {file ".f32", architecture, file ".f32"}, { file ".bf16", architecture, file ".bf16" }
#define IMAGES(architecture)                                                                         \
    UNITS("product", architecture), UNITS("attention", architecture), UNITS("layers", architecture), \
        UNITS("training", architecture)
const CudaImage cuda_images[] = {
    IMAGES("sm_80"),
    UNITS("fused", "sm_80"),
    IMAGES("sm_90a"),
    {"fused.f32", "sm_90a", "fused.f32"},
    {"hopper", "sm_90a", "hopper"},
    {NULL, NULL, NULL},
};
