/* A list of operations as one launch: they go to the GPU as a table (kernels.h, Fused), each with those that it comes
   after. A training step runs the same lists on the same memory again and again. Their tables are cached, so that a
   list that has run before is one launch and nothing else. */

#include "runtime/device/cuda.h"
#include "runtime/device/fused.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Lists longer than one plan are split into several launches. Their tables are not cached; neither are tables that do
   not fit in memory. There are a few more staging buffers than an interpreter has F&Bs under way, and usually more
   plans than a rank has lists (a stage's F beside another's B or I; a stage's pass alone). */
enum { STAGING_BUFFERS = 16, PLANS = 32, CACHE_ENTRIES = 4096, CACHE_PROBES = 8, TABLE_MEMORY = 16 << 20 };

/* The host writes a table here, and the GPU copies it from here. */
typedef struct StagingBuffer {
    char *host;
    CudaEvent *copied;
    bool used;
} StagingBuffer;

/* The cache key of a table: the list and the addresses of its buffers. Bases beyond the list's are NULL. */
typedef struct TableKey {
    uint64_t list;
    void *bases[OPERATION_BASES];
} TableKey;

/* A table in the GPU's memory, for launches on so many blocks. */
typedef struct CachedTable {
    TableKey key;
    unsigned blocks;
    ProductClock products; /* what each launch adds to the device's clock, if that is on */
    Fused fused;           /* parameters of the next launch; without operations: an empty entry */
} CachedTable;

struct CudaFusion {
    const OpList *list; /* the one that is being collected; NULL: none */
    size_t index;       /* the operation of it that is being collected */
    unsigned blocks;
    unsigned count, previous;  /* kernels of this launch; +1, the one before of the same operation; 0: none */
    unsigned *last, last_room; /* [list->count] +1, the last kernel of each operation; 0: none in this launch */
    StagingBuffer staging[STAGING_BUFFERS];
    unsigned next;
    FusedShapes shapes;
    FusedPlan plans[PLANS]; /* each empty at first */
    unsigned next_plan;
    CachedTable *cached, *entry; /* [CACHE_ENTRIES]; the entry of what is being collected, NULL: it is not cached */
    ProductClock before;         /* the device's, when collecting began */
    size_t memory_used;
    void *host, *memory; /* of all staging buffers; of cached tables and, after them, of one that is not cached */
};

/* clang-format off */
static const unsigned char kind_of[CUDA_KERNELS] = { /* +1 */
#define KIND(name, field) [CUDA_##name] = FUSED_##name + 1,
    FUSED_OPERATIONS(KIND)
    FUSED_OPERATIONS_OF_HOPPER(KIND)
#undef KIND
};

static const size_t parameter_bytes[FUSED_KINDS] = {
#define BYTES(name, field) [FUSED_##name] = sizeof((Operation *)NULL)->of.field,
    FUSED_OPERATIONS(BYTES)
    FUSED_OPERATIONS_OF_HOPPER(BYTES)
#undef BYTES
};
/* clang-format on */

/* --- open and close --- */

/* Tickets, and the tiles of each operation. */
static unsigned counters_of(unsigned operations) { return 1 + operations; }

/* Operations, one behind the other; behind them the counters of one launch and of the next, and the runs. */
static size_t table_bytes(unsigned operations, unsigned runs)
{
    const size_t bytes =
        operations * sizeof(Operation) + 2 * counters_of(operations) * sizeof(unsigned) + runs * sizeof(TileRun);
    return (bytes + 255) / 256 * 256;
}

Status cuda_fusion_open(CudaDevice *cuda, Error *error)
{
    const size_t most = table_bytes(FUSED_OPERATIONS_MOST, FUSED_RUNS_MOST);
    CudaFusion *fusion = cuda->fusion = calloc(1, sizeof *fusion);
    if (!fusion || !(fusion->cached = calloc(CACHE_ENTRIES, sizeof *fusion->cached)))
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    CUDA_TRY(MallocHost, &fusion->host, STAGING_BUFFERS * most);
    TRY(cuda_take(TABLE_MEMORY + most, &fusion->memory, error));
    for (int d = 0; d < STAGING_BUFFERS; d++) {
        fusion->staging[d].host = (char *)fusion->host + (size_t)d * most;
        CUDA_TRY(EventCreate, &fusion->staging[d].copied, 0);
    }
    return STATUS_OK;
}

void cuda_fusion_close(CudaDevice *cuda)
{
    CudaFusion *fusion = cuda->fusion;
    if (!fusion)
        return;
    for (int d = 0; d < STAGING_BUFFERS; d++)
        if (fusion->staging[d].copied)
            cuda_runtime->EventDestroy(fusion->staging[d].copied);
    if (fusion->memory)
        cuda_runtime->Free(fusion->memory);
    if (fusion->host)
        cuda_runtime->FreeHost(fusion->host);
    free(fusion->last);
    free(fusion->cached);
    free(fusion);
}

void cuda_fusion_forget(CudaDevice *cuda)
{
    CudaFusion *fusion = cuda->fusion;
    memset(fusion->cached, 0, CACHE_ENTRIES * sizeof *fusion->cached);
    fusion->memory_used = 0;
}

/* --- cached tables --- */

/* The entry that has this key, or an empty one for it; NULL: there is none left nearby. */
static CachedTable *find_entry(const CudaDevice *cuda, const TableKey *key, uint32_t bases)
{
    const CudaFusion *fusion = cuda->fusion;
    const size_t used = sizeof key->list + bases * sizeof *key->bases;
    const uint64_t first = cuda_hash(key, used);
    for (unsigned i = 0; i < CACHE_PROBES; i++) {
        CachedTable *cached = &fusion->cached[(first + i) % CACHE_ENTRIES];
        if (!cached->fused.operations ||
            (cached->blocks == fusion->blocks && cached->products.on == cuda->device.products.on &&
             memcmp(&cached->key, key, used) == 0))
            return cached;
    }
    return NULL;
}

/* For the next launch, whose counters this one clears. */
static void turn_counters(Fused *fused)
{
    unsigned *const used = fused->drawn;
    fused->drawn = fused->cleared;
    fused->done = fused->drawn + 1;
    fused->cleared = used;
}

/* --- a list --- */

bool cuda_fusing(const CudaDevice *cuda) { return cuda->fusion->list; }

/* Until the GPU has copied what is in the buffer. Its copy was enqueued long ago, so this hardly ever waits. */
static Status await_copy(const StagingBuffer *buffer, Error *error)
{
    CudaError code = CUDA_OK;
    while (buffer->used && (code = cuda_runtime->EventQuery(buffer->copied)) == CUDA_NOT_READY)
        sched_yield();
    return cuda_status(code, "cudaEventQuery", error);
}

/* The plan for what has been collected. A new plan replaces the oldest. */
static Status find_plan(CudaFusion *fusion, Operation *operations, unsigned element_size, const FusedPlan **found,
                        Error *error)
{
    TRY(fused_shapes(operations, fusion->count, element_size, fusion->blocks, &fusion->shapes, error));
    for (int p = 0; p < PLANS; p++)
        if (fused_same(&fusion->plans[p].shapes, &fusion->shapes)) {
            *found = &fusion->plans[p];
            return STATUS_OK;
        }
    FusedPlan *plan = &fusion->plans[fusion->next_plan];
    fusion->next_plan = (fusion->next_plan + 1) % PLANS;
    fused_plan(&fusion->shapes, plan);
    *found = plan;
    return STATUS_OK;
}

static Status launch_fused_kernel(CudaDevice *cuda, unsigned blocks, const Fused *fused, Error *error)
{
    if (cuda->type == CUDA_BF16 && cuda->module->kernels[CUDA_fused_hopper][CUDA_F32])
        return cuda_launch(cuda, CUDA_fused_hopper, CUDA_F32, fused_hopper_launch(blocks), fused, error);
    const unsigned element_size = cuda->type == CUDA_F32 ? 4 : 2, most = (unsigned)cuda->properties.shared_bytes;
    return cuda_launch(cuda, CUDA_fused, cuda->type, fused_launch(blocks, element_size, most), fused, error);
}

static void forget_collected(CudaFusion *fusion)
{
    fusion->count = fusion->previous = 0;
    memset(fusion->last, 0, fusion->list->count * sizeof *fusion->last);
}

/* Launches what has been collected so far. A table that is not cached overwrites the one before it: the stream copies
   it after that one's launch. */
static Status launch_table(CudaDevice *cuda, Error *error)
{
    CudaFusion *fusion = cuda->fusion;
    StagingBuffer *buffer = &fusion->staging[fusion->next];
    const unsigned count = fusion->count, counters = counters_of(count);
    CachedTable *entry = fusion->entry;
    fusion->entry = NULL;
    if (count == 0)
        return STATUS_OK;
    const FusedPlan *plan;
    TRY(find_plan(fusion, (Operation *)(void *)buffer->host, (unsigned)cuda->device.run->size[ELEMENTS], &plan, error));
    const unsigned runs = plan->run_count;
    const size_t bytes = table_bytes(count, runs), counters_at = count * sizeof(Operation);
    const size_t runs_at = counters_at + 2 * counters * sizeof(unsigned);
    if (fusion->memory_used + bytes > TABLE_MEMORY)
        entry = NULL;
    char *const memory = (char *)fusion->memory + (entry ? fusion->memory_used : TABLE_MEMORY);
    memset(buffer->host + counters_at, 0, runs_at - counters_at);
    memcpy(buffer->host + runs_at, plan->runs, runs * sizeof *plan->runs);
    Fused fused = fused_table(plan, (const Operation *)(void *)memory, (const TileRun *)(void *)(memory + runs_at));
    fused.drawn = (unsigned *)(void *)(memory + counters_at);
    fused.done = fused.drawn + 1;
    fused.cleared = fused.drawn + counters;
    fused.cleared_count = counters;
    CUDA_TRY(MemcpyAsync, memory, buffer->host, runs_at + runs * sizeof *plan->runs, cuda->streams[QUEUE_COMPUTE]);
    CUDA_TRY(EventRecord, buffer->copied, cuda->streams[QUEUE_COMPUTE]);
    buffer->used = true;
    fusion->next = (fusion->next + 1) % STAGING_BUFFERS;
    forget_collected(fusion);
    TRY(launch_fused_kernel(cuda, fusion->blocks, &fused, error));
    if (entry) {
        fusion->memory_used += bytes;
        turn_counters(&fused);
        entry->fused = fused;
        entry->products = cuda->device.products;
        entry->products.calls -= fusion->before.calls;
        entry->products.operations -= fusion->before.operations;
    }
    return STATUS_OK;
}

/* What is left to the kernels of a library that moves messages meanwhile: the recipe's share, or one in so many. Copies
   between the ranks of one GPU, and models without communication of their own, take no multiprocessors. */
enum { LIBRARY_PART = 16 };

static unsigned blocks_beside(const CudaDevice *cuda, uint32_t share, uint32_t whole)
{
    const unsigned all = (unsigned)cuda->properties.multiprocessors;
    if (!cuda->library)
        return all;
    const unsigned left =
        share ? (unsigned)(((uint64_t)all * share + whole / 2) / whole) : (all + LIBRARY_PART / 2) / LIBRARY_PART;
    return left < all ? all - left : 1;
}

static Status launch_again(CudaDevice *cuda, CachedTable *entry, Error *error)
{
    cuda->device.products.calls += entry->products.calls;
    cuda->device.products.operations += entry->products.operations;
    TRY(launch_fused_kernel(cuda, cuda->fusion->blocks, &entry->fused, error));
    turn_counters(&entry->fused);
    return STATUS_OK;
}

static Status collect(CudaDevice *cuda, const OpList *list, void *const *bases, Error *error)
{
    CudaFusion *fusion = cuda->fusion;
    forget_collected(fusion);
    for (fusion->index = 0; fusion->index < list->count; fusion->index++) {
        fusion->previous = 0;
        TRY(op_run(&cuda->device, list, fusion->index, fusion->index + 1, bases, error));
    }
    return launch_table(cuda, error);
}

static Status run(Device *device, const OpList *list, void *const *bases, uint32_t share, uint32_t whole, Error *error)
{
    CudaDevice *cuda = (CudaDevice *)device;
    CudaFusion *fusion = cuda->fusion;
    TableKey key = {.list = list->number};
    memcpy(key.bases, bases, list->bases * sizeof *bases);
    fusion->blocks = blocks_beside(cuda, share, whole);
    CachedTable *entry = fusion->entry = find_entry(cuda, &key, list->bases);
    if (entry && entry->fused.operations)
        return launch_again(cuda, entry, error);
    if (entry) {
        entry->key = key;
        entry->blocks = fusion->blocks;
    }
    if (fusion->last_room < list->count) {
        unsigned *last = realloc(fusion->last, list->count * sizeof *last);
        if (!last)
            return error_set(error, STATUS_RUN_FAILED, "out of memory");
        fusion->last = last;
        fusion->last_room = (unsigned)list->count;
    }
    fusion->before = device->products;
    fusion->list = list;
    const Status status = collect(cuda, list, bases, error);
    fusion->list = NULL;
    return status;
}

/* 3 us at a third of what tensor cores do at best. */
const DeviceFusion cuda_fusion = {.small = 1e9, .run = run};

/* --- its kernels --- */

static void come_after(Operation *operation, unsigned other)
{
    if (other > 0)
        operation->after[operation->after_count++] = other - 1;
}

Status cuda_fuse(CudaDevice *cuda, int kernel, const void *parameters, Error *error)
{
    CudaFusion *fusion = cuda->fusion;
    if (!kind_of[kernel])
        return error_set(error, STATUS_RUN_FAILED, "kernel %d of a list is none that a fused launch has", kernel);
    if (fusion->count == FUSED_OPERATIONS_MOST) {
        fusion->entry = NULL; /* the list does not fit into one table */
        TRY(launch_table(cuda, error));
    }
    StagingBuffer *buffer = &fusion->staging[fusion->next];
    if (fusion->count == 0)
        TRY(await_copy(buffer, error));
    Operation *operations = (Operation *)(void *)buffer->host, *operation = &operations[fusion->count++];
    operation->kind = (OperationKind)(kind_of[kernel] - 1);
    operation->after_count = 0;
    memcpy(&operation->of, parameters, parameter_bytes[operation->kind]);
    const Op *op = &fusion->list->ops[fusion->index];
    if (fusion->previous)
        come_after(operation, fusion->previous);
    else
        for (unsigned a = 0; a < op->after_count; a++)
            come_after(operation, fusion->last[op->after[a]]);
    fusion->previous = fusion->last[fusion->index] = fusion->count;
    return STATUS_OK;
}
