#include "compiler/tree/values.h"

#include "base/names.h"

#include <string.h>

void parameters_set(Parameters *parameters, Arena *arena, const char *name, int64_t value)
{
    if (parameters->count == parameters->capacity) {
        const uint32_t grown = parameters->capacity ? 2 * parameters->capacity : 8;
        parameters->others = arena_grow(arena, parameters->others, parameters->capacity * sizeof *parameters->others,
                                        grown * sizeof *parameters->others);
        parameters->capacity = grown;
    }
    parameters->others[parameters->count++] = (Parameter){name, value};
}

void parameters_set_ranks(Parameters *parameters, int64_t ranks)
{
    parameters->has_ranks = true;
    parameters->ranks = ranks;
}

void parameters_set_microbatches(Parameters *parameters, int64_t microbatches)
{
    parameters->has_microbatches = true;
    parameters->microbatches = microbatches;
}

static bool is_parameter(const Item *item, const char *name)
{
    return item->kind == ITEM_PARAM && strcmp(item->name.symbol->text, name) == 0;
}

bool parameters_has(const Parameters *parameters, const char *name)
{
    for (uint32_t i = 0; i < parameters->count; i++)
        if (strcmp(parameters->others[i].name, name) == 0)
            return true;
    return false;
}

const Item *parameter_item(const Ast *ast, const char *name)
{
    const Item *item = ast->items;
    while (item && !is_parameter(item, name))
        item = item->next;
    return item;
}

static Status unknown_parameter(const Ast *ast, const char *name, FrontEnd front_end, const char *sweep, Error *error)
{
    /* --sweep sets the numbers of ranks and microbatches by name too, like parameters */
    const char *const option = sweep ? sweep : front_name(front_end, SET_PARAMETER);
    if (strcmp(ast->ranks->name.symbol->text, name) == 0 || strcmp(name, "ranks") == 0)
        return error_set(error, STATUS_BAD_USAGE, "%s %s: for the number of ranks write %sN", option, name,
                         sweep ? "ranks=" : front_before(front_end, SET_RANKS));
    if (strcmp(ast->microbatches->name.symbol->text, name) == 0 || strcmp(name, "microbatches") == 0)
        return error_set(error, STATUS_BAD_USAGE, "%s %s: for the number of microbatches write %sN", option, name,
                         sweep ? "microbatches=" : front_before(front_end, SET_MICROBATCHES));
    const char *more = "";
    char list[512] = "";
    size_t used = 0;
    NearestWord nearest = nearest_to(name);
    if (sweep) {
        nearest_consider(&nearest, "ranks");
        nearest_consider(&nearest, "microbatches");
    }
    for (const Item *item = ast->items; item; item = item->next)
        if (item->kind == ITEM_PARAM) {
            const char *known = item->name.symbol->text;
            nearest_consider(&nearest, known);
            if (used && used + strlen(known) + 2 >= sizeof list)
                more = ", ...";
            else
                used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", known);
        }
    const char *const meant = nearest.word ? nearest.word : "";
    const char *const before = nearest.word ? "; did you mean " : "", *const after = nearest.word ? "?" : "";
    if (!used)
        return error_set(error, STATUS_BAD_USAGE, "%s %s: schedule %s has no parameters of its own%s%s%s", option, name,
                         ast->schedule, before, meant, after);
    return error_set(error, STATUS_BAD_USAGE, "%s %s: schedule %s has no such parameter, only %s%s%s%s%s", option, name,
                     ast->schedule, list, more, before, meant, after);
}

Status parameters_check(const Ast *ast, const Parameters *parameters, const char *sweep, Error *error)
{
    for (uint32_t i = 0; i < parameters->count; i++)
        if (!parameter_item(ast, parameters->others[i].name))
            return unknown_parameter(ast, parameters->others[i].name, parameters->front_end, sweep, error);
    return STATUS_OK;
}

int64_t *values_new(const Ast *ast, const Parameters *parameters, Arena *arena)
{
    int64_t *values = arena_array(arena, ast->declaration_count, sizeof *values);
    memcpy(values + COST_SLOT, parameters->costs, sizeof parameters->costs);
    return values;
}

bool item_waits(const Item *item, const int64_t *values)
{
    return item->value && item->value->depends & DEPENDS_ON_COSTS && !values[COST_SLOT + COST_F];
}

bool item_per_rank(const Item *item)
{
    return item->kind == ITEM_CHUNK ||
           ((item->kind == ITEM_LET || item->kind == ITEM_REQUIRE) && item->value->depends & DEPENDS_ON_RANK);
}

bool item_evaluate(const Item *item, const Parameters *parameters, int64_t *values, Fault *fault)
{
    int64_t *const value = &values[item->slot];
    switch (item->kind) {
    case ITEM_RANKS:
        *value = parameters->ranks;
        return parameters->has_ranks || evaluate(item->value, values, value, fault);
    case ITEM_MICROBATCHES:
        *value = parameters->microbatches;
        return parameters->has_microbatches || evaluate(item->value, values, value, fault);
    case ITEM_PARAM:
        for (uint32_t i = parameters->count; i-- > 0;)
            if (is_parameter(item, parameters->others[i].name)) {
                *value = parameters->others[i].value;
                return true;
            }
        return item_waits(item, values) || evaluate(item->value, values, value, fault);
    case ITEM_LET: return item_waits(item, values) || evaluate(item->value, values, value, fault);
    case ITEM_PIPE: *value = item->pipe.number; return true;
    default: return true;
    }
}

bool values_for_all(const Ast *ast, const Parameters *parameters, int64_t *values, Fault *fault)
{
    for (const Item *item = ast->items; item; item = item->next)
        if (!item_per_rank(item) && !item_evaluate(item, parameters, values, fault))
            return false;
    return true;
}

bool values_for_rank(const Ast *ast, uint32_t rank, int64_t *values, Fault *fault)
{
    values[RANK_SLOT] = rank;
    for (const Item *item = ast->items; item; item = item->next)
        if (item->kind == ITEM_LET && item_per_rank(item) && !item_waits(item, values) &&
            !evaluate(item->value, values, &values[item->slot], fault))
            return false;
    return true;
}
