#include "compiler/order/require.h"

#include "program/program.h"

#include <string.h>

/* The largest value of `ranks` or `microbatches`; 0 for other items, which have no limit. */
static int64_t limit_of(const Item *item)
{
    return item->kind == ITEM_RANKS          ? PROGRAM_RANKS_MAX
           : item->kind == ITEM_MICROBATCHES ? PROGRAM_MICROBATCHES_MAX
                                             : 0;
}

static bool within_limit(const Item *item, const int64_t *values)
{
    const int64_t limit = limit_of(item);
    return !limit || (values[item->slot] >= 1 && values[item->slot] <= limit);
}

typedef enum Outcome { HOLDS, FAILS, HAS_FAULT } Outcome;

/* Evaluates an item. HOLDS: a require holds or waits for costs (item_waits), or another item has a value; FAILS: a
   require does not hold; HAS_FAULT: there is no value. */
static Outcome examine(const Item *item, const Parameters *parameters, int64_t *values, Fault *fault)
{
    int64_t value = 1;
    if (!item_evaluate(item, parameters, values, fault) ||
        (item->kind == ITEM_REQUIRE && !item_waits(item, values) && !evaluate(item->value, values, &value, fault)))
        return HAS_FAULT;
    return value ? HOLDS : FAILS;
}

/* --- the nearest parameters with which all requires hold --- */

/* Evaluates all items except chunks, for every rank. Returns the first outcome other than HOLDS, in the order in which
   items are checked; HOLDS if there is none. A number of ranks or microbatches beyond its limit is HAS_FAULT. */
static Outcome examine_all(const Ast *ast, const Parameters *parameters, int64_t *values)
{
    Fault fault;
    Outcome outcome;
    for (const Item *item = ast->items; item; item = item->next) {
        if (item_per_rank(item))
            continue;
        if ((outcome = examine(item, parameters, values, &fault)) != HOLDS)
            return outcome;
        if (!within_limit(item, values))
            return HAS_FAULT;
    }
    const int64_t ranks = values[ast->ranks->slot];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        values[RANK_SLOT] = rank;
        for (const Item *item = ast->items; item; item = item->next)
            if (item_per_rank(item) && item->kind != ITEM_CHUNK &&
                (outcome = examine(item, parameters, values, &fault)) != HOLDS)
                return outcome;
    }
    return HOLDS;
}

bool require_admits(const Ast *ast, const Parameters *parameters, int64_t *values)
{
    return examine_all(ast, parameters, values) != FAILS;
}

/* The first number for the item with which all requires hold, among number + step, number + 2 * step and so on. 0:
   there is none among the first TRIES of these numbers, from 1 to the item's limit. */
static int64_t search(const Ast *ast, Parameters parameters, const Item *item, int64_t number, int64_t step,
                      int64_t *values)
{
    enum { TRIES = 4096 };
    const int64_t limit = limit_of(item) ? limit_of(item) : INT32_MAX;
    for (int i = 0; i < TRIES; i++) {
        number += step;
        if (number < 1 || number > limit)
            return 0;
        if (item->kind == ITEM_RANKS)
            parameters_set_ranks(&parameters, number);
        else if (item->kind == ITEM_MICROBATCHES)
            parameters_set_microbatches(&parameters, number);
        else
            parameters.others[parameters.count - 1].value = number;
        if (examine_all(ast, &parameters, values) == HOLDS)
            return number;
    }
    return 0;
}

static bool suggest(const Ast *ast, const Parameters *parameters, const Item *item, const int64_t *values, Arena *arena,
                    Diagnostics *diagnostics)
{
    const FrontEnd front_end = parameters->front_end;
    const char *const option =
        item->kind == ITEM_RANKS ? front_before(front_end, SET_RANKS)
        : item->kind == ITEM_MICROBATCHES
            ? front_before(front_end, SET_MICROBATCHES)
            : arena_format(arena, "%s%s=", front_before(front_end, SET_PARAMETER), item->name.symbol->text);
    int64_t *tried = values_new(ast, parameters, arena);
    const long long below = search(ast, *parameters, item, values[item->slot], -1, tried);
    const long long above = search(ast, *parameters, item, values[item->slot], 1, tried);
    if (below && above)
        diag_help(diagnostics, "the nearest numbers that work: %s%lld or %lld", option, below, above);
    else if (below || above)
        /* a parameter may be less than 1, and such a number may be nearer than the one above */
        diag_help(diagnostics, "%s number that works: %s%lld",
                  below || item->kind != ITEM_PARAM ? "the nearest" : "the next", option, below ? below : above);
    return below || above;
}

/* Finds the first parameter set by -D that has, near its value, other values with which all requires hold. Suggests
   the nearest of these. False: there is no such parameter. */
static bool suggest_given(const Ast *ast, const Parameters *parameters, const int64_t *values, Arena *arena,
                          Diagnostics *diagnostics)
{
    for (const Item *item = ast->items; item; item = item->next)
        for (uint32_t i = 0; item->kind == ITEM_PARAM && i < parameters->count; i++) {
            if (strcmp(parameters->others[i].name, item->name.symbol->text) != 0)
                continue;
            /* a copy that sets this parameter once more, because the last value counts */
            Parameters tried = *parameters;
            tried.capacity = parameters->count + 1;
            tried.others = arena_array(arena, tried.capacity, sizeof *tried.others);
            memcpy(tried.others, parameters->others, parameters->count * sizeof *tried.others);
            parameters_set(&tried, arena, parameters->others[i].name, 0);
            if (suggest(ast, &tried, item, values, arena, diagnostics))
                return true;
            break;
        }
    return false;
}

/* --- checking --- */

static void report_fault(const Ast *ast, const Fault *fault, const int64_t *values, Arena *arena,
                         Diagnostics *diagnostics)
{
    diag_error(diagnostics, fault->expression->span, "%s", fault_text(fault, arena));
    values_explain(ast, fault->expression, values, arena, diagnostics);
}

static bool report_limit(const Item *item, const int64_t *values, Diagnostics *diagnostics)
{
    const char *const what = item->kind == ITEM_RANKS ? "ranks" : "microbatches";
    diag_error(diagnostics, item->span, "%lld %s: there can be 1 to %lld", (long long)values[item->slot], what,
               (long long)limit_of(item));
    diag_refuses(diagnostics);
    return false;
}

static void report_failed(const Ast *ast, const Item *item, const Parameters *parameters, const int64_t *values,
                          Arena *arena, Diagnostics *diagnostics)
{
    diag_error(diagnostics, item->span, "%s", item->message);
    diag_refuses(diagnostics);
    if (diag_full(diagnostics))
        return;
    values_explain(ast, item->value, values, arena, diagnostics);
    const uint8_t depends = item->value->depends;
    if (depends & DEPENDS_ON_PARAMETERS && suggest_given(ast, parameters, values, arena, diagnostics))
        return;
    if (depends & DEPENDS_ON_MICROBATCHES && suggest(ast, parameters, ast->microbatches, values, arena, diagnostics))
        return;
    if (depends & DEPENDS_ON_RANKS)
        suggest(ast, parameters, ast->ranks, values, arena, diagnostics);
}

bool require_for_all(const Ast *ast, const Parameters *parameters, int64_t *values, Arena *arena,
                     Diagnostics *diagnostics)
{
    bool good = true;
    for (const Item *item = ast->items; item; item = item->next) {
        Fault fault;
        if (item_per_rank(item))
            continue;
        const Outcome outcome = examine(item, parameters, values, &fault);
        if (outcome == HAS_FAULT) {
            /* not reported after a failed require: the same wrong values may cause a division by zero or an overflow
               here */
            if (good)
                report_fault(ast, &fault, values, arena, diagnostics);
            return false;
        }
        if (!within_limit(item, values))
            return report_limit(item, values, diagnostics);
        if (outcome == FAILS)
            report_failed(ast, item, parameters, values, arena, diagnostics);
        good &= outcome == HOLDS;
    }
    return good;
}

void require_for_rank(const Ast *ast, uint32_t rank, int64_t *values, RankErrors *errors)
{
    static const Parameters none = {0};
    bool good = true;
    values[RANK_SLOT] = rank;
    for (const Item *item = ast->items; item; item = item->next) {
        Fault fault;
        if (item->kind == ITEM_CHUNK || !item_per_rank(item))
            continue;
        const Outcome outcome = examine(item, &none, values, &fault);
        if (outcome == HOLDS)
            continue;
        if (outcome == FAILS || good) {
            const Expression *culprit = outcome == FAILS ? item->value : fault.expression;
            RankError *error = outcome == FAILS
                                   ? rank_error(errors, rank, item->span, "%s", item->message)
                                   : rank_error(errors, rank, culprit->span, "%s", fault_text(&fault, errors->arena));
            if (error) {
                error->refuses = outcome == FAILS;
                error->help = values_help(ast, culprit, values, errors->arena);
            }
        }
        if (outcome == HAS_FAULT)
            return;
        good = false;
    }
}

bool require_with_costs(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics)
{
    RankErrors errors = {.arena = arena};
    int64_t *values = values_new(ast, parameters, arena);
    if (!require_for_all(ast, parameters, values, arena, diagnostics))
        return false;
    for (int64_t rank = 0; rank < values[ast->ranks->slot]; rank++)
        require_for_rank(ast, (uint32_t)rank, values, &errors);
    rank_errors_report(&errors, diagnostics);
    return !errors.first;
}
