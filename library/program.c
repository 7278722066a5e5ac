/* Programs: handles, loading and saving. */

#include "library/internal.h"

#include "compiler/lower/raise.h"
#include "compiler/prove/prove.h"
#include "base/file.h"
#include "program/deadlock.h"

#include <string.h>

dps_program *program_new(dps *d)
{
    dps_program *const program = host_new(d, sizeof *program);
    program->memory = d->memory;
    program->arena = host_arena(d, &program->memory);
    program->costs = costs_unit;
    program->costs.front_end = program->parameters.front_end = program->sizes.front_end = d->front_end;
    return program;
}

dps_program *program_take(dps *d)
{
    dps_program *const program = d->program;
    program->arena.exhausted = NULL;
    d->program = NULL;
    return program;
}

void dps_program_free(dps_program *program)
{
    if (!program)
        return;
    const MemoryFunctions memory = program->memory;
    arena_free(&program->arena);
    host_release(&memory, program);
}

/* --- bytes → program --- */

typedef struct Loading {
    const char *path; /* the file to load; NULL: load `bytes` */
    const void *bytes;
    size_t length;
    dps_program **program;
} Loading;

/* Makes what a compilation has besides the program: the schedule and the table of passes from the instructions, and the
   costs from the unit costs, because a program does not hold those of its compilation. */
static Status raise_program(dps_program *program, Error *error)
{
    Compilation *const c = &program->compilation;
    Arena *const arena = &program->arena;
    raise_schedule(c->program, arena, &program->source, &c->schedule);
    c->diagnostics = diag_new(arena, &program->source);
    if (!prove_passes(&c->schedule, arena, c->diagnostics, &c->table))
        return error_set(error, STATUS_BAD_INPUT, "%s", diag_first(c->diagnostics, arena));
    copies_find(&c->schedule, &c->table, arena);
    c->resolved = costs_resolve(&program->costs, c->program->stages, &c->schedule.recipes, arena);
    return STATUS_OK;
}

/* The compilation of a program that was not compiled from a source (dps_load, dps_forward_half). */
static Compilation compilation_of(dps_program *program)
{
    return (Compilation){.arena = &program->arena,
                         .source = &program->source,
                         .costs = &program->costs,
                         .parameters = &program->parameters};
}

static Status load_program(dps_program *program, const Loading *loading, Error *error)
{
    Arena *const arena = &program->arena;
    char *bytes = (char *)loading->bytes;
    size_t length = loading->length;
    Deadlock deadlock;
    program->compilation = compilation_of(program);
    if (loading->path)
        TRY(file_read(loading->path, arena_scratch(arena), &bytes, &length, error));
    TRY(program_decode((const uint8_t *)bytes, length, arena, &program->compilation.program, error));
    TRY(program_verify_deadlock(program->compilation.program, arena_scratch(arena), &deadlock, error));
    return raise_program(program, error);
}

static Status load_body(dps *d, void *arguments)
{
    const Loading *loading = arguments;
    TRY(length_check(loading->length, &d->error));
    d->program = program_new(d);
    const Status status = load_program(d->program, loading, &d->error);
    if (status == STATUS_BAD_INPUT && loading->path && strncmp(d->error.text, loading->path, strlen(loading->path)))
        error_prefix(&d->error, "%s: ", loading->path);
    TRY(status);
    *loading->program = program_take(d);
    return STATUS_OK;
}

dps_status dps_load(dps *d, const void *bytes, size_t length, dps_program **program)
{
    Loading request = {.bytes = bytes, .length = length, .program = program};
    return CALL(d, load_body, &request, NEEDED(bytes), RESULT(program));
}

dps_status dps_load_file(dps *d, const char *path, dps_program **program)
{
    Loading request = {.path = host_path(path), .program = program};
    return CALL(d, load_body, &request, NEEDED(path), RESULT(program));
}

/* --- program → its forward half --- */

typedef struct Halving {
    const dps_program *program;
    dps_program **forward;
} Halving;

static Status halve_program(dps_program *half, const Program *whole, Error *error)
{
    Deadlock deadlock;
    half->compilation = compilation_of(half);
    TRY(program_forward_only(whole, &half->arena, &half->compilation.program, error));
    TRY(program_verify_deadlock(half->compilation.program, arena_scratch(&half->arena), &deadlock, error));
    return raise_program(half, error);
}

static Status halve_body(dps *d, void *arguments)
{
    const Halving *halving = arguments;
    dps_program *const half = d->program = program_new(d);
    TRY(halve_program(half, halving->program->compilation.program, &d->error));
    *halving->forward = program_take(d);
    return STATUS_OK;
}

dps_status dps_forward_half(dps *d, const dps_program *program, dps_program **forward)
{
    Halving request = {program, forward};
    return CALL(d, halve_body, &request, NEEDED(program), RESULT(forward));
}

/* --- program → bytes --- */

typedef struct Saving {
    const dps_program *program;
    const char *path; /* the file to write; NULL: write to *bytes */
    void **bytes;
    size_t *length;
} Saving;

static Status write_file(const char *path, const ByteWriter *writer, Error *error)
{
    OutputFile file;
    TRY(file_begin_path(path, &file, error));
    fwrite(writer->bytes, 1, writer->size, file.stream);
    return file_finish(&file, error);
}

static Status save_body(dps *d, void *arguments)
{
    const Saving *saving = arguments;
    Status status = STATUS_OK;
    if (!program_encode(saving->program->compilation.program, &d->encoded))
        longjmp(d->exhausted, 1);
    if (saving->path) {
        status = write_file(saving->path, &d->encoded, &d->error);
    } else {
        *saving->bytes = host_text(d, (const char *)d->encoded.bytes, d->encoded.size);
        *saving->length = d->encoded.size;
    }
    return status;
}

dps_status dps_encode(dps *d, const dps_program *program, void **bytes, size_t *length)
{
    Saving request = {.program = program, .bytes = bytes, .length = length};
    return CALL(d, save_body, &request, NEEDED(program), RESULT(bytes), RESULT(length));
}

dps_status dps_save(dps *d, const dps_program *program, const char *path)
{
    Saving request = {.program = program, .path = host_path(path)};
    return CALL(d, save_body, &request, NEEDED(program), NEEDED(path));
}
