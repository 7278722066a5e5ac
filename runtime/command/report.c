#include "runtime/command/report.h"

#include "base/text.h"
#include "base/counted.h"
#include "program/times/costs_resolve.h"
#include "runtime/simulator/simulator.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Flushes standard output. If that fails, for example because its reader has closed the pipe or the disk is full, the
   run ends after this step. */
static void flush_output(Report *report)
{
    if (fflush(stdout) == 0 || report->output_error)
        return;
    report->output_error = errno;
    atomic_store(report->stop, true);
}

/* 1234567 as "1.23M". */
static const char *short_number(double value, char text[static 16])
{
    static const char units[] = {'\0', 'k', 'M', 'G', 'T'};
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof units; unit++)
        value /= 1000;
    snprintf(text, 16, "%.*f%c", unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, value, units[unit]);
    return text;
}

static uint32_t step_microbatches(const RunFacts *facts) { return facts->replicas * facts->program->microbatches; }

static uint32_t all_ranks(const RunFacts *facts) { return facts->replicas * facts->program->rank_count; }

/* Prints the model's layers and the microbatches of a step. Their defaults depend on the schedule, so two runs with
   defaults may not train the same model. */
static void print_comparable(const Report *report)
{
    const uint32_t layers = report->facts.model->layers, microbatches = step_microbatches(&report->facts);
    const uint32_t of_reference = (uint32_t)report->facts.reference.replicas;
    const uint32_t replicas = of_reference ? of_reference : report->facts.replicas;
    const bool by_default = !report->options->model.layers && layers == report->facts.program->stages;
    fprintf(report->words, "compare    losses only between runs with %s (%s--set layers=%u) and %s a step",
            counted(layers, "layer").text, by_default ? "here one a stage; " : "", layers,
            counted(microbatches, "microbatch").text);
    if (replicas > 1)
        fprintf(report->words, ", as %u on each of %u replicas\n", microbatches / replicas, replicas);
    else
        fprintf(report->words, " (dpc --microbatches %u)\n", microbatches);
}

static void print_reference(Mesh mesh, FILE *words)
{
    fprintf(words, "reference  this rank does the work of %s", counted((uint64_t)mesh.ranks, "rank").text);
    if (mesh.replicas > 1)
        fprintf(words, " in each of %d replicas", mesh.replicas);
    putc('\n', words);
}

/* Prints a line if the F&Bs or F&Fs of a simulated run are run component by component, and nothing otherwise. */
static void print_walk(const Report *report)
{
    const uint32_t used = simulator_costs_used(report->facts.program);
    const Costs *costs = &report->options->costs;
    const bool follows = costs->follows_recipe || (costs->recipes && costs->with_recipes[0].follows_recipe);
    if (follows && !report->options->in_turn && used & (1u << COST_FB | 1u << COST_FF))
        fprintf(report->words, "F&%c        component by component, in the order of its recipe\n",
                used & 1u << COST_FF ? 'F' : 'B');
}

static void print_header(const Report *report)
{
    FILE *const words = report->words;
    const RunFacts *facts = &report->facts;
    const Program *program = facts->program;
    char parameters[16], bytes[16], copies[80] = "";
    fprintf(words, "schedule   %s (%s): %s, %s, %s%s\n", program->schedule, program->source,
            counted(program->rank_count, "rank").text, counted(program->stages, "stage").text,
            counted(program->microbatches, "microbatch").text, program->forward_only ? ", forward only" : "");
    if (facts->reference.ranks)
        print_reference(facts->reference, words);
    if (facts->replicas > 1)
        fprintf(words, "replicas   %u; together they have %s and %s a step\n", facts->replicas,
                counted(all_ranks(facts), "rank").text, counted(step_microbatches(facts), "microbatch").text);
    if (report->options->expert_replicas)
        snprintf(copies, sizeof copies, ", with %s: %u on each rank",
                 counted(report->options->expert_replicas, "further copy").text,
                 (facts->model->experts + report->options->expert_replicas) / facts->shards);
    if (facts->shards > 1)
        fprintf(words, "experts    of a layer are divided among %u replicas%s\n", facts->shards, copies);
    if (report->options->simulated) {
        fprintf(words, "model      none: passes take their modelled time, and there are no losses\n");
        print_walk(report);
    } else {
        fprintf(words, "model      %s%s%s, %s parameters; %sB planned for all ranks\n",
                report->options->model_name ? report->options->model_name : model_name(facts->model),
                report->options->load ? " from " : "", report->options->load ? report->options->load : "",
                short_number((double)facts->parameters, parameters), short_number((double)facts->planned_bytes, bytes));
        fprintf(words, "data       %s", facts->data);
        if (facts->byte_entropy > 0)
            fprintf(words, ", byte frequencies alone give a loss of %.4f nats a byte", facts->byte_entropy);
        putc('\n', words);
        print_comparable(report);
    }
    fprintf(words, "machine    device %s, transport %s; ready after %.0f ms\n", facts->device, facts->transport,
            facts->ready_seconds * 1e3);
    fflush(words);
}

/* If there are more ranks than processors, prints why no bubble is measured: part of the ranks' waiting is for
   processors and not due to the schedule. Otherwise prints nothing. */
static void explain_missing_bubble(const Report *report)
{
    const uint32_t processors = report->facts.processors, ranks = all_ranks(&report->facts);
    const bool json = report->line->json;
    if (!processors || ranks <= processors)
        return;
    fprintf(json ? stderr : report->words,
            "%s%u ranks share %s: on average a rank computes at most %.0f %% of the time, whatever the schedule; %s\n",
            json ? "dprun: note: " : "           ", ranks, counted(processors, "processor").text,
            100.0 * (double)processors / ranks, json ? "bubble_rate is null" : "no bubble is measured");
}

static void put_derived_costs(const Report *report)
{
    const bool json = report->line->json;
    if (report->options->simulated)
        costs_put_derived(&report->options->costs, simulator_costs_used(report->facts.program),
                          json ? "dprun: note: --cost: " : "costs      ", json ? stderr : report->words);
}

static void ready(void *context, const RunFacts *facts)
{
    Report *report = context;
    report->facts = *facts;
    report->speaks = true;
    report->tokens = (double)step_microbatches(facts) * facts->model->microbatch_size * facts->model->sequence;
    if (!report->line->json)
        print_header(report);
    put_derived_costs(report);
    explain_missing_bubble(report);
    flush_output(report);
}

/* Prints `before` and a number; null if it is infinite or NaN, which JSON does not have. */
static void print_number(const char *before, double value, int digits)
{
    if (isfinite(value))
        printf("%s%.*g", before, digits, value);
    else
        printf("%snull", before);
}

static void print_json_times(const Report *report, const StepReport *step)
{
    printf(",\"step_ms\":%.6g,\"makespan_ms\":%.6g", step->seconds * 1e3, step->makespan * 1e3);
    print_number(",\"bubble_rate\":", step->bubble_rate, 6);
    fputs(",\"busy_ms\":[", stdout);
    for (uint32_t r = 0; r < all_ranks(&report->facts); r++)
        printf("%s%.6g", r ? "," : "", step->busy[r] * 1e3);
    putchar(']');
    if (step->all_to_all_seconds > 0)
        printf(",\"all_to_all_ms\":%.6g,\"all_to_all_hidden\":%.6g", step->all_to_all_seconds * 1e3,
               1 - step->all_to_all_waited / step->all_to_all_seconds);
}

static void print_json(const Report *report, const StepReport *step)
{
    enum { EXACT = 17 }; /* with so many digits a double is read back with the same bits */
    printf("{\"step\":%llu,\"loss\":", (unsigned long long)step->step);
    if (report->options->simulated) {
        fputs("null", stdout);
        print_json_times(report, step);
        puts("}");
        return;
    }
    print_number("", step->loss, EXACT);
    fputs(",\"losses\":[", stdout);
    for (uint32_t m = 0; m < step_microbatches(&report->facts); m++)
        print_number(m ? "," : "", step->losses[m], EXACT);
    print_number("],\"gradient_norm\":", step->gradient_norm, EXACT);
    if (step->expert_load > 0) {
        print_number(",\"balance_loss\":", step->balance_loss, EXACT);
        print_number(",\"expert_load\":", step->expert_load, 6);
        print_number(",\"worst_expert_load\":", step->worst_expert_load, 6);
    }
    if (step->rank_load > 0) {
        print_number(",\"rank_load\":", step->rank_load, 6);
        print_number(",\"worst_rank_load\":", step->worst_rank_load, 6);
        printf(",\"moved_experts\":%llu", (unsigned long long)step->moved);
    }
    print_number(",\"tokens_per_s\":", report->tokens / step->seconds, 6);
    print_json_times(report, step);
    printf(",\"product_ms\":%.6g,\"product_gflops\":%.6g,\"planned_bytes\":%llu", step->product_seconds * 1e3,
           step->product_seconds > 0 ? step->operations / step->product_seconds * 1e-9 : 0,
           (unsigned long long)report->facts.planned_bytes);
    if (step->has_held_out) {
        print_number(",\"held_out_loss\":", step->held_out_loss, EXACT);
        printf(",\"held_out_tokens\":%llu", (unsigned long long)step->held_out_tokens);
        print_number(",\"byte_entropy\":", report->facts.byte_entropy, EXACT);
    }
    printf("}\n");
}

static int terminal_columns(void)
{
    struct winsize window;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
}

/* Draws the progress over the last line. The line must not be wider than the terminal, or it could not be overwritten;
   so the bar takes what the texts leave. */
static void draw_progress(const char *count, const char *figures, double done, bool last)
{
    enum { WIDEST = 24 };
    const int columns = terminal_columns() - 1;
    char line[256], bar[WIDEST + 3] = "";
    int width = columns - (int)strlen(count) - (int)strlen(figures) - 4;
    width = width > WIDEST ? WIDEST : width;
    if (width > 0) {
        memset(bar, '-', (size_t)width);
        memset(bar, '#', (size_t)(done * width));
        memcpy(bar + width, "  ", 3);
    }
    snprintf(line, sizeof line, "%s  %s%s", count, bar, figures);
    fprintf(stderr, "\r%.*s\033[K%s", columns, line, last ? "\n" : "");
}

static void print_progress(const Report *report, const StepReport *step)
{
    const uint64_t steps = report->options->steps;
    /* > 0: the run ends after so many seconds, and the number of steps is not known in advance */
    const double seconds = report->options->seconds;
    const double done = seconds > 0 ? fmin(report->seconds / seconds, 1) : (double)step->step / (double)steps;
    const double left = report->seconds / done - report->seconds;
    char tokens[16], count[64], bubble[32] = "", figures[128];
    const int length = snprintf(count, sizeof count, "step %llu", (unsigned long long)step->step);
    if (!(seconds > 0))
        snprintf(count + length, sizeof count - (size_t)length, "/%llu", (unsigned long long)steps);
    if (!isnan(step->bubble_rate))
        snprintf(bubble, sizeof bubble, "bubble %.1f %%  ", step->bubble_rate * 100);
    if (report->options->simulated)
        snprintf(figures, sizeof figures, "makespan %.2f ms  %s%.0f s left", step->makespan * 1e3, bubble, left);
    else
        snprintf(figures, sizeof figures, "loss %.4f  %s tokens/s  %s%.0f s left", step->loss,
                 short_number(report->tokens / step->seconds, tokens), bubble, left);
    if (report->terminal)
        draw_progress(count, figures, done, step->last);
    else
        fprintf(stderr, "%s  %s\n", count, figures);
    fflush(stderr);
}

static void take_step(void *context, const StepReport *step)
{
    Report *report = context;
    report->seconds += step->seconds;
    report->last = *step;
    report->first_load = step->step == 1 ? step->expert_load : report->first_load;
    report->all_to_all_seconds += step->all_to_all_seconds;
    report->all_to_all_waited += step->all_to_all_waited;
    report->rank_loads[report->placements > 0] += step->rank_load;
    report->unplaced += report->placements == 0;
    report->placements += step->placed;
    report->moved += step->moved;
    const uint64_t tenth = (report->options->steps + 9) / 10;
    if (report->line->json) {
        print_json(report, step);
        flush_output(report);
    } else if (report->terminal || step->last || step->step == 1 || step->step % tenth == 0) {
        print_progress(report, step);
    }
}

static bool is_stdout(const char *path) { return path && strcmp(path, "-") == 0; }

void report_open(Report *report, const CommandLine *line, atomic_bool *stop, Observer *observer)
{
    const RunOptions *options = &line->run;
    const bool taken = line->json || is_stdout(options->outputs) || is_stdout(options->save) ||
                       is_stdout(options->trace) || is_stdout(options->profile);
    *report = (Report){.line = line,
                       .options = options,
                       .stop = stop,
                       .words = taken ? stderr : stdout,
                       .terminal = isatty(STDERR_FILENO)};
    *observer = (Observer){.context = report, .ready = ready, .step = take_step};
}

/* Prints the load of the busiest rank: its mean over the steps before experts were first placed by load, and over the
   later steps. Prints nothing if the steps reported no such load. */
static void print_placing(const Report *report)
{
    const uint64_t before = report->unplaced, after = report->last.step - before;
    if (report->rank_loads[0] <= 0)
        return;
    fprintf(report->words, "ranks      the busiest of a layer gets %.2f times the mean number of tokens",
            report->rank_loads[0] / (double)before);
    if (after)
        fprintf(report->words, " up to step %llu, %.2f after it; %s moved in %s", (unsigned long long)before,
                report->rank_loads[1] / (double)after, counted(report->moved, "expert").text,
                counted(report->placements, "placement").text);
    fputc('\n', report->words);
}

/* Prints which part of the time of all-to-alls was hidden: the ranks computed meanwhile. */
static void print_hidden(const Report *report)
{
    const double all = report->all_to_all_seconds, waited = report->all_to_all_waited;
    /* the factor from seconds of all ranks and steps to ms of one rank and step */
    const double each = 1e3 / all_ranks(&report->facts) / (double)report->last.step;
    if (all > 0)
        fprintf(report->words,
                "hidden     %.1f %% of the time of all-to-alls: of their %.3g ms in a step a rank computed for %.3g ms "
                "and waited for %.3g ms\n",
                100 * (1 - waited / all), all * each, (all - waited) * each, waited * each);
}

static void print_results(const Report *report)
{
    FILE *const words = report->words;
    fprintf(words, "steps      %llu in %.1f s, ", (unsigned long long)report->last.step, report->seconds);
    if (report->options->simulated)
        fprintf(words, "makespan of the last step %.2f ms\n", report->last.makespan * 1e3);
    else
        fprintf(words, "last loss %.4f\n", report->last.loss);
    if (report->last.expert_load > 0)
        fprintf(words,
                "experts    the busiest of a layer gets %.2f times the mean number of tokens (first step %.2f); "
                "balance loss %.2g\n",
                report->last.expert_load, report->first_load, report->last.balance_loss);
    print_placing(report);
    print_hidden(report);
    if (report->last.has_held_out)
        fprintf(words, "held out   loss %.4f nats a byte over %llu bytes; byte frequencies alone give %.4f\n",
                report->last.held_out_loss, (unsigned long long)report->last.held_out_tokens,
                report->facts.byte_entropy);
}

Status report_close(Report *report, Status status, Error *error)
{
    const RunOptions *options = report->options;
    const char *const paths[] = {options->outputs, options->save, options->trace, options->profile};
    if (!report->speaks || status != STATUS_OK) {
        if (report->speaks && report->terminal && !report->line->json)
            fputc('\n', stderr);
        return status;
    }
    if (!report->line->json)
        print_results(report);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i] && strcmp(paths[i], "-") != 0) {
            char *const shown = strdup(paths[i]);
            if (shown)
                text_make_printable(shown);
            fprintf(report->words, "wrote      %s\n", shown ? shown : "");
            free(shown);
        }
    flush_output(report);
    if (report->output_error && report->output_error != EPIPE)
        return error_set(error, STATUS_RUN_FAILED, "cannot write standard output: %s", strerror(report->output_error));
    return STATUS_OK;
}
