/* Source → program. */

#include "library/internal.h"

#include <stdatomic.h>
#include <string.h>

typedef struct Request {
    const char *path; /* the path of the file; if there is a text, its name in messages */
    const char *text; /* NULL: the file is read */
    size_t length;
    const dps_options *options;
    dps_program **program;
} Request;

/* Passes the progress of a search to the host's callback, which may end the search. */
typedef struct Watch {
    const dps *d;
    const dps_options *options;
    atomic_int stop;
} Watch;

static void tell_progress(void *context, const SearchProgress *progress)
{
    Watch *watch = context;
    const dps_progress told = {.size = sizeof told,
                               .tried = progress->tried,
                               .planned = progress->planned,
                               .cost = progress->cost,
                               .bound = progress->bound};
    if (watch->options->progress && watch->options->progress(watch->d->host.user, &told))
        watch->stop = 1;
}

static Status take_parameters(const dps_options *options, Arena *arena, Parameters *parameters, Error *error)
{
    if (options->ranks)
        parameters_set_ranks(parameters, options->ranks);
    if (options->microbatches)
        parameters_set_microbatches(parameters, options->microbatches);
    if (options->parameter_count && !options->parameters)
        return error_set(error, STATUS_BAD_USAGE, "dps_options.parameters is NULL, but parameter_count is %u",
                         options->parameter_count);
    for (uint32_t i = 0; i < options->parameter_count; i++) {
        const dps_parameter *given = &options->parameters[i];
        if (!given->name)
            return error_set(error, STATUS_BAD_USAGE, "dps_options.parameters[%u] has no name", i);
        parameters_set(parameters, arena, arena_format(arena, "%s", given->name), given->value);
    }
    return STATUS_OK;
}

static Status take_memory(const dps_options *options, Arena *arena, Memory *memory, Error *error)
{
    if (options->slot_bytes)
        TRY(memory_set_sizes(memory, options->slot_bytes, error));
    if (options->memory_limit)
        TRY(memory_set_limit(memory, arena_format(arena, "%s", options->memory_limit), error));
    return memory_check_options(memory, error);
}

Status options_take(const dps_options *options, Arena *arena, Parameters *parameters, Costs *costs, Memory *memory,
                    Error *error)
{
    TRY(take_parameters(options, arena, parameters, error));
    TRY(costs_take(costs, options->costs, options->cost_count, arena, error));
    return take_memory(options, arena, memory, error);
}

static Status read_source(const Request *request, Arena *arena, Source *source, Error *error)
{
    const char *const path = arena_format(arena, "%s", request->path);
    if (!request->text)
        return source_read(path, arena, source, error);
    return source_of_text(path, arena_text(arena, request->text, request->length), request->length, arena, source,
                          error);
}

static Status compile_program(dps *d, const Request *request, const dps_options *options, dps_program *program)
{
    Arena *const arena = &program->arena;
    Watch watch = {.d = d, .options = options};
    const SearchControl search = {.stop = &watch.stop, .progress = tell_progress, .context = &watch};
    TRY(options_take(options, arena, &program->parameters, &program->costs, &program->sizes, &d->error));
    TRY(read_source(request, arena, &program->source, &d->error));
    program->compilation = (Compilation){.arena = arena,
                                         .source = &program->source,
                                         .parameters = &program->parameters,
                                         .memory = &program->sizes,
                                         .costs = &program->costs,
                                         .search = &search};
    const Status status = compile(&program->compilation, &d->error);
    program->compilation.search = NULL;
    if (diag_failed(program->compilation.diagnostics))
        report_diagnostics(d, program->compilation.diagnostics, &program->source);
    return status;
}

static Status compile_body(dps *d, void *arguments)
{
    const Request *request = arguments;
    dps_options options = {0};
    if (request->options && !STRUCT_IN(&options, request->options))
        return error_set(&d->error, STATUS_BAD_USAGE, STRUCT_REFUSED, "dps_options");
    if (options.replicas)
        return error_set(&d->error, STATUS_BAD_USAGE, "dps_options.replicas is for dps_compare and dps_advise");
    TRY(length_check(request->length, &d->error));
    d->program = program_new(d);
    TRY(compile_program(d, request, &options, d->program));
    *request->program = program_take(d);
    return STATUS_OK;
}

dps_status dps_compile_file(dps *d, const char *path, const dps_options *options, dps_program **program)
{
    Request request = {.path = host_path(path), .options = options, .program = program};
    return CALL(d, compile_body, &request, NEEDED(path), RESULT(program));
}

dps_status dps_compile_text(dps *d, const char *text, size_t length, const char *name, const dps_options *options,
                            dps_program **program)
{
    Request request = {
        .path = name ? name : "<text>", .text = text, .length = length, .options = options, .program = program};
    return CALL(d, compile_body, &request, NEEDED(text), RESULT(program));
}
