#include "compiler/tree/recipe.h"

#include "base/names.h"

#include <string.h>

/* Where each entry of the recipe is in the source. The span after those of a stream's entries is that of the stream's
   name, or of the whole item if the recipe does not have the stream. */
typedef struct Places {
    Span spans[RECIPE_LISTS][RECIPE_ENTRIES + 1];
} Places;

static void unknown(const Name *name, const char *what, const char *all, const char *const *words, size_t count,
                    Diagnostics *diagnostics)
{
    NearestWord nearest = nearest_to(name->symbol->text);
    for (size_t i = 0; i < count; i++)
        nearest_consider(&nearest, words[i]);
    diag_error(diagnostics, name->span, "no %s is called `%s`", what, name->symbol->text);
    if (nearest.word)
        diag_help(diagnostics, "did you mean `%s`?", nearest.word);
    else
        diag_help(diagnostics, "the names are %s", all);
}

static bool fail(Diagnostics *diagnostics, Span span, const char *text, const char *help)
{
    diag_error(diagnostics, span, "%s", text);
    diag_help(diagnostics, "%s", help);
    return false;
}

/* Reads the pass of an entry (recipe for F&Bs) or its half (recipe for F&Fs). False: it reported an error. */
static bool read_pass(const WrittenEntry *written, bool forward, uint8_t *pass, Diagnostics *diagnostics)
{
    static const uint8_t passes[] = {
        [ACTION_F] = RECIPE_F, [ACTION_B] = RECIPE_B, [ACTION_I] = RECIPE_B, [ACTION_W] = RECIPE_W};
    const bool numbered = written->half != NO_HALF;
    if (forward && (!numbered || written->half > 1))
        return fail(diagnostics, written->span, "a component of an F&F names its half, 0 or 1",
                    "such as attention(0), of the first microbatch, and attention(1), of the second");
    if (!forward && numbered)
        return fail(diagnostics, written->span, "a component of an F&B names its pass, F, B or W",
                    "such as attention(F); numbers are the halves of an F&F: overlap F&F { ... }");
    if (written->pass == ACTION_U || written->chunk != NO_CHUNK)
        return fail(diagnostics, written->span, "a component names one of F, B and W, without a chunk",
                    written->pass == ACTION_U ? "a U updates the weights of a whole stage"
                                              : "its chunk is that of the F or B of the F&B: write attention(F)");
    *pass = forward ? (uint8_t)(RECIPE_FIRST + written->half) : passes[written->pass];
    return true;
}

/* Reads an entry. False: it reported an error. */
static bool read_entry(const WrittenEntry *written, bool forward, RecipeEntry *entry, Diagnostics *diagnostics)
{
    const char *name = written->component.symbol->text;
    const ModelPart component = part_named(name, strlen(name));
    if (component >= RECIPE_NAMES) {
        unknown(&written->component, "component of a layer",
                forward
                    ? "`attention` (or its parts `qkv` and `core`), `dispatch`, `mlp`, `shared` (the shared experts "
                      "of `mlp`) and `combine`; with --model mlp `perceptron`"
                    : "`attention`, `dispatch`, `mlp` and `combine`; with --model mlp `perceptron`",
                part_names, forward ? (size_t)RECIPE_NAMES : (size_t)RECIPE_COMPONENTS, diagnostics);
        return false;
    }
    if (!forward && component >= RECIPE_COMPONENTS) {
        diag_error(diagnostics, written->component.span, "only a recipe of F&Fs names `%s`", part_names[component]);
        diag_help(diagnostics, "it is a part of `%s`: name that",
                  part_names[component == RECIPE_SHARED ? RECIPE_MLP : RECIPE_ATTENTION]);
        return false;
    }
    entry->component = (uint8_t)component;
    return read_pass(written, forward, &entry->pass, diagnostics);
}

static bool spells_weight(const WrittenStream *streams)
{
    for (; streams; streams = streams->next)
        for (const WrittenEntry *entry = streams->entries; entry; entry = entry->next)
            if (entry->pass == ACTION_W)
                return true;
    return false;
}

static void put(Recipe *recipe, Places *places, RecipeStream stream, RecipeEntry entry, Span span)
{
    const uint32_t index = recipe->counts[stream]++;
    recipe->entries[stream][index] = entry;
    places->spans[stream][index] = span;
}

/* Reads a stream. As in steps, a B is only the input half if the recipe has a W, and the whole backward otherwise.
   False: it reported an error. */
static bool read_stream(Item *item, const WrittenStream *written, RecipeStream stream, Places *places,
                        Diagnostics *diagnostics)
{
    Recipe *recipe = &item->recipe.made;
    bool good = true;
    for (const WrittenEntry *next = written->entries; next; next = next->next) {
        RecipeEntry entry;
        if (!read_entry(next, item->recipe.pair.forward, &entry, diagnostics)) {
            good = false;
        } else if (recipe_has(recipe, entry.component, entry.pass)) {
            diag_error(diagnostics, next->span, "this component's pass is given twice");
            diag_help(diagnostics, "a recipe is of one layer, in which each pass of a component runs once");
            good = false;
        } else {
            put(recipe, places, stream, entry, next->span);
            if (next->pass == ACTION_B && !recipe_communicates[entry.component] && !spells_weight(item->recipe.streams))
                put(recipe, places, stream, (RecipeEntry){entry.component, RECIPE_W}, next->span);
        }
    }
    return good;
}

void recipe_read(Item *item, Diagnostics *diagnostics)
{
    const WrittenStream *streams[RECIPE_LISTS] = {NULL};
    Places places;
    bool good = true;
    for (int s = 0; s < RECIPE_LISTS; s++)
        places.spans[s][0] = item->span;
    for (const WrittenStream *written = item->recipe.streams; written; written = written->next) {
        RecipeStream stream = 0;
        while (stream < RECIPE_LISTS && strcmp(recipe_stream_names[stream], written->name.symbol->text) != 0)
            stream++;
        if (stream == RECIPE_LISTS) {
            unknown(&written->name, "stream", "`compute`, `comm` and `after`", recipe_stream_names, RECIPE_LISTS,
                    diagnostics);
            good = false;
        } else if (streams[stream]) {
            diag_error(diagnostics, written->name.span, "a second `%s`", recipe_stream_names[stream]);
            diag_note(diagnostics, streams[stream]->name.span, "the first");
            good = false;
        } else {
            streams[stream] = written;
            good &= read_stream(item, written, stream, &places, diagnostics);
            places.spans[stream][item->recipe.made.counts[stream]] = written->name.span;
        }
        if ((stream == RECIPE_COMPUTE || stream == RECIPE_AFTER) && written->share.part) {
            diag_error(diagnostics, written->share.part->span,
                       "only `comm` takes a share of the multiprocessors (SMs): `compute` has the others");
            good = false;
        }
    }
    if (streams[RECIPE_COMM])
        item->recipe.share = streams[RECIPE_COMM]->share;
    RecipeFault fault;
    if (!good || recipe_check(&item->recipe.made, &fault))
        return;
    diag_error(diagnostics, places.spans[fault.stream][fault.index], "%s", fault.text);
    if (*fault.help)
        diag_help(diagnostics, "%s", fault.help);
}
