/* Reads a program file and verifies the program and those derived from it. */
#include "runtime/executor/executor.h"

#include "base/counted.h"
#include "base/file.h"
#include "base/text.h"

static Status check_replicas(const Program *program, uint64_t replicas, Error *error)
{
    if (replicas * program->rank_count > PROGRAM_RANKS_MAX)
        return error_set(error, STATUS_BAD_USAGE,
                         "%llu replicas of %s: all replicas together can have at most %d ranks",
                         (unsigned long long)replicas, counted(program->rank_count, "rank").text, PROGRAM_RANKS_MAX);
    if (replicas * program->microbatches > PROGRAM_MICROBATCHES_MAX)
        return error_set(error, STATUS_BAD_USAGE, "%llu replicas of %s: a step can have at most %d microbatches",
                         (unsigned long long)replicas, counted(program->microbatches, "microbatch").text,
                         PROGRAM_MICROBATCHES_MAX);
    return STATUS_OK;
}

static Status check_shards(const Program *program, bool forward_only, uint32_t replicas, uint32_t shards, Error *error)
{
    if (replicas % shards != 0)
        return error_set(error, STATUS_BAD_USAGE, "--expert-parallel %u does not divide --replicas %u", shards,
                         replicas);
    if (shards > 1 && program->asynchronous && !forward_only)
        return error_set(error, STATUS_BAD_USAGE,
                         "--expert-parallel needs a synchronous schedule: this one updates weights within a step");
    return STATUS_OK;
}

Status program_derive(Program *program, const LoadOptions *options, Arena *arena, LoadedProgram *loaded, Error *error)
{
    const uint32_t replicas = options->replicas ? options->replicas : 1;
    TRY(program_verify(program, error));
    const uint32_t shards = options->shards ? options->shards : 1;
    TRY(check_replicas(program, replicas, error));
    TRY(check_shards(program, options->forward_only, replicas, shards, error));
    Mesh reference = {0};
    if (options->reference) {
        reference = (Mesh){.ranks = (int)program->rank_count, .replicas = (int)replicas};
        TRY(program_reference(program, replicas, shards, arena, &program, error));
        TRY(program_verify(program, error));
    }
    Program *forward = program;
    if (!program->forward_only) {
        TRY(program_forward_only(program, arena, &forward, error));
        TRY(program_verify(forward, error));
    }
    if (!options->in_order)
        program_post_early(program, arena);
    if (!options->in_order && forward != program)
        program_post_early(forward, arena);
    *loaded = (LoadedProgram){.program = options->forward_only ? forward : program,
                              .forward = forward,
                              .replicas = options->reference ? 1 : replicas,
                              .shards = shards,
                              .reference = reference};
    return STATUS_OK;
}

Status program_load(const char *path, const LoadOptions *options, Arena *arena, LoadedProgram *loaded, Error *error)
{
    char *bytes;
    size_t size;
    TRY(file_read(path, arena, &bytes, &size, error));
    Program *program = NULL;
    Status status = program_decode((const uint8_t *)bytes, size, arena, &program, error);
    if (status == STATUS_OK) { /* names from a file may have any bytes, and they are shown on terminals */
        text_make_printable(program->schedule);
        text_make_printable(program->source);
        status = program_derive(program, options, arena, loaded, error);
    }
    if (status != STATUS_OK)
        error_prefix(error, "%s: ", path);
    return status;
}
