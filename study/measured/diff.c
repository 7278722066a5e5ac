#include "study/measured/diff.h"

#include "compiler/schedule/critical_path.h"
#include "base/counted.h"
#include "base/text_stream.h"
#include "program/times/costs_resolve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORST = 10 };

static Status check_extents(const Trace *trace, const Schedule *schedule, Arena *arena, Error *error)
{
    const char *here = "", *there = ""; /* microbatches of each pipe, as text: "4+4" */
    bool same = trace->ranks == schedule->ranks && trace->pipe_count == schedule->pipe_count &&
                trace->stages == schedule->pipes[0].stages;
    for (uint32_t p = 0; p < trace->pipe_count; p++)
        same = same && trace->microbatches[p] == schedule->pipes[p].microbatches;
    if (same)
        return STATUS_OK;
    for (uint32_t p = 0; p < trace->pipe_count; p++)
        here = arena_format(arena, "%s%s%u", here, p ? "+" : "", trace->microbatches[p]);
    for (uint32_t p = 0; p < schedule->pipe_count; p++)
        there = arena_format(arena, "%s%s%u", there, p ? "+" : "", schedule->pipes[p].microbatches);
    return error_set(
        error, STATUS_BAD_INPUT,
        "%s has %s, %s, %s, microbatches %s; %s has %u, %u, %u, %s: give the schedule and the sizes of that "
        "run%s",
        trace->path, counted(trace->ranks, "rank").text, counted(trace->stages, "stage").text,
        counted(trace->pipe_count, "pipe").text, here, schedule->name, schedule->ranks, schedule->pipes[0].stages,
        schedule->pipe_count, there, trace->mapped ? ", and a trace of each of its ranks" : "");
}

static const TraceEvent *find(const TraceIndex *index, uint32_t rank, const Action *pass)
{
    return pass->kind == ACTION_U ? trace_find_update(index, rank, pass->stage, pass->microbatch)
                                  : trace_find(index, pass->kind, pass->pipe, pass->stage, pass->microbatch);
}

Status diff_timeline(const Trace *trace, uint32_t step, const Schedule *schedule, Arena *arena, Timeline *times,
                     Error *error)
{
    TRY(check_extents(trace, schedule, arena, error));
    const TraceIndex index = trace_index(trace, step, arena);
    const TraceExtent extent = trace_extent(trace, step);
    times->start = arena_array(arena, schedule->ranks, sizeof *times->start);
    times->end = arena_array(arena, schedule->ranks, sizeof *times->end);
    times->position = arena_array(arena, schedule->ranks, sizeof *times->position);
    times->makespan = extent.end - extent.start;
    /* under these costs messages take no time: the waits for them are already in the measured times */
    times->costs = &costs_unit;
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const Order *order = &schedule->orders[r];
        const Action *before = NULL;
        double start = 0;
        times->start[r] = arena_array(arena, order->count, sizeof **times->start);
        times->end[r] = arena_array(arena, order->count, sizeof **times->end);
        times->position[r] = order->count;
        for (uint32_t i = 0; i < order->count; i++) {
            const Action *pass = &order->actions[i];
            if (pass->kind > ACTION_U)
                continue;
            const TraceEvent *event = find(&index, r, pass);
            if (!event || event->rank != r) {
                char name[48];
                action_text(schedule, pass, name, sizeof name);
                return error_set(error, STATUS_BAD_INPUT,
                                 "%s: step %u has no %s on rank %u: is the trace of another schedule, of other -D or "
                                 "--cost, of dprun --forward-only, or incomplete?",
                                 trace->path, step, name, r);
            }
            if (before && event->start < start) {
                char name[48], first[48];
                action_text(schedule, pass, name, sizeof name);
                action_text(schedule, before, first, sizeof first);
                return error_set(error, STATUS_BAD_INPUT,
                                 "%s: step %u runs %s before %s on rank %u: is the trace of another schedule than %s, "
                                 "or of other -D or --cost?",
                                 trace->path, step, name, first, r, schedule->name);
            }
            before = pass;
            start = event->start;
            times->start[r][i] = event->start - extent.start;
            times->end[r][i] = event->end - extent.start;
        }
    }
    return STATUS_OK;
}

static double work(const Schedule *schedule, const Timeline *times)
{
    double busy = 0;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        busy += timeline_rank(schedule, times, r).busy;
    return busy;
}

/* Converts the costs of passes, of F&Bs and F&Fs and of messages to milliseconds. `unit`: milliseconds per unit of the
   costs. The times of components (Costs.parts) stay in the old unit: their readers multiply by Comparison.unit. */
static Costs *in_milliseconds(const Costs *costs, double unit, Arena *arena)
{
    const uint32_t recipes = costs->recipes ? costs->recipes->count : 0;
    Costs *scaled = arena_allocate(arena, sizeof *scaled), *with_recipes;
    *scaled = *costs;
    scaled->with_recipes = with_recipes = arena_array(arena, recipes, sizeof *with_recipes);
    for (uint32_t i = 0; i < recipes; i++)
        with_recipes[i] = *in_milliseconds(&costs->with_recipes[i], unit, arena);
    scaled->stages = arena_array(arena, costs->stage_count, sizeof *scaled->stages);
    scaled->links = arena_array(arena, costs->link_count, sizeof *scaled->links);
    for (int cost = 0; cost <= COST_FF; cost++)
        scaled->all[cost] *= unit;
    for (uint32_t s = 0; s < costs->stage_count; s++)
        for (int cost = 0; cost < STAGE_COSTS; cost++)
            scaled->stages[s][cost] = costs->stages[s][cost] * (cost <= COST_FF ? unit : 1);
    /* if the costs have no unit, a bandwidth is in bytes per unit of the costs; otherwise it is per second already */
    const double rate = costs->unit < 0 ? 1e3 / unit : 1;
    for (uint32_t l = 0; l < costs->link_count; l++) {
        scaled->links[l] = costs->links[l];
        scaled->links[l].latency *= unit;
        scaled->links[l].bandwidth *= rate;
    }
    scaled->latency *= unit;
    scaled->bandwidth *= rate;
    scaled->unit = 1e-3;
    return scaled;
}

void diff_scale(Comparison *comparison, Arena *arena)
{
    const Schedule *schedule = comparison->schedule;
    Timeline *times = &comparison->predicted;
    const Costs *costs = times->costs;
    const double busy = work(schedule, times);
    comparison->scaled = costs->unit < 0 && comparison->trace->unit <= 0;
    comparison->unit = costs->unit >= 0      ? costs->unit * 1e3
                       : !comparison->scaled ? comparison->trace->unit * 1e3
                       : busy > 0            ? work(schedule, &comparison->measured) / busy
                                             : 1;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            times->start[r][i] *= comparison->unit;
            times->end[r][i] *= comparison->unit;
        }
    times->makespan *= comparison->unit;
    times->costs = in_milliseconds(costs, comparison->unit, arena);
}

/* --- the table --- */

/* 0 instead of what would be printed as -0.00. */
static double percent(double error, double of)
{
    const double share = error == 0 ? 0 : 100 * error / of;
    return fabs(share) < 5e-3 ? 0 : share;
}

/* Replaces amounts below 0.0005 by 0, so that inexact sums are not printed as -0.000. */
static double rounded(double time) { return fabs(time) < 5e-4 ? 0 : time; }

static double idle_time(RankTimes times) { return rounded(times.end - times.start - times.busy); }

static void print_row(const char *name, RankTimes predicted, RankTimes measured, double makespan, FILE *stream)
{
    fprintf(stream, "%-6s %10.3f %10.3f  %10.3f %10.3f  %10.3f %10.3f  %10.3f %10.3f  %+8.2f %%\n", name,
            predicted.start, measured.start, predicted.end, measured.end, predicted.busy, measured.busy,
            idle_time(predicted), idle_time(measured), percent(measured.end - predicted.end, makespan));
}

static void print_ranks(const Comparison *comparison, FILE *stream)
{
    const Schedule *schedule = comparison->schedule;
    const double makespan = comparison->predicted.makespan;
    RankTimes all[2] = {{.end = makespan}, {.end = comparison->measured.makespan}};
    fprintf(stream, "%-6s %13s  %21s  %21s  %21s\n%-6s", "", "start", "end", "busy", "idle", "");
    for (int i = 0; i < 4; i++)
        fprintf(stream, " %10s %10s ", "predicted", "measured");
    fprintf(stream, " error of end\n");
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const RankTimes predicted = timeline_rank(schedule, &comparison->predicted, r);
        const RankTimes measured = timeline_rank(schedule, &comparison->measured, r);
        char name[16];
        snprintf(name, sizeof name, "r%u", r);
        print_row(name, predicted, measured, makespan, stream);
        all[0].busy += predicted.busy / schedule->ranks;
        all[1].busy += measured.busy / schedule->ranks;
    }
    print_row("all", all[0], all[1], makespan, stream);
    fprintf(stream, "\nmakespan: predicted %.3f ms, measured %.3f ms (%+.2f %% of the predicted)\n", makespan,
            comparison->measured.makespan, percent(comparison->measured.makespan - makespan, makespan));
}

/* What a makespan consists of: the passes on the critical path, and the waits between them. */
typedef struct Spent {
    /* passes: time of the passes on the path; messages: time of the waits between passes of two ranks; own: time of
       the waits between passes of the same rank */
    double passes, messages, own;
} Spent;

static Spent spent_in(const Comparison *comparison, const Timeline *times, Arena *arena)
{
    CriticalPass *path;
    const uint32_t count = critical_path(comparison->schedule, comparison->table, times, arena, &path);
    Spent spent = {0, 0, 0};
    double until = 0;
    for (uint32_t i = 0; i < count; i++) {
        const double start = times->start[path[i].rank][path[i].position],
                     end = times->end[path[i].rank][path[i].position];
        *(i > 0 && path[i - 1].rank != path[i].rank ? &spent.messages : &spent.own) += start - until;
        spent.passes += end - start;
        until = end;
    }
    return spent;
}

static void print_spent(const char *name, double predicted, double measured, const char *meaning, FILE *stream)
{
    fprintf(stream, "%-9s %10.3f %10.3f %+10.3f  %s\n", name, rounded(predicted), rounded(measured),
            rounded(measured - predicted), meaning);
}

static void print_makespan(const Comparison *comparison, Arena *arena, FILE *stream)
{
    const Trace *trace = comparison->trace;
    const Spent predicted = spent_in(comparison, &comparison->predicted, arena);
    const Spent measured = spent_in(comparison, &comparison->measured, arena);
    fprintf(stream, "\nThe time of the critical path, on which each pass waited for the one before it\n");
    fprintf(stream, "%-9s %10s %10s %10s\n", "", "predicted", "measured", "more");
    print_spent("passes", predicted.passes, measured.passes, "time of the passes on it", stream);
    print_spent("messages", predicted.messages, measured.messages,
                "waits from a pass to the one on another rank that needs it", stream);
    print_spent("own rank", predicted.own, measured.own,
                "waits from a pass to the next of its rank, whose inputs have arrived", stream);
    if (trace_is_crowded(trace))
        fprintf(stream,
                "\n%u ranks shared %s: a rank whose inputs had arrived still waited for a processor, whatever the "
                "schedule.\nThe prediction has a processor for each rank: run at most %s here, or use a machine "
                "with %u processors.\n",
                trace_all_ranks(trace), counted(trace->processors, "processor").text,
                counted(trace->processors, "rank").text, trace_all_ranks(trace));
}

/* How a measured pass or F&B differs from its prediction, in ms. longer: how much longer it took. later: how much
   longer it waited between the moment at which it could begin and its start. */
typedef struct Deviation {
    uint32_t rank, position;
    double longer, later;
} Deviation;

/* The earliest time at which the pass or F&B at `position` could begin: its rank is free (`free_at`), and the passes
   that compute its inputs have ended. */
static double ready_time(const Comparison *comparison, const Timeline *times, uint32_t rank, uint32_t position,
                         double free_at)
{
    const Action *pass = &comparison->schedule->orders[rank].actions[position];
    for (int half = 0; half <= pass->overlap; half++) {
        Dependence needed;
        if (timeline_arrival(comparison->schedule, comparison->table, times, rank, pass + half, &needed) >= 0)
            free_at = fmax(free_at, times->end[needed.rank][needed.position]);
    }
    return free_at;
}

static int by_size(const void *left, const void *right)
{
    const Deviation *a = left, *b = right;
    const double x = fabs(a->longer) + fabs(a->later), y = fabs(b->longer) + fabs(b->later);
    if (x != y)
        return x < y ? 1 : -1;
    return a->rank != b->rank ? (a->rank > b->rank) - (a->rank < b->rank)
                              : (a->position > b->position) - (a->position < b->position);
}

static size_t deviations_of(const Comparison *comparison, uint32_t rank, Deviation *deviations)
{
    const Timeline *const times[] = {&comparison->predicted, &comparison->measured};
    const Order *order = &comparison->schedule->orders[rank];
    double free_at[2] = {0, 0};
    size_t count = 0;
    for (uint32_t i = 0; i < order->count; i++) {
        if (order->actions[i].kind > ACTION_U)
            continue;
        double late[2], length[2];
        for (int side = 0; side < 2; side++) {
            const double start = times[side]->start[rank][i], end = times[side]->end[rank][i];
            late[side] = start - ready_time(comparison, times[side], rank, i, free_at[side]);
            length[side] = end - start;
            free_at[side] = end;
        }
        deviations[count++] = (Deviation){rank, i, length[1] - length[0], late[1] - late[0]};
        i += order->actions[i].overlap;
    }
    return count;
}

/* Prints the measured time of each half of an F&B, if the trace has it. A prediction from costs divides the F&B's
   time in the ratio of the times that the two passes take alone. A prediction from a trace has no times of halves. */
static void print_halves(const Comparison *comparison, const Deviation *deviation, const TraceEvent *forward,
                         FILE *stream)
{
    const Timeline *predicted = &comparison->predicted;
    const uint32_t r = deviation->rank, p = deviation->position;
    const Action *pass = &comparison->schedule->orders[r].actions[p];
    double alone[2];
    for (int half = 0; half < 2; half++)
        alone[half] = costs_pass(predicted->costs, pass[half].stage, (StageCost)action_cost(&pass[half]));
    const double share = (predicted->end[r][p] - predicted->start[r][p]) / (alone[0] + alone[1]);
    for (int half = 0; half < 2 && forward->half > 0; half++) {
        const double measured = forward[half].half, part = share * alone[half];
        char name[50] = "  ";
        action_text(comparison->schedule, &pass[half], name + 2, sizeof name - 2);
        fprintf(stream, "%-14s %-6s %-28s ", name, "", "");
        if (comparison->unit > 0 && isfinite(part))
            fprintf(stream, "%10.3f %10.3f %+10.3f\n", part, measured, measured - part);
        else
            fprintf(stream, "%10s %10.3f %10s\n", "-", measured, "-");
    }
}

static void print_worst(const Comparison *comparison, Arena *arena, FILE *stream)
{
    const Schedule *schedule = comparison->schedule;
    const TraceIndex index = trace_index(comparison->trace, comparison->step, arena);
    size_t passes = 0, count = 0;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        passes += schedule->orders[r].count;
    Deviation *deviations = arena_array(arena, passes, sizeof *deviations);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        count += deviations_of(comparison, r, &deviations[count]);
    qsort(deviations, count, sizeof *deviations, by_size);
    if (!count || (deviations[0].longer == 0 && deviations[0].later == 0))
        return;
    fprintf(stream, "\nThe passes with the largest errors; later: how much longer than predicted the pass waited after "
                    "its inputs and its rank were ready\n");
    fprintf(stream, "%-14s %-6s %-28s %10s %10s %10s %10s\n", "pass", "rank", "line", "predicted", "measured", "longer",
            "later");
    for (size_t i = 0; i < count && i < WORST && fabs(deviations[i].longer) + fabs(deviations[i].later) > 0; i++) {
        const Deviation *deviation = &deviations[i];
        const uint32_t r = deviation->rank, p = deviation->position;
        const Action *pass = &schedule->orders[r].actions[p];
        const TraceEvent *event = find(&index, r, pass);
        char name[100], rank[16], line[200];
        const int length = action_text(schedule, pass, name, 48);
        if (pass->overlap) {
            name[length] = '&';
            action_text(schedule, pass + 1, name + length + 1, 48);
        }
        snprintf(rank, sizeof rank, "r%u", r);
        snprintf(line, sizeof line, event->line ? "%s:%u" : "-", comparison->trace->source, event->line);
        fprintf(stream, "%-14s %-6s %-28s %10.3f %10.3f %+10.3f %+10.3f\n", name, rank, line,
                comparison->predicted.end[r][p] - comparison->predicted.start[r][p],
                comparison->measured.end[r][p] - comparison->measured.start[r][p], deviation->longer, deviation->later);
        if (pass->overlap)
            print_halves(comparison, deviation, event, stream);
    }
}

static void print_derived(const Comparison *comparison, FILE *stream)
{
    const Costs *costs = comparison->predicted.costs;
    const uint32_t used = schedule_costs_used(comparison->schedule);
    if (costs_has_derived(costs, used))
        fprintf(stream, "\nCosts of the prediction that were not given, and from what they are derived\n");
    costs_put_derived(costs, used, "", stream);
}

void diff_print(const Comparison *comparison, Arena *arena, FILE *stream)
{
    const Schedule *schedule = comparison->schedule;
    const Trace *trace = comparison->trace;
    fprintf(stream, "%s: %s; measured: step %u of %s", schedule->name, schedule_sizes(schedule).text, comparison->step,
            trace->path);
    if (trace->step_count > 1)
        fprintf(stream, ", which has %u to %u", trace->steps[0], trace->steps[trace->step_count - 1]);
    if (trace->replicas > 1)
        fprintf(stream, "; replica 0 of %u", trace->replicas);
    fprintf(stream, "\ntimes in ms");
    if (comparison->scaled)
        fprintf(stream,
                "; the costs have no unit: 1 is %.4g ms here, so that prediction and measurement are busy for the same "
                "time (dpc "
                "calibrate writes costs with a unit)",
                comparison->unit);
    fprintf(stream, "\n\n");
    print_ranks(comparison, stream);
    print_makespan(comparison, arena, stream);
    print_worst(comparison, arena, stream);
    diff_print_components(comparison, arena, stream);
    print_derived(comparison, stream);
}

/* --- an order from a trace --- */

static void put_cell(const Trace *trace, const TraceEvent *event, FILE *stream)
{
    if (trace->pipe_count > 1)
        fprintf(stream, "p%u:", event->pipe);
    fprintf(stream, "%u%s%u", event->stage, action_names[event->kind], event->microbatch);
}

Source diff_order(const Trace *trace, uint32_t step, Arena *arena)
{
    TextStream text;
    Source source = {.path = arena_format(arena, "%s.csv", trace->path)};
    FILE *const stream = text_stream_open(&text, arena);
    const TraceStep of = trace_step_events(trace, step);
    for (uint32_t r = 0; r < trace->ranks; r++) {
        const char *separator = "";
        for (const TraceEvent *event = of.first; event < of.end; event++) {
            if (event->rank != r || event->kind > ACTION_U)
                continue;
            fprintf(stream, "%s%s", separator, event->overlap ? "(" : "");
            put_cell(trace, event, stream);
            if (event->overlap) {
                putc(';', stream);
                put_cell(trace, ++event, stream);
                fputs(event->kind == ACTION_F ? ")OVERLAP_F_F" : ")OVERLAP_F_B", stream);
            }
            separator = ",";
        }
        putc('\n', stream);
    }
    source.text = text_stream_close(&text);
    source.size = text.length;
    source_lines(&source, arena);
    return source;
}
