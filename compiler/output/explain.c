#include "compiler/output/explain.h"

#include "compiler/output/dump.h"
#include "base/counted.h"

#include <ctype.h>
#include <string.h>

enum {
    /* Most columns of a table of counts. Ranks with the same counts share a column; more columns make a new table. */
    RANK_COLUMNS = 12,
    SOURCE_WIDTH = 48
};

/* Consecutive microbatches of a list, each 1 more than the one before, or each 1 less. */
typedef struct Run {
    uint32_t first, last, count;
    int64_t step;
    struct Run *next;
} Run;

typedef struct Runs {
    Run *first, *last;
} Runs;

/* What one pass written in a step became on a rank: passes of one kind and chunk, or F&Bs or F&Fs of the same two kinds
   and chunks. */
typedef struct Passes {
    Span span;
    Action example, second; /* second: the second half of the example if it is an F&B or F&F */
    Runs runs, second_runs;
    struct Passes *next;
} Passes;

/* What a step of the file became on a rank; or all passes of the rank that no step wrote. */
typedef struct Row {
    const Item *item; /* NULL: the passes of no step */
    uint32_t line, times;
    Passes *first, *last;
    /* longest: the longest wait of a pass of the row for another rank; `waiting` is the pass that waits (NULL: none
       does), `awaited` the pass that it waits for */
    double start, end, idle, longest;
    const Action *waiting, *awaited;
    uint32_t awaited_rank;
} Row;

typedef struct Explainer {
    const Compilation *c;
    const Schedule *schedule;
    const Timeline *times;
    Arena *arena;
    FILE *stream;
    /* [step_count]: the steps in the order of the file, also those in blocks; an `order auto` counts as one step */
    const Item **steps;
    int64_t **counts; /* [rank][step] */
    uint32_t step_count;
    Row *rows; /* [step_count + 1]: rows of the current rank; rows[step_count] has the passes that no step wrote */
} Explainer;

/* --- steps --- */

static uint32_t collect_steps(const Item *items, const Item **steps, uint32_t count)
{
    for (; items; items = items->next) {
        if (items->kind == ITEM_STEP || items->kind == ITEM_ORDER) {
            if (steps)
                steps[count] = items;
            count++;
        } else if (items->kind == ITEM_REPEAT || items->kind == ITEM_IF) {
            count = collect_steps(items->block.body, steps, count);
            count = collect_steps(items->block.otherwise, steps, count);
        }
    }
    return count;
}

static Row *row_of(Explainer *x, Span span)
{
    /* if any step begins at or before the span, the last such step is in [low, high) */
    uint32_t low = 0, high = x->step_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (x->steps[middle]->span.begin <= span.begin)
            low = middle;
        else
            high = middle;
    }
    if (low < high && x->steps[low]->span.begin <= span.begin && span.end <= x->steps[low]->span.end)
        return &x->rows[low];
    return &x->rows[x->step_count];
}

/* The source text of a step on one line, shortened to SOURCE_WIDTH bytes. It includes the n of a word such as nF, which
   the step's span leaves out. */
static const char *step_text(const Explainer *x, const Item *item)
{
    const char *text = x->c->source->text;
    uint32_t begin = item->span.begin, length = 0;
    if (begin > 0 && text[begin - 1] == 'n')
        begin--;
    char *squeezed = arena_allocate(x->arena, item->span.end - begin + 1);
    for (uint32_t i = begin; i < item->span.end; i++) {
        const char byte = isspace((unsigned char)text[i]) ? ' ' : text[i];
        if (byte != ' ' || squeezed[length - 1] != ' ')
            squeezed[length++] = byte;
    }
    if (length > SOURCE_WIDTH)
        strcpy(squeezed + SOURCE_WIDTH - 3, "...");
    return squeezed;
}

/* --- the passes into which a rank's steps expand --- */

static void add_microbatch(Explainer *x, Runs *runs, uint32_t microbatch)
{
    Run *last = runs->last;
    const int64_t step = last ? (int64_t)microbatch - last->last : 0;
    if (last && (last->count == 1 ? step == 1 || step == -1 : step == last->step)) {
        last->step = step;
        last->last = microbatch;
        last->count++;
        return;
    }
    Run *run = arena_allocate(x->arena, sizeof *run);
    *run = (Run){.first = microbatch, .last = microbatch, .count = 1};
    if (last)
        last->next = run;
    else
        runs->first = run;
    runs->last = run;
}

static bool same_pass(const Action *a, const Action *b) { return a->kind == b->kind && a->chunk == b->chunk; }

static void add_pass(Explainer *x, Row *row, const Action *pass, const Action *second)
{
    Passes *passes = row->first;
    while (passes && !(passes->span.begin == pass->span.begin && same_pass(&passes->example, pass) &&
                       passes->example.overlap == pass->overlap && (!second || same_pass(&passes->second, second))))
        passes = passes->next;
    if (!passes) {
        passes = arena_allocate(x->arena, sizeof *passes);
        *passes = (Passes){.span = pass->span, .example = *pass};
        if (second)
            passes->second = *second;
        if (row->last)
            row->last->next = passes;
        else
            row->first = passes;
        row->last = passes;
    }
    add_microbatch(x, &passes->runs, pass->microbatch);
    if (second)
        add_microbatch(x, &passes->second_runs, second->microbatch);
}

static double ready_at(const Explainer *x, uint32_t rank, const Action *pass, Dependence *needed)
{
    return timeline_arrival(x->schedule, &x->c->table, x->times, rank, pass, needed);
}

/* If the rank was idle before this pass because the pass waited for another rank, and this wait is the longest in the
   row so far, notes it in the row. */
static void add_wait(const Explainer *x, uint32_t rank, Row *row, const Action *pass, double wait)
{
    Dependence needed;
    if (wait <= row->longest || ready_at(x, rank, pass, &needed) < 0)
        return;
    row->longest = wait;
    row->waiting = pass;
    row->awaited = &x->schedule->orders[needed.rank].actions[needed.position];
    row->awaited_rank = needed.rank;
}

static void collect_rank(Explainer *x, uint32_t rank)
{
    const Order *order = &x->schedule->orders[rank];
    double free_at = 0;
    for (uint32_t s = 0; s <= x->step_count; s++)
        x->rows[s] = (Row){.item = s < x->step_count ? x->steps[s] : NULL};
    for (uint32_t i = 0; i < order->count; i++) {
        const Action *pass = &order->actions[i], *second = NULL;
        if (action_is_message(pass))
            continue;
        Row *row = row_of(x, pass->span);
        const double start = x->times->start[rank][i], end = x->times->end[rank][i];
        if (pass->overlap)
            second = &order->actions[++i];
        if (!row->first) {
            row->line = source_line(x->c->source, pass->span.begin);
            row->start = start;
        }
        add_pass(x, row, pass, second);
        row->end = end;
        row->idle += start - free_at;
        Dependence needed;
        const bool second_later = second && ready_at(x, rank, second, &needed) > ready_at(x, rank, pass, &needed);
        add_wait(x, rank, row, second_later ? second : pass, start - free_at);
        free_at = end;
    }
}

/* Sets counts[step]: how often the rank runs each step. For a step in a block: how often the rank runs that pass of the
   step which it runs most often. */
static void count_steps(Explainer *x, uint32_t rank, int64_t *values, int64_t *counts)
{
    Fault fault;
    const bool known = values_for_rank(x->c->tree, rank, values, &fault);
    for (uint32_t s = 0; s < x->step_count; s++)
        for (const Passes *passes = x->rows[s].first; passes; passes = passes->next) {
            int64_t count = 0;
            for (const Passes *other = x->rows[s].first; other; other = other->next)
                for (const Run *run = other->runs.first; run && other->span.begin == passes->span.begin;
                     run = run->next)
                    count += run->count;
            counts[s] = count > counts[s] ? count : counts[s];
        }
    /* For a step outside of blocks, takes the value of the step's count. This value includes passes that are left out
       because their microbatch does not exist. */
    for (const Item *item = x->c->tree->items; item; item = item->next)
        if (item->kind == ITEM_STEP && item->value && known)
            evaluate(item->value, values, &counts[row_of(x, item->span) - x->rows], &fault);
}

/* --- the table of counts --- */

static bool same_counts(const Explainer *x, uint32_t a, uint32_t b)
{
    return memcmp(x->counts[a], x->counts[b], x->step_count * sizeof **x->counts) == 0;
}

/* The ranks r for which alike[r] is true, as text: "0,7" or "0..3,8". Three or more consecutive ranks are a range. */
static const char *ranks_text(const Explainer *x, const bool *alike)
{
    const char *text = "";
    for (uint32_t r = 0; r < x->schedule->ranks; r++) {
        uint32_t last = r;
        if (!alike[r])
            continue;
        while (last + 1 < x->schedule->ranks && alike[last + 1])
            last++;
        const char *const comma = *text ? "," : "";
        text = last > r + 1 ? arena_format(x->arena, "%s%s%u..%u", text, comma, r, last)
                            : arena_format(x->arena, "%s%s%u", text, comma, r);
        r = last > r + 1 ? last : r;
    }
    return text;
}

static void print_counts(const Explainer *x)
{
    const uint32_t ranks = x->schedule->ranks;
    const char **heads = arena_array(x->arena, ranks, sizeof *heads);
    uint32_t *examples = arena_array(x->arena, ranks, sizeof *examples), columns = 0;
    bool *alike = arena_array(x->arena, ranks, sizeof *alike), *done = arena_array(x->arena, ranks, sizeof *done);
    for (uint32_t r = 0; r < ranks; r++) {
        if (done[r])
            continue;
        for (uint32_t q = 0; q < ranks; q++) {
            alike[q] = q >= r && same_counts(x, r, q);
            done[q] |= alike[q];
        }
        examples[columns] = r;
        heads[columns++] = ranks_text(x, alike);
    }
    int width = 0;
    for (uint32_t s = 0; s < x->step_count; s++) {
        const int length = (int)strlen(step_text(x, x->steps[s]));
        width = length > width ? length : width;
    }
    for (uint32_t from = 0; from < columns; from += RANK_COLUMNS) {
        const uint32_t to = columns - from < RANK_COLUMNS ? columns : from + RANK_COLUMNS;
        fprintf(x->stream, "\n  line  %-*s  on rank", width, "how often");
        for (uint32_t k = from; k < to; k++)
            fprintf(x->stream, " %6s", heads[k]);
        for (uint32_t s = 0; s < x->step_count; s++) {
            fprintf(x->stream, "\n  %4u  %-*s         ", source_line(x->c->source, x->steps[s]->span.begin), width,
                    step_text(x, x->steps[s]));
            for (uint32_t k = from; k < to; k++)
                fprintf(x->stream, " %*lld", strlen(heads[k]) > 6 ? (int)strlen(heads[k]) : 6,
                        (long long)x->counts[examples[k]][s]);
        }
        putc('\n', x->stream);
    }
}

/* --- a rank --- */

static void print_kind(const Explainer *x, uint32_t rank, const Action *pass)
{
    putc(action_letter(pass->kind), x->stream);
    if (x->schedule->chunk_counts[rank] > 1)
        fprintf(x->stream, "%u", pass->chunk);
}

static void print_passes(const Explainer *x, uint32_t rank, const Action *pass, const Runs *runs)
{
    print_kind(x, rank, pass);
    for (const Run *run = runs->first; run; run = run->next) {
        fprintf(x->stream, "%c%u", run == runs->first ? '[' : ',', run->first);
        if (run->count > 1)
            fprintf(x->stream, "%s%u", run->count > 2 ? ".." : ",", run->last);
    }
    putc(']', x->stream);
}

static void print_one(const Explainer *x, uint32_t rank, const Action *pass)
{
    char text[48];
    pass_text(x->schedule, rank, pass, text, sizeof text);
    fputs(text, x->stream);
}

/* Prints the time slots of a rank in which several passes run, which may be a mistake of the author. */
static void print_shared_slots(const Explainer *x, uint32_t rank)
{
    const SharedSlots *shared = x->schedule->shared_slots ? &x->schedule->shared_slots[rank] : NULL;
    for (uint32_t i = 0; shared && i < shared->count && i < SHARED_SLOTS_KEPT; i++)
        fprintf(x->stream, "  note: time slot %lld has several passes, which run in this order: %s\n",
                (long long)shared->slots[i], shared->passes[i]);
    if (shared && shared->count > SHARED_SLOTS_KEPT)
        fprintf(x->stream, "  note: several passes also in %s\n",
                counted(shared->count - SHARED_SLOTS_KEPT, "other time slot").text);
}

static void print_rows(const Explainer *x, uint32_t rank)
{
    fputs("  line      from        to      idle  passes\n", x->stream);
    for (uint32_t s = 0; s <= x->step_count; s++) {
        const Row *row = &x->rows[s];
        if (!row->first)
            continue;
        fprintf(x->stream, "  %4u  %8g  %8g  %8g ", row->line, row->start, row->end, row->idle);
        for (const Passes *passes = row->first; passes; passes = passes->next) {
            putc(' ', x->stream);
            print_passes(x, rank, &passes->example, &passes->runs);
            if (passes->example.overlap) {
                putc('&', x->stream);
                print_passes(x, rank, &passes->second, &passes->second_runs);
            }
        }
        if (row->waiting) {
            fputs("; ", x->stream);
            print_one(x, rank, row->waiting);
            fprintf(x->stream, " waits %g for ", row->longest);
            print_one(x, row->awaited_rank, row->awaited);
            fprintf(x->stream, " of rank %u", row->awaited_rank);
        }
        putc('\n', x->stream);
    }
}

/* The activations or gradients that a chunk receives from or sends to another rank, or gets from another chunk of the
   same rank. */
typedef struct Traffic {
    enum { RECEIVES, SENDS, KEEPS } way;
    bool gradients;
    uint32_t chunk, other, count;
} Traffic;

static Traffic *count_traffic(const Explainer *x, uint32_t rank, uint32_t *count)
{
    const Order *order = &x->schedule->orders[rank];
    Traffic *all = NULL;
    *count = 0;
    for (uint32_t i = 0; i < order->count; i++) {
        const Action *action = &order->actions[i];
        const PlacedPipe *pipe = &x->schedule->pipes[action->pipe];
        Traffic made = {.chunk = action->chunk, .other = action->peer, .count = 1};
        made.way = action_is_send(action) ? SENDS : RECEIVES;
        made.gradients = action_is_gradient(action);
        if (!action_is_message(action)) {
            Dependence needed;
            if (!pass_dependence(x->schedule, &x->c->table, action, &needed) || needed.rank != rank)
                continue;
            made.way = KEEPS;
            made.gradients = action->kind != ACTION_F;
            made.other =
                stage_home(pipe, made.gradients ? action->stage + 1u : action->stage - 1u, action->microbatch).chunk;
        }
        uint32_t k = 0;
        while (k < *count && (all[k].way != made.way || all[k].gradients != made.gradients ||
                              all[k].chunk != made.chunk || all[k].other != made.other))
            k++;
        if (k < *count) {
            all[k].count++;
            continue;
        }
        all = arena_extend(x->arena, all, k, sizeof *all);
        all[(*count)++] = made;
    }
    return all;
}

static void print_traffic(const Explainer *x, uint32_t rank)
{
    static const char *const words[] = {"receives", "sends", "keeps"}, *const of[] = {"for", "of", "for"},
                             *const from[] = {"from rank", "to rank", "from chunk"};
    uint32_t count;
    const Traffic *all = count_traffic(x, rank, &count);
    for (uint32_t way = RECEIVES; way <= KEEPS; way++) {
        uint32_t printed = 0;
        for (uint32_t k = 0; k < count; k++) {
            const Traffic *traffic = &all[k];
            if (traffic->way != way)
                continue;
            if (printed++)
                fputs(printed % 2 ? ",\n           " : ", ", x->stream);
            else
                fprintf(x->stream, "  %-8s ", words[way]);
            fputs(counted(traffic->count, traffic->gradients ? "gradient" : "activation").text, x->stream);
            if (x->schedule->chunk_counts[rank] > 1)
                fprintf(x->stream, " %s chunk %u", of[way], traffic->chunk);
            fprintf(x->stream, " %s %u", from[way], traffic->other);
        }
        if (printed)
            putc('\n', x->stream);
    }
}

static void print_rank(const Explainer *x, uint32_t rank)
{
    const Schedule *schedule = x->schedule;
    const uint32_t chunks = schedule->chunk_counts[rank];
    fprintf(x->stream, "\nrank %u:", rank);
    for (uint32_t c = 0; c < chunks; c++) {
        const PlacedChunk *chunk = &schedule->chunks[rank][c];
        if (chunks > 1)
            fprintf(x->stream, " chunk %u is", c);
        fprintf(x->stream, " stage %u", chunk->stage);
        if (schedule->pipe_count > 1)
            fprintf(x->stream, " of pipe %s", schedule->pipes[chunk->pipe].name);
        char own[80];
        chunk_microbatches_text(schedule, rank, c, own, sizeof own);
        fprintf(x->stream, "%s%s", *own ? " for " : "", own);
        putc(c + 1 < chunks ? ',' : ';', x->stream);
    }
    fprintf(x->stream, " busy %g of %g, at most %s", timeline_rank(schedule, x->times, rank).busy, x->times->makespan,
            counted(x->c->program->ranks[rank].peak_activations, "activation").text);
    const uint32_t versions = x->c->program->ranks[rank].slots[SLOT_WEIGHTS];
    if (schedule->asynchronous && chunks == 1)
        fprintf(x->stream, ", %s of weights", counted(versions, "version").text);
    else if (schedule->asynchronous)
        fprintf(x->stream, ", weights of %u chunks and %s", chunks, counted(versions - chunks, "further version").text);
    putc('\n', x->stream);
    print_traffic(x, rank);
    print_rows(x, rank);
    print_shared_slots(x, rank);
}

/* Prints the entries of a recipe in the order of a device that runs one component at a time. `pairs`: the F&Bs or F&Fs
   that use the recipe, such as F0&B1. */
static void print_recipe(const Recipe *recipe, const char *pairs, FILE *stream)
{
    RecipeEntry order[RECIPE_ENTRIES];
    const uint32_t count = recipe_order(recipe, order);
    fprintf(stream, "\nin each %s of an %s:", recipe_is_forward(recipe) ? "round over the layers" : "layer", pairs);
    for (uint32_t i = 0; i < count; i++) {
        char text[32];
        recipe_entry_text(order[i], text, sizeof text);
        fprintf(stream, " %s", text);
    }
    for (uint32_t i = 0; i < recipe->counts[RECIPE_AFTER]; i++) {
        char text[32];
        recipe_entry_text(recipe->entries[RECIPE_AFTER][i], text, sizeof text);
        fprintf(stream, "%s %s", i ? "" : "; after the F&B, once its results are sent:", text);
    }
    putc('\n', stream);
}

static void print_recipes(const Recipes *recipes, FILE *stream)
{
    char pairs[20];
    for (uint32_t i = 0; i <= recipes->count; i++) {
        const Recipe *recipe = i < recipes->count ? &recipes->own[i].recipe : recipes->common;
        recipes_pair_text(recipes, i, pairs, sizeof pairs);
        if (recipe)
            print_recipe(recipe, pairs, stream);
    }
}

void explain(const Compilation *compilation, const Timeline *times, FILE *stream)
{
    Explainer x = {.c = compilation,
                   .schedule = &compilation->schedule,
                   .times = times,
                   .arena = compilation->arena,
                   .stream = stream};
    const Ast *tree = compilation->tree;
    const uint32_t ranks = x.schedule->ranks;
    Fault fault;
    x.step_count = tree ? collect_steps(tree->items, NULL, 0) : 0;
    x.rows = arena_array(x.arena, x.step_count + 1, sizeof *x.rows);
    fprintf(stream, "%s: %s\n", x.schedule->name, schedule_sizes(x.schedule).text);
    if (x.step_count) {
        int64_t *values = values_new(tree, compilation->parameters, x.arena);
        /* values_for_all cannot fail: place() has evaluated the same items */
        values_for_all(tree, compilation->parameters, values, &fault);
        x.steps = arena_array(x.arena, x.step_count, sizeof *x.steps);
        collect_steps(tree->items, x.steps, 0);
        x.counts = arena_array(x.arena, ranks, sizeof *x.counts);
        for (uint32_t r = 0; r < ranks; r++) {
            collect_rank(&x, r);
            x.counts[r] = arena_array(x.arena, x.step_count, sizeof **x.counts);
            count_steps(&x, r, values, x.counts[r]);
        }
        if (tree->order)
            describe_search(&compilation->found, stream);
        else
            print_counts(&x);
    }
    print_recipes(&x.schedule->recipes, stream);
    for (uint32_t r = 0; r < ranks; r++) {
        collect_rank(&x, r);
        print_rank(&x, r);
    }
}
