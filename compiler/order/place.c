#include "compiler/order/place.h"

#include "compiler/order/require.h"
#include "base/counted.h"
#include "program/program.h"

typedef struct Placer {
    const Ast *ast;
    Arena *arena;
    Diagnostics *diagnostics;
    Schedule *schedule;
    int64_t *values;
    uint64_t passes; /* number of forward and backward passes of the pipes so far */
    RankErrors errors;
} Placer;

static void help_values(const Placer *p, const Expression *expression)
{
    values_explain(p->ast, expression, p->values, p->arena, p->diagnostics);
}

/* Evaluates an expression whose value must be in low..high. what: what the value is, for the error. False, with a
   diagnostic: it has no value, or one out of this range. */
static bool evaluate_within(Placer *p, const Expression *expression, const char *what, int64_t low, int64_t high,
                            int64_t *value)
{
    Fault fault;
    const Expression *culprit = expression;
    if (!evaluate(expression, p->values, value, &fault)) {
        culprit = fault.expression;
        diag_error(p->diagnostics, culprit->span, "%s", fault_text(&fault, p->arena));
    } else if (*value < low || *value > high) {
        diag_error(p->diagnostics, expression->span, "%s is %lld: it must be %lld to %lld", what, (long long)*value,
                   (long long)low, (long long)high);
        diag_refuses(p->diagnostics);
    } else {
        return true;
    }
    help_values(p, culprit);
    return false;
}

/* --- pipes --- */

static bool place_stage(Placer *p, const Item *item, uint32_t stage, Home *home)
{
    Fault fault;
    int64_t rank;
    p->values[item->pipe.stage_slot] = stage;
    if (!evaluate(item->pipe.rank, p->values, &rank, &fault)) {
        diag_error(p->diagnostics, fault.expression->span, "%s", fault_text(&fault, p->arena));
    } else if (rank < 0 || rank >= p->schedule->ranks) {
        diag_error(p->diagnostics, item->pipe.rank->span, "stage %u would live on rank %lld: the ranks are 0 to %u",
                   stage, (long long)rank, p->schedule->ranks - 1);
    } else {
        home->rank = (uint16_t)rank;
        return true;
    }
    help_values(p, item->pipe.rank);
    return false;
}

/* Finds the rank of each stage or, if the rank depends on the microbatch, of each stage and microbatch. */
static bool place_stages(Placer *p, const Item *item, PlacedPipe *pipe)
{
    const uint32_t width = item->pipe.microbatch.symbol ? pipe->written : 1;
    pipe->homes = arena_array(p->arena, (size_t)pipe->stages * width, sizeof *pipe->homes);
    for (uint32_t stage = 0; stage < pipe->stages; stage++)
        for (uint32_t m = 0; m < width; m++) {
            Home *home = &pipe->homes[(size_t)stage * width + m];
            if (item->pipe.microbatch.symbol)
                p->values[item->pipe.microbatch_slot] = m;
            if (!place_stage(p, item, stage, home))
                return false;
            pipe->replicated |= home->rank != home[-(ptrdiff_t)m].rank;
        }
    for (uint32_t stage = 0; stage < pipe->stages && !pipe->replicated; stage++)
        pipe->homes[stage] = pipe->homes[(size_t)stage * width];
    return true;
}

/* Evaluates the version of the weights that each microbatch uses, if the pipe names versions. False, with a diagnostic:
   a version has no value or is out of range. */
static bool place_versions(Placer *p, const Item *item, PlacedPipe *pipe)
{
    if (!item->pipe.version)
        return true;
    pipe->versions = arena_array(p->arena, pipe->microbatches, sizeof *pipe->versions);
    pipe->version_span = item->pipe.version->span;
    for (uint32_t m = 0; m < pipe->microbatches; m++) {
        Fault fault;
        int64_t version;
        p->values[item->pipe.version_slot] = m;
        if (!evaluate(item->pipe.version, p->values, &version, &fault)) {
            diag_error(p->diagnostics, fault.expression->span, "%s", fault_text(&fault, p->arena));
        } else if (version < 0 || version > PROGRAM_MICROBATCHES_MAX) {
            diag_error(p->diagnostics, item->pipe.version->span,
                       "microbatch %u would use version %lld: versions are numbered from 0 to %d", m,
                       (long long)version, PROGRAM_MICROBATCHES_MAX);
        } else {
            pipe->versions[m] = (uint32_t)version;
            continue;
        }
        help_values(p, item->pipe.version);
        return false;
    }
    return true;
}

static bool place_pipe(Placer *p, const Item *item, PlacedPipe *pipe)
{
    int64_t stages, microbatches, written;
    pipe->name = item->name.symbol->text;
    pipe->span = item->name.span;
    if (!evaluate_within(p, item->pipe.stages, "the number of stages", 1, PROGRAM_STAGES_MAX, &stages) ||
        !evaluate_within(p, item->pipe.microbatches, "the number of microbatches in a pipe", 1,
                         PROGRAM_MICROBATCHES_MAX, &microbatches))
        return false;
    if (item->pipe.written && !evaluate_within(p, item->pipe.written, "the number of microbatches after `of`",
                                               microbatches, PROGRAM_MICROBATCHES_MAX, &written))
        return false;
    pipe->stages = (uint32_t)stages;
    pipe->microbatches = (uint32_t)microbatches;
    pipe->written = item->pipe.written ? (uint32_t)written : pipe->microbatches;
    p->passes += 2 * (uint64_t)pipe->stages * pipe->written;
    if (p->passes > SCHEDULE_PASSES_MAX) {
        diag_error(p->diagnostics, pipe->span, "%llu forward and backward passes: a schedule can have at most %d",
                   (unsigned long long)p->passes, SCHEDULE_PASSES_MAX);
        diag_refuses(p->diagnostics);
        return false;
    }
    return place_stages(p, item, pipe) && place_versions(p, item, pipe);
}

static bool place_pipes(Placer *p)
{
    Schedule *schedule = p->schedule;
    bool good = true;
    uint64_t together = 0;
    schedule->pipe_count = p->ast->pipe_count;
    schedule->pipes = arena_array(p->arena, schedule->pipe_count, sizeof *schedule->pipes);
    for (const Item *item = p->ast->items; item; item = item->next) {
        if (item->kind != ITEM_PIPE)
            continue;
        PlacedPipe *pipe = &schedule->pipes[item->pipe.number];
        if (!place_pipe(p, item, pipe)) {
            good = false;
            continue;
        }
        pipe->first = (uint32_t)together;
        together += pipe->microbatches;
        const PlacedPipe *first = &schedule->pipes[0];
        if (good && pipe->stages != first->stages) {
            diag_error(p->diagnostics, item->span, "pipe %s has %s, but pipe %s has %u", pipe->name,
                       counted(pipe->stages, "stage").text, first->name, first->stages);
            diag_note(p->diagnostics, first->span, "all pipes are copies of the same stages");
            good = false;
        }
    }
    if (good && together != schedule->microbatches) {
        diag_error(p->diagnostics, schedule->pipes[0].span, "%s %s, but the schedule has %u",
                   schedule->pipe_count > 1 ? "the pipes together have" : "the pipe has",
                   counted(together, "microbatch").text, schedule->microbatches);
        diag_note(p->diagnostics, p->ast->microbatches->span, "declared here");
        const char *const name = p->ast->microbatches->name.symbol->text;
        if (schedule->pipe_count > 1)
            diag_help(p->diagnostics,
                      "the pipes share the microbatches of the schedule: of two pipes, one has %s/2 and one %s-%s/2",
                      name, name, name);
        else
            diag_help(p->diagnostics, "give the pipe all microbatches of the schedule: %s microbatches", name);
        good = false;
    }
    return good;
}

/* --- chunks --- */

/* Writes the ranks that hold a stage into `ranks`, each once, in the order of its microbatches, and returns their
   number. seen: [ranks], all 0 before the first call and kept between calls. call: a number other than 0 that no other
   call has. */
static uint32_t ranks_of_stage(const PlacedPipe *pipe, uint32_t stage, uint32_t *seen, uint32_t call, uint16_t *ranks)
{
    uint32_t count = 0;
    for (uint32_t m = 0; m < (pipe->replicated ? pipe->written : 1); m++) {
        const uint16_t rank = stage_home(pipe, stage, m).rank;
        if (seen[rank] != call)
            ranks[count++] = rank;
        seen[rank] = call;
    }
    return count;
}

/* Numbers the chunks of each rank as the language does without `chunk` items: the rank's stages, pipe after pipe, from
   the first stage on. False: a rank has no stage, or more than PROGRAM_CHUNKS_MAX. */
static bool chunks_by_pipe(Placer *p)
{
    Schedule *schedule = p->schedule;
    uint32_t *seen = arena_array(p->arena, schedule->ranks, sizeof *seen), call = 0;
    uint16_t *ranks = arena_array(p->arena, schedule->ranks, sizeof *ranks);
    schedule->chunk_counts = arena_array(p->arena, schedule->ranks, sizeof *schedule->chunk_counts);
    schedule->chunks = arena_array(p->arena, schedule->ranks, sizeof *schedule->chunks);
    for (uint32_t i = 0; i < schedule->pipe_count; i++)
        for (uint32_t stage = 0; stage < schedule->pipes[i].stages; stage++)
            for (uint32_t k = ranks_of_stage(&schedule->pipes[i], stage, seen, ++call, ranks); k-- > 0;)
                schedule->chunk_counts[ranks[k]]++;
    for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
        const uint32_t count = schedule->chunk_counts[rank];
        if (count > PROGRAM_CHUNKS_MAX)
            rank_error(&p->errors, rank, schedule->pipes[0].span, "%u stages live on this rank: it can hold at most %d",
                       count, PROGRAM_CHUNKS_MAX);
        RankError *empty =
            count ? NULL : rank_error(&p->errors, rank, schedule->pipes[0].span, "no stage lives on this rank");
        if (empty)
            empty->help = "every rank needs a stage: use fewer ranks, more stages, or another rank for one of them";
        schedule->chunks[rank] = arena_array(p->arena, count, sizeof **schedule->chunks);
        schedule->chunk_counts[rank] = 0;
    }
    for (uint32_t i = 0; i < schedule->pipe_count; i++)
        for (uint32_t stage = 0; stage < schedule->pipes[i].stages; stage++)
            for (uint32_t k = ranks_of_stage(&schedule->pipes[i], stage, seen, ++call, ranks); k-- > 0;)
                schedule->chunks[ranks[k]][schedule->chunk_counts[ranks[k]]++] =
                    (PlacedChunk){.pipe = (uint16_t)i, .stage = (uint16_t)stage};
    return !p->errors.first;
}

static uint32_t count_of_pipe(const PlacedChunk *chunks, uint32_t count, int64_t pipe)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        found += chunks[i].pipe == pipe;
    return found;
}

/* Numbers the chunks of a rank by the items `chunk N = e`: chunk N is the rank's next stage of pipe e. last: the last
   such item, for an error. */
static void chunks_as_declared(Placer *p, uint32_t rank, uint32_t declared, const Item *last)
{
    Schedule *schedule = p->schedule;
    const PlacedChunk *stages = schedule->chunks[rank];
    const uint32_t count = schedule->chunk_counts[rank];
    PlacedChunk chunks[PROGRAM_CHUNKS_MAX];
    bool taken[PROGRAM_CHUNKS_MAX] = {false};
    for (const Item *item = p->ast->items; item; item = item->next) {
        Fault fault;
        int64_t pipe;
        if (item->kind != ITEM_CHUNK)
            continue;
        if (!evaluate(item->value, p->values, &pipe, &fault)) {
            RankError *error = rank_error(&p->errors, rank, fault.expression->span, "%s", fault_text(&fault, p->arena));
            if (error)
                error->help = values_help(p->ast, fault.expression, p->values, p->arena);
            return;
        }
        if (pipe < 0 || pipe >= schedule->pipe_count) {
            RankError *error = rank_error(&p->errors, rank, item->span, "chunk %u must be the name of a pipe, not %lld",
                                          item->chunk, (long long)pipe);
            if (error)
                error->help = "write the name, such as chunk 0 = a;";
            return;
        }
        uint32_t next = 0;
        while (next < count && (taken[next] || stages[next].pipe != pipe))
            next++;
        if (next == count) {
            rank_error(&p->errors, rank, item->span, "chunk %u has no stage: pipe %s has %s on this rank", item->chunk,
                       schedule->pipes[pipe].name, counted(count_of_pipe(stages, count, pipe), "stage").text);
            return;
        }
        taken[next] = true;
        chunks[item->chunk] = stages[next];
    }
    if (declared < count) {
        uint32_t left = 0;
        while (taken[left])
            left++;
        rank_error(&p->errors, rank, last->span,
                   "stage %u of pipe %s lives on this rank, but is none of its %u declared chunks", stages[left].stage,
                   schedule->pipes[stages[left].pipe].name, declared);
        return;
    }
    for (uint32_t i = 0; i < declared; i++)
        schedule->chunks[rank][i] = chunks[i];
}

/* Writes the chunk's number into the homes of its stage that are on this rank. Reports a chunk all of whose
   microbatches are left out (M of N microbatches). */
static void take_chunk(Placer *p, uint32_t rank, uint32_t chunk)
{
    Schedule *schedule = p->schedule;
    const PlacedChunk *placed = &schedule->chunks[rank][chunk];
    PlacedPipe *pipe = &schedule->pipes[placed->pipe];
    if (!pipe->replicated) {
        pipe->homes[placed->stage].chunk = (uint8_t)chunk;
        return;
    }
    Home *homes = &pipe->homes[(size_t)placed->stage * pipe->written];
    bool passed = false;
    for (uint32_t m = chunk_microbatch(schedule, rank, chunk, 0, pipe->written); m < pipe->written;
         m = chunk_microbatch(schedule, rank, chunk, m + 1, pipe->written)) {
        homes[m].chunk = (uint8_t)chunk;
        passed |= m < pipe->microbatches;
    }
    if (!passed)
        rank_error(&p->errors, rank, pipe->span,
                   "this rank has a copy of stage %u of pipe %s, but no microbatch goes through it: the pipe has %s",
                   placed->stage, pipe->name, counted(pipe->microbatches, "microbatch").text);
}

static bool place_chunks(Placer *p)
{
    Schedule *schedule = p->schedule;
    uint32_t declared = 0;
    const Item *last = NULL;
    for (const Item *item = p->ast->items; item; item = item->next)
        if (item->kind == ITEM_CHUNK) {
            declared++;
            last = item;
        }
    for (uint32_t rank = 0; declared && rank < schedule->ranks; rank++) {
        Fault fault;
        /* values_for_rank succeeds: require_for_rank has evaluated the same values */
        if (values_for_rank(p->ast, rank, p->values, &fault))
            chunks_as_declared(p, rank, declared, last);
    }
    for (uint32_t rank = 0; !p->errors.first && rank < schedule->ranks; rank++)
        for (uint32_t i = 0; i < schedule->chunk_counts[rank]; i++)
            take_chunk(p, rank, i);
    return !p->errors.first;
}

/* Makes the recipe of an item, and evaluates communication's share of the multiprocessors. The recipe of `overlap F&B
   auto` has no entries yet. */
static bool place_recipe(Placer *p, const Item *item, Recipe *recipe)
{
    int64_t part, whole;
    const WrittenShare *share = &item->recipe.share;
    *recipe = item->recipe.made;
    if (!share->part)
        return true;
    if (!evaluate_within(p, share->whole, "the number of multiprocessors", 2, RECIPE_SHARE_MAX, &whole) ||
        !evaluate_within(p, share->part, "the number of multiprocessors for communication", 1, whole - 1, &part))
        return false;
    recipe->share = (uint16_t)part;
    recipe->whole = (uint16_t)whole;
    return true;
}

/* Checks that some rank has chunks with the numbers for which a recipe is written. */
static bool check_recipe_chunks(const Placer *p, const Item *item)
{
    const int *chunks = item->recipe.pair.chunks, highest = chunks[0] > chunks[1] ? chunks[0] : chunks[1];
    uint32_t most = 0;
    for (uint32_t rank = 0; rank < p->schedule->ranks; rank++)
        most = p->schedule->chunk_counts[rank] > most ? p->schedule->chunk_counts[rank] : most;
    if ((uint32_t)highest < most)
        return true;
    diag_error(p->diagnostics, item->span, "no rank has a chunk %d", highest);
    diag_refuses(p->diagnostics);
    if (most == 1)
        diag_help(p->diagnostics, "each rank has one chunk, so one recipe is enough: overlap F&%c { ... }",
                  item->recipe.pair.forward ? 'F' : 'B');
    else
        diag_help(p->diagnostics, "the chunks are 0 to %u", most - 1);
    return false;
}

static bool place_recipes(Placer *p)
{
    Recipes *recipes = &p->schedule->recipes;
    for (const Item *item = p->ast->items; item; item = item->next) {
        if (item->kind != ITEM_RECIPE)
            continue;
        Recipe *recipe;
        if (item_is_chunk_recipe(item)) {
            if (!check_recipe_chunks(p, item))
                return false;
            const int *chunks = item->recipe.pair.chunks;
            recipes->own = arena_extend(p->arena, recipes->own, recipes->count, sizeof *recipes->own);
            recipes->own[recipes->count] = (ChunkRecipe){.first = (uint8_t)chunks[0], .second = (uint8_t)chunks[1]};
            recipe = &recipes->own[recipes->count++].recipe;
        } else {
            recipe = recipes->common = arena_allocate(p->arena, sizeof *recipe);
        }
        if (!place_recipe(p, item, recipe))
            return false;
    }
    return true;
}

bool place(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics, Schedule *schedule)
{
    Placer placer = {.ast = ast,
                     .arena = arena,
                     .diagnostics = diagnostics,
                     .schedule = schedule,
                     .values = values_new(ast, parameters, arena),
                     .errors = {.arena = arena}};
    *schedule = (Schedule){.name = ast->schedule};
    if (!require_for_all(ast, parameters, placer.values, arena, diagnostics))
        return false;
    schedule->ranks = (uint32_t)placer.values[ast->ranks->slot];
    schedule->microbatches = (uint32_t)placer.values[ast->microbatches->slot];
    schedule->orders = arena_array(arena, schedule->ranks, sizeof *schedule->orders);
    for (uint32_t rank = 0; rank < schedule->ranks; rank++)
        require_for_rank(ast, rank, placer.values, &placer.errors);
    const bool good = !placer.errors.first && place_pipes(&placer) && chunks_by_pipe(&placer) &&
                      place_chunks(&placer) && place_recipes(&placer);
    rank_errors_report(&placer.errors, diagnostics);
    return good;
}
