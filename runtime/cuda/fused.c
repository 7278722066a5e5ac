#include "runtime/cuda/fused.h"

#include <stdbool.h>
#include <string.h>

/* --- what tiles cost --- */

/* The cost of a tile is a time. The unit is the time in which one multiprocessor transfers a byte while all
   multiprocessors transfer. The ratios below are those of a GPU with TMA and wgmma. */
enum {
    TILE_BYTES = 40000, /* overhead of a tile, in times of one byte */
    BYTE_FLOAT = 12,
    /* floating-point operations of a bfloat16 product in the time of one byte; BYTE_FLOAT: of a float product */
    BYTE_BF16 = 160,
    MEMORY_PART = 3 /* 1 / MEMORY_PART of the multiprocessors saturates the memory's bandwidth */
};

static double product_operations(const Product *p) { return 2.0 * p->m * p->n * p->k; }

/* The number of floating-point operations of `products` matrix products over (query, key) pairs: two per pair and
   column, but causal attention has only half of all pairs. */
static double attention_operations(const Attention *p, double products)
{
    return products * p->rows * p->sequence * p->columns;
}

static void set_costs(const Operation *o, unsigned element_size, struct FusedShape *shape)
{
    const double element = element_size;
    double operations = 0, bytes = 0;
    switch (o->kind) {
    case CUDA_product_forward:
    case CUDA_product_input:
    case CUDA_product_weight: operations = product_operations(&o->of.product); break;
    case CUDA_hopper_forward:
    case CUDA_hopper_input:
    case CUDA_hopper_weight: operations = product_operations(&o->of.hopper.product); break;
    case CUDA_attention_forward: operations = attention_operations(&o->of.attention, 2); break;
    case CUDA_hopper_attention_forward: operations = attention_operations(&o->of.hopper_attention.attention, 2); break;
    case CUDA_attention_backward: /* scores and their gradients are computed once for keys and once for queries */
        operations = attention_operations(&o->of.attention, 7);
        break;
    case CUDA_attention_delta: bytes = 2 * element * o->of.attention.rows * o->of.attention.columns; break;
    case CUDA_norm_forward: bytes = 2 * element * o->of.norm.rows * o->of.norm.columns; break;
    case CUDA_norm_backward_input: bytes = 4 * element * o->of.norm.rows * o->of.norm.columns; break;
    case CUDA_norm_backward_weight: bytes = 2 * element * o->of.norm.rows * o->of.norm.columns; break;
    case CUDA_gelu_forward:
    case CUDA_gelu_backward:
    case CUDA_to_float:
    case CUDA_from_float: bytes = 3 * element * (double)o->of.elementwise.count; break;
    case CUDA_embedding_forward:
    case CUDA_embedding_backward: bytes = 3 * element * o->of.embedding.rows * o->of.embedding.columns; break;
    case CUDA_cross_entropy: bytes = 3 * element * o->of.cross_entropy.rows * o->of.cross_entropy.columns; break;
    case CUDA_squared_error: bytes = 3 * element * (double)o->of.squared_error.count; break;
    case CUDA_finish_sum: bytes = 8 * (double)o->of.sum.count; break;
    case CUDA_copy_bytes: bytes = 2 * (double)o->of.copy.bytes; break;
    default: break;
    }
    shape->cost = TILE_BYTES + operations / (element_size == 4 ? BYTE_FLOAT : BYTE_BF16) / o->tiles;
    shape->bytes = bytes / o->tiles;
}

double fused_time(const struct FusedShape *shape, unsigned moving, unsigned blocks)
{
    const double share = (double)moving / blocks;
    return shape->cost + shape->bytes * (share < 1.0 / MEMORY_PART ? 1.0 / MEMORY_PART : share);
}

Status fused_shapes(Operation *operations, unsigned count, unsigned element_size, unsigned blocks, FusedShapes *shapes,
                    Error *error)
{
    if (count > FUSED_OPERATIONS_MOST || blocks > FUSED_BLOCKS_MOST || blocks == 0)
        return error_set(error, STATUS_RUN_FAILED,
                         "internal error, a fused GPU launch has %u operations on %u thread blocks; it can have at "
                         "most %d on 1 to %d",
                         count, blocks, FUSED_OPERATIONS_MOST, FUSED_BLOCKS_MOST);
    shapes->count = count;
    shapes->blocks = blocks;
    for (unsigned i = 0; i < count; i++) {
        Operation *o = &operations[i];
        struct FusedShape *shape = &shapes->of[i];
        if (o->after_count > OPERATION_AFTER)
            return error_set(
                error, STATUS_RUN_FAILED,
                "internal error, operation %u of a fused GPU launch waits for %u others; it can wait for at most %d", i,
                o->after_count, OPERATION_AFTER);
        o->tiles = operation_tiles(o, element_size);
        memset(shape, 0, sizeof *shape);
        set_costs(o, element_size, shape);
        shape->tiles = o->tiles;
        shape->after_count = o->after_count;
        for (unsigned a = 0; a < o->after_count; a++) {
            if (o->after[a] >= i)
                return error_set(error, STATUS_RUN_FAILED,
                                 "internal error, operation %u of a fused GPU launch waits for operation %u, which "
                                 "does not come before it",
                                 i, o->after[a]);
            shape->after[a] = o->after[a];
        }
    }
    return STATUS_OK;
}

bool fused_same(const FusedShapes *a, const FusedShapes *b)
{
    return a->count == b->count && memcmp(a, b, offsetof(FusedShapes, of) + a->count * sizeof *a->of) == 0;
}

/* --- the order of the tiles --- */

/* Tiles of one operation that begin and end at the same times, each on its own thread block. */
typedef struct Wave {
    double end;
    unsigned operation, tiles;
} Wave;

typedef struct Planning {
    const FusedShapes *shapes;
    unsigned begun[FUSED_OPERATIONS_MOST], done[FUSED_OPERATIONS_MOST]; /* tiles */
    bool may_begin[FUSED_OPERATIONS_MOST];
    unsigned idle, moving;    /* thread blocks without a tile; thread blocks whose tile is bound by memory */
    unsigned operations_left; /* operations with tiles still to begin */
    double now;
    unsigned wave_count, run_count;
    Wave waves[FUSED_BLOCKS_MOST];
    TileRun runs[FUSED_RUNS_MOST];
} Planning;

static void begin_tiles(Planning *p, unsigned index, unsigned tiles)
{
    const struct FusedShape *shape = &p->shapes->of[index];
    if (p->run_count && p->runs[p->run_count - 1].operation == index)
        p->runs[p->run_count - 1].tiles += tiles;
    else
        p->runs[p->run_count++] = (TileRun){.operation = index, .first_tile = p->begun[index], .tiles = tiles};
    p->begun[index] += tiles;
    p->operations_left -= p->begun[index] == shape->tiles;
}

/* Marks the operations that may begin: all operations that they depend on are done. */
static void let_begin(Planning *p)
{
    for (unsigned i = 0; i < p->shapes->count; i++) {
        const struct FusedShape *shape = &p->shapes->of[i];
        bool may = true;
        for (unsigned a = 0; !p->may_begin[i] && may && a < shape->after_count; a++)
            may = p->done[shape->after[a]] == p->shapes->of[shape->after[a]].tiles;
        p->may_begin[i] = may;
    }
}

/* Returns how many tiles may begin next, and sets *index to their operation; 0: none. Takes the first operation that is
   bound by computation, or that is bound by memory while fewer than 1 / MEMORY_PART of the blocks compute such tiles.
   If there is no such operation, takes the first one that is bound by memory. */
static unsigned wanted(const Planning *p, unsigned *index)
{
    const FusedShapes *shapes = p->shapes;
    const unsigned movers = (shapes->blocks + MEMORY_PART - 1) / MEMORY_PART;
    unsigned second = shapes->count;
    for (unsigned i = 0; i < shapes->count; i++) {
        const struct FusedShape *shape = &shapes->of[i];
        const unsigned left = shape->tiles - p->begun[i];
        if (!p->may_begin[i] || left == 0)
            continue;
        *index = i;
        if (shape->bytes == 0)
            return left;
        if (p->moving < movers)
            return left < movers - p->moving ? left : movers - p->moving;
        second = i < second ? i : second;
    }
    *index = second;
    return second < shapes->count ? shapes->of[second].tiles - p->begun[second] : 0;
}

/* Whether the plan has room for one more run besides one run for each operation with tiles left. */
static bool has_room(const Planning *p) { return p->run_count + p->operations_left < FUSED_RUNS_MOST; }

static void occupy(Planning *p)
{
    for (unsigned index, tiles; p->idle > 0 && has_room(p) && (tiles = wanted(p, &index)) > 0;) {
        tiles = tiles < p->idle ? tiles : p->idle;
        p->moving += p->shapes->of[index].bytes > 0 ? tiles : 0;
        p->waves[p->wave_count++] =
            (Wave){p->now + fused_time(&p->shapes->of[index], p->moving, p->shapes->blocks), index, tiles};
        p->idle -= tiles;
        begin_tiles(p, index, tiles);
    }
}

/* Advances the clock to the next time at which a wave ends, and frees the thread blocks of all waves that end then. */
static void advance(Planning *p)
{
    bool ended = false;
    p->now = p->waves[0].end;
    for (unsigned w = 1; w < p->wave_count; w++)
        p->now = p->waves[w].end < p->now ? p->waves[w].end : p->now;
    for (unsigned w = 0; w < p->wave_count;) {
        const Wave *wave = &p->waves[w];
        if (wave->end > p->now) {
            w++;
            continue;
        }
        p->done[wave->operation] += wave->tiles;
        p->moving -= p->shapes->of[wave->operation].bytes > 0 ? wave->tiles : 0;
        ended = ended || p->done[wave->operation] == p->shapes->of[wave->operation].tiles;
        p->idle += wave->tiles;
        p->waves[w] = p->waves[--p->wave_count];
    }
    if (ended)
        let_begin(p);
}

static void put_in_place(const Planning *p, FusedPlan *plan)
{
    plan->run_count = p->run_count;
    plan->tickets = 0;
    for (unsigned r = 0; r < p->run_count; r++) {
        plan->runs[r] = p->runs[r];
        plan->runs[r].ticket = plan->tickets;
        plan->tickets += p->runs[r].tiles;
    }
}

void fused_plan(const FusedShapes *shapes, FusedPlan *plan)
{
    Planning p;
    memset(&p, 0, offsetof(Planning, waves));
    p.shapes = shapes;
    p.idle = shapes->blocks;
    for (unsigned i = 0; i < shapes->count; i++)
        p.operations_left += shapes->of[i].tiles > 0;
    let_begin(&p);
    while (p.operations_left > 0 && has_room(&p)) {
        occupy(&p);
        if (p.wave_count > 0)
            advance(&p);
    }
    for (unsigned i = 0; i < shapes->count; i++)
        if (p.begun[i] < shapes->of[i].tiles)
            begin_tiles(&p, i, shapes->of[i].tiles - p.begun[i]);
    memcpy(&plan->shapes, shapes, offsetof(FusedShapes, of) + shapes->count * sizeof *shapes->of);
    put_in_place(&p, plan);
}

Fused fused_table(const FusedPlan *plan, const Operation *operations, const TileRun *runs)
{
    return (Fused){.operations = operations, .runs = runs, .run_count = plan->run_count, .tickets = plan->tickets};
}
