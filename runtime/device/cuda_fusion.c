/* An F&B as one launch: the operations of its halves are collected, with what each waits for, and go to the GPU as a table
   (kernels.h, Fused). Tables lie in a ring, so that the host writes the next ones while the GPU works on those before. */

#include "runtime/device/cuda.h"
#include "runtime/device/fused.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* More operations than a plan has are several launches. Tables are as many as an interpreter has F&Bs under way, and some; plans
   as many as a rank has pairs of stages, most often: each is a stage's F and a stage's B or I. */
enum { TABLES = 16, PLANS = 8 };

/* Operations, one behind the other; behind them the counters, and the runs. */
typedef struct Table {
    char *host, *memory;
    CudaEvent *over; /* the launch */
    bool launched;
} Table;

struct CudaFusion {
    bool on;
    unsigned blocks;
    RecipePass pass;
    unsigned count, last[RECIPE_PASSES]; /* of F and of B: the operation before, +1; 0: none in this launch */
    Table tables[TABLES];
    unsigned next;
    FusedShapes shapes;
    FusedPlan plans[PLANS]; /* each empty at first */
    unsigned next_plan;
    void *host, *memory; /* of all tables */
};

static const unsigned char kind_of[CUDA_KERNELS] = { /* +1 */
#define KIND(name, field) [CUDA_##name] = FUSED_##name + 1,
    FUSED_OPERATIONS(KIND) FUSED_OPERATIONS_OF_HOPPER(KIND)
#undef KIND
};

static const size_t parameter_bytes[FUSED_KINDS] = {
#define BYTES(name, field) [FUSED_##name] = sizeof((Operation *)NULL)->of.field,
    FUSED_OPERATIONS(BYTES) FUSED_OPERATIONS_OF_HOPPER(BYTES)
#undef BYTES
};

/* --- open and close --- */

static size_t table_bytes(size_t operations, size_t runs)
{
    return operations * (sizeof(Operation) + sizeof(unsigned)) + FUSED_QUEUES * sizeof(unsigned) + runs * sizeof(TileRun);
}

Status cuda_fusion_open(CudaDevice *cuda, Error *error)
{
    const size_t stride = (table_bytes(FUSED_OPERATIONS_MOST, FUSED_RUNS_MOST) + 255) / 256 * 256;
    CudaFusion *fusion = cuda->fusion = calloc(1, sizeof *fusion);
    if (!fusion)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    CUDA_TRY(MallocHost, &fusion->host, TABLES * stride);
    TRY(cuda_take(TABLES * stride, &fusion->memory, error));
    for (int t = 0; t < TABLES; t++) {
        fusion->tables[t].host = (char *)fusion->host + (size_t)t * stride;
        fusion->tables[t].memory = (char *)fusion->memory + (size_t)t * stride;
        CUDA_TRY(EventCreate, &fusion->tables[t].over, 0);
    }
    return STATUS_OK;
}

void cuda_fusion_close(CudaDevice *cuda)
{
    CudaFusion *fusion = cuda->fusion;
    if (!fusion)
        return;
    for (int t = 0; t < TABLES; t++)
        if (fusion->tables[t].over)
            cuda_runtime->EventDestroy(fusion->tables[t].over);
    if (fusion->memory)
        cuda_runtime->Free(fusion->memory);
    if (fusion->host)
        cuda_runtime->FreeHost(fusion->host);
    free(fusion);
}

/* --- an F&B --- */

bool cuda_fusing(const CudaDevice *cuda)
{
    return cuda->fusion->on;
}

/* Whoever has the table has been launched long ago. */
static Status await_table(const Table *table, Error *error)
{
    CudaError code = CUDA_OK;
    while (table->launched && (code = cuda_runtime->EventQuery(table->over)) == CUDA_NOT_READY)
        sched_yield();
    return cuda_status(code, "cudaEventQuery", error);
}

/* The plan for what is collected; the oldest makes place for a new one. */
static Status find_plan(CudaFusion *fusion, Operation *operations, unsigned element_size, const FusedPlan **found, Error *error)
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

/* What is collected so far. */
static Status launch_table(CudaDevice *cuda, Error *error)
{
    CudaFusion *fusion = cuda->fusion;
    Table *table = &fusion->tables[fusion->next];
    const unsigned element_size = cuda->type == CUDA_F32 ? 4 : 2, count = fusion->count;
    if (count == 0)
        return STATUS_OK;
    const FusedPlan *plan;
    TRY(find_plan(fusion, (Operation *)(void *)table->host, element_size, &plan, error));
    const unsigned runs = plan->run_count[0] + plan->run_count[1];
    const size_t counters_at = table_bytes(count, 0) - (FUSED_QUEUES + count) * sizeof(unsigned), runs_at = table_bytes(count, 0);
    memset(table->host + counters_at, 0, runs_at - counters_at);
    memcpy(table->host + runs_at, plan->runs, runs * sizeof *plan->runs);
    Fused fused = fused_table(plan, (const Operation *)(void *)table->memory, (const TileRun *)(void *)(table->memory + runs_at));
    fused.drawn = (unsigned *)(void *)(table->memory + counters_at);
    fused.done = fused.drawn + FUSED_QUEUES;
    CudaStream *stream = cuda->streams[QUEUE_COMPUTE];
    CUDA_TRY(MemcpyAsync, table->memory, table->host, table_bytes(count, runs), stream);
    if (cuda->type == CUDA_BF16 && cuda->module->kernels[CUDA_fused_hopper][CUDA_F32])
        TRY(cuda_launch(cuda, CUDA_fused_hopper, CUDA_F32, fused_hopper_launch(fusion->blocks), &fused, error));
    else
        TRY(cuda_launch(cuda, CUDA_fused, cuda->type, fused_launch(fusion->blocks, element_size), &fused, error));
    CUDA_TRY(EventRecord, table->over, stream);
    table->launched = true;
    fusion->next = (fusion->next + 1) % TABLES;
    fusion->count = 0;
    memset(fusion->last, 0, sizeof fusion->last);
    return STATUS_OK;
}

/* What is left to the kernels of a library that moves messages meanwhile: the recipe's share, or one in so many. Copies between
   the ranks of one GPU, and models without communication of their own, take no multiprocessors. */
enum { LIBRARY_PART = 16 };

static unsigned blocks_beside(const CudaDevice *cuda, uint32_t share, uint32_t whole)
{
    const unsigned all = (unsigned)cuda->properties.multiprocessors;
    if (!cuda->library)
        return all;
    const unsigned left = share ? (unsigned)(((uint64_t)all * share + whole / 2) / whole) : (all + LIBRARY_PART / 2) / LIBRARY_PART;
    return left < all ? all - left : 1;
}

static Status begin(Device *device, uint32_t share, uint32_t whole, Error *error)
{
    (void)error;
    CudaDevice *cuda = (CudaDevice *)device;
    CudaFusion *fusion = cuda->fusion;
    fusion->blocks = blocks_beside(cuda, share, whole);
    fusion->count = 0;
    memset(fusion->last, 0, sizeof fusion->last);
    /* else the GPU is too small for one block of it, and takes the operations one by one */
    fusion->on = fused_launch(1, (unsigned)device->run->size[ELEMENTS]).shared <= (unsigned)cuda->properties.shared_bytes;
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

const DeviceFusion cuda_fusion = {begin, part, end};

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
    if (!kind_of[kernel]) {
        TRY(launch_table(cuda, error));
        return cuda_launch(cuda, kernel, type, launch, parameters, error);
    }
    if (fusion->count == FUSED_OPERATIONS_MOST)
        TRY(launch_table(cuda, error));
    Table *table = &fusion->tables[fusion->next];
    if (fusion->count == 0)
        TRY(await_table(table, error));
    Operation *operations = (Operation *)(void *)table->host, *operation = &operations[fusion->count++];
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
