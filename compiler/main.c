/* dpc: a schedule's way from source to program. */

#include "compiler/check.h"
#include "compiler/communicate.h"
#include "compiler/csv.h"
#include "compiler/dump.h"
#include "compiler/emit.h"
#include "compiler/expand.h"
#include "compiler/lower.h"
#include "compiler/options.h"
#include "compiler/parse.h"
#include "compiler/passes.h"
#include "compiler/place.h"
#include "compiler/plan.h"
#include "compiler/prove.h"
#include "compiler/timeline.h"
#include "runtime/base/file.h"
#include "runtime/base/version.h"

#include <string.h>

typedef struct Compilation {
    const Options *options;
    Arena *arena;
    Source source;
    Diagnostics *diagnostics;
    Schedule schedule;
    PassTable table;
    Timeline unit_times, times;
    RankPlan *plans;
    Program *program;
} Compilation;

static bool wants(const Compilation *c, DumpForm form) { return c->options->dump[form]; }

/* source → schedule: where every stage lives and what every rank runs */
static Status read_csv(Compilation *c, Error *error)
{
    const Parameters *parameters = &c->options->parameters;
    if (parameters->has_ranks || parameters->has_microbatches || parameters->count)
        return error_set(error, STATUS_BAD_USAGE, "%s: an order has no parameters: its rows are the ranks, its cells the microbatches",
                         c->source.path);
    return csv_read(&c->source, c->arena, c->diagnostics, &c->schedule) ? STATUS_OK : STATUS_BAD_INPUT;
}

static Status read_schedule(Compilation *c, Error *error)
{
    const Parameters *parameters = &c->options->parameters;
    if (wants(c, DUMP_TOKENS))
        dump_tokens(&c->source, stdout);
    Ast *tree = parse(&c->source, c->arena, c->diagnostics);
    if (tree && wants(c, DUMP_TREE))
        dump_tree(tree, stdout);
    if (!tree || !check(tree, c->arena, c->diagnostics))
        return STATUS_BAD_INPUT;
    TRY(parameters_check(tree, parameters, error));
    return place(tree, parameters, c->arena, c->diagnostics, &c->schedule) &&
                   expand(tree, parameters, c->arena, c->diagnostics, &c->schedule)
               ? STATUS_OK
               : STATUS_BAD_INPUT;
}

/* schedule → proven schedule, messages included */
static bool prove(Compilation *c)
{
    if (wants(c, DUMP_SCHEDULE))
        dump_schedule(&c->schedule, stdout);
    if (wants(c, DUMP_ORDER))
        emit_csv(&c->schedule, false, stdout);
    if (!legal(&c->schedule, c->arena, c->diagnostics, &c->table))
        return false;
    if (!timeline_run(&c->schedule, &c->table, &costs_unit, c->arena, &c->unit_times)) {
        prove_report_circle(&c->schedule, &c->table, &c->unit_times, c->arena, c->diagnostics);
        return false;
    }
    if (!c->schedule.has_messages)
        communicate(&c->schedule, &c->table, &c->unit_times, c->arena);
    if (wants(c, DUMP_COMMS))
        emit_csv(&c->schedule, true, stdout);
    return prove_messages(&c->schedule, &c->table, c->arena, c->diagnostics);
}

/* proven schedule → program */
static Status translate(Compilation *c, Error *error)
{
    c->plans = arena_array(c->arena, c->schedule.ranks, sizeof *c->plans);
    for (uint32_t r = 0; r < c->schedule.ranks; r++)
        if (!plan_rank(&c->schedule, r, c->arena, c->diagnostics, &c->plans[r]))
            return STATUS_BAD_INPUT;
    if (wants(c, DUMP_PLAN))
        dump_plan(&c->schedule, c->plans, stdout);
    c->program = lower(&c->schedule, c->plans, &c->source, c->arena);
    Status status = program_verify(c->program, error);
    if (status != STATUS_OK) /* our own mistake, and better found here than by dprun */
        error_prefix(error, "internal error, the program that was made does not pass its verification: ");
    return status;
}

static void emit(Compilation *c, EmitKind kind, FILE *stream)
{
    switch (kind) {
    case EMIT_CSV:
    case EMIT_COMMS:
        emit_csv(&c->schedule, kind == EMIT_COMMS, stream);
        break;
    case EMIT_ASM:
        program_disassemble(c->program, stream);
        break;
    default:
        emit_stats(&c->schedule, &c->times, c->plans, stream);
        break;
    }
}

static Status write_program(const Program *program, const char *path, Error *error)
{
    ByteWriter writer = {0};
    if (!program_encode(program, &writer)) {
        bytes_free(&writer);
        return error_set(error, STATUS_RUN_FAILED, "no memory for the program");
    }
    OutputFile file;
    Status status = file_begin(path, &file, error);
    if (status == STATUS_OK) {
        fwrite(writer.bytes, 1, writer.size, file.stream);
        status = file_finish(&file, error);
    }
    bytes_free(&writer);
    return status;
}

static Status write_outputs(Compilation *c, Error *error)
{
    const Options *options = c->options;
    if (wants(c, DUMP_TIMES))
        dump_times(&c->schedule, &c->times, stdout);
    if (wants(c, DUMP_PROGRAM))
        program_disassemble(c->program, stdout);
    if (options->output)
        TRY(write_program(c->program, options->output, error));
    for (int i = 0; i < options->emit_count; i++) {
        OutputFile file;
        TRY(file_begin(options->emit[i].file, &file, error));
        emit(c, options->emit[i].kind, file.stream);
        TRY(file_finish(&file, error));
    }
    if (!options->output && !options->emit_count && !options->dumps)
        describe(&c->schedule, &c->times, c->plans, stdout);
    return STATUS_OK;
}

static Status compile(Compilation *c, Error *error)
{
    char *text;
    TRY(file_read(c->options->input, c->arena, &text, &c->source.size, error));
    c->source.path = c->options->input;
    c->source.text = text;
    if (c->source.size > UINT32_MAX / 2)
        return error_set(error, STATUS_BAD_INPUT, "%s: too large: at most 2 GiB", c->source.path);
    source_lines(&c->source, c->arena);
    c->diagnostics = diag_new(c->arena, &c->source);
    const char *dot = strrchr(c->source.path, '.');
    TRY(dot && strcmp(dot, ".csv") == 0 ? read_csv(c, error) : read_schedule(c, error));
    if (!prove(c))
        return STATUS_BAD_INPUT;
    TRY(translate(c, error));
    timeline_run(&c->schedule, &c->table, &c->options->costs, c->arena, &c->times);
    return write_outputs(c, error);
}

int main(int argc, char **argv)
{
    jmp_buf exhausted;
    Arena arena = {.exhausted = &exhausted};
    Error error = {""};
    if (setjmp(exhausted)) {
        fprintf(stderr, "dpc: out of memory\n");
        return STATUS_RUN_FAILED;
    }
    Options options;
    Status status = command_line_parse(argc, argv, &arena, &options, &error);
    Compilation compilation = {.options = &options, .arena = &arena};
    if (status == STATUS_OK && options.help)
        fputs(command_line_help, stdout);
    else if (status == STATUS_OK && options.version)
        puts("dpc " PROJECT_VERSION);
    else if (status == STATUS_OK && options.dump[DUMP_OPCODES])
        program_describe_opcodes(stdout);
    else if (status == STATUS_OK)
        status = compile(&compilation, &error);
    if (compilation.diagnostics)
        diag_print(compilation.diagnostics, stderr);
    if (*error.text)
        fprintf(stderr, "dpc: %s\n", error.text);
    arena_free(&arena);
    if (status == STATUS_OK && fflush(stdout) != 0)
        status = STATUS_RUN_FAILED;
    return (int)status;
}
