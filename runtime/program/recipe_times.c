#include "runtime/program/recipe_times.h"

#include <math.h>

uint32_t recipe_layers(const Costs *costs) { return costs->layers > 1 ? (uint32_t)costs->layers : 1; }

double recipe_time(const Costs *costs, RecipeEntry entry) { return fmax(costs->parts[entry.component][entry.pass], 0); }

static RecipeStream stream_of(const Recipe *recipe, RecipeEntry entry)
{
    for (uint32_t i = 0; i < recipe->counts[RECIPE_COMM]; i++)
        if (recipe->entries[RECIPE_COMM][i].component == entry.component &&
            recipe->entries[RECIPE_COMM][i].pass == entry.pass)
            return RECIPE_COMM;
    return RECIPE_COMPUTE;
}

double recipe_slowdown(const Recipe *recipe, const Costs *costs, RecipeStream stream, RecipeEntry entry)
{
    const double share = recipe->share, whole = recipe->whole;
    if (!recipe->share)
        return 1;
    if (!recipe_communicates[entry.component])
        return whole / (whole - share);
    return fmax(costs->multiprocessors / (stream == RECIPE_COMM ? share : whole - share), 1);
}

/* How long both streams are busy at once. */
static double both_busy(const RecipeTimes *times)
{
    double both = 0;
    for (uint32_t i = 0, k = 0; i < times->counts[RECIPE_COMPUTE] && k < times->counts[RECIPE_COMM];) {
        const RecipeSpan *a = &times->spans[RECIPE_COMPUTE][i], *b = &times->spans[RECIPE_COMM][k];
        both += fmax(fmin(a->end, b->end) - fmax(a->start, b->start), 0);
        if (a->end < b->end)
            i++;
        else
            k++;
    }
    return both;
}

RecipeTimes recipe_times(const Recipe *recipe, const Costs *costs, Arena *arena)
{
    RecipeEntry order[RECIPE_ENTRIES], needed;
    const uint32_t count = recipe_order(recipe, order);
    RecipeTimes times = {.layers = recipe_layers(costs)};
    /* chain: the last end of F, and of B, also of the layer before */
    double free[RECIPE_STREAMS] = {0}, chain[RECIPE_PASSES] = {0};
    for (int s = 0; s < RECIPE_STREAMS; s++)
        times.spans[s] = arena_array(arena, (size_t)times.layers * recipe->counts[s], sizeof *times.spans[s]);
    for (uint32_t layer = 0; layer < times.layers; layer++) {
        double ends[RECIPE_COMPONENTS][RECIPE_PASSES] = {{0}};
        for (uint32_t i = 0; i < count; i++) {
            const RecipeEntry entry = order[i];
            const RecipeStream stream = stream_of(recipe, entry);
            const double ready =
                recipe_needs(recipe, entry, &needed) ? ends[needed.component][needed.pass] : chain[entry.pass];
            const double time = recipe_time(costs, entry);
            const double start = fmax(free[stream], ready),
                         end = start + time * recipe_slowdown(recipe, costs, stream, entry);
            times.spans[stream][times.counts[stream]++] = (RecipeSpan){entry, layer, start, end};
            times.busy[stream] += end - start;
            times.in_turn += time;
            times.makespan = fmax(times.makespan, end);
            ends[entry.component][entry.pass] = free[stream] = chain[entry.pass] = end;
        }
    }
    times.hidden = both_busy(&times);
    return times;
}
