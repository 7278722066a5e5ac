#include "runtime/device/fused.h"

#include <stdbool.h>
#include <stdlib.h>

Status fused_table(Operation *operations, unsigned count, unsigned element_size, unsigned reserved, TileRun *runs, Fused *table,
                   Error *error)
{
    *table = (Fused){.operations = operations, .reserved = reserved};
    for (unsigned i = 0; i < count; i++) {
        Operation *o = &operations[i];
        if (o->queue >= FUSED_QUEUES || o->after_count > OPERATION_AFTER)
            return error_set(error, STATUS_BAD_INPUT, "operation %u has queue %u and comes after %u others", i, o->queue,
                             o->after_count);
        for (unsigned a = 0; a < o->after_count; a++)
            if (o->after[a] >= i)
                return error_set(error, STATUS_BAD_INPUT, "operation %u comes after operation %u, which is no earlier one", i,
                                 o->after[a]);
        if (reserved == 0)
            o->queue = 0;
        o->tiles = operation_tiles(o, element_size);
        table->run_count[o->queue]++;
    }
    unsigned filled = 0;
    for (unsigned queue = 0; queue < FUSED_QUEUES; queue++) {
        table->runs[queue] = runs + filled;
        for (unsigned i = 0; i < count; i++)
            if (operations[i].queue == queue) {
                runs[filled++] = (TileRun){.operation = i, .tiles = operations[i].tiles, .ticket = table->tickets[queue]};
                table->tickets[queue] += operations[i].tiles;
            }
    }
    return STATUS_OK;
}

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
                return error_set(error, STATUS_BAD_INPUT, "queue %u, run %u: operation %u, %u tiles from ticket %u instead of %u",
                                 queue, r, run->operation, run->tiles, run->ticket, ticket);
            ticket += run->tiles;
        }
        if (table->tickets[queue] != ticket)
            return error_set(error, STATUS_BAD_INPUT, "queue %u has %u tickets for %u tiles", queue, table->tickets[queue], ticket);
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
            return error_set(error, STATUS_BAD_INPUT, "queue %u stops before run %u: operation %u waits for what never ends", queue,
                             at[queue], table->runs[queue][at[queue]].operation);
    return STATUS_OK;
}

Status fused_check(const Fused *table, unsigned count, unsigned blocks, Error *error)
{
    if (table->reserved >= blocks || (table->reserved == 0 && table->tickets[1] > 0))
        return error_set(error, STATUS_BAD_INPUT, "%u of %u blocks for queue 1, which has %u tickets", table->reserved, blocks,
                         table->tickets[1]);
    for (unsigned i = 0; i < count; i++)
        for (unsigned a = 0; a < table->operations[i].after_count; a++)
            if (table->operations[i].after[a] >= count)
                return error_set(error, STATUS_BAD_INPUT, "operation %u comes after operation %u of %u", i,
                                 table->operations[i].after[a], count);
    TRY(check_tickets(table, count, error));
    TRY(check_tiles(table, count, error));
    return check_progress(table, count, error);
}
