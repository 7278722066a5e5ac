/* Finds the inside of one F&B in a trace of dprun, to be printed beside the prediction of its recipe. */
#include "study/measured/diff.h"

#include "base/compare.h"

#include <math.h>
#include <stdlib.h>

/* The components and all-to-alls of an F&B, ordered by their starts. */
typedef struct Inside {
    const TraceEvent *pair; /* the F of the F&B; the event after it is the B */
    const TraceComponent *const *first;
    size_t count;
} Inside;

static int by_start(const void *left, const void *right)
{
    const TraceComponent *a = *(const TraceComponent *const *)left, *b = *(const TraceComponent *const *)right;
    COMPARE(a->rank, b->rank);
    COMPARE(a->start, b->start);
    return 0;
}

/* The layers of one half of an F&B: their number, and the first one in the model. */
typedef struct Layers {
    uint32_t count, first;
} Layers;

static Layers layers_of(const Inside *inside, bool forward)
{
    uint32_t first = NO_LAYER, end = 0;
    for (size_t i = 0; i < inside->count; i++) {
        const TraceComponent *one = inside->first[i];
        if (one->layer == NO_LAYER || (one->entry.pass == RECIPE_F) != forward)
            continue;
        first = one->layer < first ? one->layer : first;
        end = one->layer + 1 > end ? one->layer + 1 : end;
    }
    return (Layers){end ? end - first : 0, first};
}

static bool has_outside(const Inside *inside)
{
    for (size_t i = 0; i < inside->count; i++)
        if (inside->first[i]->layer == NO_LAYER)
            return true;
    return false;
}

/* `sorted` is ordered by rank, then by start. The index of the rank's first component that starts at `start` or later;
   if there is none, the index after the rank's last component. */
static size_t find_start(const TraceComponent *const *sorted, size_t count, uint32_t rank, double start)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const TraceComponent *one = sorted[middle];
        if (one->rank < rank || (one->rank == rank && one->start < start))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Finds the F&Bs of the step whose halves have `layers` layers each and whose backward is a B, not an I. If some of
   them have no components outside the layers (such as embedding and head), finds only those. Returns the number of F&Bs
   found. */
static size_t find_insides(const Comparison *comparison, const TraceComponent *const *sorted, size_t count,
                           uint32_t layers, Inside *insides)
{
    const TraceStep step = trace_step_events(comparison->trace, comparison->step);
    size_t found = 0;
    bool only_layers = false;
    for (const TraceEvent *event = step.first; event + 1 < step.end; event++) {
        if (!event->overlap || event[1].kind != ACTION_B)
            continue;
        const size_t begin = find_start(sorted, count, event->rank, event->start);
        const Inside inside = {event, sorted + begin, find_start(sorted, count, event->rank, event->end) - begin};
        const bool outside = has_outside(&inside);
        if (layers_of(&inside, true).count != layers || layers_of(&inside, false).count != layers ||
            (only_layers && outside))
            continue;
        if (!only_layers && !outside) {
            only_layers = true;
            found = 0;
        }
        insides[found++] = inside;
    }
    return found;
}

static int by_length(const void *left, const void *right)
{
    const TraceEvent *a = ((const Inside *)left)->pair, *b = ((const Inside *)right)->pair;
    const double x = a->end - a->start, y = b->end - b->start;
    return x != y ? (x > y) - (x < y) : (a > b) - (a < b);
}

/* How much of the time from `start` to `end` the spans cover. The spans are ordered by their starts. */
static double covered(const RecipeSpan *spans, uint32_t count, double start, double end)
{
    double time = 0;
    for (uint32_t i = 0; i < count; i++) {
        const double from = fmax(spans[i].start, start), to = fmin(spans[i].end, end);
        if (to > from) {
            time += to - from;
            start = to;
        }
    }
    return time;
}

/* Whether the F&B has all-to-alls of this entry. If so, the communication is measured by them, not by the time that
   the rank spent in the component. */
static bool has_all_to_alls(const Inside *inside, RecipeEntry entry)
{
    for (size_t i = 0; i < inside->count; i++)
        if (inside->first[i]->all_to_all && recipe_entry_same(inside->first[i]->entry, entry))
            return true;
    return false;
}

static void add_spans(const Inside *inside, RecipeTimes *times)
{
    const Layers forward = layers_of(inside, true), backward = layers_of(inside, false);
    for (size_t i = 0; i < inside->count; i++) {
        const TraceComponent *one = inside->first[i];
        if (one->layer == NO_LAYER || one->entry.component >= RECIPE_COMPONENTS ||
            (!one->all_to_all && has_all_to_alls(inside, one->entry)))
            continue;
        const uint32_t layer =
            one->entry.pass == RECIPE_F ? one->layer - forward.first : backward.first + backward.count - 1 - one->layer;
        const RecipeStream stream = recipe_communicates[one->entry.component] ? RECIPE_COMM : RECIPE_COMPUTE;
        const double origin = inside->pair->start;
        times->spans[stream][times->counts[stream]++] =
            (RecipeSpan){one->entry, layer, one->start - origin, one->end - origin};
    }
}

static RecipeTimes times_of(const Inside *inside, uint32_t layers, Arena *arena)
{
    RecipeTimes times = {.layers = layers, .makespan = inside->pair->end - inside->pair->start};
    for (int s = 0; s < RECIPE_STREAMS; s++)
        times.spans[s] = arena_array(arena, inside->count, sizeof *times.spans[s]);
    add_spans(inside, &times);
    for (int s = 0; s < RECIPE_STREAMS; s++)
        times.busy[s] = covered(times.spans[s], times.counts[s], 0, times.makespan);
    for (uint32_t i = 0; i < times.counts[RECIPE_COMPUTE]; i++) {
        const RecipeSpan *span = &times.spans[RECIPE_COMPUTE][i];
        times.hidden += covered(times.spans[RECIPE_COMM], times.counts[RECIPE_COMM], span->start, span->end);
    }
    return times;
}

static const char *name_of(const Comparison *comparison, const TraceEvent *pair, Arena *arena)
{
    return arena_format(arena, "%s, step %u, rank %u (%uF%u&%uB%u)", comparison->trace->path, comparison->step,
                        pair->rank, pair->stage, pair->microbatch, pair[1].stage, pair[1].microbatch);
}

bool diff_inside(const Comparison *comparison, Arena *arena, InsidePair *result)
{
    const Trace *trace = comparison->trace;
    const Recipe *recipe = comparison->schedule->recipes.common;
    if (!recipe || recipe_is_forward(recipe) || comparison->scaled || comparison->unit <= 0)
        return false;
    result->predicted = recipe_times(recipe, comparison->predicted.costs, arena);
    recipe_times_scale(&result->predicted, comparison->unit);
    size_t count;
    const TraceComponent **sorted = trace_step_components(trace, comparison->step, by_start, arena, &count);
    if (!count || result->predicted.makespan <= 0)
        return false;
    const TraceStep step = trace_step_events(trace, comparison->step);
    Inside *insides = arena_array(arena, (size_t)(step.end - step.first), sizeof *insides);
    const size_t found = find_insides(comparison, sorted, count, result->predicted.layers, insides);
    if (!found)
        return false;
    qsort(insides, found, sizeof *insides, by_length);
    const Inside *typical = &insides[(found - 1) / 2];
    result->measured = times_of(typical, result->predicted.layers, arena);
    result->name = name_of(comparison, typical->pair, arena);
    return true;
}
