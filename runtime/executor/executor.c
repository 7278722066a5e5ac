/* An executor's tables and the plan of its slots. Nothing is allocated after executor_bind. */
#include "runtime/executor/internal.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static void *table(Executor *executor, size_t count, size_t bytes)
{
    executor->table_bytes += count * bytes;
    return arena_array(&executor->tables, count, bytes);
}

static size_t larger(size_t one, size_t other) { return one > other ? one : other; }

static uint32_t count_pairs(const RankProgram *own)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < own->instruction_count; i++)
        count += own->instructions[i].second != NULL;
    return count;
}

/* Finds how many slots of each class and how many entries of `clock` suffice for both streams, that of a step and the
   forward-only one, and the bytes of a slot of each class. */
static void survey(Executor *executor)
{
    const LoadedProgram *loaded = executor->config.loaded;
    const RankProgram *streams[] = {&loaded->program->ranks[executor->config.rank],
                                    &loaded->forward->ranks[executor->config.rank]};
    size_t pairs = 0;
    for (int s = 0; s < 2; s++) {
        for (int class = 0; class < SLOT_CLASSES; class ++)
            executor->slots[class] = (uint32_t)larger(executor->slots[class], streams[s]->slots[class]);
        executor->longest_stream = (uint32_t)larger(executor->longest_stream, streams[s]->instruction_count);
        pairs = larger(pairs, count_pairs(streams[s]));
    }
    executor->clocks = 1 + executor->longest_stream + pairs;
    for (uint32_t c = 0; c < streams[0]->chunk_count; c++) {
        const ChunkPlan *chunk = &executor->chunks[c].plan;
        executor->bytes[SLOT_MESSAGE] = larger(executor->bytes[SLOT_MESSAGE], chunk->message);
        executor->bytes[SLOT_CONTEXT] = larger(executor->bytes[SLOT_CONTEXT], aligned(chunk->context));
        executor->bytes[SLOT_STASH] = larger(executor->bytes[SLOT_STASH], aligned(chunk->stash));
        executor->bytes[SLOT_GRADIENT] = larger(executor->bytes[SLOT_GRADIENT], aligned(chunk->gradient));
    }
}

static bool enqueues(const Executor *executor)
{
    return executor->config.device && executor->config.device->run->async;
}

/* Makes the tables of bound passes for a device that only enqueues, if the host has `bind`; otherwise none. On such a
   device message blocks never move, so passes can be bound to the memory of their slots. */
static bool make_bound(Executor *executor)
{
    const LoadedProgram *loaded = executor->config.loaded;
    const Program *streams[] = {loaded->program, loaded->forward};
    for (int s = 0; s < 2 && enqueues(executor) && executor->config.stages->bind; s++) {
        executor->bound[s] =
            table(executor, streams[s]->ranks[executor->config.rank].instruction_count, sizeof *executor->bound[s]);
        if (!executor->bound[s])
            return false;
    }
    return true;
}

static bool hold_chunks(Executor *executor)
{
    const ExecutorConfig *config = &executor->config;
    const Program *program = config->loaded->program;
    const RankProgram *own = &program->ranks[config->rank];
    const World *world = config->pipeline->world;
    const uint32_t before = (uint32_t)mesh_replica(world_mesh(&world->config), world->number) * program->microbatches;
    executor->chunks = table(executor, own->chunk_count, sizeof *executor->chunks);
    for (uint32_t c = 0; executor->chunks && c < own->chunk_count; c++)
        executor->chunks[c] = (HeldChunk){
            .stage = own->chunks[c].stage,
            .first = before + program->pipes[own->chunks[c].pipe].first,
            .plan = config->chunks[c],
        };
    return executor->chunks;
}

static bool make_sums(Executor *executor)
{
    const ExecutorConfig *config = &executor->config;
    const uint32_t count = config->loaded->program->ranks[config->rank].chunk_count;
    ExchangeSum *sums = table(executor, count, sizeof *sums);
    for (uint32_t c = 0; sums && c < count; c++) {
        const ChunkPlan *chunk = &config->chunks[c];
        sums[c] = (ExchangeSum){.among = config->sums && chunk->weight_gradient ? config->sums[c] : NULL,
                                .sharded = config->sharded_sums ? config->sharded_sums[c] : NULL,
                                .elements = chunk->weight_gradient - chunk->sharded,
                                .sharded_elements = chunk->sharded,
                                .size = chunk->element};
    }
    executor->exchange = (Exchange){.pipeline = config->pipeline, .sums = sums};
    return sums;
}

static bool make_tables(Executor *executor)
{
    if (!hold_chunks(executor) || !make_sums(executor))
        return false;
    survey(executor);
    executor->blocks = table(executor, executor->slots[SLOT_MESSAGE], sizeof *executor->blocks);
    executor->exchange.messages = table(executor, executor->slots[SLOT_MESSAGE], sizeof *executor->exchange.messages);
    executor->clock = table(executor, executor->clocks, sizeof *executor->clock);
    return executor->blocks && executor->exchange.messages && executor->clock && make_bound(executor);
}

static Status open_tables(Executor *executor, Error *error)
{
    Device *device = executor->config.device;
    if (!make_tables(executor))
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory for its tables", executor->walk.name.text);
    return enqueues(executor) ? device->run->async->make_marks(device, executor->clocks + 1, error) : STATUS_OK;
}

Status executor_open(const ExecutorConfig *config, Executor **opened, Error *error)
{
    const World *world = config->pipeline->world;
    Executor *executor = calloc(1, sizeof *executor);
    if (!executor)
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory for its executor",
                         world_member_name(&world->config, world->number).text);
    executor->config = *config;
    progress_reset(&executor->unwatched, world->number);
    if (!config->progress)
        executor->config.progress = &executor->unwatched;
    executor->walk = (Walk){
        .rank = (uint32_t)config->rank,
        .name = world_member_name(&world->config, world->number),
        .progress = executor->config.progress,
    };
    const Status status = open_tables(executor, error);
    if (status == STATUS_OK)
        *opened = executor;
    else
        executor_close(executor);
    return status;
}

void executor_close(Executor *executor)
{
    if (!executor)
        return;
    free(executor->own_memory);
    arena_free(&executor->tables);
    free(executor);
}

/* --- the memory of the slots: message blocks, then saved activations and deferred gradients, class by class --- */

size_t executor_slot_bytes(const Executor *executor)
{
    size_t bytes = executor->slots[SLOT_MESSAGE] * aligned(executor->bytes[SLOT_MESSAGE]);
    for (int class = SLOT_CONTEXT; class <= SLOT_GRADIENT; class ++)
        bytes += executor->slots[class] * executor->bytes[class];
    return bytes;
}

void executor_use_memory(Executor *executor, void *memory)
{
    char *next = memory;
    for (uint32_t i = 0; i < executor->slots[SLOT_MESSAGE]; i++) {
        executor->blocks[i] = next;
        executor->exchange.messages[i] =
            (Message){.block = &executor->blocks[i], .bytes = executor->bytes[SLOT_MESSAGE]};
        next += aligned(executor->bytes[SLOT_MESSAGE]);
    }
    for (int class = SLOT_CONTEXT; class <= SLOT_GRADIENT; class ++) {
        executor->memory[class] = next;
        next += executor->slots[class] * executor->bytes[class];
    }
}

Status executor_take_memory(Executor *executor, Error *error)
{
    const size_t bytes = executor_slot_bytes(executor);
    if (executor->memory[SLOT_CONTEXT] || bytes == 0)
        return STATUS_OK;
    executor->own_memory = aligned_alloc(ALIGNMENT, bytes);
    if (!executor->own_memory)
        return error_set(error, STATUS_RUN_FAILED,
                         "%s: no memory for its slots: %zu MiB of messages, activations and gradients",
                         executor->walk.name.text, bytes >> 20);
    memset(executor->own_memory, 0, bytes);
    executor_use_memory(executor, executor->own_memory);
    return STATUS_OK;
}

size_t executor_table_bytes(const Executor *executor) { return executor->table_bytes; }
const int64_t *executor_clock(const Executor *executor) { return executor->clock; }
size_t executor_clocks(const Executor *executor) { return executor->clocks; }
size_t executor_middles(const Executor *executor) { return 1 + (size_t)executor->longest_stream; }
size_t executor_message_bytes(const Executor *executor) { return executor->bytes[SLOT_MESSAGE]; }
void **executor_block(Executor *executor, uint32_t slot) { return &executor->blocks[slot]; }
