#include "study/trials/candidates.h"

#include <string.h>

enum {
    PARAMETERS_MAX = 4, /* at most this many parameters are varied; further ones keep the file's values */
    VALUES_MAX = 12,
    LARGEST = 1 << 30, /* a parameter whose own value is larger, or less than -LARGEST, is not varied */
};

typedef struct Maker {
    const Ast *tree;
    const Parameters *given;
    Arena *arena;
    const Item *varied[PARAMETERS_MAX];
    uint32_t varied_count;
    int64_t *values;                  /* by slot */
    Parameter chosen[PARAMETERS_MAX]; /* [chosen_count]: the values to set, as -D does */
    uint32_t chosen_count, changed;   /* changed: how many chosen values differ from the file's own */
    Candidates made;
} Maker;

static bool tunes_search(const Ast *tree, uint32_t slot)
{
    for (Setting setting = 0; tree->order && setting < SETTINGS; setting++)
        if (expression_mentions(tree->order->order.settings[setting], slot))
            return true;
    return false;
}

const Item *memory_parameter(const Ast *tree)
{
    const Expression *memory = tree->order ? tree->order->order.settings[SETTING_MEMORY] : NULL;
    for (const Item *item = tree->items; memory && item; item = item->next)
        if (item->kind == ITEM_PARAM && memory->kind == EXPRESSION_NAME && memory->slot == item->slot)
            return item;
    return NULL;
}

static void find_varied(Maker *maker)
{
    for (const Item *item = maker->tree->items; item && maker->varied_count < PARAMETERS_MAX; item = item->next)
        if (item->kind == ITEM_PARAM && !parameters_has(maker->given, item->name.symbol->text) &&
            !tunes_search(maker->tree, item->slot) && !(item->value->depends & DEPENDS_ON_COSTS))
            maker->varied[maker->varied_count++] = item;
}

static bool is_varied(const Maker *maker, const Item *item)
{
    for (uint32_t i = 0; i < maker->varied_count; i++)
        if (maker->varied[i] == item)
            return true;
    return false;
}

/* Writes the file's own value, then others, the likely ones first. Returns their number. */
static size_t values_near(const Maker *maker, const Item *item, int64_t own, int64_t values[VALUES_MAX])
{
    /* indexed by the number of varied parameters: how many values of each are tried at most */
    static const size_t most[PARAMETERS_MAX + 1] = {1, VALUES_MAX, 6, 4, 3};
    const bool large = own < -LARGEST || own > LARGEST;
    const int64_t n = large ? 0 : own; /* a large value is not varied: 4 * own could overflow */
    const int64_t near[VALUES_MAX] = {own, 2 * n, n / 2, 3 * n / 2, 1, 3, 4 * n, 2, 4, 6, 8, 0};
    const size_t known = large ? 1 : item->value->depends ? 4 : VALUES_MAX;
    size_t count = 0;
    for (size_t i = 0; i < known && count < most[maker->varied_count]; i++) {
        size_t same = 0;
        while (same < count && values[same] != near[i])
            same++;
        values[same] = near[i];
        count += same == count;
    }
    return count;
}

static void keep(Maker *maker)
{
    Parameters kept = *maker->given;
    kept.others = NULL; /* parameters_set gives `kept` an array of its own */
    kept.count = kept.capacity = 0;
    for (uint32_t i = 0; i < maker->given->count; i++)
        parameters_set(&kept, maker->arena, maker->given->others[i].name, maker->given->others[i].value);
    for (uint32_t i = 0; i < maker->chosen_count; i++)
        parameters_set(&kept, maker->arena, maker->chosen[i].name, maker->chosen[i].value);
    maker->made.all[maker->made.count++] = kept;
}

static void choose(Maker *maker, const Item *item, bool own_only);

static void choose_value(Maker *maker, const Item *item, bool own_only)
{
    int64_t values[VALUES_MAX];
    const int64_t own = maker->values[item->slot];
    const size_t count = own_only ? 1 : values_near(maker, item, own, values);
    for (size_t i = 0; i < count; i++) {
        const int64_t value = own_only ? own : values[i];
        const bool named = value != own || !item->value->depends;
        maker->values[item->slot] = value;
        maker->chosen[maker->chosen_count] = (Parameter){item->name.symbol->text, value};
        maker->chosen_count += named;
        maker->changed += value != own;
        choose(maker, item->next, own_only);
        maker->chosen_count -= named;
        maker->changed -= value != own;
    }
}

/* Chooses the values of the params from `item` to the end of the file. Keeps each combination that differs from the
   file's own values and that no checked require refuses, until there are CANDIDATES_MAX. Requires that may differ by
   rank or use cost() are not checked. own_only: keeps only the combination of the file's own values, even if a require
   fails. */
static void choose(Maker *maker, const Item *item, bool own_only)
{
    Fault fault;
    int64_t holds = 1;
    for (; item; item = item->next) {
        if (item_per_rank(item))
            continue;
        if (!item_evaluate(item, maker->given, maker->values, &fault) ||
            (item->kind == ITEM_REQUIRE && !item_waits(item, maker->values) &&
             !evaluate(item->value, maker->values, &holds, &fault)))
            holds = 0;
        if (!holds && !own_only)
            return;
        if (is_varied(maker, item)) {
            choose_value(maker, item, own_only);
            return;
        }
    }
    if (maker->made.count < CANDIDATES_MAX && (own_only || maker->changed))
        keep(maker);
}

Candidates candidates_of(const Ast *tree, const Parameters *given, Arena *arena)
{
    Maker maker = {.tree = tree, .given = given, .arena = arena, .values = values_new(tree, given, arena)};
    maker.made.all = arena_array(arena, CANDIDATES_MAX, sizeof *maker.made.all);
    find_varied(&maker);
    choose(&maker, tree->items, true);
    choose(&maker, tree->items, false);
    return maker.made;
}
