#include "program/times/recipe_waits.h"

#include <math.h>

/* Of the spans that `span` needs, the one that ends last. `span` needs the entry of its layer that recipe_needs names;
   if there is none, because it is the first entry of its pass in the layer, it needs all entries of that pass in the
   previous layer. NULL: `span` needs no other. */
static const RecipeSpan *find_needed(const Recipe *recipe, const RecipeTimes *times, const RecipeSpan *span)
{
    RecipeEntry needed;
    const bool inside = recipe_needs(recipe, span->entry, &needed);
    const RecipeSpan *last = NULL;
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < times->counts[s]; i++) {
            const RecipeSpan *other = &times->spans[s][i];
            const bool wanted = inside ? other->layer == span->layer && recipe_entry_same(other->entry, needed)
                                       : other->layer + 1 == span->layer && other->entry.pass == span->entry.pass;
            if (wanted && (!last || other->end > last->end))
                last = other;
        }
    return last;
}

uint32_t recipe_waits(const Recipe *recipe, const RecipeTimes *times, double least, RecipeWait **waits, Arena *arena)
{
    uint32_t count = 0;
    double free_at = 0;
    *waits = arena_array(arena, times->counts[RECIPE_COMPUTE], sizeof **waits);
    for (uint32_t i = 0; i < times->counts[RECIPE_COMPUTE]; i++) {
        const RecipeSpan *span = &times->spans[RECIPE_COMPUTE][i];
        if (span->start - free_at > least) {
            const RecipeSpan *needed = find_needed(recipe, times, span);
            RecipeWait *wait = &(*waits)[count++];
            *wait = (RecipeWait){.waiting = *span, .time = span->start - free_at};
            wait->on_entry = needed && needed->end > free_at;
            if (wait->on_entry) {
                wait->needed = needed->entry;
                wait->needed_layer = needed->layer;
            }
        }
        free_at = fmax(free_at, span->end);
    }
    return count;
}
