/* Checks that all processes run the same program with the same data and settings. Otherwise the run would give wrong
   numbers, or a process would wait for messages that nobody sends. */
#include "runtime/trainer/rank.h"

#include "base/bytes.h"
#include "base/counted.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* What a process runs, as lines "name value". The unused rest of the text is zero, so that structs can be compared byte
   by byte. */
typedef struct Terms {
    char text[4096];
} Terms;

static Status put_program(const Session *session, FILE *stream, Error *error)
{
    const Program *program = session->loaded->program;
    ByteWriter writer = {0};
    const bool good = program_encode(program, &writer);
    /* The CRC at the end of the file is left out: the CRC of data that ends with its own CRC is the same for all
       data. */
    const uint32_t checksum = good ? bytes_checksum(writer.bytes, writer.size - sizeof checksum) : 0;
    bytes_free(&writer);
    fprintf(stream, "program %s (%s, ", program->source, counted(program->rank_count, "rank").text);
    fprintf(stream, "%s, checksum %08x)\n", counted(program->microbatches, "microbatch").text, checksum);
    return good ? STATUS_OK : error_set(error, STATUS_RUN_FAILED, "no memory for the checksum of the program");
}

/* Writes an option that is 0 if it is not given. */
static void put_number(const char *name, double value, FILE *stream)
{
    if (value != 0)
        fprintf(stream, "%s %.15g\n", name, value);
    else
        fprintf(stream, "%s not given\n", name);
}

static void put_link(const LinkModel *link, FILE *stream)
{
    if (!link->given) {
        fprintf(stream, "--link not given\n");
        return;
    }
    fprintf(stream, "--link latency=%.15gs", link->latency);
    if (link->bandwidth > 0)
        fprintf(stream, ",bandwidth=%.15g", link->bandwidth);
    if (link->last != INT_MAX)
        fprintf(stream, ",ranks=%d-%d", link->first, link->last);
    fputc('\n', stream);
}

/* Writes the options on which the results of the run or the collectives of its processes depend, and checksums of costs
   and weights. */
static void put_options(const Session *session, FILE *stream)
{
    const RunOptions *options = session->options;
    fprintf(stream, "--expert-parallel %u\n--in-turn %s\n", session->loaded->shards,
            options->in_turn ? "given" : "not given");
    put_number("--expert-rows", options->expert_rows, stream);
    put_number("--expert-replicas", options->expert_replicas, stream);
    put_number("--rebalance", options->rebalance, stream);
    put_number("--moves", options->moves, stream);
    fprintf(stream, "--replicas %d\n--transport %s\n--device %s\n--steps %llu\n", session->mesh.replicas,
            options->transport->name, options->simulated ? "sim" : session->device, (unsigned long long)options->steps);
    if (options->held_out == UINT64_MAX)
        fprintf(stream, "--held-out all\n");
    else
        fprintf(stream, "--held-out %llu\n", (unsigned long long)options->held_out);
    put_number("--trace-steps", (double)options->trace_steps, stream);
    const char *const files[] = {options->outputs, options->save, options->trace, options->profile, options->load};
    const char *const names[] = {"--outputs", "--save", "--trace", "--profile", "--load"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        fprintf(stream, "%s %s\n", names[i], files[i] ? "given" : "not given");
    put_link(&options->link, stream);
    if (options->simulated)
        fprintf(stream, "costs with checksum %08x\n", costs_checksum(&options->costs));
    if (options->load)
        fprintf(stream, "weights with checksum %08x\n", session->saved_checksum);
}

static Status write_terms(const Session *session, Terms *terms, Error *error)
{
    memset(terms, 0, sizeof *terms);
    FILE *stream = fmemopen(terms->text, sizeof terms->text, "w");
    if (!stream)
        return error_set(error, STATUS_RUN_FAILED, "no memory to compare the settings of all processes");
    const Status status = put_program(session, stream, error);
    put_options(session, stream);
    if (!session->options->simulated)
        model_config_write(&session->model, stream);
    if (session->dataset)
        fprintf(stream, "data with checksum %08x\n", dataset_checksum(session->dataset));
    fclose(stream);
    return status;
}

/* The offset in `text` of the first line that differs from the same line of `other`. */
static size_t first_difference(const char *text, const char *other)
{
    size_t line = 0;
    for (size_t i = 0; text[i] && text[i] == other[i]; i++)
        if (text[i] == '\n')
            line = i + 1;
    return line;
}

static Status refuse(const Session *session, const Terms *all, int member, Error *error)
{
    const char *text = all[member].text, *first = all[0].text;
    const size_t line = first_difference(text, first);
    return error_set(error, STATUS_BAD_USAGE,
                     "%s has %.*s, but %s has %.*s: start all processes with the same program, options and data",
                     mesh_name(session->mesh, member).text, (int)strcspn(text + line, "\n"), text + line,
                     mesh_name(session->mesh, 0).text, (int)strcspn(first + line, "\n"), first + line);
}

/* Gathers the terms of all members. Fails if members differ. The error names the first member that differs from member
   0, and the first line that differs. */
static Status name_difference(const Session *session, World *world, const Terms *own, Error *error)
{
    Terms *all = calloc((size_t)world->config.size, sizeof *all);
    if (!all)
        return error_set(error, STATUS_RUN_FAILED, "no memory to compare the settings of all processes");
    Status status = world->run->gather(world, own, sizeof *own, all, error);
    int member = 1;
    while (member < world->config.size && memcmp(&all[member], &all[0], sizeof *all) == 0)
        member++;
    if (status == STATUS_OK && member < world->config.size)
        status = refuse(session, all, member, error);
    free(all);
    return status;
}

Status session_agree(const Session *session, World *world, Error *error)
{
    Terms own;
    TRY(write_terms(session, &own, error));
    uint32_t *checksums = calloc((size_t)world->config.size, sizeof *checksums);
    if (!checksums)
        return error_set(error, STATUS_RUN_FAILED, "no memory to compare the settings of all processes");
    const uint32_t checksum = bytes_checksum_on(0, &own, sizeof own);
    Status status = world->run->gather(world, &checksum, sizeof checksum, checksums, error);
    bool equal = true;
    for (int member = 1; member < world->config.size; member++)
        equal &= checksums[member] == checksums[0];
    free(checksums);
    if (status == STATUS_OK && !equal)
        status = name_difference(session, world, &own, error);
    return status;
}

/* Checks that each rank has the same lists of operations in all replicas. The members of an expert group are one rank
   in several replicas. They post their all-to-alls in the order of these lists. */
Status lists_agree(Rank *rank, Error *error)
{
    const Mesh mesh = rank->session->mesh;
    uint32_t own = 0, *all = calloc((size_t)mesh_size(mesh), sizeof *all);
    if (!all)
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory to compare the lists of operations of all ranks",
                         rank_name(rank).text);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        const uint32_t checksum = stage_checksum(rank->chunks[c].stage);
        own = bytes_checksum_on(own, &checksum, sizeof checksum);
    }
    Status status = rank_gather(rank, &own, sizeof own, all, error);
    for (int m = 0; status == STATUS_OK && m < mesh_size(mesh); m++)
        if (all[m] != all[mesh_rank(mesh, m)])
            status = error_set(error, STATUS_RUN_FAILED,
                               "the operations of %s and %s differ: start all processes with the same dprun",
                               mesh_name(mesh, mesh_rank(mesh, m)).text, mesh_name(mesh, m).text);
    free(all);
    return status;
}
