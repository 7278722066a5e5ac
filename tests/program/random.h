#pragma once

/* Random numbers and random recipes. */

#include "program/recipe.h"

static inline uint64_t random_next(uint64_t *state)
{
    /* splitmix64 (Steele, Lea, Flood, 2014) */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint32_t random_below(uint64_t *state, uint32_t limit) { return (uint32_t)(random_next(state) % limit); }

/* A valid random recipe: components in an order in which each comes after what it needs, communication in comm or in
   compute. */
static inline Recipe random_recipe(uint64_t *seed)
{
    Recipe recipe = {.counts = {0}};
    bool left[RECIPE_COMPONENTS][RECIPE_PASSES] = {{false}};
    uint32_t count = 0;
    for (int c = 0; c < RECIPE_COMPONENTS; c++) {
        const bool named = random_below(seed, 4) > 0;
        for (int pass = 0; pass < RECIPE_PASSES; pass++) {
            left[c][pass] = named && (pass != RECIPE_W || !recipe_communicates[c]);
            count += left[c][pass];
        }
    }
    while (count) {
        const int c = (int)random_below(seed, RECIPE_COMPONENTS), pass = (int)random_below(seed, RECIPE_PASSES);
        bool waits = !left[c][pass] || (pass == RECIPE_W && left[c][RECIPE_B]);
        for (int other = 0; other < RECIPE_COMPONENTS; other++)
            waits = waits || (pass != RECIPE_W && left[other][pass] && (pass == RECIPE_F ? other < c : other > c));
        if (waits)
            continue;
        const int stream = recipe_communicates[c] && random_below(seed, 3) ? RECIPE_COMM : RECIPE_COMPUTE;
        recipe.entries[stream][recipe.counts[stream]++] = (RecipeEntry){(uint8_t)c, (uint8_t)pass};
        left[c][pass] = false;
        count--;
    }
    if (random_below(seed, 2)) {
        recipe.whole = (uint16_t)(2 + random_below(seed, RECIPE_SHARE_MAX - 1));
        recipe.share = (uint16_t)(1 + random_below(seed, recipe.whole - 1u));
    }
    return recipe;
}

/* Moves some W of a recipe from its list `compute` to its list `after`. */
static inline void put_weights_off(Recipe *recipe, uint64_t *seed)
{
    const uint8_t count = recipe->counts[RECIPE_COMPUTE];
    recipe->counts[RECIPE_COMPUTE] = 0;
    for (uint8_t i = 0; i < count; i++) {
        const RecipeEntry entry = recipe->entries[RECIPE_COMPUTE][i];
        recipe->entries[RECIPE_COMPUTE][i] = (RecipeEntry){0};
        const RecipeStream list = entry.pass == RECIPE_W && random_below(seed, 2) ? RECIPE_AFTER : RECIPE_COMPUTE;
        recipe->entries[list][recipe->counts[list]++] = entry;
    }
}
