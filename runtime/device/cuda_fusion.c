/* An F&B as one launch: the operations of its halves are collected, with what each waits for, and go to the GPU as a
   table (kernels.h, Fused). A training step has the same F&Bs again and again: tables stay there, so that the next
   launch of one is all that there is to do. */

#include "runtime/device/cuda.h"
#include "runtime/device/fused.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* More operations than a plan has are several launches, whose tables do not stay; no more do those for which there is
   no memory left. Drafts are as many as an interpreter has F&Bs under way, and some; plans as many as a rank has pairs
   of stages, each a stage's F and a stage's B or I, and passes of stages, most often. */
enum { DRAFTS = 16, PLANS = 32, PLACES = 4096, NEARBY = 8, TABLE_MEMORY = 16 << 20 };

/* Where the host writes a table, and the GPU copies it from. */
typedef struct Draft {
    char *host;
    CudaEvent *copied;
    bool used;
} Draft;

/* The table of an F&B of this name, on so many blocks. */
typedef struct KeptTable {
    uint64_t name[FUSION_NAME / 8];
    size_t name_bytes;
    unsigned blocks;
    ProductClock products; /* what a launch adds to the device's, if that was on and is */
    Fused fused;           /* the next one; without operations: an empty place */
} KeptTable;

struct CudaFusion {
    bool on;
    unsigned blocks;
    RecipePass pass;
    unsigned count, last[RECIPE_PASSES]; /* of F and of B: the operation before, +1; 0: none in this launch */
    Draft drafts[DRAFTS];
    unsigned next;
    FusedShapes shapes;
    FusedPlan plans[PLANS]; /* each empty at first */
    unsigned next_plan;
    KeptTable *kept, *place; /* PLACES; that of what is collected, NULL: it does not stay */
    ProductClock before;     /* the device's, when collecting began */
    size_t memory_used;
    void *host, *memory; /* of all drafts; of tables that stay, behind them of one that does not */
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

static unsigned counters_of(unsigned operations) { return FUSED_QUEUES + operations; }

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
    if (!fusion || !(fusion->kept = calloc(PLACES, sizeof *fusion->kept)))
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    CUDA_TRY(MallocHost, &fusion->host, DRAFTS * most);
    TRY(cuda_take(TABLE_MEMORY + most, &fusion->memory, error));
    for (int d = 0; d < DRAFTS; d++) {
        fusion->drafts[d].host = (char *)fusion->host + (size_t)d * most;
        CUDA_TRY(EventCreate, &fusion->drafts[d].copied, 0);
    }
    return STATUS_OK;
}

void cuda_fusion_close(CudaDevice *cuda)
{
    CudaFusion *fusion = cuda->fusion;
    if (!fusion)
        return;
    for (int d = 0; d < DRAFTS; d++)
        if (fusion->drafts[d].copied)
            cuda_runtime->EventDestroy(fusion->drafts[d].copied);
    if (fusion->memory)
        cuda_runtime->Free(fusion->memory);
    if (fusion->host)
        cuda_runtime->FreeHost(fusion->host);
    free(fusion->kept);
    free(fusion);
}

void cuda_fusion_forget(CudaDevice *cuda)
{
    CudaFusion *fusion = cuda->fusion;
    memset(fusion->kept, 0, PLACES * sizeof *fusion->kept);
    fusion->memory_used = 0;
}

/* --- tables that stay --- */

/* Where the table is or shall be; NULL where there is no place left. */
static KeptTable *find_place(const CudaDevice *cuda, const void *name, size_t bytes)
{
    const CudaFusion *fusion = cuda->fusion;
    const uint64_t first = cuda_hash(name, bytes);
    for (unsigned i = 0; i < NEARBY; i++) {
        KeptTable *kept = &fusion->kept[(first + i) % PLACES];
        if (!kept->fused.operations ||
            (kept->name_bytes == bytes && kept->blocks == fusion->blocks &&
             kept->products.on == cuda->device.products.on && memcmp(kept->name, name, bytes) == 0))
            return kept;
    }
    return NULL;
}

/* An empty place gets the name that a table shall have there. */
static void name_place(KeptTable *place, const void *name, size_t bytes, unsigned blocks)
{
    memcpy(place->name, name, bytes);
    place->name_bytes = bytes;
    place->blocks = blocks;
}

/* For the next launch, whose counters this one clears. */
static void turn_counters(Fused *fused)
{
    unsigned *const used = fused->drawn;
    fused->drawn = fused->cleared;
    fused->done = fused->drawn + FUSED_QUEUES;
    fused->cleared = used;
}

/* --- an F&B --- */

bool cuda_fusing(const CudaDevice *cuda) { return cuda->fusion->on; }

/* Its copy was enqueued long ago. */
static Status await_draft(const Draft *draft, Error *error)
{
    CudaError code = CUDA_OK;
    while (draft->used && (code = cuda_runtime->EventQuery(draft->copied)) == CUDA_NOT_READY)
        sched_yield();
    return cuda_status(code, "cudaEventQuery", error);
}

/* The plan for what is collected; the oldest makes place for a new one. */
static Status find_plan(CudaFusion *fusion, Operation *operations, unsigned element_size, const FusedPlan **found,
                        Error *error)
{
    TRY(fused_shapes(operations, fusion->count, element_size, fusion->blocks, 0, &fusion->shapes, error));
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

/* What is collected so far. The stream puts a table that does not stay behind the launch of the one before it. */
static Status launch_table(CudaDevice *cuda, Error *error)
{
    CudaFusion *fusion = cuda->fusion;
    Draft *draft = &fusion->drafts[fusion->next];
    const unsigned count = fusion->count, counters = counters_of(count);
    KeptTable *place = fusion->place;
    fusion->place = NULL;
    if (count == 0)
        return STATUS_OK;
    const FusedPlan *plan;
    TRY(find_plan(fusion, (Operation *)(void *)draft->host, (unsigned)cuda->device.run->size[ELEMENTS], &plan, error));
    const unsigned runs = plan->run_count[0] + plan->run_count[1];
    const size_t bytes = table_bytes(count, runs), counters_at = count * sizeof(Operation);
    const size_t runs_at = counters_at + 2 * counters * sizeof(unsigned);
    if (fusion->memory_used + bytes > TABLE_MEMORY)
        place = NULL;
    char *const memory = (char *)fusion->memory + (place ? fusion->memory_used : TABLE_MEMORY);
    memset(draft->host + counters_at, 0, runs_at - counters_at);
    memcpy(draft->host + runs_at, plan->runs, runs * sizeof *plan->runs);
    Fused fused = fused_table(plan, (const Operation *)(void *)memory, (const TileRun *)(void *)(memory + runs_at));
    fused.drawn = (unsigned *)(void *)(memory + counters_at);
    fused.done = fused.drawn + FUSED_QUEUES;
    fused.cleared = fused.drawn + counters;
    fused.cleared_count = counters;
    CUDA_TRY(MemcpyAsync, memory, draft->host, runs_at + runs * sizeof *plan->runs, cuda->streams[QUEUE_COMPUTE]);
    CUDA_TRY(EventRecord, draft->copied, cuda->streams[QUEUE_COMPUTE]);
    draft->used = true;
    fusion->next = (fusion->next + 1) % DRAFTS;
    fusion->count = 0;
    memset(fusion->last, 0, sizeof fusion->last);
    TRY(launch_fused_kernel(cuda, fusion->blocks, &fused, error));
    if (place) {
        fusion->memory_used += bytes;
        turn_counters(&fused);
        place->fused = fused;
        place->products = cuda->device.products;
        place->products.calls -= fusion->before.calls;
        place->products.operations -= fusion->before.operations;
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

static Status begin(Device *device, const void *name, size_t bytes, uint32_t share, uint32_t whole, bool *again,
                    Error *error)
{
    CudaDevice *cuda = (CudaDevice *)device;
    CudaFusion *fusion = cuda->fusion;
    *again = false;
    fusion->blocks = blocks_beside(cuda, share, whole);
    fusion->count = 0;
    memset(fusion->last, 0, sizeof fusion->last);
    fusion->on = true;
    KeptTable *place = fusion->place = find_place(cuda, name, bytes);
    fusion->before = device->products;
    if (!place)
        return STATUS_OK;
    if (!place->fused.operations) {
        name_place(place, name, bytes, fusion->blocks);
        return STATUS_OK;
    }
    fusion->on = false;
    *again = true;
    device->products.calls += place->products.calls;
    device->products.operations += place->products.operations;
    TRY(launch_fused_kernel(cuda, fusion->blocks, &place->fused, error));
    turn_counters(&place->fused);
    return STATUS_OK;
}

static Status part(Device *device, RecipePass pass, Error *error)
{
    (void)error;
    ((CudaDevice *)device)->fusion->pass = pass;
    return STATUS_OK;
}

static Status end(Device *device, Error *error)
{
    CudaDevice *cuda = (CudaDevice *)device;
    if (!cuda->fusion->on)
        return STATUS_OK;
    cuda->fusion->on = false;
    return launch_table(cuda, error);
}

/* 3 us at a third of what tensor cores do at best. */
const DeviceFusion cuda_fusion = {.small = 1e9, .begin = begin, .part = part, .end = end};

/* --- its operations --- */

static void come_after(Operation *operation, unsigned other)
{
    if (other > 0)
        operation->after[operation->after_count++] = other - 1;
}

enum { GRADIENTS = 2 };

/* What an operation adds to, for W. */
static void gradients_of(const Operation *operation, const void *gradients[GRADIENTS])
{
    gradients[0] = gradients[1] = NULL;
    if (operation->kind == FUSED_product_weight)
        gradients[0] = operation->of.product.c, gradients[1] = operation->of.product.column_sums;
    else if (operation->kind == FUSED_hopper_weight)
        gradients[0] = operation->of.hopper.product.c, gradients[1] = operation->of.hopper.product.column_sums;
    else if (operation->kind == FUSED_norm_backward_weight)
        gradients[0] = operation->of.norm.dgain, gradients[1] = operation->of.norm.dshift;
    else if (operation->kind == FUSED_embedding_backward)
        gradients[0] = operation->of.embedding.dtoken_table, gradients[1] = operation->of.embedding.dposition_table;
}

/* Weights that several parts share take their gradients in the order of the parts. */
static void come_after_others(Operation *operations, unsigned number)
{
    const void *own[GRADIENTS], *others[GRADIENTS];
    gradients_of(&operations[number], own);
    for (int g = 0; g < GRADIENTS; g++)
        for (unsigned i = number; own[g] && i-- > 0;) {
            gradients_of(&operations[i], others);
            if (own[g] == others[0] || own[g] == others[1]) {
                come_after(&operations[number], i + 1);
                break;
            }
        }
}

Status cuda_fuse(CudaDevice *cuda, int kernel, CudaType type, Launch launch, const void *parameters, Error *error)
{
    CudaFusion *fusion = cuda->fusion;
    if (!kind_of[kernel] || fusion->count == FUSED_OPERATIONS_MOST) {
        fusion->place = NULL; /* not all of it is in one table */
        TRY(launch_table(cuda, error));
    }
    if (!kind_of[kernel])
        return cuda_launch(cuda, kernel, type, launch, parameters, error);
    Draft *draft = &fusion->drafts[fusion->next];
    if (fusion->count == 0)
        TRY(await_draft(draft, error));
    Operation *operations = (Operation *)(void *)draft->host, *operation = &operations[fusion->count++];
    operation->kind = (OperationKind)(kind_of[kernel] - 1);
    operation->queue = 0;
    operation->after_count = 0;
    memcpy(&operation->of, parameters, parameter_bytes[operation->kind]);
    if (fusion->pass == RECIPE_W) {
        come_after(operation, fusion->last[RECIPE_B]);
        come_after_others(operations, fusion->count - 1);
    } else {
        come_after(operation, fusion->last[fusion->pass]);
        fusion->last[fusion->pass] = fusion->count;
    }
    return STATUS_OK;
}
