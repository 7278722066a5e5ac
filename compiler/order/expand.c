#include "compiler/order/expand.h"

#include "compiler/order/expander.h"
#include "compiler/order/slots.h"

#include "base/counted.h"

#include <string.h>

static bool value_of(Expander *x, const Expression *expression, int64_t *value)
{
    Fault fault;
    x->work += expression->size;
    if (evaluate(expression, x->values, value, &fault))
        return true;
    FAIL(x, fault.expression->span, fault.expression, "%s", fault_text(&fault, x->arena));
}

/* Evaluates the count of a step or loop, or the number after `from`. False: it has no value or is negative, which is an
   error; `what` names the number in the message. */
static bool count_of(Expander *x, const Expression *expression, const char *what, int64_t *count)
{
    if (!value_of(x, expression, count))
        return false;
    if (*count >= 0)
        return true;
    RankError *error =
        rank_error(&x->errors, x->rank, expression->span, "%s is negative: %lld", what, (long long)*count);
    const char *here = expand_circumstances(x, expression);
    if (error)
        error->help =
            arena_format(x->arena, "%s%smax(0, ...) keeps it from going below 0", here ? here : "", here ? "; " : "");
    return false;
}

/* --- passes --- */

static bool no_chunk(Expander *x, const Pass *pass, int64_t number, uint32_t count)
{
    const char letter = action_letter((uint8_t)pass->kind);
    if (pass->computed_chunk)
        FAIL(x, pass->span, pass->computed_chunk, "there is no chunk %lld: this rank holds %s, numbered from 0",
             (long long)number, counted(count, "chunk").text);
    RankError *error =
        rank_error(&x->errors, x->rank, pass->span, "%c%d is of chunk %d, but this rank holds %s", letter, pass->chunk,
                   pass->chunk, count == 1 ? "only chunk 0" : counted(count, "chunk").text);
    if (error)
        error->help =
            arena_format(x->arena, "the digit is the chunk: microbatch %d is %c[%d], and n%c : %d; repeats it",
                         pass->chunk, letter, pass->chunk, letter, pass->chunk);
    return false;
}

static bool chunk_of(Expander *x, const Pass *pass, uint8_t *chunk)
{
    const uint32_t count = x->schedule->chunk_counts[x->rank];
    int64_t number = pass->chunk;
    if (pass->computed_chunk && !value_of(x, pass->computed_chunk, &number))
        return false;
    if (!pass->computed_chunk && pass->chunk == NO_CHUNK) {
        const char letter = action_letter((uint8_t)pass->kind);
        if (count > 1)
            FAIL(x, pass->span, NULL, "%c does not say which of the %u chunks: write %c0 %s %c%u", letter, count,
                 letter, count == 2 ? "or" : "to", letter, count - 1);
        number = 0;
    }
    if (number < 0 || number >= count)
        return no_chunk(x, pass, number, count);
    *chunk = (uint8_t)number;
    return true;
}

const char *expand_pipe_name(const Expander *x, int chunk)
{
    return x->schedule->pipes[x->schedule->chunks[x->rank][chunk].pipe].name;
}

/* Reports that the microbatch of a pass belongs to another rank's copy of the stage. */
static bool elsewhere(Expander *x, const Pass *pass, uint8_t chunk, uint32_t microbatch)
{
    const PlacedChunk *placed = &x->schedule->chunks[x->rank][chunk];
    const uint32_t rank = stage_home(&x->schedule->pipes[placed->pipe], placed->stage, microbatch).rank;
    RankError *error = rank_error(&x->errors, x->rank, pass->span,
                                  "microbatch %u of pipe %s goes through stage %u on rank %u, not here", microbatch,
                                  expand_pipe_name(x, chunk), placed->stage, rank);
    const char *here = expand_circumstances(x, pass->microbatch);
    char own[80];
    chunk_microbatches_text(x->schedule, x->rank, chunk, own, sizeof own);
    if (error)
        error->help =
            arena_format(x->arena, "%s%sstage %u has %s here", here ? here : "", here ? "; " : "", placed->stage, own);
    return false;
}

/* Makes a request of a written pass: evaluates its chunk and its microbatch. */
static bool request_pass(Expander *x, const Pass *pass, ActionKind kind, Request *request)
{
    uint8_t chunk;
    *request = (Request){.pass = pass, .kind = kind, .chunk = NO_CHUNK, .microbatch = -1};
    if (pass->microbatch) {
        if (!value_of(x, pass->microbatch, &request->microbatch))
            return false;
        if (request->microbatch < 0 || request->microbatch >= PROGRAM_MICROBATCHES_MAX)
            FAIL(x, pass->span, pass->microbatch, "there is no microbatch %lld", (long long)request->microbatch);
    }
    if (kind == ACTION_W && pass->chunk == NO_CHUNK && !pass->computed_chunk && !pass->microbatch)
        return true;
    if (!chunk_of(x, pass, &chunk))
        return false;
    request->chunk = chunk;
    const uint32_t written = x->chunks[chunk].written;
    if (request->microbatch >= written)
        FAIL(x, pass->span, pass->microbatch, "there is no microbatch %lld: pipe %s has %u",
             (long long)request->microbatch, expand_pipe_name(x, chunk), written);
    if (request->microbatch >= 0 &&
        chunk_microbatch(x->schedule, x->rank, chunk, (uint32_t)request->microbatch, written) != request->microbatch)
        return elsewhere(x, pass, chunk, (uint32_t)request->microbatch);
    return true;
}

/* Takes a W from the queue of those whose I has run: the oldest of the rank, the oldest of the requested chunk, or
   that of the requested microbatch. False: there is none. */
static bool take_weight(Expander *x, const Request *request, uint8_t *chunk, uint32_t *microbatch)
{
    if (request->chunk == NO_CHUNK)
        return weight_queue_take(&x->weights, chunk, microbatch);
    *chunk = (uint8_t)request->chunk;
    if (request->microbatch < 0)
        return weight_queue_take_of(&x->weights, *chunk, microbatch);
    *microbatch = (uint32_t)request->microbatch;
    return weight_queue_take_this(&x->weights, *chunk, *microbatch);
}

static bool no_weight(Expander *x, const Request *request)
{
    const Pass *pass = request->pass;
    if (request->chunk == NO_CHUNK)
        FAIL(x, pass->span, NULL,
             "no I is left for this W to complete: every W needs an I, or a B in a step with a W, before it");
    if (request->microbatch < 0)
        FAIL(x, pass->span, pass->computed_chunk, "no I of chunk %d is left for this W to complete", request->chunk);
    FAIL(x, pass->span, pass->microbatch, "no I of chunk %d, microbatch %lld is left for this W to complete",
         request->chunk, (long long)request->microbatch);
}

/* Appends the pass to the order, or leaves it out if its microbatch does not exist (M of N microbatches). */
static void append(Expander *x, const Request *request, uint8_t chunk, uint32_t microbatch)
{
    Action *forward = x->forward;
    x->forward = NULL;
    if (request->kind == ACTION_I)
        weight_queue_put(&x->weights, chunk, microbatch);
    if (request->kind == ACTION_B || request->kind == ACTION_W) {
        if (microbatch < x->chunks[chunk].microbatches)
            x->chunks[chunk].gathered++;
        else
            x->chunks[chunk].left_out++;
    }
    if (request->kind != ACTION_U && microbatch >= x->chunks[chunk].microbatches)
        return;
    const PlacedChunk *placed = &x->schedule->chunks[x->rank][chunk];
    if (x->count == x->sought)
        x->found = expand_circumstances(x, NULL);
    Action *action = &x->actions[x->count++];
    *action = (Action){.kind = (uint8_t)request->kind,
                       .chunk = chunk,
                       .pipe = placed->pipe,
                       .stage = placed->stage,
                       .microbatch = microbatch,
                       .span = request->pass->span};
    if (forward)
        forward->overlap = true;
    if (request->joined)
        x->forward = action;
}

/* Appends the U that makes the next version of the chunk's weights. Leaves the U out if three things hold: gradients
   since the last U were left out, because their microbatches do not exist; no gradient was computed since the last U;
   and the stage cannot have other copies, which may have gradients. */
static void serve_update(Expander *x, const Request *request)
{
    ChunkState *state = &x->chunks[request->chunk];
    if (state->gathered || !state->left_out || state->shared)
        append(x, request, (uint8_t)request->chunk, ++state->updates);
    state->gathered = state->left_out = 0;
}

/* Appends the requested pass. If the request names no microbatch, an F, B or I takes the next one of its chunk, and a
   W the one whose I ran first. */
static bool serve(Expander *x, const Request *request)
{
    uint8_t chunk = (uint8_t)request->chunk;
    uint32_t microbatch = (uint32_t)request->microbatch;
    if (request->kind == ACTION_U) {
        serve_update(x, request);
        return true;
    }
    if (request->kind == ACTION_W) {
        if (!take_weight(x, request, &chunk, &microbatch))
            return no_weight(x, request);
    } else if (request->microbatch < 0) {
        ChunkState *state = &x->chunks[chunk];
        uint32_t *next = request->kind == ACTION_F ? &state->next_forward : &state->next_backward;
        microbatch = chunk_microbatch(x->schedule, x->rank, chunk, *next, state->written);
        if (microbatch == state->written)
            return expand_too_many(x, request);
        *next = microbatch + 1;
    }
    append(x, request, chunk, microbatch);
    return true;
}

/* The values of a step, which are evaluated once. count: number of repetitions; slot: its time slot; overlap_from:
   index of the first F and B (or pair of F) that `overlap` makes an F&B (or F&F); split_from: index of the first
   backward that `split` makes an I. INT64_MAX: it makes none. */
typedef struct StepValues {
    int64_t count, slot, overlap_from, split_from;
} StepValues;

static bool step_values(Expander *x, const Item *item, StepValues *values)
{
    *values = (StepValues){.count = 1, .overlap_from = item->step.overlap ? 0 : INT64_MAX, .split_from = INT64_MAX};
    return (!item->step.slot || value_of(x, item->step.slot, &values->slot)) &&
           (!item->value || count_of(x, item->value, "the number of repetitions", &values->count)) &&
           (!item->step.overlap_from ||
            count_of(x, item->step.overlap_from, "the number after `from`", &values->overlap_from)) &&
           (!item->step.split_from ||
            count_of(x, item->step.split_from, "the number after `from`", &values->split_from));
}

static bool expand_step(Expander *x, const Item *item)
{
    StepValues values;
    if (!step_values(x, item, &values))
        return false;
    int64_t pairs = 0, backwards = 0;
    /* done: passes of this step that are written so far; all: passes that all repetitions of the step have together */
    uint64_t done = 0, all = 0;
    for (const Pass *pass = item->step.passes; pass; pass = pass->next)
        all += (uint64_t)values.count;
    x->step = item;
    x->repetitions = values.count;
    for (x->repetition = 0; x->repetition < values.count; x->repetition++)
        for (const Pass *pass = item->step.passes; pass; pass = pass->next) {
            ActionKind kind = pass->kind;
            Request request;
            if (kind == ACTION_B && (item->step.spells_weight || backwards >= values.split_from))
                kind = ACTION_I;
            backwards += is_backward(kind);
            if (!request_pass(x, pass, kind, &request))
                return false;
            request.joined = pass->joined || (kind == ACTION_F && pass->next && is_backward(pass->next->kind) &&
                                              pairs++ >= values.overlap_from);
            /* pairs of F: `joined` is set on the first F of a pair; of an odd number of F the last one runs alone */
            if (item->step.forward_pairs)
                request.joined = done % 2 == 0 && done + 1 < all && (int64_t)(done / 2) >= values.overlap_from;
            done++;
            request.has_slot = item->step.slot;
            request.slot = values.slot;
            if (x->requests)
                x->requests[x->request_count++] = request;
            else if (!serve(x, &request))
                return false;
            if (kind == ACTION_U && ++x->updates > x->updates_max) {
                x->ran_away = true;
                FAIL(x, pass->span, NULL, "too many U: a rank can have at most %llu, one for every microbatch",
                     (unsigned long long)x->updates_max);
            }
            if (kind != ACTION_U && ++x->passes > x->passes_max) {
                x->ran_away = true;
                FAIL(x, pass->span, NULL, "too many passes: the microbatches of this rank have at most %llu",
                     (unsigned long long)x->passes_max);
            }
        }
    x->step = NULL;
    return true;
}

/* --- slots --- */

/* Appends Ws without a slot (the keys next..last-1), one in each free slot slot..end-1, as long as there is a W whose
   I has run. Returns the first key that is not appended. */
static const SlotKey *fill_slots(Expander *x, int64_t slot, int64_t end, const SlotKey *next, const SlotKey *last)
{
    uint8_t chunk;
    uint32_t microbatch;
    for (; slot < end && next < last && take_weight(x, &x->requests[next->index], &chunk, &microbatch); slot++)
        append(x, &x->requests[next++->index], chunk, microbatch);
    return next;
}

/* If several passes share the slot, counts it in schedule->shared_slots and, while there is room, notes its passes
   there. The passes are at the positions from `from` on; an F&B or F&F counts as one. */
static void note_slot(Expander *x, int64_t slot, uint32_t from)
{
    SharedSlots *shared = &x->schedule->shared_slots[x->rank];
    uint32_t count = 0;
    for (uint32_t i = from; i < x->count; i++)
        count += !x->actions[i].overlap;
    if (count < 2 || x->sought != POSITION_NONE || shared->count++ >= SHARED_SLOTS_KEPT)
        return;
    const char *passes = "";
    uint32_t written = 0;
    for (uint32_t i = from; written < count && written < SHARED_PASSES_KEPT; i++) {
        char pass[48];
        const bool joined = i > from && x->actions[i - 1].overlap;
        pass_text(x->schedule, x->rank, &x->actions[i], pass, sizeof pass);
        passes = arena_format(x->arena, "%s%s%s", passes, i == from ? "" : joined ? "&" : ", ", pass);
        written += !x->actions[i].overlap;
    }
    if (written < count)
        passes = arena_format(x->arena, "%s and %u more", passes, count - written);
    shared->slots[shared->count - 1] = slot;
    shared->passes[shared->count - 1] = passes;
}

/* Appends all requested passes of the rank in the order of their slots; W without a slot run in free slots and after
   the last one. False: it reported an error. */
static bool serve_in_slots(Expander *x)
{
    const uint32_t count = x->request_count;
    SlotKey *keys = arena_array(x->scratch, count, sizeof *keys);
    /* slotted: number of keys with a slot, which are at the start of `keys`; fill: index of the first key without a
       slot: these are at the end */
    uint32_t slotted = 0, fill = count;
    for (uint32_t i = 0; i < count; i++)
        if (x->requests[i].has_slot)
            keys[slotted++] = (SlotKey){.slot = x->requests[i].slot, .index = i};
    for (uint32_t i = count; i-- > 0;) {
        const Request *request = &x->requests[i];
        if (request->has_slot)
            continue;
        if (slotted && request->kind != ACTION_W) {
            RankError *error =
                rank_error(&x->errors, x->rank, request->pass->span,
                           "this pass has no time slot, but others of this rank have one: then only a W may have none");
            if (error)
                error->help = "write `at SLOT:` before its step";
            return false;
        }
        keys[--fill].index = i;
    }
    slots_sort(keys, arena_array(x->scratch, slotted, sizeof *keys), slotted);
    const SlotKey *next = keys + slotted, *const last = keys + count;
    int64_t slot = slotted ? keys[0].slot : 0; /* the first slot that a W without a slot may fill */
    uint32_t from = 0;
    for (uint32_t i = 0; i < slotted; i++) {
        x->turn = &x->requests[keys[i].index];
        next = fill_slots(x, slot, keys[i].slot, next, last);
        if (i == 0 || keys[i].slot != keys[i - 1].slot)
            from = x->count;
        if (!serve(x, x->turn))
            return false;
        if (i + 1 == slotted || keys[i].slot != keys[i + 1].slot)
            note_slot(x, keys[i].slot, from);
        slot = keys[i].slot < INT64_MAX ? keys[i].slot + 1 : INT64_MAX;
    }
    for (; next < last; next++) {
        x->turn = &x->requests[next->index];
        if (!serve(x, x->turn))
            return false;
    }
    return true;
}

/* --- blocks --- */

static bool expand_items(Expander *x, const Item *items);

static bool expand_repeat(Expander *x, const Item *item)
{
    int64_t count;
    if (!count_of(x, item->value, "the number of repetitions", &count))
        return false;
    x->loops[x->loop_count++] = item;
    for (int64_t i = 0; i < count; i++) {
        x->values[item->slot] = i;
        if (!expand_items(x, item->block.body))
            return false;
        if (++x->work > x->work_max) {
            x->ran_away = true;
            FAIL(x, item->span, item->value, "this loop is too long: %lld iterations", (long long)count);
        }
    }
    x->loop_count--;
    return true;
}

static bool expand_item(Expander *x, const Item *item)
{
    int64_t value;
    switch (item->kind) {
    case ITEM_LET: return value_of(x, item->value, &x->values[item->slot]);
    case ITEM_STEP: return expand_step(x, item);
    case ITEM_REPEAT: return expand_repeat(x, item);
    default: /* if */
        return value_of(x, item->value, &value) && expand_items(x, value ? item->block.body : item->block.otherwise);
    }
}

static bool expand_items(Expander *x, const Item *items)
{
    for (const Item *item = items; item; item = item->next)
        if (!expand_item(x, item))
            return false;
    return true;
}

/* --- ranks --- */

static uint32_t own_microbatches(const Schedule *schedule, uint32_t rank, uint32_t chunk)
{
    const PlacedPipe *pipe = &schedule->pipes[schedule->chunks[rank][chunk].pipe];
    uint32_t own = 0;
    if (!pipe->replicated)
        return pipe->written;
    for (uint32_t m = 0; (m = chunk_microbatch(schedule, rank, chunk, m, pipe->written)) < pipe->written; m++)
        own++;
    return own;
}

static bool run_steps(Expander *x)
{
    Fault fault;
    x->passes = x->updates = x->work = 0;
    x->request_count = x->loop_count = 0;
    x->step = NULL;
    x->turn = NULL;
    /* values_for_rank succeeds: place() has evaluated the same values */
    if (!values_for_rank(x->ast, x->rank, x->values, &fault))
        return false;
    for (const Item *item = x->ast->items; item; item = item->next)
        if (item->kind >= ITEM_STEP && !expand_item(x, item))
            return false;
    return true;
}

bool expand_requests(Expander *x)
{
    x->requests = arena_array(x->scratch, x->most, sizeof *x->requests);
    return run_steps(x);
}

static void expand_rank(Expander *x, uint32_t rank)
{
    const Schedule *schedule = x->schedule;
    const uint32_t chunk_count = schedule->chunk_counts[rank];
    uint32_t written[PROGRAM_CHUNKS_MAX];
    uint64_t together = 0, all_written = 0;
    for (uint32_t p = 0; p < schedule->pipe_count; p++)
        all_written += schedule->pipes[p].written;
    x->updates_max = 0;
    for (uint32_t c = 0; c < chunk_count; c++) {
        const PlacedPipe *pipe = &schedule->pipes[schedule->chunks[rank][c].pipe];
        written[c] = pipe->written;
        x->chunks[c] = (ChunkState){.written = pipe->written,
                                    .own = own_microbatches(schedule, rank, c),
                                    .microbatches = pipe->microbatches,
                                    .shared = schedule->pipe_count > 1 || pipe->replicated};
        together += x->chunks[c].own;
        x->updates_max += x->chunks[c].shared ? all_written : x->chunks[c].own;
    }
    arena_free(x->scratch);
    weight_queue_open(&x->weights, x->scratch, chunk_count, written);
    x->rank = rank;
    x->passes_max = 3 * together;
    /* one more than allowed, because a pass is stored before it is refused */
    x->most = x->passes_max + x->updates_max + 1;
    x->actions = arena_array(x->scratch, x->most, sizeof *x->actions);
    x->requests = NULL;
    x->work_max = 64 * x->passes_max + 100000;
    x->count = 0;
    x->forward = NULL;
    if (x->ast->has_slots ? !expand_requests(x) || !serve_in_slots(x) : !run_steps(x))
        return;
    if (x->sought != POSITION_NONE)
        return; /* a second run, for place_of: the order has already been stored */
    Order *order = &x->schedule->orders[rank];
    order->actions = arena_array(x->arena, x->count, sizeof *order->actions);
    order->count = order->capacity = x->count;
    if (x->count)
        memcpy(order->actions, x->actions, x->count * sizeof *x->actions);
}

/* Returns NULL if values of the file cannot be computed with these parameters; place has reported that. */
static Expander *expander_new(const Ast *ast, const Parameters *parameters, Arena *arena, Schedule *schedule)
{
    Fault fault;
    Expander *x = arena_allocate(arena, sizeof *x);
    *x = (Expander){.ast = ast,
                    .arena = arena,
                    .schedule = schedule,
                    .values = values_new(ast, parameters, arena),
                    .errors = {.arena = arena},
                    .scratch = arena_scratch(arena),
                    .sought = POSITION_NONE};
    return values_for_all(ast, parameters, x->values, &fault) ? x : NULL;
}

typedef struct ExpandOrigin {
    Origin origin;
    const Ast *ast;
    const Parameters *parameters;
    Arena *arena;
    Schedule *schedule;
} ExpandOrigin;

/* Runs all steps of the rank again, to find the circumstances under which they requested the action at `position`.
   Returns these as text, such as "here m = 3"; NULL: there is nothing to say. */
static const char *place_of(const Origin *origin, uint32_t rank, uint32_t position)
{
    const ExpandOrigin *from = (const ExpandOrigin *)origin;
    Expander *x = expander_new(from->ast, from->parameters, from->arena, from->schedule);
    x->sought = position;
    expand_rank(x, rank);
    arena_free(x->scratch);
    return x->found;
}

bool expand(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics, Schedule *schedule)
{
    if (!ast->first_step) {
        diag_error(diagnostics, (Span){0, 0}, "the schedule has no steps");
        const char *const microbatches = ast->microbatches->name.symbol->text;
        diag_help(diagnostics, "write in which order a rank runs its passes: nF : %s; nB : %s;", microbatches,
                  microbatches);
        return false;
    }
    Expander *x = expander_new(ast, parameters, arena, schedule);
    if (!x)
        return false;
    ExpandOrigin *origin = arena_allocate(arena, sizeof *origin);
    *origin = (ExpandOrigin){{place_of}, ast, parameters, arena, schedule};
    schedule->origin = &origin->origin;
    if (ast->has_slots)
        schedule->shared_slots = arena_array(arena, schedule->ranks, sizeof *schedule->shared_slots);
    for (uint32_t rank = 0; rank < schedule->ranks && !x->ran_away; rank++)
        expand_rank(x, rank);
    arena_free(x->scratch);
    rank_errors_report(&x->errors, diagnostics);
    return !x->errors.first;
}
