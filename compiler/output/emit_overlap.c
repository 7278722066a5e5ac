/* Prints the inside of an F&B or F&F: figures, and a picture in characters, to scale. For each layer, or each round of
   the loop over the layers, the picture has a line for each stream that the recipe uses. */

#include "compiler/output/dump.h"
#include "compiler/output/emit.h"
#include "base/counted.h"
#include "program/times/costs_parts.h"
#include "program/times/recipe_waits.h"

#include <math.h>
#include <string.h>

enum {
    COLUMNS = 96,      /* width in characters of the longest layer; it is wider if names of spans need it */
    COLUMNS_MAX = 160, /* largest width; a name that still does not fit its span is printed below the picture */
    STREAM_NAME = 12,
};

/* The round of the loop over the layers in which a span runs. Late entries of an F&F run one round after their
   layer's other entries. */
static uint32_t round_of(const RecipeTimes *times, const RecipeSpan *span)
{
    return span->layer + times->late.late[span->entry.component][span->entry.pass];
}

static int span_name(const RecipeSpan *span, char name[static 32])
{
    return snprintf(name, 32, "%c %s", part_pass_letters[span->entry.pass], part_names[span->entry.component]);
}

static int columns_of(const RecipeTimes *times, double longest)
{
    int columns = COLUMNS;
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < times->counts[s]; i++) {
            const RecipeSpan *span = &times->spans[s][i];
            char name[32];
            const double needed = 1 + floor((span_name(span, name) + 1) * longest / (span->end - span->start));
            if (needed > columns && needed <= COLUMNS_MAX)
                columns = (int)needed;
        }
    return columns;
}

/* Prints one stream of one round as a line. Each span has a '|' at its start and at its end, and between these its
   pass and name, if they fit. `begin`: the time of the first column; `scale`: columns per unit of time. */
static void put_stream(const RecipeTimes *times, RecipeStream stream, uint32_t round, double begin, double scale,
                       FILE *file)
{
    char row[COLUMNS_MAX + 2];
    memset(row, ' ', sizeof row);
    int used = 0;
    for (uint32_t i = 0; i < times->counts[stream]; i++) {
        const RecipeSpan *span = &times->spans[stream][i];
        if (round_of(times, span) != round || span->end <= span->start)
            continue;
        const int from = (int)lround((span->start - begin) * scale), to = (int)lround((span->end - begin) * scale);
        char name[32];
        const int length = span_name(span, name);
        row[from] = row[to] = '|';
        if (length < to - from)
            memcpy(row + from + 1, name, (size_t)length);
        used = to + 1 > used ? to + 1 : used;
    }
    fprintf(file, "  %-*s%.*s\n", STREAM_NAME, recipe_stream_names[stream], used, row);
}

static void put_short(const RecipeTimes *times, uint32_t round, double begin, double scale, FILE *file)
{
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < times->counts[s]; i++) {
            const RecipeSpan *span = &times->spans[s][i];
            char name[32];
            if (round_of(times, span) == round && span->end > span->start &&
                span_name(span, name) >= lround((span->end - begin) * scale) - lround((span->start - begin) * scale))
                fprintf(file, "  too short for its name: %s, from %.6g to %.6g\n", name, span->start, span->end);
        }
}

static void round_bounds(const RecipeTimes *times, uint32_t round, double *begin, double *end)
{
    *begin = INFINITY;
    *end = 0;
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < times->counts[s]; i++)
            if (round_of(times, &times->spans[s][i]) == round) {
                *begin = fmin(*begin, times->spans[s][i].start);
                *end = fmax(*end, times->spans[s][i].end);
            }
}

static double longest_round(const RecipeTimes *times)
{
    double longest = 0, begin, end;
    for (uint32_t round = 0; round < times->layers + times->late.any; round++) {
        round_bounds(times, round, &begin, &end);
        longest = fmax(longest, end - begin);
    }
    return longest;
}

static void put_round(const RecipeTimes *times, uint32_t round, double scale, FILE *stream)
{
    double begin, end;
    round_bounds(times, round, &begin, &end);
    for (RecipeStream s = 0; s < RECIPE_STREAMS; s++)
        if (times->counts[s])
            put_stream(times, s, round, begin, scale, stream);
    put_short(times, round, begin, scale, stream);
}

/* --- where compute waits --- */

/* `layers`: the number of layers; the backward runs through them from the last one on. */
static void put_wait(const RecipeWait *wait, uint32_t layers, FILE *stream)
{
    char before[32], needed[32];
    const uint8_t pass = wait->waiting.entry.pass;
    const bool backward = pass == RECIPE_B || pass == RECIPE_W;
    recipe_entry_text(wait->waiting.entry, before, sizeof before);
    fprintf(stream, "  %12.6g  before %s of %slayer %u, ", wait->time, before,
            pass >= RECIPE_FIRST ? ""
            : backward           ? "backward "
                                 : "forward ",
            backward ? layers - 1 - wait->waiting.layer : wait->waiting.layer);
    if (!wait->on_entry) {
        fputs("for its launch, or for other work: its inputs have arrived\n", stream);
        return;
    }
    recipe_entry_text(wait->needed, needed, sizeof needed);
    fprintf(stream, "for %s%s\n", needed, wait->needed_layer == wait->waiting.layer ? "" : " of the previous layer");
}

static double end_of(const RecipeTimes *times, RecipeStream stream)
{
    double end = 0;
    for (uint32_t i = 0; i < times->counts[stream]; i++)
        end = fmax(end, times->spans[stream][i].end);
    return end;
}

static void put_waits(const Recipe *recipe, const RecipeTimes *times, const char *title, Arena *arena, FILE *stream)
{
    /* waits shorter than this share of the makespan are not printed one by one */
    static const double shown_share = 1e-3;
    const double wait = times->makespan - times->busy[RECIPE_COMPUTE], shown = shown_share * times->makespan;
    const double end = end_of(times, RECIPE_COMPUTE), last = fmax(end, end_of(times, RECIPE_COMM));
    if (wait < 1e-9 * times->makespan)
        return;
    RecipeWait *waits;
    const uint32_t count = recipe_waits(recipe, times, shown, &waits, arena);
    fprintf(stream, "\n%scompute waits %.6g of %.6g (%.1f %%)\n", title, wait, times->makespan,
            100 * wait / times->makespan);
    double rest = wait - (times->makespan - end);
    for (uint32_t i = 0; i < count; i++) {
        put_wait(&waits[i], times->layers, stream);
        rest -= waits[i].time;
    }
    if (last - end > shown)
        fprintf(stream, "  %12.6g  at the end, for communication\n", last - end);
    if (times->makespan - last > shown)
        fprintf(stream, "  %12.6g  at the end, for other work\n", times->makespan - last);
    if (rest > shown)
        fprintf(stream, "  %12.6g  in shorter waits and between the kernels of a component\n", rest);
}

/* If the recipe divides the multiprocessors between computation and communication, prints how much longer each takes
   because of that. */
static void put_share(const Recipe *recipe, const Costs *costs, FILE *stream)
{
    const RecipeEntry computes = {.component = RECIPE_ATTENTION}, communicates = {.component = RECIPE_DISPATCH};
    const double slower = recipe_slowdown(recipe, costs, RECIPE_COMM, communicates);
    if (!recipe->share)
        return;
    fprintf(stream, "%u of %u multiprocessors communicate: computation takes ", recipe->share, recipe->whole);
    if (costs->compute_share > 0)
        fprintf(stream, "%.4g (its share of the multiprocessors when its costs were measured) * ",
                costs->compute_share);
    fprintf(stream, "%u/%u = %.4g times as long", recipe->whole, recipe->whole - recipe->share,
            recipe_slowdown(recipe, costs, RECIPE_COMPUTE, computes));
    if (slower > 1)
        fprintf(stream, "; communication, which needs %g, takes %.4g times as long", costs->multiprocessors, slower);
    putc('\n', stream);
}

static double percent_over(double time, double other) { return 100 * (time / other - 1); }

/* Prints the order that `overlap F&B auto` found and, if DeepSeek's published order takes longer, how much longer.
   published: the time of DeepSeek's order. */
static void put_found(const RecipeFound *found, double published, const char *unit, FILE *stream)
{
    fputs("this order was found by `overlap F&B auto`; ", stream);
    put_recipe_proof(found, unit, stream);
    if (published > found->makespan)
        fprintf(stream, "; DeepSeek's order takes %.6g%s, %.1f %% more", published, unit,
                percent_over(published, found->makespan));
    fputs(":\n", stream);
    recipe_put(&found->recipe, "    ", ";", stream);
}

/* Compares a written recipe with the order that `overlap F&B auto` would find. makespan: the time of the written
   recipe. The written recipe may take less time than that order if it has communication in the stream compute. */
static void put_distance(double makespan, const RecipeFound *found, const char *unit, FILE *stream)
{
    const double difference = percent_over(found->makespan, makespan);
    if (difference > 1e-6) {
        fprintf(stream, "`overlap F&B auto`, with all communication in `comm`, takes %.6g%s, %.1f %% more\n",
                found->makespan, unit, difference);
        return;
    }
    const bool is_shorter = difference < -1e-6;
    if (is_shorter)
        fprintf(stream, "`overlap F&B auto` takes %.6g%s, %.1f %% less; ", found->makespan, unit, -difference);
    put_recipe_proof(found, unit, stream);
    fputs(is_shorter ? ":\n" : "\n", stream);
    if (is_shorter)
        recipe_put(&found->recipe, "    ", ";", stream);
}

static void put_best(const Compilation *c, const Recipe *recipe, double makespan, FILE *stream)
{
    const char *unit = costs_unit_text(&c->resolved);
    uint32_t components = 0;
    for (ModelPart component = 0; component < RECIPE_COMPONENTS; component++)
        components |= (uint32_t)recipe_has(recipe, component, RECIPE_F) << component;
    if (ast_searches_recipe(c->tree) && recipe == c->schedule.recipes.common) {
        Recipe published = recipe_published(components);
        published.share = recipe->share;
        published.whole = recipe->whole;
        put_found(&c->recipe_found, recipe_times(&published, &c->resolved, c->arena).makespan, unit, stream);
    } else {
        const RecipeFound found = recipe_shortest(components, recipe->share, recipe->whole, &c->resolved);
        put_distance(makespan, &found, unit, stream);
    }
}

/* Prints the late entries of an F&F: those that a round runs for the layer before the layer of its other entries. */
static void put_late(const Recipe *recipe, const RecipeTimes *times, FILE *stream)
{
    const char *comma = "";
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < recipe->counts[s]; i++) {
            const RecipeEntry entry = recipe->entries[s][i];
            char text[32];
            if (!times->late.late[entry.component][entry.pass])
                continue;
            recipe_entry_text(entry, text, sizeof text);
            fprintf(stream, "%s%s", comma, text);
            comma = ", ";
        }
    if (times->late.any)
        fputs(": from the layer before the layer of the round\n", stream);
}

static void put_rounds(const RecipeTimes *times, bool is_forward, FILE *stream)
{
    const double longest = longest_round(times), scale = columns_of(times, longest) / longest;
    for (uint32_t round = 0; round < times->layers + times->late.any; round++) {
        double begin, end;
        round_bounds(times, round, &begin, &end);
        if (is_forward)
            fprintf(stream, "\n%s %u", times->late.any ? "round" : "layer", round);
        else
            fprintf(stream, "\nforward layer %u, backward layer %u", round, times->layers - 1 - round);
        fprintf(stream, ", from %.6g to %.6g\n", begin, end);
        put_round(times, round, scale, stream);
    }
}

/* Prints which weight gradients a recipe puts off, and how long the rank with the longest stage is busy with them
   after the F&B. */
static void put_after(const Recipe *recipe, const Costs *costs, uint32_t stages, FILE *stream)
{
    for (uint32_t i = 0; i < recipe->counts[RECIPE_AFTER]; i++) {
        char text[32];
        recipe_entry_text(recipe->entries[RECIPE_AFTER][i], text, sizeof text);
        fprintf(stream, "%s%s", i ? ", " : "after the F&B, once its results are sent: ", text);
    }
    if (recipe->counts[RECIPE_AFTER])
        fprintf(stream, "; time on the longest stage: %.6g%s\n", costs_longest_put_off(costs, stages, recipe),
                costs_unit_text(costs));
}

/* Prints how F&Bs (or F&Fs) run with a recipe: figures, a picture, and waits. `pairs`: which F&Bs, as text, such as
   "F0&B1". */
static void put_recipe(const Compilation *compilation, const Recipe *recipe, const char *pairs, FILE *stream)
{
    const Schedule *schedule = &compilation->schedule;
    const Costs *costs = &compilation->resolved;
    const RecipeTimes times = recipe_times(recipe, costs, compilation->arena);
    const bool is_forward = recipe_is_forward(recipe);
    const double busy = times.in_turn;
    if (busy <= 0) {
        fprintf(stream, "%s: no component of the recipe has a time: give times of its components, as in %s%s\n",
                schedule->name, front_before(costs->front_end, SET_COST),
                is_forward ? "attention.F=2,qkv.F=1,mlp.F=2,shared.F=1"
                           : "attention.F=1,attention.B=1,attention.W=1,mlp.F=2");
        return;
    }
    fprintf(stream, "%s: an %s of %s takes %.6g%s, %.1f %% of the %.6g that its parts take one after the other",
            schedule->name, pairs, counted(times.layers, "layer").text, times.makespan, costs_unit_text(costs),
            100 * times.makespan / busy, busy);
    if (times.busy[RECIPE_COMM] > 0)
        fprintf(stream, "; communication takes %.6g, of which %.6g is hidden (%.1f %%)", times.busy[RECIPE_COMM],
                times.hidden, 100 * times.hidden / times.busy[RECIPE_COMM]);
    putc('\n', stream);
    put_after(recipe, costs, schedule->pipes[0].stages, stream);
    put_share(recipe, costs, stream);
    if (is_forward)
        put_late(recipe, &times, stream);
    else if (!recipe_put_off(recipe)) /* recipe_shortest finds only recipes that put nothing off */
        put_best(compilation, recipe, times.makespan, stream);
    put_rounds(&times, is_forward, stream);
    put_waits(recipe, &times, "", compilation->arena, stream);
}

void emit_overlap(const Compilation *compilation, FILE *stream)
{
    const Schedule *schedule = &compilation->schedule;
    const Recipes *recipes = &schedule->recipes;
    char pairs[20];
    if (!recipes_any(recipes))
        fprintf(stream,
                !compilation->tree ? "%s: no recipe says how an F&B or F&F runs: only a .dps file can have one\n"
                : schedule->forward_only
                    ? "%s: no recipe says how an F&F runs: add overlap F&F { ... } and, if no step has F&F, "
                      "`overlap` to a step of F\n"
                    : "%s: no recipe says how an F&B runs: add overlap F&B { ... } and, if there is no F&B, "
                      "`overlap` to a step of F and B or to order auto\n",
                schedule->name);
    recipes_pair_text(recipes, recipes->count, pairs, sizeof pairs);
    if (recipes->common)
        put_recipe(compilation, recipes->common, pairs, stream);
    for (uint32_t i = 0; i < recipes->count; i++) {
        recipes_pair_text(recipes, i, pairs, sizeof pairs);
        if (i || recipes->common)
            putc('\n', stream);
        put_recipe(compilation, &recipes->own[i].recipe, pairs, stream);
    }
}

void emit_overlap_diff(const Schedule *schedule, const RecipeTimes *predicted, const RecipeTimes *measured,
                       const char *path, Arena *arena, FILE *stream)
{
    const RecipeTimes *const both[] = {predicted, measured};
    static const char *const names[] = {"predicted", "measured"};
    fprintf(stream, "%s: an F&B of %s takes %.3f ms as predicted, %.3f ms in %s", schedule->name,
            counted(predicted->layers, "layer").text, predicted->makespan, measured->makespan, path);
    if (measured->layers != predicted->layers)
        fprintf(stream, ", where it has %s (--cost layers=%u)", counted(measured->layers, "layer").text,
                measured->layers);
    fprintf(stream, ", error %+.2f %%\n\n", 100 * (measured->makespan / predicted->makespan - 1));
    fprintf(stream, "%-10s %14s %14s %21s\n", "ms", "compute busy", "comm busy", "of comm hidden");
    for (int i = 0; i < 2; i++)
        fprintf(stream, "%-10s %14.3f %14.3f %10.3f (%.1f %%)\n", names[i], both[i]->busy[RECIPE_COMPUTE],
                both[i]->busy[RECIPE_COMM], both[i]->hidden,
                both[i]->busy[RECIPE_COMM] > 0 ? 100 * both[i]->hidden / both[i]->busy[RECIPE_COMM] : 0);
    const double longest = fmax(longest_round(predicted), longest_round(measured));
    const double scale = fmax(columns_of(predicted, longest), columns_of(measured, longest)) / longest;
    for (uint32_t layer = 0; layer < predicted->layers && layer < measured->layers; layer++) {
        fprintf(stream, "\nforward layer %u, backward layer %u\n", layer, predicted->layers - 1 - layer);
        for (int i = 0; i < 2; i++) {
            double begin, end;
            round_bounds(both[i], layer, &begin, &end);
            fprintf(stream, " %s, from %.3f to %.3f\n", names[i], begin, end);
            put_round(both[i], layer, scale, stream);
        }
    }
    for (int i = 0; i < 2; i++)
        put_waits(schedule->recipes.common, both[i], i ? "measured: " : "predicted: ", arena, stream);
}
