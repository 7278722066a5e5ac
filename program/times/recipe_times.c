#include "program/times/recipe_times.h"

#include <math.h>

uint32_t recipe_layers(const Costs *costs) { return costs->layers > 1 ? (uint32_t)costs->layers : 1; }

static double part_time(const Costs *costs, uint8_t component, uint8_t pass)
{
    return fmax(costs->parts[component][pass], 0);
}

/* The time of an entry of an F&F. `core` takes the time of attention less that of qkv. `mlp` takes the time of mlp,
   less that of the shared experts if the recipe names these. */
static double forward_time(const Recipe *recipe, const Costs *costs, RecipeEntry entry)
{
    const double whole = part_time(costs, entry.component, RECIPE_F);
    if (entry.component == RECIPE_CORE)
        return fmax(part_time(costs, RECIPE_ATTENTION, RECIPE_F) - part_time(costs, RECIPE_QKV, RECIPE_F), 0);
    if (entry.component == RECIPE_MLP && recipe_has(recipe, RECIPE_SHARED, entry.pass))
        return fmax(whole - part_time(costs, RECIPE_SHARED, RECIPE_F), 0);
    return whole;
}

/* The time of an entry in one layer; 0 if it is not given. */
static double time_of(const Recipe *recipe, const Costs *costs, RecipeEntry entry)
{
    return entry.pass >= RECIPE_FIRST ? forward_time(recipe, costs, entry)
                                      : part_time(costs, entry.component, entry.pass);
}

static RecipeStream stream_of(const Recipe *recipe, RecipeEntry entry)
{
    for (uint32_t i = 0; i < recipe->counts[RECIPE_COMM]; i++)
        if (recipe_entry_same(recipe->entries[RECIPE_COMM][i], entry))
            return RECIPE_COMM;
    return RECIPE_COMPUTE;
}

double recipe_slowdown(const Recipe *recipe, const Costs *costs, RecipeStream stream, RecipeEntry entry)
{
    const double share = recipe->share, whole = recipe->whole;
    if (!recipe->share)
        return 1;
    if (!recipe_communicates[entry.component])
        return (costs->compute_share > 0 ? costs->compute_share : 1) * whole / (whole - share);
    return fmax(costs->multiprocessors / (stream == RECIPE_COMM ? share : whole - share), 1);
}

/* The total time during which both streams are busy. */
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

RecipeStep recipe_step(const Recipe *recipe, const Costs *costs, RecipeEntry entry)
{
    RecipeStep step = {.entry = entry, .stream = stream_of(recipe, entry)};
    step.needs = recipe_needs(recipe, entry, &step.needed);
    step.time = time_of(recipe, costs, entry) * recipe_slowdown(recipe, costs, step.stream, entry);
    return step;
}

double recipe_advance(RecipeClock *clock, const RecipeStep *step)
{
    const RecipeEntry entry = step->entry;
    const double ready =
        step->needs ? clock->ends[step->needed.component][step->needed.pass] : clock->chain[entry.pass];
    const double start = fmax(clock->free[step->stream], ready);
    const double end = start + step->time;
    clock->ends[entry.component][entry.pass] = clock->free[step->stream] = end;
    clock->chain[entry.pass] = fmax(clock->chain[entry.pass], end);
    return start;
}

void recipe_steps(const Recipe *recipe, const Costs *costs, RecipeSteps steps)
{
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < recipe->counts[s]; i++) {
            const RecipeEntry entry = recipe->entries[s][i];
            steps[entry.component][entry.pass] = recipe_step(recipe, costs, entry);
        }
}

static void advance(RecipeTimes *times, RecipeClock *clock, const RecipeStep *step, uint32_t layer)
{
    const double start = recipe_advance(clock, step), end = clock->free[step->stream];
    times->spans[step->stream][times->counts[step->stream]++] = (RecipeSpan){step->entry, layer, start, end};
    times->busy[step->stream] += end - start;
    times->makespan = fmax(times->makespan, end);
}

RecipeTimes recipe_times(const Recipe *recipe, const Costs *costs, Arena *arena)
{
    RecipeSteps steps;
    const uint32_t layers = recipe_layers(costs);
    RecipeWalk walk = recipe_walk(recipe, layers, layers);
    RecipeTimes times = {.layers = layers, .late = walk.late};
    RecipeClock clock = {.chain = {0}};
    recipe_steps(recipe, costs, steps);
    for (int s = 0; s < RECIPE_STREAMS; s++)
        times.spans[s] = arena_array(arena, (size_t)times.layers * recipe->counts[s], sizeof *times.spans[s]);
    RecipeEntry entry;
    for (uint32_t layer; recipe_walk_next(&walk, &entry, &layer);) {
        advance(&times, &clock, &steps[entry.component][entry.pass], layer);
        times.in_turn += time_of(recipe, costs, entry);
    }
    times.hidden = both_busy(&times);
    return times;
}

void recipe_times_scale(RecipeTimes *times, double factor)
{
    for (int s = 0; s < RECIPE_STREAMS; s++) {
        times->busy[s] *= factor;
        for (uint32_t i = 0; i < times->counts[s]; i++) {
            times->spans[s][i].start *= factor;
            times->spans[s][i].end *= factor;
        }
    }
    times->makespan *= factor;
    times->in_turn *= factor;
    times->hidden *= factor;
}
