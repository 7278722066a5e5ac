/* The program dpc: takes a schedule from source to program, and runs the other commands. */

#include "study/trials/advise.h"
#include "compiler/command/check.h"
#include "study/trials/compare.h"
#include "study/trials/fit.h"
#include "compiler/command/format.h"
#include "compiler/command/options.h"
#include "compiler/command/proof.h"
#include "compiler/compile.h"
#include "study/measured/calibrate.h"
#include "study/measured/diff.h"
#include "study/measured/kineto_passes.h"
#include "study/measured/kineto_profile.h"
#include "compiler/output/dump.h"
#include "compiler/output/emit.h"
#include "compiler/output/terminal.h"
#include "compiler/placement/balance_command.h"
#include "compiler/tree/parse.h"
#include "base/file.h"
#include "base/text.h"
#include "base/version.h"

#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

/* The state of one run of dpc. */
typedef struct Job {
    Options options;
    Source source;
    Compilation compilation;
    Timeline times;          /* times of the passes under the costs that the command line gives */
    Gap gap;                 /* gap between the makespan of `times` and its lower bound */
    Proof proof;             /* result of --prove */
    bool predicted_by_trace; /* dpc diff: the prediction is a trace, not a schedule */
    ProgressBar progress;    /* shows the progress of a search or of a proof */
} Job;

static atomic_int interrupted; /* set by ctrl-C during a search, a proof or trials */

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static void show_search(void *context, const SearchProgress *progress)
{
    char words[80] = "";
    if (progress->bound > 0)
        snprintf(words, sizeof words, " orders; the best is %.1f %% above the lower bound",
                 100 * (progress->cost / progress->bound - 1));
    progress_bar_show(context, progress->tried, progress->planned, words);
}

/* What ctrl-C did before a search, a proof or trials; it is restored after them. The first ctrl-C ends the search,
   which keeps the best order so far, the proof or the trials; a second one ends dpc. */
static struct sigaction before_search;

static void take_interrupts(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, NULL, &before_search) == 0 && before_search.sa_handler != SIG_IGN)
        sigaction(SIGINT, &action, NULL);
}

static void search_ends(const Compilation *c)
{
    sigaction(SIGINT, &before_search, NULL);
    progress_bar_clear(c->search->context);
    if (interrupted)
        fprintf(stderr, "dpc: the search was interrupted after %u of %u orders; dpc goes on with the best of them\n",
                c->found.tried, c->found.planned);
}

/* Called by compile with each form of the schedule as soon as it exists. Prints the form if --dump asks for it,
   except times and program, which write_outputs prints. With `order auto`, the search runs between FORM_SCHEDULE and
   FORM_ORDER; ctrl-C then ends it. */
static Status show(const Compilation *c, Form form)
{
    const bool *dump = ((const Options *)c->context)->dump;
    if (form == FORM_TOKENS && dump[DUMP_TOKENS])
        dump_tokens(c->source, stdout);
    if (form == FORM_TREE && dump[DUMP_TREE])
        dump_tree(c->tree, stdout);
    if (form == FORM_SCHEDULE && dump[DUMP_SCHEDULE])
        dump_schedule(&c->schedule, stdout);
    if (form == FORM_SCHEDULE && c->tree && c->tree->order)
        take_interrupts();
    if (form == FORM_ORDER && c->tree && c->tree->order)
        search_ends(c);
    if (form == FORM_ORDER && dump[DUMP_ORDER])
        emit_csv(&c->schedule, false, stdout);
    if (form == FORM_COMMS && dump[DUMP_COMMS])
        emit_csv(&c->schedule, true, stdout);
    if (form == FORM_PLAN && dump[DUMP_PLAN])
        dump_plan(&c->schedule, c->program, stdout);
    return STATUS_OK;
}

static Emission emission_of(const Job *job)
{
    return (Emission){.compilation = &job->compilation,
                      .times = &job->times,
                      .gap = job->gap,
                      .proven = job->options.prove.seconds ? &job->proof.proven : NULL,
                      .memory = &job->options.trials.memory,
                      .svg_width = (uint32_t)job->options.width};
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

static Status write_outputs(const Job *job, Error *error)
{
    const Compilation *c = &job->compilation;
    const Options *options = &job->options;
    for (int i = 0; i < options->emit_count; i++)
        TRY(emit_fits(&c->schedule, options->emit[i].kind, error));
    if (options->dump[DUMP_TIMES])
        dump_times(&c->schedule, &job->times, stdout);
    if (options->dump[DUMP_PROGRAM])
        program_disassemble(c->program, stdout);
    if (options->output)
        TRY(write_program(c->program, options->output, error));
    for (int i = 0; i < options->emit_count; i++) {
        OutputFile file;
        TRY(file_begin_text(options->emit[i].file, &file, error));
        Emission emission = emission_of(job);
        emission.terminal = terminal_of(file.stream, (uint32_t)options->width);
        emit(&emission, options->emit[i].kind, file.stream);
        TRY(file_finish(&file, error));
        emit_note(&c->schedule, options->emit[i].kind, text_printable(options->emit[i].file, c->arena), stderr);
    }
    if (!options->output && !options->emit_count && !options->dumps)
        describe(c, &job->times, &job->gap, stdout);
    return STATUS_OK;
}

static void show_proof(void *context, const OptimumProgress *progress)
{
    Job *job = context;
    char words[80];
    snprintf(words, sizeof words, " s; the best takes %.6g, no order less than %.6g", progress->makespan,
             progress->bound);
    progress_bar_show(&job->progress, (uint64_t)progress->seconds, (uint64_t)job->options.prove.seconds, words);
}

/* Runs the solver for --prove. ctrl-C ends it; the bound that it has proven so far is kept. */
static Status prove(Job *job, Error *error)
{
    const OptimumControl control = {
        .seconds = (double)job->options.prove.seconds, .stop = &interrupted, .progress = show_proof, .context = job};
    interrupted = 0;
    take_interrupts();
    const Status status =
        proof_find(&job->compilation, job->times.makespan, job->gap.bound, &control, &job->proof, error);
    sigaction(SIGINT, &before_search, NULL);
    progress_bar_clear(&job->progress);
    return status;
}

static Status write_found(const Job *job, Error *error)
{
    OutputFile file;
    TRY(file_begin(job->options.prove.file, &file, error));
    emit_csv(job->proof.found, false, file.stream);
    return file_finish(&file, error);
}

static Status write_proof(const Job *job, Error *error)
{
    const Options *options = &job->options;
    const bool described = !options->output && !options->emit_count && !options->dumps;
    const char *const path = options->prove.file ? text_printable(options->prove.file, job->compilation.arena) : NULL;
    const bool writes = path && job->proof.found;
    const Status status = writes ? write_found(job, error) : STATUS_OK;
    fprintf(described ? stdout : stderr, "%s%s%s%s\n",
            described ? "  " : "dpc: ", proof_text(&job->proof, &job->compilation),
            !path                           ? ""
            : writes && status == STATUS_OK ? "; written to "
                                            : "; nothing is written to ",
            path ? path : "");
    return status;
}

/* Keeps freed memory in the process for the compilations that follow: returning it to the system each time would take
   as long as the proofs. */
static void keep_freed_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
}

static Status run_sweep(Job *job, Error *error)
{
    keep_freed_memory();
    SweepResult result;
    const Status status = sweep(&job->options.sweep, &job->compilation, stderr, &result, error);
    if (result.proven || result.failure_count)
        sweep_print(&job->options.sweep, &result, &job->compilation, stdout, stderr);
    return status;
}

static void note_derived(const Compilation *c)
{
    costs_put_derived(&c->resolved, schedule_costs_used(&c->schedule), "dpc: note: --cost: ", stderr);
}

/* Prints a note about costs that are given for stages or ranks that the schedule does not have: probably a mistake,
   or the costs of a larger schedule. */
static void note_unused(const Compilation *c)
{
    char unused[200];
    if (costs_unused(c->costs, c->schedule.pipes[0].stages, c->schedule.ranks, unused, sizeof unused))
        fprintf(stderr, "dpc: note: --cost: %s\n", unused);
}

/* Prints a note if the order's SENDs come so late that they make it longer. */
static void note_sends(const Compilation *c, double makespan)
{
    const double prompt = c->schedule.has_messages ? compilation_prompt_makespan(c) : makespan;
    if (prompt < makespan)
        fprintf(stderr,
                "dpc: note: %s: some SENDs come after later passes, which makes the makespan %g instead of %g; dprun "
                "sends as soon as an output is computed\n",
                c->source->path, makespan, prompt);
}

static Status run(Job *job, Error *error)
{
    Compilation *c = &job->compilation;
    TRY(source_read(job->options.input, c->arena, &job->source, error));
    if (job->options.sweep.text)
        return run_sweep(job, error);
    TRY(compile(c, error));
    note_derived(c);
    note_unused(c);
    timeline_run(&c->schedule, &c->table, &c->resolved, c->arena, &job->times);
    note_sends(c, job->times.makespan);
    job->gap = compilation_gap(c, job->times.makespan);
    if (job->options.prove.seconds)
        TRY(prove(job, error));
    TRY(write_outputs(job, error));
    return job->options.prove.seconds ? write_proof(job, error) : STATUS_OK;
}

/* Sets the prediction of dpc diff. If the first input is a trace, the prediction is the order and the times of its
   typical step; else it is the times of the schedule under the costs. */
static Status predict(Job *job, const Trace *measured, Comparison *comparison, Error *error)
{
    Compilation *c = &job->compilation;
    Parameters *parameters = &job->options.trials.parameters;
    char first = 0;
    TRY(source_read(job->options.input, c->arena, &job->source, error));
    if (sscanf(job->source.text, " %c", &first) == 1 && first == '{') {
        Trace trace;
        TRY(trace_read(job->options.input, c->arena, &trace, error));
        text_put_lines("dpc: note: ", trace.notes, stderr);
        const uint32_t step = trace_typical_step(&trace, c->arena);
        job->source = diff_order(&trace, step, c->arena);
        TRY(compile(c, error));
        c->schedule.name = trace.schedule;
        job->predicted_by_trace = true;
        return diff_timeline(&trace, step, &c->schedule, c->arena, &comparison->predicted, error);
    }
    if (measured->reference)
        return error_set(
            error, STATUS_BAD_INPUT,
            "%s is a trace of dprun --reference, in which one rank does the work of all: give a trace of the "
            "same run without --reference",
            measured->path);
    int64_t microbatches = 0;
    for (uint32_t p = 0; p < measured->pipe_count; p++)
        microbatches += measured->microbatches[p];
    if (!source_is_order(c->source) && !parameters->has_ranks)
        parameters_set_ranks(parameters, measured->ranks);
    if (!source_is_order(c->source) && !parameters->has_microbatches)
        parameters_set_microbatches(parameters, microbatches);
    TRY(compile(c, error));
    note_unused(c);
    timeline_run(&c->schedule, &c->table, &c->resolved, c->arena, &comparison->predicted);
    note_sends(c, comparison->predicted.makespan);
    return STATUS_OK;
}

static void print_comparison(const Comparison *comparison, Arena *arena)
{
    InsidePair inside;
    diff_print(comparison, arena, stdout);
    if (!diff_inside(comparison, arena, &inside))
        return;
    putchar('\n');
    emit_overlap_diff(comparison->schedule, &inside.predicted, &inside.measured, inside.name, arena, stdout);
}

static Status write_comparison(const Job *job, const Comparison *comparison, Error *error)
{
    const Compilation *c = &job->compilation;
    Schedule names[2] = {c->schedule, c->schedule};
    names[0].name = arena_format(c->arena, "%s, predicted%s", c->schedule.name,
                                 comparison->scaled ? " (scaled to the measured busy time)" : "");
    names[1].name = arena_format(c->arena, "%s, measured (step %u)", c->schedule.name, comparison->step);
    const Emission emission = emission_of(job);
    Picture pictures[2] = {emission_picture(&emission), emission_picture(&emission)};
    for (int i = 0; i < 2; i++)
        pictures[i].schedule = &names[i];
    pictures[0].times = &comparison->predicted;
    pictures[1].times = &comparison->measured;
    for (int i = 0; i < job->options.emit_count; i++) {
        OutputFile file;
        TRY(file_begin_text(job->options.emit[i].file, &file, error));
        if (job->options.emit[i].kind == EMIT_SVG)
            emit_svg(&pictures[0], &pictures[1], (uint32_t)job->options.width, c->arena, file.stream);
        else
            emit_html(&pictures[0], &pictures[1], c->arena, file.stream);
        TRY(file_finish(&file, error));
    }
    if (job->options.emit_count)
        note_derived(c);
    else
        print_comparison(comparison, c->arena);
    return STATUS_OK;
}

/* Prints the inside of an F&B twice: as predicted from the schedule's recipe and the costs, and as measured in a
   trace of the PyTorch profiler. */
static Status run_diff_inside(Job *job, const KinetoMap *map, Error *error)
{
    Compilation *c = &job->compilation;
    KinetoTrace trace;
    KinetoProfile profile;
    if (job->options.emit_count || job->options.step || job->options.trials.input_count != 2)
        return error_set(
            error, STATUS_BAD_USAGE,
            "%s maps kernels to components. With such a map, dpc diff prints the inside of an F&B: it takes "
            "one schedule and one trace, and neither --emit nor --step",
            map->path);
    TRY(kineto_read(job->options.trials.inputs[1], c->arena, &trace, error));
    TRY(kineto_profile(&trace, map, c->arena, &profile, error));
    text_put_lines("dpc: note: ", kineto_notes(&trace, c->arena), stderr);
    TRY(source_read(job->options.input, c->arena, &job->source, error));
    TRY(compile(c, error));
    const Recipe *recipe = c->schedule.recipes.common;
    if (!recipe || recipe_is_forward(recipe))
        return error_set(error, STATUS_BAD_INPUT, "%s needs a recipe for F&Bs of all chunks: overlap F&B { ... }",
                         job->options.input);
    RecipeTimes predicted = recipe_times(recipe, &c->resolved, c->arena);
    if (c->resolved.unit < 0 || predicted.makespan <= 0)
        return error_set(error, STATUS_BAD_USAGE,
                         "no component has a cost with a unit; dpc calibrate --map %s -o layer.cost %s writes such "
                         "costs for --cost @layer.cost",
                         job->options.map, trace.path);
    recipe_times_scale(&predicted, c->resolved.unit * 1e3);
    const RecipeTimes measured = kineto_recipe_times(&profile, kineto_typical_group(&profile, c->arena), c->arena);
    emit_overlap_diff(&c->schedule, &predicted, &measured, trace.path, c->arena, stdout);
    return STATUS_OK;
}

static Status run_diff(Job *job, Error *error)
{
    Compilation *c = &job->compilation;
    const Options *options = &job->options;
    KinetoMap map;
    Trace trace;
    Comparison comparison = {.schedule = &c->schedule, .table = &c->table, .trace = &trace};
    if (options->map) {
        TRY(kineto_map_read(options->map, c->arena, &map, error));
        if (kineto_map_has_components(&map))
            return run_diff_inside(job, &map, error);
        TRY(kineto_passes(&map, options->trials.input_count - 1, options->trials.inputs + 1, c->arena, &trace, error));
    } else {
        TRY(trace_read(options->trials.inputs[1], c->arena, &trace, error));
    }
    text_put_lines("dpc: note: ", trace.notes, stderr);
    comparison.step = trace_typical_step(&trace, c->arena);
    if (job->options.step) {
        uint32_t i = 0;
        while (i < trace.step_count && trace.steps[i] != job->options.step)
            i++;
        if (i == trace.step_count)
            return error_set(error, STATUS_BAD_USAGE, "--step %" PRId64 ": %s has steps %u to %u", job->options.step,
                             trace.path, trace.steps[0], trace.steps[trace.step_count - 1]);
        comparison.step = trace.steps[i];
    }
    TRY(predict(job, &trace, &comparison, error));
    TRY(diff_timeline(&trace, comparison.step, &c->schedule, c->arena, &comparison.measured, error));
    if (!job->predicted_by_trace)
        diff_scale(&comparison, c->arena);
    return write_comparison(job, &comparison, error);
}

static Status run_compare(const Options *options, Arena *arena, Error *error)
{
    CompareTable table;
    const Status status = compare(&options->trials, arena, &table, error);
    fputs(table.diagnostics, stderr);
    if (table.rows && options->json)
        compare_put_json(&table, stdout);
    else if (table.rows)
        compare_put_text(&table, arena, stdout);
    for (size_t i = 0; i < table.count; i++)
        if (!table.rows[i].reason)
            return status;
    return status == STATUS_OK
               ? error_set(error, STATUS_BAD_INPUT, "no schedule can be compared; standard output says why")
               : status;
}

static Status run_check(const Options *options, Arena *arena, Error *error)
{
    CheckedOrder *orders = arena_array(arena, (size_t)options->trials.input_count, sizeof *orders);
    keep_freed_memory();
    TRY(check_orders(options, arena, options->json ? NULL : stdout, stderr, orders, error));
    if (options->json)
        check_put_json(options, orders, arena, stdout);
    else
        check_put_text(options, orders, arena, stdout);
    return check_is_safe(options, orders) ? STATUS_OK : STATUS_BAD_INPUT;
}

/* Runs dpc advise. The first ctrl-C ends the trials, and a second one ends dpc. */
static Status run_advise(const Options *options, Arena *arena, Error *error)
{
    const TrialsControl control = {
        .installed = true, .begins = take_interrupts, .interrupted = &interrupted, .progress = stderr};
    Advice advice = {.options = NULL};
    keep_freed_memory();
    const Status status = advise(&options->trials, &control, arena, &advice, error);
    if (!advice.options)
        return status;
    sigaction(SIGINT, &before_search, NULL);
    fputs(advice.diagnostics, stderr);
    if (options->json)
        advice_put_json(&advice, arena, stdout);
    else
        advice_put_text(&advice, arena, stdout);
    return status;
}

static Status obey(Job *job, int argc, char **argv, Error *error)
{
    Arena *arena = job->compilation.arena;
    if (argc > 1 && strcmp(argv[1], "fmt") == 0)
        return format_command(argc - 2, argv + 2, arena, error);
    if (argc > 1 && strcmp(argv[1], "balance") == 0)
        return balance_command(argc - 1, argv + 1, arena, error);
    Options *options = &job->options;
    TRY(command_line_parse(argc, argv, arena, options, error));
    if (options->help)
        command_line_help(stdout);
    else if (options->version)
        puts("dpc " PROJECT_VERSION);
    else if (options->dump[DUMP_OPCODES])
        program_describe_opcodes(stdout);
    else if (options->command == COMMAND_COMPARE)
        return run_compare(options, arena, error);
    else if (options->command == COMMAND_ADVISE)
        return run_advise(options, arena, error);
    else if (options->command == COMMAND_CHECK)
        return run_check(options, arena, error);
    else if (options->command == COMMAND_FIT)
        return fit(&options->trials, arena, &job->compilation.diagnostics, stdout, error);
    else if (options->command == COMMAND_DIFF)
        return run_diff(job, error);
    else if (options->command == COMMAND_CALIBRATE && options->map)
        return calibrate_mapped(options->map, options->trials.input_count, options->trials.inputs,
                                (uint32_t)options->fastest, options->output ? options->output : "-", arena, error);
    else if (options->command == COMMAND_CALIBRATE)
        return calibrate(options->trials.input_count, options->trials.inputs, (uint32_t)options->fastest,
                         options->output ? options->output : "-", arena, error);
    else
        return run(job, error);
    return STATUS_OK;
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
    Job job = {.progress = progress_bar_of(stderr)};
    const SearchControl control = {.stop = &interrupted, .progress = show_search, .context = &job.progress};
    job.compilation = (Compilation){.arena = &arena,
                                    .source = &job.source,
                                    .parameters = &job.options.trials.parameters,
                                    .memory = &job.options.trials.memory,
                                    .costs = &job.options.trials.costs,
                                    .search = &control,
                                    .reached = show,
                                    .context = &job.options};
    signal(SIGXFSZ, SIG_IGN); /* so that a write beyond the file size limit (ulimit -f) returns an error */
    Status status = obey(&job, argc, argv, &error);
    OutputFile printed = {.stream = stdout};
    if (status == STATUS_OK)
        status = file_finish(&printed, &error);
    if (job.compilation.diagnostics)
        diag_print(job.compilation.diagnostics, stderr);
    error_print("dpc", &error);
    arena_free(&arena);
    return status_exit(status);
}
