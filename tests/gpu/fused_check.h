#pragma once

/* Proves that the table of a fused launch runs every tile once and ends. */

#include "runtime/cuda/kernels/kernels.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdlib.h>

static inline Status check_tiles(const Fused *table, unsigned count, Error *error)
{
    for (unsigned i = 0; i < count; i++) {
        const unsigned tiles = table->operations[i].tiles;
        bool *seen = calloc((size_t)tiles + 1, sizeof *seen);
        if (!seen)
            return error_set(error, STATUS_RUN_FAILED, "out of memory");
        unsigned found = 0;
        Status status = STATUS_OK;
        for (unsigned r = 0; r < table->run_count; r++) {
            const TileRun *run = &table->runs[r];
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

static inline Status check_tickets(const Fused *table, unsigned count, Error *error)
{
    unsigned ticket = 0;
    for (unsigned r = 0; r < table->run_count; r++) {
        const TileRun *run = &table->runs[r];
        if (run->operation >= count || run->ticket != ticket || run->tiles == 0)
            return error_set(error, STATUS_BAD_INPUT, "run %u: operation %u, %u tiles from ticket %u instead of %u", r,
                             run->operation, run->tiles, run->ticket, ticket);
        ticket += run->tiles;
    }
    if (table->tickets != ticket)
        return error_set(error, STATUS_BAD_INPUT, "%u tickets for %u tiles", table->tickets, ticket);
    return STATUS_OK;
}

static inline bool may_begin(const Fused *table, const Operation *o, const unsigned *done)
{
    for (unsigned a = 0; a < o->after_count; a++)
        if (done[o->after[a]] < table->operations[o->after[a]].tiles)
            return false;
    return true;
}

static inline Status check_progress(const Fused *table, unsigned count, Error *error)
{
    unsigned *done = calloc((size_t)count + 1, sizeof *done), at = 0;
    if (!done)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    while (at < table->run_count && may_begin(table, &table->operations[table->runs[at].operation], done)) {
        done[table->runs[at].operation] += table->runs[at].tiles;
        at++;
    }
    free(done);
    if (at < table->run_count)
        return error_set(error, STATUS_BAD_INPUT,
                         "the launch stops before run %u: operation %u waits for what never ends", at,
                         table->runs[at].operation);
    return STATUS_OK;
}

/* Checks that every tile is in the table once, that tickets have no gaps, and that a single block runs the whole table
   if it draws tickets in order and waits for dependences; then any number of blocks can run it (kernels.h).
   STATUS_BAD_INPUT: the error says what is wrong. STATUS_RUN_FAILED: out of memory. */
static inline Status fused_check(const Fused *table, unsigned count, Error *error)
{
    for (unsigned i = 0; i < count; i++)
        for (unsigned a = 0; a < table->operations[i].after_count; a++)
            if (table->operations[i].after[a] >= count)
                return error_set(error, STATUS_BAD_INPUT, "operation %u comes after operation %u of %u", i,
                                 table->operations[i].after[a], count);
    TRY(check_tickets(table, count, error));
    TRY(check_tiles(table, count, error));
    return check_progress(table, count, error);
}
