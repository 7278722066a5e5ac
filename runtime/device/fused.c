#include "runtime/device/fused.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* --- what tiles cost --- */

/* In bytes that a multiprocessor moves meanwhile when all do; the ratios of a GPU with TMA and wgmma. */
enum {
    TILE_BYTES = 40000, /* beginning and ending one */
    BYTE_FLOAT = 12,
    BYTE_BF16 = 160, /* operations of products a byte */
    MEMORY_PART = 3  /* one in so many multiprocessors takes all of the memory's bandwidth */
};

static double product_operations(const Product *p) { return 2.0 * p->m * p->n * p->k; }

/* Of a causal one, half of all pairs. */
static double attention_operations(const Attention *p, double products)
{
    return products * p->rows * p->sequence * p->columns;
}

static void set_costs(const Operation *o, unsigned element_size, struct FusedShape *shape)
{
    const double element = element_size;
    double operations = 0, bytes = 0;
    switch (o->kind) {
    case FUSED_product_forward:
    case FUSED_product_input:
    case FUSED_product_weight: operations = product_operations(&o->of.product); break;
    case FUSED_hopper_forward:
    case FUSED_hopper_input:
    case FUSED_hopper_weight: operations = product_operations(&o->of.hopper.product); break;
    case FUSED_attention_forward: operations = attention_operations(&o->of.attention, 2); break;
    case FUSED_hopper_attention_forward: operations = attention_operations(&o->of.hopper_attention.attention, 2); break;
    case FUSED_attention_backward: /* scores and their gradients once for keys, once for queries */
        operations = attention_operations(&o->of.attention, 7);
        break;
    case FUSED_attention_delta: bytes = 2 * element * o->of.attention.rows * o->of.attention.columns; break;
    case FUSED_norm_forward: bytes = 2 * element * o->of.norm.rows * o->of.norm.columns; break;
    case FUSED_norm_backward_input: bytes = 4 * element * o->of.norm.rows * o->of.norm.columns; break;
    case FUSED_norm_backward_weight: bytes = 2 * element * o->of.norm.rows * o->of.norm.columns; break;
    case FUSED_gelu_forward:
    case FUSED_gelu_backward:
    case FUSED_accumulate:
    case FUSED_to_float:
    case FUSED_from_float: bytes = 3 * element * (double)o->of.elementwise.count; break;
    case FUSED_embedding_forward:
    case FUSED_embedding_backward: bytes = 3 * element * o->of.embedding.rows * o->of.embedding.columns; break;
    case FUSED_cross_entropy: bytes = 3 * element * o->of.cross_entropy.rows * o->of.cross_entropy.columns; break;
    case FUSED_squared_error: bytes = 3 * element * (double)o->of.squared_error.count; break;
    case FUSED_finish_sum: bytes = 8 * (double)o->of.sum.count; break;
    case FUSED_copy_bytes: bytes = 2 * (double)o->of.copy.bytes; break;
    case FUSED_KINDS: break;
    }
    shape->cost = TILE_BYTES + operations / (element_size == 4 ? BYTE_FLOAT : BYTE_BF16) / o->tiles;
    shape->bytes = bytes / o->tiles;
}

double fused_time(const struct FusedShape *shape, unsigned moving, unsigned blocks)
{
    const double share = (double)moving / blocks;
    return shape->cost + shape->bytes * (share < 1.0 / MEMORY_PART ? 1.0 / MEMORY_PART : share);
}

Status fused_shapes(Operation *operations, unsigned count, unsigned element_size, unsigned blocks, unsigned reserved,
                    FusedShapes *shapes, Error *error)
{
    if (count > FUSED_OPERATIONS_MOST || blocks > FUSED_BLOCKS_MOST || reserved >= blocks)
        return error_set(error, STATUS_BAD_INPUT, "%u operations on %u blocks, %u of them for queue 1", count, blocks,
                         reserved);
    shapes->count = count;
    shapes->blocks = blocks;
    shapes->reserved = reserved;
    for (unsigned i = 0; i < count; i++) {
        Operation *o = &operations[i];
        struct FusedShape *shape = &shapes->of[i];
        if (o->queue >= FUSED_QUEUES || o->after_count > OPERATION_AFTER)
            return error_set(error, STATUS_BAD_INPUT, "operation %u has queue %u and comes after %u others", i,
                             o->queue, o->after_count);
        if (reserved == 0)
            o->queue = 0;
        o->tiles = operation_tiles(o, element_size);
        memset(shape, 0, sizeof *shape);
        set_costs(o, element_size, shape);
        shape->tiles = o->tiles;
        shape->queue = o->queue;
        shape->after_count = o->after_count;
        for (unsigned a = 0; a < o->after_count; a++) {
            if (o->after[a] >= i)
                return error_set(error, STATUS_BAD_INPUT,
                                 "operation %u comes after operation %u, which is no earlier one", i, o->after[a]);
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

/* Tiles of one operation that began together. */
typedef struct Wave {
    double end;
    unsigned operation, tiles, queue;
} Wave;

typedef struct Planning {
    const FusedShapes *shapes;
    unsigned begun[FUSED_OPERATIONS_MOST], done[FUSED_OPERATIONS_MOST]; /* tiles */
    bool may_begin[FUSED_OPERATIONS_MOST];
    unsigned idle[FUSED_QUEUES], moving;                /* blocks; at what waits for memory */
    unsigned operations_left, tiles_left[FUSED_QUEUES]; /* to begin */
    double now;
    unsigned wave_count, run_count, last[FUSED_QUEUES]; /* run of the queue, +1; 0: none */
    Wave waves[FUSED_BLOCKS_MOST];
    TileRun runs[FUSED_RUNS_MOST];
} Planning;

static void begin_tiles(Planning *p, unsigned index, unsigned tiles)
{
    const struct FusedShape *shape = &p->shapes->of[index];
    const unsigned last = p->last[shape->queue];
    if (last && p->runs[last - 1].operation == index) {
        p->runs[last - 1].tiles += tiles;
    } else {
        p->runs[p->run_count++] = (TileRun){.operation = index, .first_tile = p->begun[index], .tiles = tiles};
        p->last[shape->queue] = p->run_count;
    }
    p->begun[index] += tiles;
    p->tiles_left[shape->queue] -= tiles;
    p->operations_left -= p->begun[index] == shape->tiles;
}

/* What operations that have come to their end let begin. */
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

/* The first operation of the queue that may begin, and how many of its tiles; 0 when there is none. */
static unsigned wanted(const Planning *p, unsigned queue, unsigned *index)
{
    const FusedShapes *shapes = p->shapes;
    const unsigned movers = (shapes->blocks + MEMORY_PART - 1) / MEMORY_PART;
    unsigned second = shapes->count;
    for (unsigned i = 0; i < shapes->count; i++) {
        const struct FusedShape *shape = &shapes->of[i];
        const unsigned left = shape->tiles - p->begun[i];
        if (!p->may_begin[i] || shape->queue != queue || left == 0)
            continue;
        *index = i;
        if (shape->bytes == 0 || queue > 0)
            return left;
        if (p->moving < movers)
            return left < movers - p->moving ? left : movers - p->moving;
        second = i < second ? i : second;
    }
    *index = second;
    return second < shapes->count ? shapes->of[second].tiles - p->begun[second] : 0;
}

/* Every operation that is left can still have a run. */
static bool has_room(const Planning *p) { return p->run_count + p->operations_left < FUSED_RUNS_MOST; }

static void occupy(Planning *p, unsigned queue)
{
    for (unsigned index, tiles; p->idle[queue] > 0 && has_room(p) && (tiles = wanted(p, queue, &index)) > 0;) {
        tiles = tiles < p->idle[queue] ? tiles : p->idle[queue];
        p->moving += p->shapes->of[index].bytes > 0 ? tiles : 0;
        p->waves[p->wave_count++] =
            (Wave){p->now + fused_time(&p->shapes->of[index], p->moving, p->shapes->blocks), index, tiles, queue};
        p->idle[queue] -= tiles;
        begin_tiles(p, index, tiles);
    }
    if (p->tiles_left[queue] == 0) { /* blocks go over to the other queue */
        p->idle[1 - queue] += p->idle[queue];
        p->idle[queue] = 0;
    }
}

/* To the end of a wave. */
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
        p->idle[wave->queue] += wave->tiles;
        p->waves[w] = p->waves[--p->wave_count];
    }
    if (ended)
        let_begin(p);
}

static void put_in_place(const Planning *p, FusedPlan *plan)
{
    unsigned filled = 0;
    for (unsigned queue = 0; queue < FUSED_QUEUES; queue++) {
        plan->run_count[queue] = plan->tickets[queue] = 0;
        for (unsigned r = 0; r < p->run_count; r++) {
            if (p->shapes->of[p->runs[r].operation].queue != queue)
                continue;
            TileRun *run = &plan->runs[filled++];
            *run = p->runs[r];
            run->ticket = plan->tickets[queue];
            plan->tickets[queue] += run->tiles;
            plan->run_count[queue]++;
        }
    }
}

void fused_plan(const FusedShapes *shapes, FusedPlan *plan)
{
    Planning p;
    memset(&p, 0, offsetof(Planning, waves));
    p.shapes = shapes;
    p.idle[0] = shapes->blocks - shapes->reserved;
    p.idle[1] = shapes->reserved;
    for (unsigned i = 0; i < shapes->count; i++) {
        p.tiles_left[shapes->of[i].queue] += shapes->of[i].tiles;
        p.operations_left += shapes->of[i].tiles > 0;
    }
    let_begin(&p);
    while (p.operations_left > 0 && has_room(&p)) {
        for (unsigned queue = 0; queue < FUSED_QUEUES; queue++)
            occupy(&p, queue);
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
    Fused table = {.operations = operations, .reserved = plan->shapes.reserved};
    for (unsigned queue = 0; queue < FUSED_QUEUES; queue++) {
        table.runs[queue] = runs + (queue ? plan->run_count[0] : 0);
        table.run_count[queue] = plan->run_count[queue];
        table.tickets[queue] = plan->tickets[queue];
    }
    return table;
}

/* --- checking --- */

/* Each operation's tiles, by the runs of both queues. */
static Status check_tiles(const Fused *table, unsigned count, Error *error)
{
    for (unsigned i = 0; i < count; i++) {
        const unsigned tiles = table->operations[i].tiles;
        bool *seen = calloc((size_t)tiles + 1, sizeof *seen);
        if (!seen)
            return error_set(error, STATUS_RUN_FAILED, "out of memory");
        unsigned found = 0;
        Status status = STATUS_OK;
        for (unsigned queue = 0; queue < FUSED_QUEUES; queue++)
            for (unsigned r = 0; r < table->run_count[queue]; r++) {
                const TileRun *run = &table->runs[queue][r];
                for (unsigned t = run->first_tile; run->operation == i && t < run->first_tile + run->tiles; t++)
                    if (t >= tiles || seen[t])
                        status = error_set(error, STATUS_BAD_INPUT, "operation %u: tile %u of %u %s", i, t, tiles,
                                           t >= tiles ? "does not exist" : "is there twice");
                    else
                        seen[t] = true, found++;
            }
        free(seen);
        if (status == STATUS_OK && found < tiles)
            status = error_set(error, STATUS_BAD_INPUT, "operation %u: %u of %u tiles are there", i, found, tiles);
        TRY(status);
    }
    return STATUS_OK;
}

static Status check_tickets(const Fused *table, unsigned count, Error *error)
{
    for (unsigned queue = 0; queue < FUSED_QUEUES; queue++) {
        unsigned ticket = 0;
        for (unsigned r = 0; r < table->run_count[queue]; r++) {
            const TileRun *run = &table->runs[queue][r];
            if (run->operation >= count || run->ticket != ticket || run->tiles == 0)
                return error_set(error, STATUS_BAD_INPUT,
                                 "queue %u, run %u: operation %u, %u tiles from ticket %u instead of %u", queue, r,
                                 run->operation, run->tiles, run->ticket, ticket);
            ticket += run->tiles;
        }
        if (table->tickets[queue] != ticket)
            return error_set(error, STATUS_BAD_INPUT, "queue %u has %u tickets for %u tiles", queue,
                             table->tickets[queue], ticket);
    }
    return STATUS_OK;
}

static bool may_begin(const Fused *table, const Operation *o, const unsigned *done)
{
    for (unsigned a = 0; a < o->after_count; a++)
        if (done[o->after[a]] < table->operations[o->after[a]].tiles)
            return false;
    return true;
}

static Status check_progress(const Fused *table, unsigned count, Error *error)
{
    unsigned *done = calloc((size_t)count + 1, sizeof *done), at[FUSED_QUEUES] = {0};
    if (!done)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    for (bool going = true; going;) {
        going = false;
        for (unsigned queue = 0; queue < FUSED_QUEUES; queue++)
            while (at[queue] < table->run_count[queue]) {
                const TileRun *run = &table->runs[queue][at[queue]];
                if (!may_begin(table, &table->operations[run->operation], done))
                    break;
                done[run->operation] += run->tiles;
                at[queue]++;
                going = true;
            }
    }
    free(done);
    for (unsigned queue = 0; queue < FUSED_QUEUES; queue++)
        if (at[queue] < table->run_count[queue])
            return error_set(error, STATUS_BAD_INPUT,
                             "queue %u stops before run %u: operation %u waits for what never ends", queue, at[queue],
                             table->runs[queue][at[queue]].operation);
    return STATUS_OK;
}

Status fused_check(const Fused *table, unsigned count, unsigned blocks, Error *error)
{
    if (table->reserved >= blocks || (table->reserved == 0 && table->tickets[1] > 0))
        return error_set(error, STATUS_BAD_INPUT, "%u of %u blocks for queue 1, which has %u tickets", table->reserved,
                         blocks, table->tickets[1]);
    for (unsigned i = 0; i < count; i++)
        for (unsigned a = 0; a < table->operations[i].after_count; a++)
            if (table->operations[i].after[a] >= count)
                return error_set(error, STATUS_BAD_INPUT, "operation %u comes after operation %u of %u", i,
                                 table->operations[i].after[a], count);
    TRY(check_tickets(table, count, error));
    TRY(check_tiles(table, count, error));
    return check_progress(table, count, error);
}
