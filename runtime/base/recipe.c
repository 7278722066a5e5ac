#include "runtime/base/recipe.h"

#include <string.h>

#define PART(number, name, role, passes) ((role) == PART_COMMUNICATES),
const bool recipe_communicates[MODEL_PARTS] = {MODEL_PART_LIST};
#undef PART
const char *const recipe_stream_names[RECIPE_STREAMS] = {"compute", "comm"};

ModelPart recipe_component(const char *name)
{
    ModelPart component = 0;
    while (component < RECIPE_COMPONENTS && strcmp(part_names[component], name) != 0)
        component++;
    return component;
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
    for (RecipeStream s = 0; s < RECIPE_STREAMS; s++) {
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
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < recipe->counts[s]; i++)
            count += recipe_entry_same(recipe->entries[s][i], entry);
    return count;
}

bool recipe_has(const Recipe *recipe, ModelPart component, RecipePass pass)
{
    return count_of(recipe, (RecipeEntry){(uint8_t)component, (uint8_t)pass}) > 0;
}

bool recipe_needs(const Recipe *recipe, RecipeEntry entry, RecipeEntry *needed)
{
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

/* Issues as many entries as possible; `next` then has the heads of the streams. */
static uint32_t issue(const Recipe *recipe, RecipeEntry *order, uint32_t *next)
{
    bool issued[RECIPE_COMPONENTS][RECIPE_PASSES] = {{false}};
    uint32_t count = 0;
    next[RECIPE_COMPUTE] = next[RECIPE_COMM] = 0;
    for (int s = RECIPE_COMM; s >= 0;) {
        RecipeEntry entry, needed;
        if (next[s] < recipe->counts[s]) {
            entry = recipe->entries[s][next[s]];
            if (!recipe_needs(recipe, entry, &needed) || issued[needed.component][needed.pass]) {
                issued[entry.component][entry.pass] = true;
                order[count++] = entry;
                next[s]++;
                s = RECIPE_COMM;
                continue;
            }
        }
        s--;
    }
    return count;
}

uint32_t recipe_order(const Recipe *recipe, RecipeEntry *order)
{
    uint32_t next[RECIPE_STREAMS];
    return issue(recipe, order, next);
}

/* --- checking --- */

static bool check_entry(const Recipe *recipe, RecipeStream stream, uint32_t index, RecipeFault *fault)
{
    const RecipeEntry entry = recipe->entries[stream][index];
    char text[32];
    *fault = (RecipeFault){.stream = stream, .index = index};
    if (entry.component >= RECIPE_COMPONENTS || entry.pass >= RECIPE_PASSES) {
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
    for (int s = 0; s <= (int)stream; s++)
        for (uint32_t i = 0; i < ((RecipeStream)s == stream ? index : recipe->counts[s]); i++)
            if (recipe_entry_same(recipe->entries[s][i], entry)) {
                snprintf(fault->text, sizeof fault->text, "%s is given twice", text);
                snprintf(fault->help, sizeof fault->help,
                         "a recipe is of one layer, in which every component runs once");
                return false;
            }
    return true;
}

static bool check_complete(const Recipe *recipe, RecipeFault *fault)
{
    for (ModelPart c = 0; c < RECIPE_COMPONENTS; c++) {
        const RecipePass last = recipe_communicates[c] ? RECIPE_B : RECIPE_W;
        bool any = false;
        for (RecipePass pass = 0; pass <= last; pass++)
            any = any || recipe_has(recipe, c, pass);
        for (RecipePass pass = 0; any && pass <= last; pass++) {
            if (recipe_has(recipe, c, pass))
                continue;
            char text[32];
            const RecipeStream stream = recipe_communicates[c] ? RECIPE_COMM : RECIPE_COMPUTE;
            recipe_entry_text((RecipeEntry){(uint8_t)c, (uint8_t)pass}, text, sizeof text);
            *fault = (RecipeFault){.stream = stream, .index = recipe->counts[stream]};
            snprintf(fault->text, sizeof fault->text, "%s is missing", text);
            snprintf(fault->help, sizeof fault->help,
                     "name a component in both halves or in neither; the model runs one without a name when its half "
                     "reaches it");
            return false;
        }
    }
    return true;
}

/* Explains why the streams wait for each other at `next`. */
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
    uint32_t next[RECIPE_STREAMS];
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < recipe->counts[s]; i++)
            if (!check_entry(recipe, (RecipeStream)s, i, fault))
                return false;
    if (!check_complete(recipe, fault))
        return false;
    if (issue(recipe, order, next) < (uint32_t)recipe->counts[RECIPE_COMPUTE] + recipe->counts[RECIPE_COMM]) {
        explain_stop(recipe, next, fault);
        return false;
    }
    *fault = (RecipeFault){.stream = RECIPE_COMM, .index = recipe->counts[RECIPE_COMM]};
    if (recipe->share ? recipe->share < recipe->whole : !recipe->whole)
        return true;
    snprintf(fault->text, sizeof fault->text, "comm takes %u of %u multiprocessors", recipe->share, recipe->whole);
    snprintf(fault->help, sizeof fault->help, "write the part that it takes, and leave some to compute: on 20 of 132");
    return false;
}
