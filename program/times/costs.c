#include "program/times/costs.h"

#include "base/bytes.h"
#include "base/file.h"
#include "base/settings.h"
#include "program/times/costs_parts.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOT_GIVEN (-1.0)

/* clang-format off */
const Costs costs_unit = {
    .all = {[COST_F] = 1, [COST_B] = NOT_GIVEN, [COST_I] = 1, [COST_W] = 1, [COST_U] = 0, [COST_FB] = NOT_GIVEN,
            [COST_FF] = NOT_GIVEN, [COST_MEMORY_I] = NOT_GIVEN, [COST_MEMORY_W] = NOT_GIVEN,
            [COST_GRADIENTS] = NOT_GIVEN},
    .overlap = NOT_GIVEN,
    .bandwidth = NOT_GIVEN,
    .unit = NOT_GIVEN,
#define PART(number, name, role, passes) {NOT_GIVEN, NOT_GIVEN, NOT_GIVEN, NOT_GIVEN},
    .parts = {MODEL_PART_LIST},
#undef PART
};
/* clang-format on */

/* --- reading --- */

/* What the brackets after a key may name: nothing, a stage (F[3]), or a link between two ranks (comm[0->1]). */
typedef enum KeyIndex { INDEX_NONE, INDEX_STAGE, INDEX_LINK } KeyIndex;

enum { INDEX_MAX = UINT16_MAX }; /* for stages and ranks */
static const double time_most = 1e12, bytes_most = 0x1p60;

typedef enum KeyNumber {
    NUMBER_ANY,
    NUMBER_BYTES, /* may end in K, M, G or T */
    NUMBER_WHOLE,
} KeyNumber;

typedef struct Key {
    const char *name;
    KeyIndex index;
    KeyNumber number;
    double least, most;
    size_t all; /* offset in Costs of the value without an index */
    size_t one; /* of a value with an index: for a link the offset in LinkCost, for a stage the StageCost */
} Key;

#define STAGE_TIME(name, cost)                                                        \
    {                                                                                 \
        name, INDEX_STAGE, NUMBER_ANY, 0, time_most, offsetof(Costs, all[cost]), cost \
    }
#define STAGE_BYTES(name, cost)                                                          \
    {                                                                                    \
        name, INDEX_STAGE, NUMBER_BYTES, 0, bytes_most, offsetof(Costs, all[cost]), cost \
    }

#define PART_TIME(name, part, pass)                                                       \
    {                                                                                     \
        name, INDEX_NONE, NUMBER_ANY, 0, time_most, offsetof(Costs, parts[part][pass]), 0 \
    }
/* A key for each pass of a part that takes time, as the last column of MODEL_PART_LIST says. */
#define KEY_NONE(name, part)
#define KEY_F(name, part) PART_TIME(name ".F", part, RECIPE_F),
#define KEY_B(name, part) PART_TIME(name ".B", part, RECIPE_B),
#define KEY_WU(name, part) PART_TIME(name ".W", part, RECIPE_W), PART_TIME(name ".U", part, PART_U),
#define KEY_FB(name, part) KEY_F(name, part) KEY_B(name, part)
#define KEY_FWU(name, part) KEY_F(name, part) KEY_WU(name, part)
#define KEY_FBWU(name, part) KEY_FB(name, part) KEY_WU(name, part)

/* clang-format off */
static const Key keys[] = {
    STAGE_TIME("F", COST_F),
    STAGE_TIME("I", COST_I),
    STAGE_TIME("W", COST_W),
    STAGE_TIME("B", COST_B),
    STAGE_TIME("FB", COST_FB),
    STAGE_TIME("FF", COST_FF),
    STAGE_TIME("U", COST_U),
    {"overlap", INDEX_NONE, NUMBER_ANY, 0, 1000, offsetof(Costs, overlap), 0},
    STAGE_BYTES("memory_I", COST_MEMORY_I),
    STAGE_BYTES("memory_W", COST_MEMORY_W),
    {"comm", INDEX_LINK, NUMBER_ANY, 0, time_most, offsetof(Costs, latency), offsetof(LinkCost, latency)},
    {"bytes", INDEX_NONE, NUMBER_BYTES, 0, bytes_most, offsetof(Costs, bytes), 0},
    {"bandwidth", INDEX_LINK, NUMBER_BYTES, 1e-12, bytes_most, offsetof(Costs, bandwidth),
     offsetof(LinkCost, bandwidth)},
    STAGE_BYTES("gradients", COST_GRADIENTS),
    {"layers", INDEX_NONE, NUMBER_WHOLE, 1, 1 << 16, offsetof(Costs, layers), 0},
    {"multiprocessors", INDEX_NONE, NUMBER_WHOLE, 0, RECIPE_SHARE_MAX, offsetof(Costs, multiprocessors), 0},
    {"compute_share", INDEX_NONE, NUMBER_ANY, 1e-6, 1, offsetof(Costs, compute_share), 0},
    {"model_layers", INDEX_NONE, NUMBER_WHOLE, 1, 1 << 16, offsetof(Costs, model_layers), 0},
#define PART(number, name, role, passes) KEY_##passes(name, number)
    MODEL_PART_LIST
#undef PART
    {"unit", INDEX_NONE, NUMBER_ANY, 1e-12, 1e6, offsetof(Costs, unit), 0},
    {"stages", INDEX_NONE, NUMBER_WHOLE, 1, INDEX_MAX + 1, offsetof(Costs, model_stages), 0},
};
/* clang-format on */
enum { KEYS = sizeof keys / sizeof *keys };

const char *stage_cost_name(StageCost cost)
{
    const Key *key = keys;
    while (key->index != INDEX_STAGE || key->one != cost)
        key++;
    return key->name;
}

/* The costs that costs_set is reading. */
typedef struct Reading {
    Costs *costs;
    Arena *arena;
} Reading;

static Status read_value(const Key *key, const char *name, const char *text, double *value, Error *error)
{
    char *end;
    *value = strtod(text, &end);
    const bool is_number = key->number == NUMBER_BYTES ? settings_bytes(text, value) : end != text && !*end;
    const bool good = is_number && *value >= key->least && *value <= key->most &&
                      (key->number != NUMBER_WHOLE || *value == floor(*value));
    if (good)
        return STATUS_OK;
    static const char *const kinds[] = {
        [NUMBER_ANY] = "number", [NUMBER_BYTES] = "number of bytes", [NUMBER_WHOLE] = "whole number"};
    return error_set(error, STATUS_BAD_INPUT, "%s = %s: it must be a %s from %g to %g%s", name, text,
                     kinds[key->number], key->least, key->most,
                     key->number == NUMBER_BYTES ? ", such as 4096, 64K or 1.5G" : "");
}

/* Reads the number of a stage or rank at *text, and moves *text to the character after the number. False: there
   is no number, or it is larger than INDEX_MAX. */
static bool read_index(const char **text, uint32_t *number)
{
    char *end;
    if (!isdigit((unsigned char)**text))
        return false;
    errno = 0;
    const unsigned long read = strtoul(*text, &end, 10);
    *text = end;
    *number = (uint32_t)read;
    return errno == 0 && read <= INDEX_MAX;
}

static Status set_stage(const Reading *reading, const Key *key, const char *name, const char *index, double value,
                        Error *error)
{
    Costs *costs = reading->costs;
    uint32_t stage;
    if (!read_index(&index, &stage) || strcmp(index, "]") != 0)
        return error_set(error, STATUS_BAD_INPUT, "%s: the brackets must hold a stage from 0 to %d, as in %s[3]", name,
                         INDEX_MAX, key->name);
    if (stage >= costs->stage_count) {
        const uint32_t old = costs->stage_count, wanted = stage + 1 > 2 * old ? stage + 1 : 2 * old;
        costs->stages =
            arena_grow(reading->arena, costs->stages, old * sizeof *costs->stages, wanted * sizeof *costs->stages);
        if (!costs->stages)
            return error_set(error, STATUS_NO_MEMORY, "no memory for the costs of %u stages", wanted);
        for (uint32_t s = old; s < wanted; s++)
            for (int cost = 0; cost < STAGE_COSTS; cost++)
                costs->stages[s][cost] = NOT_GIVEN;
        costs->stage_count = wanted;
    }
    costs->stages[stage][key->one] = value;
    return STATUS_OK;
}

/* How many entries of costs->links sort before the link from->to. If the link is listed, this is its index. */
static uint32_t links_before(const Costs *costs, uint32_t from, uint32_t to)
{
    uint32_t low = 0, high = costs->link_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const LinkCost *link = &costs->links[middle];
        if (link->from < from || (link->from == from && link->to < to))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const LinkCost *find_link(const Costs *costs, uint32_t from, uint32_t to)
{
    const uint32_t at = links_before(costs, from, to);
    return at < costs->link_count && costs->links[at].from == from && costs->links[at].to == to ? &costs->links[at]
                                                                                                : NULL;
}

static Status set_link(const Reading *reading, const Key *key, const char *name, const char *index, double value,
                       Error *error)
{
    Costs *costs = reading->costs;
    uint32_t from, to;
    const bool good = read_index(&index, &from) && strncmp(index, "->", 2) == 0 &&
                      (index += 2, read_index(&index, &to)) && strcmp(index, "]") == 0;
    if (!good)
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: the brackets must hold the sending and the receiving rank, from 0 to %d, as in %s[0->1]",
                         name, INDEX_MAX, key->name);
    if (from == to)
        return error_set(error, STATUS_BAD_INPUT, "%s: a rank sends no messages to itself", name);
    if (!find_link(costs, from, to)) {
        costs->links = arena_extend(reading->arena, costs->links, costs->link_count, sizeof *costs->links);
        if (!costs->links)
            return error_set(error, STATUS_NO_MEMORY, "no memory for the costs of links");
        const uint32_t at = links_before(costs, from, to);
        memmove(&costs->links[at + 1], &costs->links[at], (costs->link_count - at) * sizeof *costs->links);
        costs->links[at] = (LinkCost){from, to, NOT_GIVEN, NOT_GIVEN};
        costs->link_count++;
    }
    *(double *)((char *)&costs->links[links_before(costs, from, to)] + key->one) = value;
    return STATUS_OK;
}

/* Fails with an error that lists the passes of the part that take time. `word`: the unknown key that was given. It is
   the name of the part, a dot and something else. */
static Status unknown_pass(const char *word, ModelPart part, Error *error)
{
    const size_t length = strlen(part_names[part]);
    char passes[64] = "";
    for (size_t i = 0; i < KEYS; i++)
        if (strncmp(keys[i].name, part_names[part], length) == 0 && keys[i].name[length] == '.')
            snprintf(passes + strlen(passes), sizeof passes - strlen(passes), "%s%s", *passes ? ", " : "",
                     keys[i].name);
    return error_set(error, STATUS_BAD_INPUT, "no cost '%s', only %s", word, passes);
}

static Status unknown_cost(const char *word, Error *error)
{
    const size_t length = strcspn(word, ".");
    const ModelPart part = word[length] ? part_named(word, length) : MODEL_PARTS;
    if (part == RECIPE_CORE)
        return error_set(error, STATUS_BAD_INPUT,
                         "no cost '%s': core is attention without qkv, so give attention.F and qkv.F", word);
    if (part < MODEL_PARTS)
        return unknown_pass(word, part, error);
    return settings_unknown("cost", word, &keys[0].name, sizeof *keys, KEYS, error);
}

static Status set_value(void *context, const char *name, const char *text, Error *error)
{
    const Reading *reading = context;
    const size_t length = strcspn(name, "[");
    const Key *key = NULL;
    for (size_t i = 0; i < KEYS && !key; i++)
        if (strlen(keys[i].name) == length && memcmp(keys[i].name, name, length) == 0)
            key = &keys[i];
    if (!key) {
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)length, name);
        return unknown_cost(word, error);
    }
    double value;
    TRY(read_value(key, name, text, &value, error));
    if (!name[length]) {
        *(double *)((char *)reading->costs + key->all) = value;
        if (key->index == INDEX_STAGE)
            reading->costs->said |= 1u << key->one;
        return STATUS_OK;
    }
    switch (key->index) {
    case INDEX_STAGE: return set_stage(reading, key, name, name + length + 1, value, error);
    case INDEX_LINK: return set_link(reading, key, name, name + length + 1, value, error);
    default:
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: %s has one value for all stages and ranks: write it without an index", name, key->name);
    }
}

Status costs_set(Costs *costs, const char *text, Arena *arena, Error *error)
{
    Reading reading = {costs, arena};
    if (*text == '@') {
        char *lines;
        size_t size;
        TRY(file_read(text + 1, arena, &lines, &size, error));
        return settings_take(text + 1, lines, size, set_value, &reading, error);
    }
    if (!strchr(text, '=') && access(text, F_OK) == 0 && file_is_kept(text))
        return error_set(error, STATUS_BAD_USAGE, "%s: %s is a file: to read costs from it, write @%s",
                         front_name(costs->front_end, SET_COST), text, text);
    for (const char *next = text; *next;) {
        const size_t length = strcspn(next, ",");
        char *const setting = arena_text(arena, next, length);
        if (!setting)
            return error_set(error, STATUS_NO_MEMORY, "out of memory");
        const Status status = settings_assign(setting, set_value, &reading, error);
        if (status != STATUS_OK) {
            error_prefix(error, "%s: ", front_name(costs->front_end, SET_COST));
            return status == STATUS_BAD_INPUT ? STATUS_BAD_USAGE : status;
        }
        next += length + (next[length] == ',');
    }
    return STATUS_OK;
}

/* --- what follows --- */

bool costs_have(const Costs *costs, StageCost cost)
{
    bool some = costs->all[cost] >= 0;
    for (uint32_t s = 0; s < costs->stage_count; s++)
        some |= costs->stages[s][cost] >= 0;
    return some;
}

double costs_given(const Costs *costs, uint32_t stage, StageCost cost)
{
    const double own = stage < costs->stage_count ? costs->stages[stage][cost] : NOT_GIVEN;
    return own < 0 ? costs->all[cost] : own;
}

double costs_pass(const Costs *costs, uint32_t stage, StageCost kind)
{
    const double time = costs_given(costs, stage, kind);
    return kind == COST_B && time < 0 ? costs_given(costs, stage, COST_I) + costs_given(costs, stage, COST_W) : time;
}

/* The time of an F&F: the mean of the FF of the two stages; if one of them has no FF, `overlap` times the sum of both
   F. */
static double forward_pair(const Costs *costs, uint32_t first, uint32_t second)
{
    const double both = costs_pass(costs, first, COST_F) + costs_pass(costs, second, COST_F);
    const double one = costs_given(costs, first, COST_FF), other = costs_given(costs, second, COST_FF);
    if (one < 0 || other < 0)
        return (costs->overlap < 0 ? 1 : costs->overlap) * both;
    return one == other ? one : (one + other) / 2;
}

const Costs *costs_of_pair(const Costs *costs, uint32_t first_chunk, uint32_t second_chunk)
{
    if (!costs->recipes)
        return costs;
    const uint32_t found = recipes_find(costs->recipes, first_chunk, second_chunk);
    return found < costs->recipes->count ? &costs->with_recipes[found] : costs;
}

/* What the F&B of a stage saves, by its recipe; W that come after it are in neither time. */
static double saved_by_recipe(const Costs *costs, uint32_t stage)
{
    return costs_pass(costs, stage, COST_F) + costs_pass(costs, stage, COST_B) - costs_given(costs, stage, COST_FB) -
           costs_put_off(costs, costs->stage_count, stage, costs->put_off);
}

double costs_pair(const Costs *costs, uint32_t forward, uint32_t backward, StageCost backward_kind)
{
    if (backward_kind == COST_F)
        return forward_pair(costs, forward, backward);
    const double first = costs_pass(costs, forward, COST_F), second = costs_pass(costs, backward, backward_kind);
    const double overlap = costs->overlap < 0 ? 1 : costs->overlap;
    const double pair[] = {costs_given(costs, forward, COST_FB), costs_given(costs, backward, COST_FB)};
    const double turn[] = {first + costs_pass(costs, forward, COST_B),
                           costs_pass(costs, backward, COST_F) + costs_pass(costs, backward, COST_B)};
    const double share[] = {pair[0] < 0 || turn[0] <= 0 ? overlap : pair[0] / turn[0],
                            pair[1] < 0 || turn[1] <= 0 ? overlap : pair[1] / turn[1]};
    if (costs->follows_recipe && forward != backward && backward_kind == COST_B)
        return first + second - costs_put_off(costs, costs->stage_count, backward, costs->put_off) -
               fmin(saved_by_recipe(costs, forward), saved_by_recipe(costs, backward));
    if (share[0] != share[1])
        return share[0] * first + share[1] * second;
    if (pair[0] < 0 || turn[0] <= 0)
        return overlap * (first + second);
    /* If both halves are of one stage and the backward is a B, this order of operations gives exactly FB where the
       product has no rounding error, as for small whole numbers */
    return pair[0] * (first + second) / turn[0];
}

static double transfer(const Costs *costs, double bytes, double bandwidth)
{
    return bandwidth < 0 ? 0 : bytes / (bandwidth * (costs->unit < 0 ? 1 : costs->unit));
}

double costs_message(const Costs *costs, uint32_t from, uint32_t to)
{
    if (from == to)
        return 0;
    const LinkCost *link = costs->link_count ? find_link(costs, from, to) : NULL;
    const double latency = link && link->latency >= 0 ? link->latency : costs->latency;
    const double bandwidth = link && link->bandwidth >= 0 ? link->bandwidth : costs->bandwidth;
    return latency + transfer(costs, costs->bytes, bandwidth);
}

double costs_memory(const Costs *costs, uint32_t stage, StageCost memory)
{
    const double bytes = costs_given(costs, stage, memory);
    return bytes < 0 ? 0 : bytes;
}

double costs_sum_bytes(const Costs *costs, uint32_t stage, uint32_t copies)
{
    return 2 * costs_memory(costs, stage, COST_GRADIENTS) * (copies - 1) / copies;
}

double costs_sum(const Costs *costs, uint32_t stage, uint32_t copies)
{
    return copies < 2 ? 0
                      : 2 * costs->latency + transfer(costs, costs_sum_bytes(costs, stage, copies), costs->bandwidth);
}

uint32_t costs_checksum(const Costs *costs)
{
    const double numbers[] = {
        costs->overlap, costs->latency,      costs->bandwidth,    costs->bytes,           costs->unit,
        costs->layers,  costs->model_stages, costs->model_layers, costs->multiprocessors, costs->compute_share};
    uint32_t checksum = bytes_checksum_on(0, numbers, sizeof numbers);
    checksum = bytes_checksum_on(checksum, costs->all, sizeof costs->all);
    checksum = bytes_checksum_on(checksum, costs->stages, costs->stage_count * sizeof *costs->stages);
    checksum = bytes_checksum_on(checksum, costs->links, costs->link_count * sizeof *costs->links);
    return bytes_checksum_on(checksum, costs->parts, sizeof costs->parts);
}

double costs_seconds(const Costs *costs) { return costs->unit < 0 ? 1e-3 : costs->unit; }

const char *costs_unit_text(const Costs *costs)
{
    static const struct {
        double seconds;
        const char *text;
    } units[] = {{1, " s"}, {1e-3, " ms"}, {1e-6, " us"}, {1e-9, " ns"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (fabs(costs->unit - units[i].seconds) < 1e-9 * units[i].seconds)
            return units[i].text;
    return "";
}
