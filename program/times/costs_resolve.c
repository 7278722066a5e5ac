#include "program/times/costs_resolve.h"

#include "base/counted.h"
#include "program/times/costs_parts.h"

#include <math.h>
#include <string.h>

/* --- the costs of every stage --- */

/* The rule by which a stage got a cost. */
typedef enum Rule {
    /* nothing to report, for example because the cost was given; by_default() decides which defaults are reported */
    RULE_GIVEN,
    RULE_REST,
    RULE_NO_REST,
    RULE_RATIO,
    RULE_HALF,
    RULE_SUM,
    RULE_IN_TURN,
    RULE_DEFAULT,
    RULES
} Rule;

typedef struct Resolution {
    const Costs *given; /* the given costs, completed from the times of parts (costs_of_parts) */
    Arena *arena;
    uint32_t stages;
    double (*values)[STAGE_COSTS]; /* [stages] */
    Rule (*rules)[STAGE_COSTS];
    bool some[STAGE_COSTS]; /* [cost]: at least one stage has this cost of its own */
    bool complete;          /* every stage has its own F, so the costs were most likely measured */
    double input, weight;   /* sums of I and W over the stages that have both */
} Resolution;

static double own_cost(const Costs *costs, uint32_t stage, StageCost cost)
{
    return stage < costs->stage_count ? costs->stages[stage][cost] : -1;
}

static void survey(Resolution *r)
{
    r->complete = true;
    for (uint32_t s = 0; s < r->stages; s++) {
        const double input = own_cost(r->given, s, COST_I), weight = own_cost(r->given, s, COST_W);
        for (StageCost cost = 0; cost < STAGE_COSTS; cost++)
            r->some[cost] |= own_cost(r->given, s, cost) >= 0;
        r->complete &= own_cost(r->given, s, COST_F) >= 0;
        if (input >= 0 && weight >= 0) {
            r->input += input;
            r->weight += weight;
        }
    }
}

static void set(Resolution *r, uint32_t stage, StageCost cost, double value, Rule rule)
{
    r->values[stage][cost] = value;
    r->rules[stage][cost] = rule;
}

/* The rule of a cost that has its default value: RULE_DEFAULT if that is worth reporting, otherwise RULE_GIVEN. */
static Rule by_default(const Resolution *r, StageCost cost)
{
    const bool is_guess = r->some[cost] || (r->complete && cost <= COST_W);
    return is_guess && !(r->given->said & 1u << cost) ? RULE_DEFAULT : RULE_GIVEN;
}

/* The given time of I or W (`half`) of a stage; < 0: not given. A time for all stages counts only for a stage without a
   B of its own. */
static double given_half(const Costs *costs, uint32_t stage, StageCost half)
{
    const double own = own_cost(costs, stage, half);
    const bool counts = costs->said & 1u << half && own_cost(costs, stage, COST_B) < 0;
    return own < 0 && counts ? costs->all[half] : own;
}

static void set_rest(Resolution *r, uint32_t stage, StageCost half, double both, double other)
{
    set(r, stage, half, fmax(both - other, 0), both >= other ? RULE_REST : RULE_NO_REST);
}

static void resolve_backward(Resolution *r, uint32_t stage)
{
    const Costs *given = r->given;
    const double both = costs_given(given, stage, COST_B);
    const double input = given_half(given, stage, COST_I), weight = given_half(given, stage, COST_W);
    set(r, stage, COST_I, input < 0 ? given->all[COST_I] : input, input < 0 ? by_default(r, COST_I) : RULE_GIVEN);
    set(r, stage, COST_W, weight < 0 ? given->all[COST_W] : weight, weight < 0 ? by_default(r, COST_W) : RULE_GIVEN);
    if (both < 0) {
        const bool sums_own = own_cost(given, stage, COST_I) >= 0 || own_cost(given, stage, COST_W) >= 0;
        set(r, stage, COST_B, r->values[stage][COST_I] + r->values[stage][COST_W],
            input < 0 || weight < 0   ? by_default(r, COST_B)
            : sums_own && r->complete ? RULE_SUM
                                      : RULE_GIVEN);
        return;
    }
    set(r, stage, COST_B, both, RULE_GIVEN);
    if (input < 0 && weight < 0) {
        const bool has_ratio = r->input + r->weight > 0;
        const double share = has_ratio ? r->input / (r->input + r->weight) : 0.5;
        set(r, stage, COST_I, share * both, has_ratio ? RULE_RATIO : RULE_HALF);
        set(r, stage, COST_W, both - share * both, has_ratio ? RULE_RATIO : RULE_HALF);
    } else if (input < 0) {
        set_rest(r, stage, COST_I, both, weight);
    } else if (weight < 0) {
        set_rest(r, stage, COST_W, both, input);
    }
}

static void resolve_stage(Resolution *r, uint32_t stage)
{
    static const StageCost plain[] = {COST_F, COST_U, COST_MEMORY_I, COST_MEMORY_W, COST_GRADIENTS};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        set(r, stage, plain[i], costs_given(r->given, stage, plain[i]),
            own_cost(r->given, stage, plain[i]) < 0 ? by_default(r, plain[i]) : RULE_GIVEN);
    const double pair = costs_given(r->given, stage, COST_FB);
    set(r, stage, COST_FB, pair, pair < 0 && r->given->overlap < 0 && r->complete ? RULE_IN_TURN : RULE_GIVEN);
    set(r, stage, COST_FF, costs_given(r->given, stage, COST_FF), RULE_GIVEN);
    resolve_backward(r, stage);
}

/* --- what was derived --- */

static const char *rule_text(const Resolution *r, StageCost cost, Rule rule)
{
    const char *other = cost == COST_I ? "W" : "I";
    double value;
    switch (rule) {
    case RULE_REST: return arena_format(r->arena, "B - %s", other);
    case RULE_NO_REST: return arena_format(r->arena, "0, as %s takes more than B", other);
    case RULE_RATIO: return "B in the ratio of I to W of the stages that have both";
    case RULE_HALF:
        return r->given->stage_count ? "half of B, as no stage has both I and W" : "half of B, as neither is given";
    case RULE_SUM: return "I + W";
    case RULE_IN_TURN: return "F + B, as neither FB nor overlap is given";
    default:
        value = cost == COST_B ? r->given->all[COST_I] + r->given->all[COST_W] : fmax(r->given->all[cost], 0);
        return arena_format(r->arena, "%g, the default; a cost without brackets is for stages without their own",
                            value);
    }
}

/* "[0..3,5]" */
static const char *where_text(const uint32_t *stages, uint32_t count, Arena *arena)
{
    const char *text = "[";
    for (uint32_t i = 0, last; i < count; i = last + 1) {
        for (last = i; last + 1 < count && stages[last + 1] == stages[last] + 1;)
            last++;
        text = arena_format(arena, last > i ? "%s%s%u..%u" : "%s%s%u", text, i ? "," : "", stages[i], stages[last]);
    }
    return arena_format(arena, "%s]", text);
}

static void list_rule(const Resolution *r, StageCost cost, Rule rule, Costs *result)
{
    uint32_t count = 0, *stages = arena_array(r->arena, r->stages, sizeof *stages);
    double *values = arena_array(r->arena, r->stages, sizeof *values);
    for (uint32_t s = 0; s < r->stages; s++)
        if (r->rules[s][cost] == rule) {
            stages[count] = s;
            const double *value = r->values[s];
            values[count++] = rule == RULE_IN_TURN ? value[COST_F] + value[COST_B] : fmax(value[cost], 0);
        }
    DerivedCost *derived = arena_grow(r->arena, (void *)result->derived, result->derived_count * sizeof *derived,
                                      (result->derived_count + 1) * sizeof *derived);
    const char *where = r->given->stage_count ? where_text(stages, count, r->arena) : "";
    derived[result->derived_count++] = (DerivedCost){cost, count, stages, values, where, rule_text(r, cost, rule)};
    result->derived = derived;
}

static void list_derived(const Resolution *r, Costs *result)
{
    bool there[STAGE_COSTS][RULES] = {{false}};
    for (uint32_t s = 0; s < r->stages; s++)
        for (StageCost cost = 0; cost < STAGE_COSTS; cost++)
            there[cost][r->rules[s][cost]] = true;
    for (Rule rule = RULE_GIVEN + 1; rule < RULES; rule++)
        for (StageCost cost = 0; cost < STAGE_COSTS; cost++)
            if (there[cost][rule])
                list_rule(r, cost, rule, result);
}

/* Whether the costs were given for another number of stages than the schedule has. */
static bool is_recut(const Costs *costs)
{
    return costs->model_stages > 0 && costs->stage_count != costs->model_stages;
}

typedef struct RecutText {
    char text[100];
} RecutText;

static RecutText recut_text(const Costs *costs)
{
    RecutText made;
    snprintf(made.text, sizeof made.text, "given for %s; each stage here takes its share",
             counted((uint64_t)costs->model_stages, "stage").text);
    return made;
}

uint32_t costs_derived(const Costs *costs)
{
    uint32_t derived = 0;
    for (uint32_t i = 0; i < costs->derived_count; i++)
        derived |= 1u << costs->derived[i].cost;
    return derived;
}

bool costs_has_derived(const Costs *costs, uint32_t used) { return is_recut(costs) || costs_derived(costs) & used; }

/* Whether two derived costs are printed on one line: I and W of the same stages, by the same rule. */
static bool share_a_line(const DerivedCost *first, const DerivedCost *second)
{
    return first->cost == COST_I && second->cost == COST_W && strcmp(first->rule, second->rule) == 0 &&
           strcmp(first->where, second->where) == 0;
}

void costs_put_derived(const Costs *costs, uint32_t used, const char *prefix, FILE *stream)
{
    for (uint32_t i = 0; i < costs->derived_count; i++) {
        const DerivedCost *derived = &costs->derived[i];
        if (!(used & 1u << derived->cost))
            continue;
        fprintf(stream, "%s%s%s", prefix, stage_cost_name(derived->cost), derived->where);
        if (i + 1 < costs->derived_count && share_a_line(derived, derived + 1))
            fprintf(stream, " and W%s", costs->derived[++i].where);
        fprintf(stream, ": %s\n", derived->rule);
    }
    if (is_recut(costs))
        fprintf(stream, "%s%s\n", prefix, recut_text(costs).text);
}

void costs_put_derived_json(const Costs *costs, uint32_t used, FILE *stream)
{
    const char *separator = "";
    putc('[', stream);
    for (uint32_t i = 0; i < costs->derived_count; i++) {
        const DerivedCost *derived = &costs->derived[i];
        if (!(used & 1u << derived->cost))
            continue;
        fprintf(stream, "%s\n  {\"cost\": \"%s\", \"stages\": [", separator, stage_cost_name(derived->cost));
        for (uint32_t k = 0; k < derived->count; k++)
            fprintf(stream, "%s%u", k ? ", " : "", derived->stages[k]);
        fputs("], \"values\": [", stream);
        for (uint32_t k = 0; k < derived->count; k++)
            fprintf(stream, "%s%.17g", k ? ", " : "", derived->values[k]);
        fprintf(stream, "], \"rule\": \"%s\"}", derived->rule);
        separator = ",";
    }
    if (is_recut(costs))
        fprintf(stream, "%s\n  {\"cost\": \"all\", \"rule\": \"%s\"}", separator, recut_text(costs).text);
    putc(']', stream);
}

/* --- the same model cut into another number of stages --- */

/* The given or derived cost of one of the stages that the costs are for. */
static double stage_cost(const Costs *costs, uint32_t stage, StageCost cost)
{
    switch (cost) {
    case COST_FB: return costs_pair(costs, stage, stage, COST_B);
    case COST_FF: return costs_pair(costs, stage, stage, COST_F);
    case COST_MEMORY_I:
    case COST_MEMORY_W:
    case COST_GRADIENTS: return costs_memory(costs, stage, cost);
    default: return costs_pass(costs, stage, cost);
    }
}

/* The cost of stage `stage` if the model is divided into `to` stages: the sum over the stages that the costs are for,
   each multiplied by the fraction of it that lies in `stage`. */
static double recut_cost(const Costs *costs, uint32_t to, uint32_t stage, StageCost cost)
{
    const uint32_t from = costs->stage_count;
    /* lengths: a stage that the costs are for is `to` units long, a stage of the schedule `from` units */
    const uint64_t begin = (uint64_t)stage * from, end = begin + from;
    double sum = 0;
    for (uint64_t s = begin / to; s * to < end; s++) {
        const uint64_t first = s * to > begin ? s * to : begin, last = (s + 1) * to < end ? (s + 1) * to : end;
        sum += stage_cost(costs, (uint32_t)s, cost) * (double)(last - first) / to;
    }
    return sum;
}

static void recut(Costs *costs, uint32_t to, Arena *arena)
{
    const Costs whole = *costs;
    /* if FB or FF is not given, it stays so, and `overlap` determines the time of F&Bs or F&Fs */
    const bool none[STAGE_COSTS] = {[COST_FB] = !costs_have(costs, COST_FB), [COST_FF] = !costs_have(costs, COST_FF)};
    costs->stages = arena_array(arena, to, sizeof *costs->stages);
    costs->stage_count = to;
    costs->follows_recipe = false; /* a recipe orders whole layers, but these stages may have fractions of a layer */
    for (uint32_t s = 0; s < to; s++)
        for (StageCost cost = 0; cost < STAGE_COSTS; cost++)
            costs->stages[s][cost] = none[cost] ? -1 : recut_cost(&whole, to, s, cost);
}

/* --- */

/* The number of stages for which the costs are given. Costs of the parts of a whole model fit any number, so they count
   as given for `stages`. */
static uint32_t stages_of(const Costs *given, uint32_t stages)
{
    return given->model_stages > 0 && !costs_of_whole_model(given) ? (uint32_t)given->model_stages : stages;
}

static Costs resolve_with(const Costs *given, uint32_t stages, const Recipe *recipe, Arena *arena)
{
    const uint32_t of = stages_of(given, stages);
    Costs result = costs_have_parts(given) ? costs_of_parts(given, of, recipe, arena) : *given;
    if (costs_of_whole_model(given))
        result.model_stages = 0;
    const Costs start = result;
    Resolution r = {.given = &start, .arena = arena, .stages = of};
    r.values = arena_array(arena, r.stages, sizeof *r.values);
    r.rules = arena_array(arena, r.stages, sizeof *r.rules);
    survey(&r);
    for (uint32_t s = 0; s < r.stages; s++)
        resolve_stage(&r, s);
    result.stages = r.values;
    result.stage_count = r.stages;
    list_derived(&r, &result);
    if (r.stages != stages)
        recut(&result, stages, arena);
    return result;
}

Costs costs_resolve(const Costs *given, uint32_t stages, const Recipes *recipes, Arena *arena)
{
    Costs result = resolve_with(given, stages, recipes ? recipes->common : NULL, arena);
    if (!recipes || !recipes->count)
        return result;
    Costs *own = arena_array(arena, recipes->count, sizeof *own);
    for (uint32_t i = 0; i < recipes->count; i++)
        own[i] = resolve_with(given, stages, &recipes->own[i].recipe, arena);
    result.recipes = recipes;
    result.with_recipes = own;
    return result;
}

/* Whether an I or W (`half`) that is given for all stages has no effect: every stage has its own time of this half, or
   a B of its own from which the half follows, and at least one stage has only the B. */
static bool is_overruled(const Costs *given, uint32_t stages, StageCost half)
{
    bool overruled = false;
    for (uint32_t s = 0; s < stages; s++) {
        if (own_cost(given, s, half) < 0 && own_cost(given, s, COST_B) < 0)
            return false;
        overruled |= own_cost(given, s, half) < 0;
    }
    return overruled && given->said & 1u << half;
}

bool costs_unused(const Costs *given, uint32_t stages, uint32_t ranks, char *text, size_t size)
{
    const uint32_t of = stages_of(given, stages);
    for (uint32_t s = of; s < given->stage_count; s++)
        for (StageCost cost = 0; cost < STAGE_COSTS; cost++)
            if (given->stages[s][cost] >= 0) {
                snprintf(text, size, "%s[%u] names a stage that does not exist: stages are 0..%u",
                         stage_cost_name(cost), s, of - 1);
                return true;
            }
    if (given->model_layers >= 1 && given->model_layers < stages) {
        snprintf(text, size, "the model has %s, too few for %u stages",
                 counted((uint64_t)given->model_layers, "layer").text, stages);
        return true;
    }
    for (StageCost half = COST_I; half <= COST_W; half++)
        if (is_overruled(given, of, half)) {
            const char *name = stage_cost_name(half);
            snprintf(text, size,
                     "%s has no effect: each stage has its own %s, or a B from which it follows; write %s[0] = ... and "
                     "so on",
                     name, name, name);
            return true;
        }
    for (uint32_t i = 0; i < given->link_count; i++) {
        const LinkCost *link = &given->links[i];
        if (link->from >= ranks || link->to >= ranks) {
            snprintf(text, size, "the link %u->%u names a rank that does not exist: ranks are 0..%u", link->from,
                     link->to, ranks - 1);
            return true;
        }
    }
    return false;
}
