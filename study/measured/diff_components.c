/* Prints the components inside passes: their predicted and measured times, and how much of their communication was
   hidden. */
#include "study/measured/diff.h"
#include "program/times/recipe_times.h"
#include "base/compare.h"

#include <math.h>

/* The factor by which an entry takes longer in an F&B or F&F than alone, because it has only a share of the
   multiprocessors. NAN: there are several recipes, and they give the entry different shares. */
static double slowdown_of(const Recipes *recipes, const Costs *costs, RecipeStream stream, RecipeEntry entry)
{
    const Recipe *first = recipes->common || !recipes->count ? recipes->common : &recipes->own[0].recipe;
    const double slowdown = first ? recipe_slowdown(first, costs, stream, entry) : 1;
    for (uint32_t i = 0; i < recipes->count; i++)
        if (recipe_slowdown(&recipes->own[i].recipe, costs, stream, entry) != slowdown)
            return NAN;
    return slowdown;
}

/* The predicted mean time of an entry in ms. `paired`: the share of its runs that were in F&Bs or F&Fs. NAN: the costs
   do not have the entry or cannot be converted to ms, the prediction is a trace, or recipes give the entry different
   shares of the multiprocessors. */
static double predicted_time(const Comparison *comparison, RecipeEntry entry, RecipeStream stream, double paired)
{
    const Costs *costs = comparison->predicted.costs;
    const double time = comparison->unit > 0 && !comparison->scaled ? costs->parts[entry.component][entry.pass] : -1;
    const bool in_recipe = paired > 0 && entry.component < RECIPE_COMPONENTS;
    const double slowdown = in_recipe ? slowdown_of(&comparison->schedule->recipes, costs, stream, entry) : 1;
    return time < 0 ? NAN : time * comparison->unit * (1 + paired * (slowdown - 1));
}

/* All runs of an entry (a component with its pass, or the all-to-alls of one) in the compared step. paired: how many of
   them were in F&Bs or F&Fs. */
typedef struct Runs {
    uint32_t count, paired;
    double time, waited; /* sums over the runs, in ms */
} Runs;

static void print_row(const Comparison *comparison, RecipeEntry entry, const Runs *runs, bool all_to_all, FILE *stream)
{
    const double measured = runs->time / runs->count;
    const double predicted = predicted_time(comparison, entry, all_to_all ? RECIPE_COMM : RECIPE_COMPUTE,
                                            (double)runs->paired / runs->count);
    char name[32];
    recipe_entry_text(entry, name, sizeof name);
    fprintf(stream, "%-16s %6u ", name, runs->count);
    if (isnan(predicted))
        fprintf(stream, "%10s %10.3f %10s", "-", measured, "-");
    else
        fprintf(stream, "%10.3f %10.3f %+10.3f", predicted, measured,
                fabs(measured - predicted) < 5e-4 ? 0 : measured - predicted);
    if (all_to_all)
        fprintf(stream, " %10.3f %8.1f %%", runs->waited / runs->count,
                runs->time > 0 ? 100 * (runs->time - runs->waited) / runs->time : 0);
    putc('\n', stream);
}

/* Whether two spans belong to the same run of a component: a recipe or a wait may divide a run into several spans. Each
   all-to-all is a run of its own. */
static bool same_run(const TraceComponent *one, const TraceComponent *other)
{
    return one->pipe == other->pipe && one->stage == other->stage && one->microbatch == other->microbatch &&
           one->layer == other->layer && recipe_entry_same(one->entry, other->entry) && !one->all_to_all;
}

/* Sorts by entry, components before all-to-alls, then by pipe, stage, microbatch and layer. So the spans of one run
   follow each other. */
static int compare_runs(const void *left, const void *right)
{
    const TraceComponent *a = *(const TraceComponent *const *)left, *b = *(const TraceComponent *const *)right;
    const uint32_t x[] = {a->entry.component, a->entry.pass, a->all_to_all, a->pipe, a->stage, a->microbatch, a->layer};
    const uint32_t y[] = {b->entry.component, b->entry.pass, b->all_to_all, b->pipe, b->stage, b->microbatch, b->layer};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        COMPARE(x[i], y[i]);
    return 0;
}

/* The pass, or the half of an F&B or F&F, in which the component ran; NULL: the trace does not have it. */
static const TraceEvent *pass_of(const TraceIndex *index, const TraceComponent *component)
{
    static const uint8_t kinds[RECIPE_PASSES][2] = {
        [RECIPE_F] = {ACTION_F, ACTION_F}, [RECIPE_B] = {ACTION_B, ACTION_I}, [RECIPE_W] = {ACTION_B, ACTION_W}};
    const uint8_t *wanted = kinds[component->entry.pass];
    const TraceEvent *found = NULL;
    for (int i = 0; i < 2 && !found && component->stage < index->trace->stages; i++)
        found = trace_find(index, wanted[i], component->pipe, component->stage, component->microbatch);
    return found;
}

/* The first half of the F&B or F&F in which the component ran; NULL: it ran in neither. */
static const TraceEvent *pair_of(const TraceIndex *index, const TraceStep *step, const TraceComponent *component)
{
    const TraceEvent *pass = pass_of(index, component);
    if (pass && !pass->overlap && pass > step->first)
        pass--;
    return pass && pass->overlap ? pass : NULL;
}

/* Adds up the first spans of `sorted`, up to the first one of another entry or of another kind (component or
   all-to-all). Spans of the same run count as one run. Returns the number of spans. */
static size_t add_runs(const Comparison *comparison, const TraceIndex *index, const TraceComponent *const *sorted,
                       size_t count, Runs *runs)
{
    const TraceStep step = trace_step_events(comparison->trace, comparison->step);
    size_t i = 0;
    for (*runs = (Runs){0}; i < count && recipe_entry_same(sorted[i]->entry, sorted[0]->entry) &&
                            sorted[i]->all_to_all == sorted[0]->all_to_all;
         i++) {
        const bool begins = i == 0 || !same_run(sorted[i - 1], sorted[i]);
        runs->count += begins;
        runs->paired += begins && pair_of(index, &step, sorted[i]);
        runs->time += sorted[i]->end - sorted[i]->start;
        runs->waited += sorted[i]->waited;
    }
    return i;
}

void diff_print_components(const Comparison *comparison, Arena *arena, FILE *stream)
{
    size_t count;
    const TraceComponent **sorted =
        trace_step_components(comparison->trace, comparison->step, compare_runs, arena, &count);
    if (!count)
        return;
    const TraceIndex index = trace_index(comparison->trace, comparison->step, arena);
    fputs("\nThe components of passes, mean time of each; for all-to-alls also the wait of the rank, "
          "and the share hidden behind computation\n",
          stream);
    fprintf(stream, "%-16s %6s %10s %10s %10s %10s %10s\n", "component", "runs", "predicted", "measured", "longer",
            "waited", "hidden");
    for (size_t i = 0, spans; i < count; i += spans) {
        Runs runs;
        spans = add_runs(comparison, &index, sorted + i, count - i, &runs);
        const bool all_to_all = sorted[i]->all_to_all;
        /* the times of dispatch and combine contain the waits for their all-to-alls. So if the all-to-alls of a
           component have a row of their own, the component gets no row */
        const bool has_all_to_alls = i + spans < count && sorted[i + spans]->all_to_all &&
                                     recipe_entry_same(sorted[i + spans]->entry, sorted[i]->entry);
        if (all_to_all || !has_all_to_alls)
            print_row(comparison, sorted[i]->entry, &runs, all_to_all, stream);
    }
}
