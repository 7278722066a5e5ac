#include "compiler/prove/prove.h"

#include "program/program.h"

#include <stdio.h>
#include <string.h>

typedef struct Check {
    const Schedule *schedule;
    Diagnostics *diagnostics;
    PassTable *table;
    uint32_t rank;
    const Order *order;
    bool early; /* on this rank, some pass comes before a pass that it needs, or that pass is missing */
    bool good;
} Check;

enum { TEXT = 48, WRITTEN = 200 };

static const char *text(const Check *check, const Action *action, char *buffer)
{
    action_text(check->schedule, action, buffer, TEXT);
    return buffer;
}

static void help_needs(const Check *check)
{
    diag_help(check->diagnostics, "every microbatch needs one F on each stage%s",
              check->schedule->forward_only ? "" : ", and either one B or one I and one W");
}

/* Reports a pass whose work is done by an earlier action of the rank, which is at position `before`: the same pass, or
   a B if `pass` is an I or W, or an I or W if `pass` is a B. */
static void report_double(Check *check, const Action *pass, uint32_t before)
{
    char here[TEXT], there[TEXT];
    const Action *first = &check->order->actions[before];
    check->good = false;
    text(check, pass, here);
    text(check, first, there);
    if (first->kind == pass->kind)
        diag_pass_error(check->diagnostics, pass->span, "rank %u runs %s twice", check->rank, here);
    else
        diag_pass_error(check->diagnostics, pass->span, "rank %u runs %s, but %s has done %sthat work already",
                        check->rank, here, there, pass->kind == ACTION_B ? "part of " : "");
    diag_note(check->diagnostics, first->span, "%s is here", there);
    help_needs(check);
}

static bool in_place(Check *check, const Action *pass)
{
    const Schedule *schedule = check->schedule;
    char here[TEXT];
    if (pass->pipe >= schedule->pipe_count || pass->stage >= schedule->pipes[pass->pipe].stages) {
        diag_pass_error(check->diagnostics, pass->span, "rank %u runs %s, but there is no such stage", check->rank,
                        text(check, pass, here));
        return check->good = false;
    }
    const PlacedPipe *pipe = &schedule->pipes[pass->pipe];
    const bool is_update = pass->kind == ACTION_U;
    if (!is_update && pass->microbatch >= pipe->microbatches) {
        diag_pass_error(check->diagnostics, pass->span,
                        "rank %u runs %s, but there is no microbatch %u: the pipe has %u", check->rank,
                        text(check, pass, here), pass->microbatch, pipe->microbatches);
        diag_help(check->diagnostics, "microbatches are numbered 0..%u here", pipe->microbatches - 1);
        return check->good = false;
    }
    if (is_update && pipe->replicated) {
        for (uint32_t c = 0; c < schedule->chunk_counts[check->rank]; c++)
            if (schedule->chunks[check->rank][c].pipe == pass->pipe &&
                schedule->chunks[check->rank][c].stage == pass->stage)
                return true;
        diag_pass_error(check->diagnostics, pass->span, "rank %u runs %s, but no copy of stage %u is on this rank",
                        check->rank, text(check, pass, here), pass->stage);
        return check->good = false;
    }
    const uint32_t home = stage_home(pipe, pass->stage, is_update ? 0 : pass->microbatch).rank;
    if (home != check->rank) {
        diag_pass_error(check->diagnostics, pass->span, "rank %u runs %s, but stage %u%s is on rank %u", check->rank,
                        text(check, pass, here), pass->stage, pipe->replicated ? " for this microbatch" : "", home);
        return check->good = false;
    }
    return true;
}

/* The pass as text, in the notation of its source: if the steps of a schedule file made it, "F[3]" or "F1[3]", followed
   by its stage and pipe if the rank holds several chunks or there are several pipes; otherwise (.csv, `order auto`) its
   cell in a .csv. */
static const char *written(const Check *check, const Action *pass, char *buffer)
{
    const Schedule *schedule = check->schedule;
    if (!schedule->origin)
        return text(check, pass, buffer);
    const int length = pass_text(schedule, check->rank, pass, buffer, WRITTEN);
    if (schedule->pipe_count > 1)
        snprintf(buffer + length, (size_t)(WRITTEN - length), " (stage %u of pipe %s)", pass->stage,
                 schedule->pipes[pass->pipe].name);
    else if (schedule->chunk_counts[check->rank] > 1)
        snprintf(buffer + length, (size_t)(WRITTEN - length), " (stage %u)", pass->stage);
    return buffer;
}

/* Where the action comes from, as text: the values of the loop variables ("here m = 3"), the repetition of the step, or
   the time slot; "" if the source has none of these. */
static const char *place(const Check *check, const Action *action)
{
    const Origin *origin = check->schedule->origin;
    const char *here = origin ? origin->place(origin, check->rank, (uint32_t)(action - check->order->actions)) : NULL;
    return here ? here : "";
}

/* Reports `pass` if it comes before the pass at position `needed` of its rank, from which it needs the result.
   POSITION_NONE: the needed pass does not exist, which report_missing reports. */
static void check_before(Check *check, const Action *pass, uint32_t needed)
{
    char here[WRITTEN], there[WRITTEN];
    if (needed == POSITION_NONE || needed < (uint32_t)(pass - check->order->actions))
        return;
    const Action *late = &check->order->actions[needed];
    diag_pass_error(check->diagnostics, pass->span, "rank %u runs %s before its %s", check->rank,
                    written(check, pass, here), action_names[late->kind]);
    if (!diag_taken(check->diagnostics))
        return;
    const char *now = place(check, pass), *then = place(check, late);
    const bool same = strcmp(now, then) == 0;
    diag_note(check->diagnostics, late->span, "%s comes later%s%s", written(check, late, there), same ? "" : ": ",
              same ? "" : then);
    diag_help(check->diagnostics, "%s%sF comes first, then B, or I and later W", now, *now ? "; " : "");
}

static void check_all_before(Check *check)
{
    const Schedule *schedule = check->schedule;
    for (uint32_t i = 0; i < check->order->count; i++) {
        const Action *pass = &check->order->actions[i];
        if (pass->kind == ACTION_F || pass->kind > ACTION_W || pass->pipe >= schedule->pipe_count)
            continue;
        const PlacedPipe *pipe = &schedule->pipes[pass->pipe];
        if (pass->stage >= pipe->stages || pass->microbatch >= pipe->microbatches ||
            stage_home(pipe, pass->stage, pass->microbatch).rank != check->rank)
            continue;
        const size_t index = pass_index(pipe, pass->stage, pass->microbatch);
        const PassTable *table = check->table;
        const bool is_weight = pass->kind == ACTION_W;
        if ((is_weight ? table->weight : table->backward)[pass->pipe][index] == i)
            check_before(check, pass, (is_weight ? table->backward : table->forward)[pass->pipe][index]);
    }
}

static void take_pass(Check *check, uint32_t position)
{
    const Action *pass = &check->order->actions[position];
    if (!in_place(check, pass) || pass->kind == ACTION_U) /* prove_versions checks U */
        return;
    const PlacedPipe *pipe = &check->schedule->pipes[pass->pipe];
    const size_t index = pass_index(pipe, pass->stage, pass->microbatch);
    uint32_t *forward = &check->table->forward[pass->pipe][index];
    uint32_t *backward = &check->table->backward[pass->pipe][index];
    uint32_t *weight = &check->table->weight[pass->pipe][index];
    uint32_t before = POSITION_NONE;
    if (pass->kind == ACTION_F)
        before = *forward;
    if (pass->kind == ACTION_B || pass->kind == ACTION_I)
        before = *backward;
    if (before == POSITION_NONE && (pass->kind == ACTION_B || pass->kind == ACTION_W))
        before = *weight;
    if (before != POSITION_NONE) {
        report_double(check, pass, before);
        if (pass->kind == ACTION_B && *backward == POSITION_NONE) /* only its W has been done: it is not missing */
            *backward = *weight = position;
        return;
    }
    switch (pass->kind) {
    case ACTION_F: *forward = position; break;
    case ACTION_W:
        check->early |= *backward == POSITION_NONE;
        *weight = position;
        break;
    default:
        check->early |= *forward == POSITION_NONE;
        *backward = position;
        if (pass->kind == ACTION_B)
            *weight = position;
        break;
    }
}

/* The next pass or U after a position; messages are skipped. NULL: there is none. */
static const Action *next_pass(const Order *order, uint32_t position)
{
    for (uint32_t i = position + 1; i < order->count; i++)
        if (!action_is_message(&order->actions[i]))
            return &order->actions[i];
    return NULL;
}

static void take_overlap(Check *check, uint32_t position)
{
    const Action *forward = &check->order->actions[position];
    const Action *backward = next_pass(check->order, position);
    char here[TEXT];
    if (forward->kind == ACTION_F && backward && backward->kind == ACTION_F && !check->schedule->forward_only) {
        check->good = false;
        diag_pass_error(check->diagnostics, forward->span,
                        "rank %u: %s is half of an F&F, but this schedule has backward passes", check->rank,
                        text(check, forward, here));
        diag_help(check->diagnostics, "two F can overlap only in a schedule without any B, I and W; a schedule that "
                                      "trains overlaps an F and a B: F&B");
        return;
    }
    if (forward->kind != ACTION_F || !backward ||
        (backward->kind != ACTION_B && backward->kind != ACTION_I && !check->schedule->forward_only)) {
        check->good = false;
        diag_pass_error(check->diagnostics, forward->span,
                        "rank %u: %s begins an F&B, which must be an F followed by a B or I", check->rank,
                        text(check, forward, here));
        return;
    }
    /* Passes of one microbatch of a pipe depend on each other, directly or through other stages: an F on the F of every
       earlier stage, a backward on every F. So they cannot overlap. */
    if (forward->pipe == backward->pipe && forward->microbatch == backward->microbatch) {
        char there[TEXT];
        check->good = false;
        diag_pass_error(
            check->diagnostics, forward->span,
            "rank %u: the halves %s and %s of an F&%s are of the same microbatch, so one depends on the other",
            check->rank, text(check, forward, here), text(check, backward, there),
            check->schedule->forward_only ? "F" : "B");
        diag_help(check->diagnostics, "overlap passes of different microbatches");
    }
}

/* Reports passes that this rank's chunk should run but does not. One diagnostic per stage and kind: it names the first
   missing pass, and how many more are missing. */
static void report_missing(Check *check, uint32_t number, uint8_t kind, const uint32_t *positions, Span span)
{
    const PlacedChunk *chunk = &check->schedule->chunks[check->rank][number];
    const PlacedPipe *pipe = &check->schedule->pipes[chunk->pipe];
    uint32_t missing = 0, first = 0;
    for (uint32_t m = 0;
         (m = chunk_microbatch(check->schedule, check->rank, number, m, pipe->microbatches)) < pipe->microbatches; m++)
        if (positions[pass_index(pipe, chunk->stage, m)] == POSITION_NONE && missing++ == 0)
            first = m;
    if (!missing)
        return;
    char name[TEXT];
    const Action pass = {.kind = kind, .pipe = chunk->pipe, .stage = chunk->stage, .microbatch = first};
    text(check, &pass, name);
    check->good = false;
    char more[TEXT] = "";
    if (missing > 1)
        snprintf(more, sizeof more, ", and %u more %s of stage %u", missing - 1, action_names[kind], chunk->stage);
    diag_pass_error(check->diagnostics, span, "rank %u never runs %s%s", check->rank, name, more);
    help_needs(check);
}

/* Reports two copies of a stage, of different pipes, on the same rank: gradients are summed only between copies on
   different ranks. One diagnostic per pair of pipes. */
static void check_copies(Check *check)
{
    const Schedule *schedule = check->schedule;
    bool reported[PROGRAM_PIPES_MAX][PROGRAM_PIPES_MAX] = {{false}};
    for (uint32_t r = 0; schedule->pipe_count > 1 && r < schedule->ranks; r++)
        for (uint32_t i = 1; i < schedule->chunk_counts[r]; i++)
            for (uint32_t k = 0; k < i; k++) {
                const PlacedChunk *one = &schedule->chunks[r][i], *other = &schedule->chunks[r][k];
                const uint16_t p = one->pipe > other->pipe ? one->pipe : other->pipe,
                               q = (uint16_t)(one->pipe + other->pipe - p);
                if (one->stage != other->stage || reported[p][q])
                    continue;
                reported[p][q] = true;
                check->good = false;
                diag_error(check->diagnostics, schedule->pipes[p].span,
                           "rank %u holds stage %u of both pipe %s and pipe %s", r, one->stage, schedule->pipes[q].name,
                           schedule->pipes[p].name);
                diag_help(check->diagnostics, "give the copies of a stage different ranks");
            }
}

bool prove_passes(const Schedule *schedule, Arena *arena, Diagnostics *diagnostics, PassTable *table)
{
    *table = pass_table_new(schedule, arena);
    Check check = {.schedule = schedule, .diagnostics = diagnostics, .table = table, .good = true};
    check_copies(&check);
    for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
        check.rank = rank;
        check.order = &schedule->orders[rank];
        check.early = false;
        for (uint32_t i = 0; i < check.order->count; i++) {
            if (action_is_message(&check.order->actions[i]))
                continue;
            take_pass(&check, i);
            if (check.order->actions[i].overlap)
                take_overlap(&check, i);
        }
        if (check.early) {
            check.good = false;
            check_all_before(&check);
        }
        const Span end = check.order->count ? check.order->actions[check.order->count - 1].span : (Span){0, 0};
        for (uint32_t c = 0; c < schedule->chunk_counts[rank]; c++) {
            const PlacedChunk *chunk = &schedule->chunks[rank][c];
            report_missing(&check, c, ACTION_F, table->forward[chunk->pipe], end);
            if (schedule->forward_only)
                continue;
            report_missing(&check, c, ACTION_B, table->backward[chunk->pipe], end);
            const PlacedPipe *pipe = &schedule->pipes[chunk->pipe];
            for (uint32_t m = 0; (m = chunk_microbatch(schedule, rank, c, m, pipe->microbatches)) < pipe->microbatches;
                 m++) {
                /* report the I with the lowest microbatch whose W is missing; one report for each chunk is enough */
                const size_t index = pass_index(pipe, chunk->stage, m);
                if (table->backward[chunk->pipe][index] != POSITION_NONE &&
                    table->weight[chunk->pipe][index] == POSITION_NONE) {
                    const Action *input = &check.order->actions[table->backward[chunk->pipe][index]];
                    char name[TEXT];
                    check.good = false;
                    diag_pass_error(diagnostics, input->span, "rank %u runs %s, but never the W that completes it",
                                    rank, text(&check, input, name));
                    break;
                }
            }
        }
    }
    return check.good;
}
