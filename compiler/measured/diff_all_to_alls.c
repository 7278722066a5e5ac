/* The communication inside layers: predicted, measured, and how much of it was hidden. */
#include "compiler/measured/diff.h"
#include "runtime/program/recipe_times.h"

#include <math.h>

/* The factor by which a communication takes longer on its share of the multiprocessors; NAN: recipes of certain chunks
   give it other shares. */
static double slowdown_of(const Recipes *recipes, const Costs *costs, RecipeEntry entry)
{
    const Recipe *first = recipes->common || !recipes->count ? recipes->common : &recipes->own[0].recipe;
    const double slowdown = first ? recipe_slowdown(first, costs, RECIPE_COMM, entry) : 1;
    for (uint32_t i = 0; i < recipes->count; i++)
        if (recipe_slowdown(&recipes->own[i].recipe, costs, RECIPE_COMM, entry) != slowdown)
            return NAN;
    return slowdown;
}

/* The predicted time of a communication in ms, on the share of the multiprocessors that the recipe gives it; NAN: the
   costs do not have it, or have no unit, or recipes differ in the share. */
static double predicted_time(const Comparison *comparison, RecipeEntry entry)
{
    const Costs *costs = comparison->predicted.costs;
    const double time = comparison->unit > 0 && !comparison->scaled ? costs->parts[entry.component][entry.pass] : -1;
    return time < 0 ? NAN : time * comparison->unit * slowdown_of(&comparison->schedule->recipes, costs, entry);
}

static void print_all_to_all(const Comparison *comparison, RecipeEntry entry, FILE *stream)
{
    const Trace *trace = comparison->trace;
    const double predicted = predicted_time(comparison, entry);
    double time = 0, waited = 0;
    uint32_t count = 0;
    for (size_t i = 0; i < trace->all_to_all_count; i++) {
        const TraceAllToAll *one = &trace->all_to_alls[i];
        const bool counts =
            one->step == comparison->step && recipe_entry_same((RecipeEntry){one->component, one->pass}, entry);
        count += counts;
        time += counts ? one->time : 0;
        waited += counts ? one->waited : 0;
    }
    if (!count)
        return;
    char name[32];
    recipe_entry_text(entry, name, sizeof name);
    fprintf(stream, "%-14s %6u ", name, count);
    if (isnan(predicted))
        fprintf(stream, "%10s %10.3f %10s", "-", time / count, "-");
    else
        fprintf(stream, "%10.3f %10.3f %+10.3f", predicted, time / count, time / count - predicted);
    fprintf(stream, " %10.3f %8.1f %%\n", waited / count, time > 0 ? 100 * (time - waited) / time : 0);
}

void diff_print_all_to_alls(const Comparison *comparison, FILE *stream)
{
    if (!comparison->trace->all_to_all_count)
        return;
    fprintf(stream, "\nThe all-to-alls of layers, mean of each component; hidden: the rank computed meanwhile\n");
    fprintf(stream, "%-14s %6s %10s %10s %10s %10s %10s\n", "component", "number", "predicted", "measured", "longer",
            "waited", "hidden");
    for (uint8_t part = 0; part < RECIPE_COMPONENTS; part++)
        for (uint8_t pass = RECIPE_F; pass <= RECIPE_B; pass++)
            if (recipe_communicates[part])
                print_all_to_all(comparison, (RecipeEntry){part, pass}, stream);
}
