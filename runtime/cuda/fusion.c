/* Runs lists of operations as fused launches, each of one table (kernels.h, Fused). A table lists operations, each with
   the operations that it depends on. A list is prepared once. Binding it to addresses makes its table (several for a
   long list) and copies it to the GPU, where it stays until the device is closed. A run is then one launch for each
   table: it looks up, allocates and copies nothing. If the tables do not fit in the memory for bound lists, a run
   launches the operations of the list one after the other.

   F&Bs are bound, and single passes whose matrix products are so small that the launches would take the host longer
   than the work takes the GPU. `--in-turn` binds nothing. Instructions with equal addresses share a table. Tables count
   in the planned memory. */

#include "runtime/cuda/cuda.h"
#include "runtime/cuda/fused.h"

#include <string.h>

typedef struct CudaBound CudaBound;

struct PreparedList {
    const OpList *list;
    uint32_t share, whole;
    bool has_operand[OPERATION_BASES]; /* [base]: whether an operand of the list lies in the memory at this base */
    /* [list->count], used while the list is being bound: for each operation, 1 + the index of its last kernel in the
       table that is being made; 0: it has no kernel in this table */
    unsigned *last;
    CudaBound *bound;  /* a linked list of what the list was bound to: one CudaBound for each set of addresses */
    FusedPlan plans[]; /* [most_launches]: the order of the tiles of each launch, from the latest `bind` of the list */
};

/* A list bound to one set of addresses, with the parameters of its launches. A list that does not fit in one table is
   run by several launches. */
struct CudaBound {
    BoundList bound; /* first, so that a BoundList * of CUDA may be cast to a CudaBound * */
    CudaBound *next; /* the next one of the same list, at other addresses; NULL: none */
    PreparedList *prepared;
    void *bases[OPERATION_BASES]; /* NULL if the list has no operand at this base */
    unsigned blocks;
    ProductClock products; /* what a run adds to the device's product clock if the clock is on */
    unsigned launches;     /* 0: the list has no table and runs operation by operation */
    Fused fused[];         /* [launches]: the parameters of each launch in the next run */
};

struct CudaFusion {
    CudaBound *binding; /* the list that is being bound; NULL: none */
    bool exceeds;       /* the tables of `binding` do not fit in the memory for bound lists */
    size_t index;       /* index in the list of the operation whose kernels are being collected */
    /* count: number of kernels in the table that is being made. previous: 1 + the index in this table of the last
       kernel of the present operation; 0: the operation has no kernel in this table */
    unsigned count, previous;
    char *host; /* a table, before it is copied to the GPU */
    FusedShapes shapes;
};

#define ROW(file, name, parameters) [CUDA_##name] = {#name, sizeof(parameters)},
static const struct {
    const char *name;
    size_t parameter_bytes;
} kernels[CUDA_KERNELS] = {KERNELS(ROW)};
#undef ROW

/* --- open and close --- */

/* The number of counters: one for tickets, and for each operation one for its finished tiles. */
static unsigned counters_of(unsigned operations) { return 1 + operations; }

/* A table has three parts: operations, two sets of counters, runs of tiles. These are the offsets of the second and the
   third part, in bytes. */
static size_t counters_at(unsigned operations) { return operations * sizeof(Operation); }

static size_t runs_at(unsigned operations)
{
    return counters_at(operations) + 2 * counters_of(operations) * sizeof(unsigned);
}

Status cuda_fusion_open(CudaDevice *cuda, Error *error)
{
    const size_t most = runs_at(FUSED_OPERATIONS_MOST) + FUSED_RUNS_MOST * sizeof(TileRun), line = _Alignof(Operation);
    CudaFusion *fusion = cuda->fusion = arena_allocate(&cuda->arena, sizeof *fusion);
    char *host = arena_allocate(&cuda->arena, most + line);
    if (!fusion || !host)
        return error_set(error, STATUS_RUN_FAILED, "out of memory on the host");
    fusion->host = host + (line - (uintptr_t)host % line);
    return STATUS_OK;
}

/* --- prepare --- */

/* The most launches that a list needs: an operation has at most two kernels. */
static size_t most_launches(const OpList *list) { return 1 + 2 * list->count / FUSED_OPERATIONS_MOST; }

/* If a library (NCCL) transfers messages, a fused launch leaves a share of the multiprocessors to the library's
   kernels: the share that the recipe gives, otherwise 1 / LIBRARY_PART. Without such a library it uses all
   multiprocessors. */
enum { LIBRARY_PART = 16 };

unsigned cuda_library_part(const CudaDevice *cuda, uint32_t share, uint32_t whole)
{
    const unsigned all = (unsigned)cuda->properties.multiprocessors;
    return share ? (unsigned)(((uint64_t)all * share + whole / 2) / whole) : (all + LIBRARY_PART / 2) / LIBRARY_PART;
}

static Status prepare(Device *device, OpList *list, uint32_t share, uint32_t whole, Error *error)
{
    Arena *arena = &((CudaDevice *)device)->arena;
    TRY(op_list_order(list, error));
    PreparedList *prepared = arena_allocate(arena, sizeof *prepared + most_launches(list) * sizeof *prepared->plans);
    if (!prepared || !(prepared->last = arena_array(arena, list->count, sizeof *prepared->last)))
        return error_set(error, STATUS_RUN_FAILED, "out of memory on the host");
    prepared->list = list;
    prepared->share = share;
    prepared->whole = whole;
    for (size_t i = 0; i < list->count; i++)
        for (int k = 0; k < OPERATION_OPERANDS; k++)
            if (list->ops[i].operands[k].base)
                prepared->has_operand[list->ops[i].operands[k].base - 1] = true;
    list->prepared = prepared;
    return STATUS_OK;
}

/* --- bind --- */

bool cuda_fusing(const CudaDevice *cuda) { return cuda->fusion->binding; }

/* Finds the plan of the table that is being made. Reuses the plan that the list had at other addresses if the shapes
   are equal, otherwise makes one. */
static Status find_plan(CudaFusion *fusion, unsigned element_size, const FusedPlan **found, Error *error)
{
    FusedPlan *plan = &fusion->binding->prepared->plans[fusion->binding->launches];
    TRY(fused_shapes((Operation *)(void *)fusion->host, fusion->count, element_size, fusion->binding->blocks,
                     &fusion->shapes, error));
    if (!fused_same(&plan->shapes, &fusion->shapes))
        fused_plan(&fusion->shapes, plan);
    *found = plan;
    return STATUS_OK;
}

static void forget_collected(CudaFusion *fusion)
{
    fusion->count = fusion->previous = 0;
    const PreparedList *prepared = fusion->binding->prepared;
    memset(prepared->last, 0, prepared->list->count * sizeof *prepared->last);
}

/* Makes a table of the kernels collected so far and copies it to the GPU. If it does not fit in the memory for bound
   lists, sets fusion->exceeds instead. */
static Status finish_table(CudaDevice *cuda, Error *error)
{
    CudaFusion *fusion = cuda->fusion;
    Device *device = &cuda->device;
    const unsigned count = fusion->count, counters = counters_of(count);
    if (count == 0)
        return STATUS_OK;
    const FusedPlan *plan;
    TRY(find_plan(fusion, (unsigned)device->run->size[COMPUTE_TYPE], &plan, error));
    const size_t bytes = runs_at(count) + plan->run_count * sizeof *plan->runs;
    forget_collected(fusion);
    fusion->exceeds = fusion->exceeds || bytes > device->bound_most - device->bound_bytes;
    if (fusion->exceeds)
        return STATUS_OK;
    void *taken;
    TRY(cuda_keep(cuda, bytes, &taken, error));
    device->bound_bytes += bytes;
    memset(fusion->host + counters_at(count), 0, runs_at(count) - counters_at(count));
    memcpy(fusion->host + runs_at(count), plan->runs, plan->run_count * sizeof *plan->runs);
    TRY(device->run->upload(device, bytes, fusion->host, taken, error));
    char *const memory = taken;
    Fused *fused = &fusion->binding->fused[fusion->binding->launches++];
    *fused = fused_table(plan, (const Operation *)taken, (const TileRun *)(void *)(memory + runs_at(count)));
    fused->drawn = (unsigned *)(void *)(memory + counters_at(count));
    fused->done = fused->drawn + 1;
    fused->cleared = fused->drawn + counters;
    fused->cleared_count = counters;
    return STATUS_OK;
}

static void come_after(Operation *operation, unsigned other)
{
    if (other > 0)
        operation->after[operation->after_count++] = other - 1;
}

Status cuda_fuse(CudaDevice *cuda, int kernel, const void *parameters, Error *error)
{
    CudaFusion *fusion = cuda->fusion;
    if (fusion->count == FUSED_OPERATIONS_MOST)
        TRY(finish_table(cuda, error));
    Operation *operation = (Operation *)(void *)fusion->host + fusion->count++;
    operation->kind = (KernelNumber)kernel;
    operation->after_count = 0;
    memcpy(&operation->of, parameters, kernels[kernel].parameter_bytes);
    if (operation_tiles(operation, (unsigned)cuda->device.run->size[COMPUTE_TYPE]) == 0)
        return error_set(error, STATUS_RUN_FAILED, "internal error, a fused GPU launch cannot run kernel %s",
                         kernels[kernel].name);
    const PreparedList *prepared = fusion->binding->prepared;
    const Op *op = &prepared->list->ops[fusion->index];
    if (fusion->previous)
        come_after(operation, fusion->previous);
    else
        for (unsigned a = 0; a < op->after_count; a++)
            come_after(operation, prepared->last[op->after[a]]);
    fusion->previous = prepared->last[fusion->index] = fusion->count;
    return STATUS_OK;
}

/* Runs the list, but adds each kernel to a table instead of launching it. */
static Status collect(CudaDevice *cuda, Error *error)
{
    CudaFusion *fusion = cuda->fusion;
    const CudaBound *bound = fusion->binding;
    const OpList *list = bound->prepared->list;
    forget_collected(fusion);
    for (fusion->index = 0; fusion->index < list->count; fusion->index++) {
        fusion->previous = 0;
        TRY(op_run(&cuda->device, list, fusion->index, fusion->index + 1, bound->bases, error));
    }
    return finish_table(cuda, error);
}

/* Makes the tables of `bound`. If they do not fit in the memory for bound lists, `bound` has none: its operations run
   one after the other, and the result is STATUS_OK. */
static Status make_tables(CudaDevice *cuda, CudaBound *bound, Error *error)
{
    CudaFusion *fusion = cuda->fusion;
    const ProductClock before = cuda->device.products;
    cuda->device.products = (ProductClock){.on = true};
    fusion->binding = bound;
    fusion->exceeds = false;
    const Status status = collect(cuda, error);
    fusion->binding = NULL;
    bound->products = cuda->device.products;
    cuda->device.products = before;
    if (status != STATUS_OK || fusion->exceeds)
        bound->launches = 0;
    return status;
}

static Status bind(Device *device, const OpList *list, void *const *bases, BoundList **bound, Error *error)
{
    CudaDevice *cuda = (CudaDevice *)device;
    PreparedList *prepared = list->prepared;
    const unsigned all = (unsigned)cuda->properties.multiprocessors;
    const unsigned left = cuda->library ? cuda_library_part(cuda, prepared->share, prepared->whole) : 0;
    const unsigned blocks = left < all ? all - left : 1;
    void *own[OPERATION_BASES];
    for (int b = 0; b < OPERATION_BASES; b++)
        own[b] = prepared->has_operand[b] ? bases[b] : NULL;
    for (CudaBound *known = prepared->bound; known; known = known->next)
        if (known->blocks == blocks && memcmp(known->bases, own, sizeof own) == 0) {
            *bound = &known->bound;
            return STATUS_OK;
        }
    CudaBound *made = arena_allocate(&cuda->arena, sizeof *made + most_launches(list) * sizeof *made->fused);
    if (!made)
        return error_set(error, STATUS_RUN_FAILED, "out of memory on the host");
    *made = (CudaBound){.bound = {device}, .next = prepared->bound, .prepared = prepared, .blocks = blocks};
    memcpy(made->bases, own, sizeof own);
    prepared->bound = made;
    *bound = &made->bound;
    return make_tables(cuda, made, error);
}

/* --- run --- */

static Status launch_table(CudaDevice *cuda, unsigned blocks, const Fused *fused, Error *error)
{
    if (cuda->type == CUDA_BF16 && cuda->module->kernels[CUDA_fused_hopper][CUDA_F32])
        return cuda_launch(cuda, CUDA_fused_hopper, CUDA_F32, fused_hopper_launch(blocks), fused, error);
    const unsigned element_size = cuda->type == CUDA_F32 ? 4 : 2, most = (unsigned)cuda->properties.shared_bytes;
    return cuda_launch(cuda, CUDA_fused, cuda->type, fused_launch(blocks, element_size, most), fused, error);
}

/* Swaps the two sets of counters: the launch has counted in one set, and cleared the other one for the next launch. */
static void turn_counters(Fused *fused)
{
    unsigned *const used = fused->drawn;
    fused->drawn = fused->cleared;
    fused->done = fused->drawn + 1;
    fused->cleared = used;
}

static Status run(BoundList *list, Error *error)
{
    CudaBound *bound = (CudaBound *)list;
    Device *device = list->device;
    if (bound->launches == 0)
        return op_run(device, bound->prepared->list, 0, bound->prepared->list->count, bound->bases, error);
    if (device->products.on) {
        device->products.calls += bound->products.calls;
        device->products.operations += bound->products.operations;
    }
    for (unsigned l = 0; l < bound->launches; l++) {
        TRY(launch_table((CudaDevice *)device, bound->blocks, &bound->fused[l], error));
        turn_counters(&bound->fused[l]);
    }
    return STATUS_OK;
}

/* On an H100 a layer's F, I and W as one launch each take 1.29 of their time in turn at products of 7e7 operations
   (less was not measured), an F&B in one launch 0.78, 0.96, 1.09 and 1.27 at 0.07, 1.1, 4.3 and 17e9
   (tests/gpu/results/2026-11-28-attention.csv, fb.*). */
const DeviceFusion cuda_fusion = {.small = 5e7, .small_pair = 1e9, .prepare = prepare, .bind = bind, .run = run};
