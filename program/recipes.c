#include "program/recipes.h"

bool recipes_any(const Recipes *recipes) { return recipes->common || recipes->count; }

bool recipes_are_forward(const Recipes *recipes)
{
    if (recipes->common)
        return recipe_is_forward(recipes->common);
    return recipes->count && recipe_is_forward(&recipes->own[0].recipe);
}

bool recipes_put_off(const Recipes *recipes)
{
    bool any = recipes->common && recipe_put_off(recipes->common);
    for (uint32_t i = 0; i < recipes->count; i++)
        any |= recipe_put_off(&recipes->own[i].recipe) != 0;
    return any;
}

uint32_t recipes_find(const Recipes *recipes, uint32_t first, uint32_t second)
{
    uint32_t i = 0;
    while (i < recipes->count && (recipes->own[i].first != first || recipes->own[i].second != second))
        i++;
    return i;
}

const Recipe *recipes_of_pair(const Recipes *recipes, uint32_t first, uint32_t second)
{
    const uint32_t found = recipes_find(recipes, first, second);
    return found < recipes->count ? &recipes->own[found].recipe : recipes->common;
}

void recipes_pair_text(const Recipes *recipes, uint32_t index, char *text, size_t size)
{
    const char second = recipes_are_forward(recipes) ? 'F' : 'B';
    if (index < recipes->count)
        snprintf(text, size, "F%u&%c%u", recipes->own[index].first, second, recipes->own[index].second);
    else
        snprintf(text, size, "F&%c", second);
}

uint16_t recipes_pair_put_off(const Recipes *recipes, uint32_t first, uint32_t second)
{
    const Recipe *recipe = recipes_of_pair(recipes, first, second);
    return recipe ? recipe_put_off(recipe) : 0;
}
