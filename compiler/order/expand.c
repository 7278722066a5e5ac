#include "compiler/order/expand.h"

#include "compiler/order/slots.h"
#include "compiler/order/weight_queue.h"
#include "compiler/source/rank_errors.h"
#include "runtime/program/program.h"

#include <string.h>

/* A chunk of the rank whose turn it is. */
typedef struct ChunkState {
    uint32_t written;      /* microbatches that its steps speak of, */
    uint32_t own;          /* and those of them that pass this rank */
    uint32_t microbatches; /* those that exist: passes of the others are left out */
    bool shared;           /* its stage may have other copies, which may have gradients where it has none */
    uint32_t next_forward, next_backward;
    uint32_t updates;            /* U's so far */
    uint32_t gathered, left_out; /* gradients since the last of them: made, and of microbatches that do not exist */
} ChunkState;

/* A pass as its step asks for it: which microbatch it takes is known when its turn comes. */
typedef struct Request {
    const Pass *pass;
    ActionKind kind;
    int chunk;          /* NO_CHUNK: of whichever chunk, a W */
    int64_t microbatch; /* -1: the next */
    int64_t slot;
    bool has_slot;
    bool joined; /* an F&B with the request behind it */
} Request;

typedef struct Expander {
    const Ast *ast;
    Arena *arena;
    Schedule *schedule;
    int64_t *values;
    RankErrors errors;
    /* of one rank */
    Arena scratch;
    uint32_t rank;
    ChunkState chunks[PROGRAM_CHUNKS_MAX];
    WeightQueue weights;
    Action *actions;
    uint32_t count;
    Action *forward;             /* the F that the next pass overlaps with; NULL: it does not, or the F is left out */
    Request *requests;           /* of a file with slots: all passes of the rank, until their order is known */
    uint32_t request_count;
    uint64_t passes, passes_max; /* those left out included */
    uint64_t updates, updates_max;
    uint64_t work, work_max;     /* nodes of expressions evaluated: what a loop that makes no passes costs */
    bool ran_away;
    /* where it is, for errors */
    const Item *loops[BLOCK_DEPTH_MAX];
    uint32_t loop_count;
    const Item *step; /* NULL: in none */
    int64_t repetition, repetitions;
    const Request *turn; /* NULL: none waits for its slot any more, or not yet */
} Expander;

/* --- errors --- */

static bool mentions(const Expression *expression, uint32_t slot)
{
    if (expression->kind == EXPRESSION_NAME && expression->slot == slot)
        return true;
    for (const Expression *operand = expression->operands; operand; operand = operand->next)
        if (mentions(operand, slot))
            return true;
    return false;
}

/* What explains an error: the values in the expression, or else in the step's count, and where the loops are. */
static const char *circumstances(const Expander *x, const Expression *expression)
{
    if (x->turn) /* the values are of another time */
        return x->turn->has_slot ? arena_format(x->arena, "here in slot %lld", (long long)x->turn->slot) : NULL;
    if (!expression && x->step)
        expression = x->step->value;
    const char *text = expression ? values_text(x->ast, expression, x->values, x->arena) : "";
    for (uint32_t i = 0; i < x->loop_count; i++)
        if (!expression || !mentions(expression, x->loops[i]->slot))
            text = arena_format(x->arena, "%s%s%s = %lld", text, *text ? ", " : "", x->loops[i]->name.symbol->text,
                                (long long)x->values[x->loops[i]->slot]);
    if (x->step && x->step->value)
        text = arena_format(x->arena, "%s%sthe step's repetition %lld of %lld", text, *text ? ", in " : "",
                            (long long)x->repetition + 1, (long long)x->repetitions);
    return *text ? arena_format(x->arena, "here %s", text) : NULL;
}

#define FAIL(x, span, expression, ...)                                             \
    do {                                                                           \
        RankError *error_ = rank_error(&(x)->errors, (x)->rank, span, __VA_ARGS__); \
        if (error_)                                                                \
            error_->help = circumstances(x, expression);                           \
        return false;                                                              \
    } while (0)

static bool value_of(Expander *x, const Expression *expression, int64_t *value)
{
    Fault fault;
    x->work += expression->size;
    if (evaluate(expression, x->values, value, &fault))
        return true;
    FAIL(x, fault.expression->span, fault.expression, "%s", fault_text(&fault, x->arena));
}

/* How often, or from which on. */
static bool count_of(Expander *x, const Expression *expression, const char *what, int64_t *count)
{
    if (!value_of(x, expression, count))
        return false;
    if (*count >= 0)
        return true;
    RankError *error = rank_error(&x->errors, x->rank, expression->span, "%s is negative: %lld", what, (long long)*count);
    const char *here = circumstances(x, expression);
    if (error)
        error->help = arena_format(x->arena, "%s%smax(0, ...) keeps it from going below 0", here ? here : "",
                                   here ? "; " : "");
    return false;
}

/* --- passes --- */

static bool chunk_of(Expander *x, const Pass *pass, uint8_t *chunk)
{
    const uint32_t count = x->schedule->chunk_counts[x->rank];
    int64_t number = pass->chunk;
    if (pass->computed_chunk && !value_of(x, pass->computed_chunk, &number))
        return false;
    if (!pass->computed_chunk && pass->chunk == NO_CHUNK) {
        const char letter = action_letter((uint8_t)pass->kind);
        if (count > 1)
            FAIL(x, pass->span, NULL, "%c does not say which of the %u chunks: write %c0 %s %c%u", letter, count, letter,
                 count == 2 ? "or" : "to", letter, count - 1);
        number = 0;
    }
    if (number < 0 || number >= count)
        FAIL(x, pass->span, pass->computed_chunk, "there is no chunk %lld: this rank holds %u", (long long)number, count);
    *chunk = (uint8_t)number;
    return true;
}

static const char *pipe_name(const Expander *x, int chunk)
{
    return x->schedule->pipes[x->schedule->chunks[x->rank][chunk].pipe].name;
}

/* The microbatch passes another rank's copy of the stage. */
static bool elsewhere(Expander *x, const Pass *pass, uint8_t chunk, uint32_t microbatch)
{
    const PlacedChunk *placed = &x->schedule->chunks[x->rank][chunk];
    const uint32_t rank = stage_home(&x->schedule->pipes[placed->pipe], placed->stage, microbatch).rank;
    RankError *error = rank_error(&x->errors, x->rank, pass->span, "microbatch %u of pipe %s passes stage %u on rank %u", microbatch,
                                  pipe_name(x, chunk), placed->stage, rank);
    const char *here = circumstances(x, pass->microbatch);
    char own[80];
    chunk_microbatches_text(x->schedule, x->rank, chunk, own, sizeof own);
    if (error)
        error->help = arena_format(x->arena, "%s%sstage %u has %s here", here ? here : "", here ? "; " : "", placed->stage, own);
    return false;
}

/* What the pass says of its chunk and microbatch. */
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
        FAIL(x, pass->span, pass->microbatch, "there is no microbatch %lld: pipe %s has %u", (long long)request->microbatch,
             pipe_name(x, chunk), written);
    if (request->microbatch >= 0 &&
        chunk_microbatch(x->schedule, x->rank, chunk, (uint32_t)request->microbatch, written) != request->microbatch)
        return elsewhere(x, pass, chunk, (uint32_t)request->microbatch);
    return true;
}

/* False when no such weight pass is waiting. */
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
        FAIL(x, pass->span, NULL, "no weight pass is waiting for this W: an I leaves one, or a B in a step that spells W");
    if (request->microbatch < 0)
        FAIL(x, pass->span, pass->computed_chunk, "no weight pass of chunk %d is waiting for this W", request->chunk);
    FAIL(x, pass->span, pass->microbatch, "no weight pass of chunk %d, microbatch %lld is waiting for this W", request->chunk,
         (long long)request->microbatch);
}

/* Appends the pass, or leaves it out when its microbatch does not exist. */
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
    Action *action = &x->actions[x->count++];
    *action = (Action){.kind = (uint8_t)request->kind, .chunk = chunk, .pipe = placed->pipe, .stage = placed->stage,
                       .microbatch = microbatch, .span = request->pass->span};
    if (forward)
        forward->overlap = true;
    if (request->joined)
        x->forward = action;
}

/* Makes the chunk's next version; left out where the microbatches do not exist whose gradients it would take. */
static void serve_update(Expander *x, const Request *request)
{
    ChunkState *state = &x->chunks[request->chunk];
    if (state->gathered || !state->left_out || state->shared)
        append(x, request, (uint8_t)request->chunk, ++state->updates);
    state->gathered = state->left_out = 0;
}

/* It is the pass's turn: it takes its microbatch. */
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
            FAIL(x, request->pass->span, request->pass->computed_chunk, "one more %s of chunk %u than pipe %s has microbatches%s: %u",
                 request->kind == ACTION_F ? "F" : "backward", chunk, pipe_name(x, chunk),
                 state->own < state->written ? " for this rank" : "", state->own);
        *next = microbatch + 1;
    }
    append(x, request, chunk, microbatch);
    return true;
}

static bool is_backward(ActionKind kind) { return kind == ACTION_B || kind == ACTION_I; }

/* From which slot, pair or backward on: of a step, evaluated once. */
typedef struct StepValues {
    int64_t count, slot, overlap_from, split_from;
} StepValues;

static bool step_values(Expander *x, const Item *item, StepValues *values)
{
    *values = (StepValues){.count = 1, .overlap_from = item->step.overlap ? 0 : INT64_MAX, .split_from = INT64_MAX};
    return (!item->step.slot || value_of(x, item->step.slot, &values->slot)) &&
           (!item->value || count_of(x, item->value, "the count", &values->count)) &&
           (!item->step.overlap_from || count_of(x, item->step.overlap_from, "`from`", &values->overlap_from)) &&
           (!item->step.split_from || count_of(x, item->step.split_from, "`from`", &values->split_from));
}

static bool expand_step(Expander *x, const Item *item)
{
    StepValues values;
    if (!step_values(x, item, &values))
        return false;
    int64_t pairs = 0, backwards = 0;
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
            request.joined = pass->joined ||
                             (kind == ACTION_F && pass->next && is_backward(pass->next->kind) && pairs++ >= values.overlap_from);
            request.has_slot = item->step.slot;
            request.slot = values.slot;
            if (x->requests)
                x->requests[x->request_count++] = request;
            else if (!serve(x, &request))
                return false;
            if (kind == ACTION_U && ++x->updates > x->updates_max) {
                x->ran_away = true;
                FAIL(x, pass->span, NULL, "more U than one for every microbatch: %llu", (unsigned long long)x->updates_max);
            }
            if (kind != ACTION_U && ++x->passes > x->passes_max) {
                x->ran_away = true;
                FAIL(x, pass->span, NULL, "more passes than every microbatch can have: %llu", (unsigned long long)x->passes_max);
            }
        }
    x->step = NULL;
    return true;
}

/* --- slots --- */

/* Serves the passes that have no slot, all W, as long as a slot is free before `end` and the weight pass is waiting. */
static const SlotKey *fill_slots(Expander *x, int64_t slot, int64_t end, const SlotKey *next, const SlotKey *last)
{
    uint8_t chunk;
    uint32_t microbatch;
    for (; slot < end && next < last && take_weight(x, &x->requests[next->index], &chunk, &microbatch); slot++)
        append(x, &x->requests[next++->index], chunk, microbatch);
    return next;
}

/* All requests of the rank, by slot. */
static bool serve_in_slots(Expander *x)
{
    const uint32_t count = x->request_count;
    SlotKey *keys = arena_array(&x->scratch, count, sizeof *keys);
    uint32_t slotted = 0, fill = count; /* those without a slot from the end on, backwards */
    for (uint32_t i = 0; i < count; i++)
        if (x->requests[i].has_slot)
            keys[slotted++] = (SlotKey){.slot = x->requests[i].slot, .index = i};
    for (uint32_t i = count; i-- > 0;) {
        const Request *request = &x->requests[i];
        if (request->has_slot)
            continue;
        if (slotted && request->kind != ACTION_W) {
            RankError *error = rank_error(&x->errors, x->rank, request->pass->span,
                                          "this pass has no slot: beside passes that have one, only W can do without");
            if (error)
                error->help = "write `at SLOT:` in front of its step";
            return false;
        }
        keys[--fill].index = i;
    }
    slots_sort(keys, arena_array(&x->scratch, slotted, sizeof *keys), slotted);
    const SlotKey *next = keys + slotted, *const last = keys + count;
    int64_t slot = slotted ? keys[0].slot : 0; /* the first that may be free */
    for (uint32_t i = 0; i < slotted; i++) {
        x->turn = &x->requests[keys[i].index];
        next = fill_slots(x, slot, keys[i].slot, next, last);
        if (!serve(x, x->turn))
            return false;
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
    if (!count_of(x, item->value, "the count", &count))
        return false;
    x->loops[x->loop_count++] = item;
    for (int64_t i = 0; i < count; i++) {
        x->values[item->slot] = i;
        if (!expand_items(x, item->block.body))
            return false;
        if (++x->work > x->work_max) {
            x->ran_away = true;
            FAIL(x, item->span, item->value, "this loop goes on and on: %lld times", (long long)count);
        }
    }
    x->loop_count--;
    return true;
}

static bool expand_item(Expander *x, const Item *item)
{
    int64_t value;
    switch (item->kind) {
    case ITEM_LET:
        return value_of(x, item->value, &x->values[item->slot]);
    case ITEM_STEP:
        return expand_step(x, item);
    case ITEM_REPEAT:
        return expand_repeat(x, item);
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
        x->chunks[c] = (ChunkState){.written = pipe->written, .own = own_microbatches(schedule, rank, c),
                                    .microbatches = pipe->microbatches, .shared = schedule->pipe_count > 1 || pipe->replicated};
        together += x->chunks[c].own;
        x->updates_max += x->chunks[c].shared ? all_written : x->chunks[c].own;
    }
    arena_free(&x->scratch);
    weight_queue_open(&x->weights, &x->scratch, chunk_count, written);
    x->rank = rank;
    x->passes_max = 3 * together;
    const uint64_t most = x->passes_max + x->updates_max + 1; /* the one too many is refused when it is there */
    x->actions = arena_array(&x->scratch, most, sizeof *x->actions);
    x->requests = x->ast->has_slots ? arena_array(&x->scratch, most, sizeof *x->requests) : NULL;
    x->work_max = 64 * x->passes_max + 100000;
    x->passes = x->updates = x->work = 0;
    x->count = x->request_count = x->loop_count = 0;
    x->forward = NULL;
    x->step = NULL;
    x->turn = NULL;
    Fault fault;
    if (!values_for_rank(x->ast, rank, x->values, &fault)) /* place has evaluated the same */
        return;
    for (const Item *item = x->ast->items; item; item = item->next)
        if (item->kind >= ITEM_STEP && !expand_item(x, item))
            return;
    if (x->requests && !serve_in_slots(x))
        return;
    Order *order = &x->schedule->orders[rank];
    order->actions = arena_array(x->arena, x->count, sizeof *order->actions);
    order->count = order->capacity = x->count;
    if (x->count)
        memcpy(order->actions, x->actions, x->count * sizeof *x->actions);
}

bool expand(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics, Schedule *schedule)
{
    Fault fault;
    if (!ast->first_step) {
        diag_error(diagnostics, (Span){0, 0}, "the schedule has no steps");
        diag_help(diagnostics, "write in which order a rank runs its passes: nF : M; nB : M;");
        return false;
    }
    Expander *x = arena_allocate(arena, sizeof *x);
    *x = (Expander){.ast = ast, .arena = arena, .schedule = schedule, .values = values_new(ast, arena),
                    .errors = {.arena = arena}, .scratch = {.exhausted = arena->exhausted}};
    if (!values_for_all(ast, parameters, x->values, &fault)) /* place has evaluated the same */
        return false;
    for (uint32_t rank = 0; rank < schedule->ranks && !x->ran_away; rank++)
        expand_rank(x, rank);
    arena_free(&x->scratch);
    rank_errors_report(&x->errors, diagnostics);
    return !x->errors.first;
}
