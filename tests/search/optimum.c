/* Compares small cases with the proven optimum. A SAT solver (CaDiCaL) decides whether there are orders of a given
   cost: every pass has a start among a few integer times, and every two passes of a rank have an order. The cost that
   the search found must be possible, which checks that both models agree. It is compared with the least possible
   cost. */

#include "compiler/search/search.h"
#include "tests/search/costs_of.h"
#include "tests/search/placement.h"

#include <ccadical.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

typedef struct Case {
    const char *name;
    uint32_t ranks, chunks;
    bool waves;
    uint32_t microbatches;
    int forward, input, weight, message; /* times */
    int head;                            /* additional time of an F of the last stage */
    int frees_input, frees_weight;       /* memory of a microbatch that I and W free */
    int memory;
    int gap; /* measured difference between the search's result and the optimum */
} Case;

typedef struct Pass {
    uint32_t rank, stage, microbatch;
    uint8_t kind;
    int time;
    int first, last; /* possible starts */
    int starts;      /* variable of "starts at `first` or before"; those of the next times follow */
} Pass;

typedef struct Model {
    const Case *of;
    CCaDiCaL *solver;
    int variables;
    Pass *passes;
    uint32_t count, stages;
    int *path; /* [ranks]: start of the first pass */
} Model;

static int new_variables(Model *model, int count)
{
    const int first = model->variables + 1;
    model->variables += count;
    return first;
}

/* Literals that are always true and never true. */
enum { ALWAYS = INT32_MAX, NEVER_SO = -INT32_MAX };

static int starts_by(const Pass *pass, int time)
{
    return time < pass->first ? NEVER_SO : time >= pass->last ? ALWAYS : pass->starts + time - pass->first;
}

static void clause(const Model *model, int a, int b, int c)
{
    const int literals[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (literals[i] == ALWAYS)
            return;
    for (int i = 0; i < 3; i++)
        if (literals[i] != NEVER_SO)
            ccadical_add(model->solver, literals[i]);
    ccadical_add(model->solver, 0);
}

/* If `condition`, b starts at least `lag` after a. */
static void follows(const Model *model, const Pass *a, const Pass *b, int lag, int condition)
{
    for (int time = b->first - 1; time <= b->last; time++)
        clause(model, -condition, -starts_by(b, time), starts_by(a, time - lag));
}

static uint32_t home_of(const Case *of, uint32_t stage)
{
    return stage / of->ranks % 2 && of->waves ? of->ranks - 1 - stage % of->ranks : stage % of->ranks;
}

static int forward_time(const Case *of, uint32_t stage)
{
    return of->forward + (stage + 1 == of->ranks * of->chunks ? of->head : 0);
}

static Pass *pass_at(const Model *model, uint32_t stage, uint8_t kind, uint32_t microbatch)
{
    const uint32_t number = kind == ACTION_F ? 0 : kind == ACTION_I ? 1 : 2;
    return &model->passes[(stage * 3 + number) * model->of->microbatches + microbatch];
}

/* On a rank with the first stage, F of microbatch 0 comes first and as early as possible; times are relative to it. */
static void make_passes(Model *model, int cost)
{
    static const uint8_t kinds[] = {ACTION_F, ACTION_I, ACTION_W};
    const Case *of = model->of;
    int path = 0;
    for (uint32_t s = 0; s < model->stages; s++) {
        const uint32_t rank = home_of(of, s);
        if (s > 0)
            path += forward_time(of, s - 1) + (home_of(of, s - 1) == rank ? 0 : of->message);
        if (s < of->ranks)
            model->path[rank] = path;
        const int times[] = {forward_time(of, s), of->input, of->weight};
        for (uint32_t k = 0; k < 3; k++)
            for (uint32_t m = 0; m < of->microbatches; m++) {
                Pass *pass = pass_at(model, s, kinds[k], m);
                *pass = (Pass){
                    .rank = rank, .stage = s, .microbatch = m, .kind = kinds[k], .time = times[k], .first = path};
                pass->last = s < of->ranks && k == 0 && m == 0 ? path : model->path[rank] + cost - times[k];
                pass->starts = new_variables(model, pass->last - pass->first);
                for (int time = pass->first; time < pass->last; time++)
                    clause(model, -starts_by(pass, time), starts_by(pass, time + 1), NEVER_SO);
            }
    }
}

static void add_dependences(const Model *model)
{
    const Case *of = model->of;
    for (uint32_t s = 0; s < model->stages; s++)
        for (uint32_t m = 0; m < of->microbatches; m++) {
            const Pass *forward = pass_at(model, s, ACTION_F, m), *input = pass_at(model, s, ACTION_I, m);
            const Pass *weight = pass_at(model, s, ACTION_W, m);
            follows(model, forward, input, forward->time, ALWAYS);
            follows(model, input, weight, of->input, ALWAYS);
            if (s + 1 < model->stages) {
                const int message = home_of(of, s + 1) == home_of(of, s) ? 0 : of->message;
                follows(model, forward, pass_at(model, s + 1, ACTION_F, m), forward->time + message, ALWAYS);
                follows(model, pass_at(model, s + 1, ACTION_I, m), input, of->input + message, ALWAYS);
            }
            if (m > 0) {
                follows(model, pass_at(model, s, ACTION_F, m - 1), forward, forward->time, ALWAYS);
                follows(model, pass_at(model, s, ACTION_I, m - 1), input, of->input, ALWAYS);
                follows(model, pass_at(model, s, ACTION_W, m - 1), weight, of->weight, ALWAYS);
            }
        }
}

/* The sum of the weighted literals is at most `most`: a sequential counter. */
static void at_most(Model *model, const int *literals, const int *weights, uint32_t count, int most)
{
    int before = 0; /* variable of "the sum so far is at least 1"; those of 2, 3, ... follow */
    for (uint32_t i = 0; i < count; i++) {
        const int sum = new_variables(model, most);
        for (int j = 1; j <= most; j++) {
            if (before)
                clause(model, -(before + j - 1), sum + j - 1, NEVER_SO);
            if (j <= weights[i])
                clause(model, -literals[i], sum + j - 1, NEVER_SO);
            else if (before)
                clause(model, -literals[i], -(before + j - weights[i] - 1), sum + j - 1);
        }
        if (weights[i] > most)
            clause(model, -literals[i], NEVER_SO, NEVER_SO);
        else if (before && weights[i] > 0)
            clause(model, -literals[i], -(before + most - weights[i]), NEVER_SO);
        before = sum;
    }
}

/* A rank runs one pass at a time, and each F starts only if there is memory for it. */
static void add_rank(Model *model, uint32_t rank)
{
    const Case *of = model->of;
    const Pass **mine = calloc(model->count, sizeof *mine);
    uint32_t count = 0;
    assert_non_null(mine);
    for (uint32_t i = 0; i < model->count; i++)
        if (model->passes[i].rank == rank)
            mine[count++] = &model->passes[i];
    int *before = calloc((size_t)count * count, sizeof *before), *literals = calloc(count, sizeof *literals);
    int *weights = calloc(count, sizeof *weights);
    assert_true(before && literals && weights);
    for (uint32_t a = 0; a < count; a++)
        for (uint32_t b = a + 1; b < count; b++) {
            const int order = new_variables(model, 1);
            before[a * count + b] = order;
            before[b * count + a] = -order;
            follows(model, mine[a], mine[b], mine[a]->time, order);
            follows(model, mine[b], mine[a], mine[b]->time, -order);
        }
    const int whole = of->frees_input + of->frees_weight;
    for (uint32_t f = 0; f < count; f++) {
        int most = of->memory - whole;
        uint32_t others = 0;
        if (mine[f]->kind != ACTION_F)
            continue;
        for (uint32_t i = 0; i < count; i++) {
            if (i == f)
                continue;
            const bool takes = mine[i]->kind == ACTION_F;
            /* later passes do not free memory for it */
            literals[others] = takes ? before[i * count + f] : before[f * count + i];
            weights[others] = takes ? whole : mine[i]->kind == ACTION_I ? of->frees_input : of->frees_weight;
            most += takes ? 0 : weights[others];
            others++;
        }
        at_most(model, literals, weights, others, most);
    }
    free(mine);
    free(before);
    free(literals);
    free(weights);
}

/* Whether there are orders in which no rank takes longer than `cost`. */
static bool is_possible(const Model *model, int cost)
{
    const Case *of = model->of;
    for (uint32_t s = 0; s < model->stages; s++) {
        const Pass *last = pass_at(model, s, ACTION_W, of->microbatches - 1);
        const int literal = starts_by(last, model->path[last->rank] + cost - last->time);
        if (literal == NEVER_SO)
            return false;
        if (literal != ALWAYS)
            ccadical_assume(model->solver, literal);
    }
    const int answer = ccadical_solve(model->solver);
    assert_true(answer == 10 || answer == 20);
    return answer == 10;
}

static int search_cost(const Case *of)
{
    Arena arena = {0};
    Schedule schedule;
    const uint32_t stages = of->ranks * of->chunks;
    Costs costs = costs_of(of->forward, of->input, of->weight, of->message);
    costs.stage_count = stages;
    costs.stages = arena_array(&arena, stages, sizeof *costs.stages);
    for (uint32_t s = 0; s < stages; s++)
        for (StageCost kind = 0; kind < STAGE_COSTS; kind++)
            costs.stages[s][kind] = -1;
    costs.stages[stages - 1][COST_F] = of->forward + of->head;
    int64_t *memory = arena_array(&arena, of->ranks, sizeof *memory);
    for (uint32_t r = 0; r < of->ranks; r++)
        memory[r] = of->memory;
    placement_usual(&arena, of->ranks, of->chunks, of->waves, 1, of->microbatches, &schedule);
    const SearchTask task = {&costs, of->frees_input + of->frees_weight, -of->frees_input, -of->frees_weight, memory, 1,
                             false};
    SearchProgress found;
    search_order(&schedule, &task, NULL, (Span){0, 0}, &arena, &found);
    arena_free(&arena);
    assert_true(found.bound <= found.cost);
    return (int)lround(found.cost);
}

static int optimum(const Case *of, int cost)
{
    Model model = {.of = of, .solver = ccadical_init(), .stages = of->ranks * of->chunks};
    model.count = 3 * model.stages * of->microbatches;
    model.passes = calloc(model.count, sizeof *model.passes);
    model.path = calloc(of->ranks, sizeof *model.path);
    assert_true(model.passes && model.path);
    make_passes(&model, cost);
    add_dependences(&model);
    for (uint32_t r = 0; r < of->ranks; r++)
        add_rank(&model, r);
    if (!is_possible(&model, cost))
        fail_msg("%s: the search found orders of cost %d, and the solver says that there are none", of->name, cost);
    while (is_possible(&model, cost - 1))
        cost--;
    ccadical_release(model.solver);
    free(model.passes);
    free(model.path);
    return cost;
}

static const Case cases[] = {
    {"2 ranks", 2, 1, false, 4, 1, 1, 1, 0, 0, 1, 1, 4, 0},
    {"3 ranks, memory of 1F1B", 3, 1, false, 5, 1, 1, 1, 0, 0, 1, 1, 6, 0},
    {"4 ranks, memory of 1F1B", 4, 1, false, 6, 1, 1, 1, 0, 0, 1, 1, 8, 0},
    {"4 ranks, little more", 4, 1, false, 6, 1, 1, 1, 0, 0, 1, 1, 9, 0},
    {"4 ranks, half as much again", 4, 1, false, 6, 2, 3, 2, 0, 0, 1, 1, 11, 0},
    {"4 ranks, less", 4, 1, false, 6, 2, 2, 1, 1, 0, 1, 1, 5, 0},
    {"4 ranks, messages", 4, 1, false, 5, 3, 4, 2, 1, 0, 1, 1, 10, 0},
    {"4 ranks, longer", 4, 1, false, 10, 3, 3, 2, 0, 0, 1, 1, 11, 0},
    {"5 ranks, memory of 1F1B", 5, 1, false, 8, 1, 1, 1, 0, 0, 1, 1, 10, 0},
    {"5 ranks, odd times", 5, 1, false, 7, 4, 1, 3, 0, 0, 1, 1, 10, 1},
    {"6 ranks, half as much again", 6, 1, false, 9, 1, 1, 1, 0, 0, 1, 1, 18, 0},
    {"6 ranks, messages", 6, 1, false, 8, 3, 4, 2, 1, 0, 1, 1, 18, 0},
    {"8 ranks, memory of 1F1B", 8, 1, false, 10, 1, 1, 1, 0, 0, 1, 1, 16, 0},
    {"8 ranks, half as much again", 8, 1, false, 12, 1, 1, 1, 0, 0, 1, 1, 24, 0},
    {"3 ranks, activations until W", 3, 1, false, 6, 1, 2, 1, 0, 0, 0, 1, 3, 0},
    {"V of 2 ranks", 2, 2, true, 4, 1, 1, 1, 0, 0, 1, 1, 6, 0},
    {"V of 2 ranks, little memory", 2, 2, true, 4, 1, 1, 1, 0, 0, 0, 1, 2, 0},
    {"V of 3 ranks", 3, 2, true, 4, 1, 1, 1, 0, 0, 0, 1, 4, 0},
    {"V of 3 ranks, memory of V-Half", 3, 2, true, 6, 1, 1, 1, 0, 0, 0, 1, 4, 0},
    {"V of 3 ranks, memory of 1F1B", 3, 2, true, 5, 2, 2, 1, 1, 0, 1, 1, 12, 0},
    {"V of 4 ranks, memory of V-Min", 4, 2, true, 6, 1, 1, 1, 0, 0, 0, 1, 4, 0},
    {"V of 4 ranks, memory of V-Half", 4, 2, true, 4, 1, 1, 1, 0, 0, 0, 1, 6, 0},
    {"V of 4 ranks, memory of 1F1B", 4, 2, true, 5, 1, 1, 1, 0, 0, 1, 1, 16, 0},
    {"V of 3 ranks, unequal times", 3, 2, true, 4, 2, 3, 1, 0, 0, 1, 1, 8, 0},
    {"V of 3 ranks, short backwards", 3, 2, true, 3, 2, 1, 1, 1, 0, 1, 1, 7, 1},
    {"loop of 2 ranks", 2, 2, false, 4, 2, 2, 1, 1, 0, 1, 1, 7, 0},
    {"loop of 3 ranks", 3, 2, false, 4, 2, 3, 1, 0, 0, 1, 1, 10, 0},
    {"two waves of 2 ranks", 2, 4, true, 3, 1, 1, 1, 0, 0, 1, 1, 10, 0},
    {"3 ranks, the last stage with a head", 3, 1, false, 5, 2, 2, 1, 0, 1, 1, 1, 7, 0},
    {"V of 2 ranks, the last stage with a head", 2, 2, true, 4, 2, 3, 2, 1, 3, 1, 1, 7, 2},
};

static void near_the_optimum(void **state)
{
    (void)state;
    enum { CASES = sizeof cases / sizeof *cases };
    int found = 0;
    double most = 0, sum = 0;
    for (size_t i = 0; i < CASES; i++) {
        const int cost = search_cost(&cases[i]), least = optimum(&cases[i], cost);
        print_message("%s, %u microbatches, F=%d I=%d W=%d comm=%d head=%d, memory %d: %d, proven optimum %d\n",
                      cases[i].name, cases[i].microbatches, cases[i].forward, cases[i].input, cases[i].weight,
                      cases[i].message, cases[i].head, cases[i].memory, cost, least);
        assert_in_range(cost, least, least + cases[i].gap);
        found += cost == least;
        sum += 100.0 * (cost - least) / least;
        most = fmax(most, 100.0 * (cost - least) / least);
    }
    print_message("the optimum in %d of %d cases; above it by %.2f %% on average, %.2f %% at most\n", found, CASES,
                  sum / CASES, most);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(near_the_optimum)};
    return cmocka_run_group_tests_name("optimum", tests, NULL, NULL);
}
