/* Merges the lists of operations of the two halves of an F&B or F&F, in the order of the recipe. As in recipes, B is
   the input half of a backward (the pass I), and W its weight half. */

#include "base/clock.h"
#include "runtime/model/experts.h"
#include "runtime/model/stage.h"

#include <stdlib.h>
#include <string.h>

/* Components begin .. end - 1 of a stage, which belong to one part of a layer. */
typedef struct Range {
    size_t begin, end; /* equal: none */
} Range;

/* The operations of a component's pass after its last post of an all-to-all: the wait, and what uses the received rows.
   They are delayed until right before the next component of the same half that needs them or posts an all-to-all
   itself, at most to the end of the list. So other components compute while the all-to-all is in flight. */
typedef struct Rest {
    RecipePass pass;
    /* index: of the component; begin, end: its delayed operations in the stage's list. begin == end: there are none */
    size_t index, begin, end;
} Rest;

/* Operations of an F that a recipe orders as one entry: the F of a component. If the recipe divides attention, a piece
   is the operations before the attention core, which stage_core finds (RECIPE_QKV), or the other operations of one
   component of attention (RECIPE_CORE). */
typedef struct Piece {
    ModelPart part; /* the name of the piece in the recipe; RECIPE_NAMES: the piece is outside the layers */
    uint32_t index; /* index of the component in its stage */
    uint32_t layer;
    size_t begin, end; /* operations begin .. end - 1 of the stage's list of F */
    /* asked: the recipe walk has reached this piece's entry; done: its operations are in the merged list */
    bool asked, done;
} Piece;

typedef struct ForwardHalf {
    const Stage *stage;
    Piece *pieces; /* [count], in the order in which an F alone runs them */
    size_t count;
    uint8_t half, pass; /* half: 0 or 1; pass: RecipeEntry.pass of this half's entries */
} ForwardHalf;

/* State while the merged list of an F&B or F&F is made. */
typedef struct Overlap {
    const StagePair *pair;
    const Recipe *recipe;
    PairList *made;
    ForwardHalf forwards[2]; /* the F of an F&B, or both F of an F&F; for an F&B forwards[1].pieces is NULL */
    /* for an F&B: all components of the backward stage from this index on already have their B in the list */
    size_t backward;
    /* [part of a layer] the components of this part whose B is in the list and whose W is not yet */
    Range waiting[RECIPE_COMPONENTS];
    Rest rests[2]; /* [half] */
} Overlap;

static const Stage *stage_of(const Overlap *o, uint8_t half) { return half ? o->pair->backward : o->pair->forward; }

/* Appends operations begin .. end - 1 of a component's pass. Operations of the second half use the bases after those of
   the first half, and all-to-alls of their own. */
static void append_operations(Overlap *o, uint8_t half, size_t index, RecipePass pass, size_t begin, size_t end)
{
    const Stage *stage = stage_of(o, half);
    PairList *made = o->made;
    for (size_t i = begin; i < end; i++) {
        Op op = stage->lists[pass].ops[i];
        op.after_count = 0;
        if (half && op.exchange)
            op.exchange = op.exchange->second;
        for (int k = 0; k < OPERATION_OPERANDS; k++)
            if (half && op.operands[k].base)
                op.operands[k].base += PASS_BASES;
        op_append(&made->list, &op);
    }
    const bool first = begin == stage->parts[index].ops[pass].begin;
    made->parts[made->part_count++] = (PairPart){(uint32_t)index, pass, half, first, made->list.count};
}

static void append_rest(Overlap *o, uint8_t half)
{
    Rest *rest = &o->rests[half];
    if (rest->begin < rest->end)
        append_operations(o, half, rest->index, rest->pass, rest->begin, rest->end);
    *rest = (Rest){.begin = 0};
}

/* Among operations begin .. end - 1: the index after the last one that posts an all-to-all of rows; `end` if none
   does. */
static size_t end_of_posts(const OpList *list, size_t begin, size_t end)
{
    for (size_t i = end; i-- > begin;)
        if (list->ops[i].kind == OPERATION_rows_post)
            return i + 1;
    return end;
}

static bool use_one_address(const Op *one, const Op *other)
{
    for (int i = 0; i < OPERATION_OPERANDS; i++)
        for (int k = 0; k < OPERATION_OPERANDS && one->operands[i].base; k++)
            if (one->operands[i].base == other->operands[k].base &&
                one->operands[i].offset == other->operands[k].offset)
                return true;
    return false;
}

/* Whether operations begin .. end - 1 come after the rest in their pass and share an operand with it. An operand that
   both of them only read counts, too. */
static bool needs_rest(const OpList *list, const Rest *rest, size_t begin, size_t end)
{
    for (size_t i = begin; begin >= rest->end && i < end; i++)
        for (size_t k = rest->begin; k < rest->end; k++)
            if (use_one_address(&list->ops[i], &list->ops[k]))
                return true;
    return false;
}

/* Appends operations begin .. end - 1 of an F or B up to the last one that posts an all-to-all. The operations after
   that post become the rest of this half. If these operations post an all-to-all or need the rest that the half had
   before, that rest is appended first. */
static void append_posting(Overlap *o, uint8_t half, size_t index, RecipePass pass, size_t begin, size_t end)
{
    const OpList *list = &stage_of(o, half)->lists[pass];
    const size_t posted = end_of_posts(list, begin, end);
    if (posted < end || needs_rest(list, &o->rests[half], begin, end))
        append_rest(o, half);
    append_operations(o, half, index, pass, begin, posted);
    if (posted < end)
        o->rests[half] = (Rest){pass, index, posted, end};
}

static void append_part(Overlap *o, size_t index, RecipePass pass)
{
    const Part *part = &o->pair->backward->parts[index];
    if (pass == RECIPE_W)
        append_operations(o, 1, index, pass, part->ops[pass].begin, part->ops[pass].end);
    else
        append_posting(o, 1, index, pass, part->ops[pass].begin, part->ops[pass].end);
}

static uint32_t layers_of(const Stage *stage)
{
    uint32_t layers = 0;
    for (size_t i = 0; i < stage->part_count; i++)
        if (stage->parts[i].layer != NO_LAYER)
            layers = stage->parts[i].layer + 1;
    return layers;
}

/* --- F --- */

static void add_piece(ForwardHalf *half, uint32_t index, ModelPart part, size_t begin, size_t end)
{
    half->pieces[half->count++] =
        (Piece){.part = part, .index = index, .layer = half->stage->parts[index].layer, .begin = begin, .end = end};
}

/* The name of the recipe entries that order a component's F: RECIPE_CORE or RECIPE_SHARED if the recipe names them,
   otherwise the component's part; RECIPE_NAMES outside the layers. For an attention that the recipe divides, this is
   the name of the operations from the attention core on. */
static ModelPart name_of(const Recipe *recipe, const Part *part, uint8_t pass)
{
    const ComponentKind *kind = part->component.kind;
    if (part->layer == NO_LAYER)
        return RECIPE_NAMES;
    if (kind->part == RECIPE_ATTENTION && recipe_has(recipe, RECIPE_CORE, pass))
        return RECIPE_CORE;
    return kind == &component_shared && recipe_has(recipe, RECIPE_SHARED, pass) ? RECIPE_SHARED : kind->part;
}

/* Divides the F of half `number` into pieces. False: out of memory. */
static bool cut_forward(const Stage *stage, const Recipe *recipe, uint8_t number, uint8_t pass, ForwardHalf *half)
{
    *half = (ForwardHalf){
        .stage = stage, .half = number, .pass = pass, .pieces = calloc(2 * stage->part_count, sizeof *half->pieces)};
    for (uint32_t i = 0; half->pieces && i < stage->part_count; i++) {
        const Part *part = &stage->parts[i];
        size_t begin = part->ops[RECIPE_F].begin;
        if (part->component.kind == &component_attention && recipe_has(recipe, RECIPE_QKV, pass)) {
            add_piece(half, i, RECIPE_QKV, begin, stage_core(stage, part));
            begin = stage_core(stage, part);
        }
        add_piece(half, i, name_of(recipe, part, pass), begin, part->ops[RECIPE_F].end);
    }
    return half->pieces;
}

/* Whether a piece must come after an earlier piece of the F. Within a layer the shared experts take their input from
   the router, as dispatch does. So the shared experts need neither dispatch nor the routed experts, and dispatch and
   the routed experts do not need the shared experts. Combine adds the result of the shared experts. With an all-to-all
   it does so only after the wait, so the post of combine may come before the shared experts. */
static bool follows(const ForwardHalf *half, const Piece *piece, const Piece *earlier)
{
    const bool shares = piece->part == RECIPE_SHARED || earlier->part == RECIPE_SHARED;
    const ModelPart other = piece->part == RECIPE_SHARED ? earlier->part : piece->part;
    if (piece->layer != earlier->layer || !shares)
        return true;
    if (other == RECIPE_COMBINE)
        return end_of_posts(&half->stage->lists[RECIPE_F], piece->begin, piece->end) == piece->end;
    return other != RECIPE_DISPATCH && other != RECIPE_MLP;
}

static void put_piece(Overlap *o, const ForwardHalf *half, Piece *piece)
{
    piece->done = true;
    append_posting(o, half->half, piece->index, RECIPE_F, piece->begin, piece->end);
}

/* Appends a piece. Pieces that it needs and that the recipe does not name are appended before it. False: the piece is
   not appended yet, because it needs one that the recipe names later. For example, combine without an all-to-all adds
   up the result of the shared experts at once, and the recipe may name them after combine. */
static bool append_piece(Overlap *o, const ForwardHalf *half, Piece *piece)
{
    for (Piece *earlier = half->pieces; earlier < piece; earlier++) {
        if (earlier->done || !follows(half, piece, earlier))
            continue;
        if (recipe_has(o->recipe, earlier->part, half->pass) || !append_piece(o, half, earlier))
            return false;
    }
    put_piece(o, half, piece);
    return true;
}

/* Handles an entry of a recipe that orders an F: appends its pieces in layer `layer`, and pieces of earlier entries
   that had to wait for these. */
static void append_forward(Overlap *o, ForwardHalf *half, RecipeEntry entry, uint32_t layer)
{
    for (size_t i = 0; i < half->count; i++) {
        Piece *piece = &half->pieces[i];
        piece->asked |= piece->layer == layer && piece->part == entry.component;
        if (piece->asked && !piece->done)
            append_piece(o, half, piece);
    }
}

static void finish_forward(Overlap *o, ForwardHalf *half)
{
    for (size_t i = 0; i < half->count; i++)
        if (!half->pieces[i].done)
            put_piece(o, half, &half->pieces[i]);
    free(half->pieces);
}

/* --- B and W --- */

/* Appends B of components o->backward - 1 down to `end`, none of which the recipe names. If the F&B computes weight
   gradients, also appends W of each. */
static void append_backward(Overlap *o, size_t end)
{
    while (o->backward > end) {
        append_part(o, --o->backward, RECIPE_B);
        if (o->pair->weights)
            append_part(o, o->backward, RECIPE_W);
    }
}

static Range find_part(const Stage *stage, uint32_t layer, ModelPart kind)
{
    const Part *parts = stage->parts;
    Range found = {0, 0};
    while (found.begin < stage->part_count &&
           (parts[found.begin].layer != layer || parts[found.begin].component.kind->part != kind))
        found.begin++;
    found.end = found.begin;
    if (found.begin < stage->part_count)
        do
            found.end++;
        while (found.end < stage->part_count && stage_joins(stage, found.end));
    return found;
}

/* Handles an entry of a recipe that orders a backward: appends B or W of its component in layer `layer`, counted from
   the stage's last layer. Appends nothing if that layer does not have the component. */
static void append_backward_entry(Overlap *o, RecipeEntry entry, uint32_t layer)
{
    Range *waiting = &o->waiting[entry.component];
    if (entry.pass == RECIPE_B) {
        *waiting = find_part(o->pair->backward, layers_of(o->pair->backward) - 1 - layer, entry.component);
        if (waiting->end > waiting->begin)
            append_backward(o, waiting->end);
        while (o->backward > waiting->begin && waiting->end > waiting->begin)
            append_part(o, --o->backward, RECIPE_B);
    } else {
        for (size_t i = waiting->end; i-- > waiting->begin && o->pair->weights;)
            append_part(o, i, RECIPE_W);
        *waiting = (Range){0, 0};
    }
}

/* --- the list --- */

static void append_entry(Overlap *o, RecipeEntry entry, uint32_t layer)
{
    ForwardHalf *half = &o->forwards[recipe_half(entry.pass)];
    if (half->pieces)
        append_forward(o, half, entry, layer);
    else
        append_backward_entry(o, entry, layer);
}

static void append_all(Overlap *o)
{
    RecipeWalk walk = recipe_walk(o->recipe, layers_of(o->pair->forward), layers_of(o->pair->backward));
    RecipeEntry entry;
    for (uint32_t layer; recipe_walk_next(&walk, &entry, &layer);)
        append_entry(o, entry, layer);
    finish_forward(o, &o->forwards[0]);
    if (o->pair->both_forward)
        finish_forward(o, &o->forwards[1]);
    else
        append_backward(o, 0);
    append_rest(o, 0);
    append_rest(o, 1);
}

static bool cut_forwards(Overlap *o)
{
    const StagePair *pair = o->pair;
    const bool both = pair->both_forward;
    if (!cut_forward(pair->forward, o->recipe, 0, both ? RECIPE_FIRST : RECIPE_F, &o->forwards[0]))
        return false;
    if (!both || cut_forward(pair->backward, o->recipe, 1, RECIPE_SECOND, &o->forwards[1]))
        return true;
    free(o->forwards[0].pieces);
    return false;
}

static Status make_list(const StagePair *pair, const Recipe *recipe, PairList **list, Error *error)
{
    /* at most: a component's F has two parts, its backward B, a rest of B, and W */
    const size_t parts = 2 * pair->forward->part_count + 3 * pair->backward->part_count;
    PairList *made = calloc(1, sizeof *made + parts * sizeof *made->parts);
    Overlap o = {.pair = pair, .recipe = recipe, .made = made, .backward = pair->backward->part_count};
    if (!made || !cut_forwards(&o)) {
        free(made);
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    }
    made->backward = pair->backward->number;
    made->weights = pair->weights;
    made->both_forward = pair->both_forward;
    made->recipe = *recipe;
    append_all(&o);
    made->next = pair->forward->pairs;
    pair->forward->pairs = *list = made;
    Device *device = pair->forward->device;
    const DeviceFusion *fusion = device->run->fusion;
    TRY(op_list_finish(&made->list, error));
    return fusion && stage_product(pair->forward) < fusion->small_pair
               ? fusion->prepare(device, &made->list, recipe->share, recipe->whole, error)
               : STATUS_OK;
}

Status stage_pair_list(const StagePair *pair, const Recipe *recipe, PairList **list, Error *error)
{
    for (PairList *known = pair->forward->pairs; known; known = known->next)
        if (known->backward == pair->backward->number && known->weights == pair->weights &&
            known->both_forward == pair->both_forward && memcmp(&known->recipe, recipe, sizeof *recipe) == 0) {
            *list = known;
            return STATUS_OK;
        }
    return make_list(pair, recipe, list, error);
}

static Status find_list(const StagePair *pair, const Recipe *recipe, PairList **list, void *bases[2 * PASS_BASES],
                        Error *error)
{
    pass_bases(&pair->forward_buffers, bases);
    pass_bases(&pair->backward_buffers, bases + PASS_BASES);
    return stage_pair_list(pair, recipe, list, error);
}

Status stage_bind_overlap(const StagePair *pair, const Recipe *recipe, BoundPass **bound, Error *error)
{
    PairList *list;
    void *bases[2 * PASS_BASES];
    TRY(find_list(pair, recipe, &list, bases, error));
    return stage_bind_list(pair->forward->device, &list->list, bases, bound, error);
}

static Status run_part(const StagePair *pair, const PairList *list, const PairPart *part, size_t begin,
                       void *const *bases, Error *error)
{
    const Stage *stage = part->half ? pair->backward : pair->forward;
    if (stage->spans)
        stage->spans->half = part->half;
    const Status status =
        stage_run_part(stage, part->index, part->pass, part->first, &list->list, begin, part->end, bases, error);
    if (status != STATUS_OK)
        error_prefix(error, "in its %s: ", part->pass == RECIPE_F ? "F" : pair->weights ? "B" : "I");
    return status;
}

static Status run_parts(const StagePair *pair, const PairList *list, void *const *bases, Error *error)
{
    int64_t forward = 0, before = clock_nanoseconds();
    size_t begin = 0;
    for (size_t i = 0; i < list->part_count; begin = list->parts[i++].end) {
        const PairPart *part = &list->parts[i];
        TRY(run_part(pair, list, part, begin, bases, error));
        const int64_t now = clock_nanoseconds();
        forward += part->half ? 0 : now - before;
        before = now;
    }
    if (pair->forward_time)
        *pair->forward_time = forward;
    if (pair->forward->spans)
        pair->forward->spans->half = 0;
    return STATUS_OK;
}

static Status overlap(const StagePair *pair, const Recipe *recipe, Error *error)
{
    PairList *list;
    void *bases[2 * PASS_BASES];
    TRY(find_list(pair, recipe, &list, bases, error));
    return run_parts(pair, list, bases, error);
}

Status stage_overlap(const StagePair *pair, const Recipe *recipe, Error *error)
{
    PartTimes *times = pair->forward->times;
    if (!times)
        return overlap(pair, recipe, error);
    const int64_t begun = clock_nanoseconds();
    times->in_pair = true;
    TRY(overlap(pair, recipe, error));
    times->in_pair = false;
    times->pairs += clock_nanoseconds() - begun;
    return STATUS_OK;
}
