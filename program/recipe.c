#include "program/recipe.h"

#define PART(number, name, role, passes) ((role) == PART_COMMUNICATES),
const bool recipe_communicates[MODEL_PARTS] = {MODEL_PART_LIST};
#undef PART
const char *const recipe_stream_names[RECIPE_LISTS] = {"compute", "comm", "after"};

bool recipe_is_forward(const Recipe *recipe)
{
    for (int s = 0; s < RECIPE_LISTS; s++)
        if (recipe->counts[s])
            return recipe->entries[s][0].pass >= RECIPE_FIRST;
    return false;
}

int recipe_entry_text(RecipeEntry entry, char *text, size_t size)
{
    return snprintf(text, size, "%s(%c)", part_names[entry.component], part_pass_letters[entry.pass]);
}

bool recipe_entry_same(RecipeEntry a, RecipeEntry b) { return a.component == b.component && a.pass == b.pass; }

static void put_stream(const Recipe *recipe, RecipeStream s, FILE *stream)
{
    fprintf(stream, "%s:", recipe_stream_names[s]);
    for (uint32_t i = 0; i < recipe->counts[s]; i++) {
        char text[32];
        recipe_entry_text(recipe->entries[s][i], text, sizeof text);
        fprintf(stream, " %s", text);
    }
    if (s == RECIPE_COMM && recipe->share)
        fprintf(stream, " on %u of %u", recipe->share, recipe->whole);
}

void recipe_put(const Recipe *recipe, const char *before, const char *after, FILE *stream)
{
    for (RecipeStream s = 0; s < RECIPE_LISTS; s++) {
        if (!recipe->counts[s])
            continue;
        fputs(before, stream);
        put_stream(recipe, s, stream);
        fprintf(stream, "%s\n", after);
    }
}

static uint32_t count_of(const Recipe *recipe, RecipeEntry entry)
{
    uint32_t count = 0;
    for (int s = 0; s < RECIPE_LISTS; s++)
        for (uint32_t i = 0; i < recipe->counts[s]; i++)
            count += recipe_entry_same(recipe->entries[s][i], entry);
    return count;
}

bool recipe_has(const Recipe *recipe, ModelPart component, uint8_t pass)
{
    return count_of(recipe, (RecipeEntry){(uint8_t)component, pass}) > 0;
}

uint16_t recipe_put_off(const Recipe *recipe)
{
    uint16_t components = 0;
    for (uint32_t i = 0; i < recipe->counts[RECIPE_AFTER]; i++)
        components |= (uint16_t)(1u << recipe->entries[RECIPE_AFTER][i].component);
    return components;
}

/* For F&Fs: the components of a layer in the order of its forward. A recipe may name qkv and core in place of
   attention. The shared experts are not in `chain`: they run beside it. */
static const ModelPart chain[] = {RECIPE_QKV, RECIPE_CORE,    RECIPE_ATTENTION, RECIPE_DISPATCH,
                                  RECIPE_MLP, RECIPE_COMBINE, RECIPE_PERCEPTRON};
enum { CHAIN = sizeof chain / sizeof *chain, CHAIN_ATTENTION = 3 /* the first 3 parts of `chain` are attention's */ };

/* Finds what an entry of an F&F needs: the last component before it in `chain` that the recipe names; for the shared
   experts, the last one of attention. False: there is no such component. */
static bool forward_needs(const Recipe *recipe, RecipeEntry entry, RecipeEntry *needed)
{
    int at = CHAIN_ATTENTION;
    if (entry.component != RECIPE_SHARED)
        for (at = 0; at < CHAIN && chain[at] != entry.component;)
            at++;
    while (at-- > 0)
        if (recipe_has(recipe, chain[at], entry.pass)) {
            *needed = (RecipeEntry){(uint8_t)chain[at], entry.pass};
            return true;
        }
    return false;
}

bool recipe_needs(const Recipe *recipe, RecipeEntry entry, RecipeEntry *needed)
{
    if (entry.pass >= RECIPE_FIRST)
        return forward_needs(recipe, entry, needed);
    if (entry.pass == RECIPE_W) {
        *needed = (RecipeEntry){entry.component, RECIPE_B};
        return true;
    }
    const int step = entry.pass == RECIPE_F ? -1 : 1;
    for (int c = entry.component + step; c >= 0 && c < RECIPE_COMPONENTS; c += step)
        if (recipe_has(recipe, (ModelPart)c, entry.pass)) {
            *needed = (RecipeEntry){(uint8_t)c, entry.pass};
            return true;
        }
    return false;
}

/* --- the order of issue --- */

uint8_t recipe_half(uint8_t pass) { return pass != RECIPE_F && pass != RECIPE_FIRST; }

/* The number of layers in which an entry has been issued. A late entry begins at layer -1. */
static int64_t layers_done(const RecipeWalk *walk, RecipeEntry entry)
{
    return (int64_t)walk->issued[entry.component][entry.pass] - walk->late.late[entry.component][entry.pass];
}

/* Whether an entry may be issued in its next layer. If it needs another entry, that entry must have been issued in the
   same layer. If it needs none, it begins the layer: all entries of its pass must have been issued in the layer before.
   */
static bool is_ready(const RecipeWalk *walk, RecipeEntry entry)
{
    const int64_t layer = layers_done(walk, entry);
    RecipeEntry needed;
    if (recipe_needs(walk->recipe, entry, &needed))
        return layers_done(walk, needed) > layer;
    for (uint8_t c = 0; c < RECIPE_NAMES; c++)
        if (layers_done(walk, (RecipeEntry){c, entry.pass}) < layer && recipe_has(walk->recipe, c, entry.pass))
            return false;
    return true;
}

/* Issues the next entry of comm if it is ready, otherwise the next entry of compute if it is ready. *layer is
   UINT32_MAX for layer -1. False: both streams have run `rounds` rounds, or their next entries are not ready. */
static bool issue(RecipeWalk *walk, uint32_t rounds, RecipeEntry *entry, uint32_t *layer)
{
    for (int s = RECIPE_STREAMS; s-- > 0;) {
        const uint32_t count = walk->recipe->counts[s];
        if (walk->at[s] == rounds * count)
            continue;
        *entry = walk->recipe->entries[s][walk->at[s] % count];
        *layer = (uint32_t)layers_done(walk, *entry);
        if (!is_ready(walk, *entry))
            continue;
        walk->issued[entry->component][entry->pass]++;
        walk->at[s]++;
        return true;
    }
    return false;
}

/* Issues as many entries of one round as possible. Returns their number. walk->at then has the index of the first entry
   of each stream that was not issued. */
static uint32_t issue_round(RecipeWalk *walk, RecipeEntry *order)
{
    RecipeEntry entry;
    uint32_t count = 0;
    for (uint32_t layer; issue(walk, 1, &entry, &layer);)
        order[count++] = entry;
    return count;
}

static uint32_t entry_count(const Recipe *recipe)
{
    return (uint32_t)recipe->counts[RECIPE_COMPUTE] + recipe->counts[RECIPE_COMM];
}

/* Marks an entry as late, and all entries that need it. */
static void make_late(const Recipe *recipe, RecipeLate *late, RecipeEntry entry)
{
    late->late[entry.component][entry.pass] = late->any = true;
    for (bool more = true; more;) {
        more = false;
        for (uint8_t c = 0; c < RECIPE_NAMES; c++) {
            RecipeEntry needed;
            bool *own = &late->late[c][entry.pass];
            if (*own || !recipe_has(recipe, (ModelPart)c, entry.pass) ||
                !recipe_needs(recipe, (RecipeEntry){c, entry.pass}, &needed))
                continue;
            *own = late->late[needed.component][entry.pass];
            more |= *own;
        }
    }
}

static bool needs_directly_or_not(const Recipe *recipe, RecipeEntry entry, RecipeEntry other)
{
    RecipeEntry needed;
    for (; recipe_needs(recipe, entry, &needed); entry = needed)
        if (recipe_entry_same(needed, other))
            return true;
    return false;
}

/* Marks entries as late if an entry that they need comes after them in the same stream. */
static void find_late(const Recipe *recipe, RecipeLate *late)
{
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < recipe->counts[s]; i++)
            for (uint32_t k = i + 1; k < recipe->counts[s]; k++)
                if (needs_directly_or_not(recipe, recipe->entries[s][i], recipe->entries[s][k]))
                    make_late(recipe, late, recipe->entries[s][i]);
}

/* For a round in which both streams stopped and wait for each other: marks the entry at which one of them stopped as
   late. It then belongs to the layer before, and no longer waits. False: neither entry can be late, so the recipe is
   wrong, and recipe_check says why. */
static bool make_head_late(const RecipeWalk *stopped, RecipeLate *late)
{
    const Recipe *recipe = stopped->recipe;
    for (int s = RECIPE_STREAMS; s-- > 0;) {
        RecipeEntry needed;
        if (stopped->at[s] == recipe->counts[s])
            continue;
        const RecipeEntry head = recipe->entries[s][stopped->at[s]];
        if (!late->late[head.component][head.pass] && recipe_needs(recipe, head, &needed)) {
            make_late(recipe, late, head);
            return true;
        }
    }
    return false;
}

RecipeLate recipe_late(const Recipe *recipe)
{
    RecipeLate late = {.any = false};
    RecipeEntry order[RECIPE_ENTRIES];
    if (!recipe_is_forward(recipe))
        return late;
    find_late(recipe, &late);
    for (;;) {
        RecipeWalk walk = {.recipe = recipe, .late = late};
        if (issue_round(&walk, order) == entry_count(recipe) || !make_head_late(&walk, &late))
            return late;
    }
}

RecipeWalk recipe_walk(const Recipe *recipe, uint32_t first_layers, uint32_t second_layers)
{
    return (RecipeWalk){.recipe = recipe, .late = recipe_late(recipe), .layers = {first_layers, second_layers}};
}

bool recipe_walk_next(RecipeWalk *walk, RecipeEntry *entry, uint32_t *layer)
{
    const uint32_t *layers = walk->layers, rounds = (layers[0] > layers[1] ? layers[0] : layers[1]) + walk->late.any;
    do {
        if (!issue(walk, rounds, entry, layer))
            return false;
    } while (*layer >= layers[recipe_half(entry->pass)]);
    return true;
}

uint32_t recipe_order(const Recipe *recipe, RecipeEntry *order)
{
    RecipeWalk walk = recipe_walk(recipe, 1, 1);
    return issue_round(&walk, order);
}

/* --- checking --- */

/* Whether an entry is valid. In an F&F the passes are RECIPE_FIRST and RECIPE_SECOND, and parts of a component may be
   named. */
static bool exists(RecipeEntry entry, bool is_forward)
{
    if (is_forward)
        return entry.component < RECIPE_NAMES && entry.pass >= RECIPE_FIRST && entry.pass < RECIPE_HALVES;
    return entry.component < RECIPE_COMPONENTS && entry.pass < RECIPE_PASSES;
}

static bool check_entry(const Recipe *recipe, RecipeStream stream, uint32_t index, RecipeFault *fault)
{
    const RecipeEntry entry = recipe->entries[stream][index];
    char text[32];
    *fault = (RecipeFault){.stream = stream, .index = index};
    if (!exists(entry, recipe_is_forward(recipe))) {
        snprintf(fault->text, sizeof fault->text, "there is no component %u with a pass %u", entry.component,
                 entry.pass);
        return false;
    }
    recipe_entry_text(entry, text, sizeof text);
    const char *const name = part_names[entry.component];
    if (recipe_communicates[entry.component] && entry.pass == RECIPE_W) {
        snprintf(fault->text, sizeof fault->text, "%s: %s communicates and has no weights", text, name);
        snprintf(fault->help, sizeof fault->help, "a component that communicates has F and B");
        return false;
    }
    if (stream == RECIPE_COMM && !recipe_communicates[entry.component]) {
        snprintf(fault->text, sizeof fault->text, "%s computes: it cannot run in comm", name);
        snprintf(fault->help, sizeof fault->help, "move %s into compute", text);
        return false;
    }
    if (stream == RECIPE_AFTER && entry.pass != RECIPE_W) {
        snprintf(fault->text, sizeof fault->text, "%s cannot come after the pair", text);
        snprintf(fault->help, sizeof fault->help,
                 "only weight gradients of an F&B can, such as attention(W): nothing in the pair needs them");
        return false;
    }
    for (int s = 0; s <= (int)stream; s++)
        for (uint32_t i = 0; i < ((RecipeStream)s == stream ? index : recipe->counts[s]); i++)
            if (recipe_entry_same(recipe->entries[s][i], entry)) {
                snprintf(fault->text, sizeof fault->text, "%s is given twice", text);
                snprintf(fault->help, sizeof fault->help,
                         "a recipe is of one layer, in which each pass of a component runs once");
                return false;
            }
    return true;
}

/* Reports that the recipe lacks an entry. The position is the end of the stream in which the entry should be. */
static bool lacks(const Recipe *recipe, RecipeEntry entry, const char *help, RecipeFault *fault)
{
    char text[32];
    const RecipeStream stream = recipe_communicates[entry.component] ? RECIPE_COMM : RECIPE_COMPUTE;
    recipe_entry_text(entry, text, sizeof text);
    *fault = (RecipeFault){.stream = stream, .index = recipe->counts[stream]};
    snprintf(fault->text, sizeof fault->text, "%s is missing", text);
    snprintf(fault->help, sizeof fault->help, "%s", help);
    return false;
}

static bool check_complete(const Recipe *recipe, RecipeFault *fault)
{
    const bool is_forward = recipe_is_forward(recipe);
    const uint8_t first = is_forward ? RECIPE_FIRST : RECIPE_F;
    for (int c = 0; c < (is_forward ? (int)RECIPE_NAMES : (int)RECIPE_COMPONENTS); c++) {
        const ModelPart part = (ModelPart)c;
        const uint8_t last = is_forward ? RECIPE_SECOND : recipe_communicates[c] ? RECIPE_B : RECIPE_W;
        bool any = false;
        for (uint8_t pass = first; pass <= last; pass++)
            any = any || recipe_has(recipe, part, pass);
        for (uint8_t pass = first; any && pass <= last; pass++)
            if (!recipe_has(recipe, part, pass))
                return lacks(recipe, (RecipeEntry){(uint8_t)c, pass},
                             "name a component in both halves or in neither; the model runs a component that is "
                             "not named when its half reaches it",
                             fault);
    }
    return true;
}

/* Checks the parts of components that an F&F names: qkv and core both or neither, and not beside attention; shared only
   beside mlp. */
static bool check_inside(const Recipe *recipe, RecipeFault *fault)
{
    const bool attention = recipe_has(recipe, RECIPE_ATTENTION, RECIPE_FIRST);
    const bool qkv = recipe_has(recipe, RECIPE_QKV, RECIPE_FIRST), core = recipe_has(recipe, RECIPE_CORE, RECIPE_FIRST);
    if (attention && (qkv || core)) {
        *fault = (RecipeFault){.stream = RECIPE_COMPUTE, .index = recipe->counts[RECIPE_COMPUTE]};
        snprintf(fault->text, sizeof fault->text, "attention is named, and also its part %s", qkv ? "qkv" : "core");
        snprintf(fault->help, sizeof fault->help, "name attention, or its two parts qkv and core");
        return false;
    }
    if (qkv != core)
        return lacks(recipe, (RecipeEntry){qkv ? RECIPE_CORE : RECIPE_QKV, RECIPE_FIRST},
                     "attention has two parts, qkv and core: name both, or attention", fault);
    if (recipe_has(recipe, RECIPE_SHARED, RECIPE_FIRST) && !recipe_has(recipe, RECIPE_MLP, RECIPE_FIRST))
        return lacks(recipe, (RecipeEntry){RECIPE_MLP, RECIPE_FIRST},
                     "shared names the shared experts apart from mlp, which has the others: name both, or mlp", fault);
    return true;
}

/* Reports why the walk stops: an entry comes before one that it needs in the same stream, or the streams wait for each
   other. next[s] is the index of the entry at which stream s stops; counts[s] if it has ended. */
static void explain_stop(const Recipe *recipe, const uint32_t *next, RecipeFault *fault)
{
    char at[RECIPE_STREAMS][32] = {""}, wants[RECIPE_STREAMS][32] = {""};
    for (int s = RECIPE_STREAMS; s-- > 0;) {
        if (next[s] == recipe->counts[s])
            continue;
        RecipeEntry needed;
        recipe_needs(recipe, recipe->entries[s][next[s]], &needed);
        recipe_entry_text(recipe->entries[s][next[s]], at[s], sizeof at[s]);
        recipe_entry_text(needed, wants[s], sizeof wants[s]);
        *fault = (RecipeFault){.stream = (RecipeStream)s, .index = next[s]};
        for (uint32_t i = next[s]; i < recipe->counts[s]; i++)
            if (recipe_entry_same(recipe->entries[s][i], needed)) {
                snprintf(fault->text, sizeof fault->text, "%s needs %s, which comes after it", at[s], wants[s]);
                snprintf(fault->help, sizeof fault->help, "write %s earlier", wants[s]);
                return;
            }
    }
    snprintf(fault->text, sizeof fault->text,
             "the streams wait for each other: compute at %s for %s, comm at %s for %s", at[RECIPE_COMPUTE],
             wants[RECIPE_COMPUTE], at[RECIPE_COMM], wants[RECIPE_COMM]);
    snprintf(fault->help, sizeof fault->help, "one of these must come earlier: %s in comm, or %s in compute",
             wants[RECIPE_COMPUTE], wants[RECIPE_COMM]);
}

bool recipe_check(const Recipe *recipe, RecipeFault *fault)
{
    RecipeEntry order[RECIPE_ENTRIES];
    for (int s = 0; s < RECIPE_LISTS; s++)
        for (uint32_t i = 0; i < recipe->counts[s]; i++)
            if (!check_entry(recipe, (RecipeStream)s, i, fault))
                return false;
    if (!check_complete(recipe, fault) || (recipe_is_forward(recipe) && !check_inside(recipe, fault)))
        return false;
    RecipeWalk walk = recipe_walk(recipe, 1, 1);
    if (issue_round(&walk, order) < entry_count(recipe)) {
        explain_stop(recipe, walk.at, fault);
        return false;
    }
    *fault = (RecipeFault){.stream = RECIPE_COMM, .index = recipe->counts[RECIPE_COMM]};
    if (recipe->share ? recipe->share < recipe->whole : !recipe->whole)
        return true;
    snprintf(fault->text, sizeof fault->text, "comm takes %u of %u multiprocessors", recipe->share, recipe->whole);
    snprintf(fault->help, sizeof fault->help, "write the part that it takes, and leave some to compute: on 20 of 132");
    return false;
}
