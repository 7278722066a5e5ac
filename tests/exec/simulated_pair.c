/* The simulator issues the operations of a pair in the order of the merged list that a real stage with experts runs:
   the same sequence of components, posts and waits. Consecutive operations of one component count as one. */

#include "base/clock.h"
#include "runtime/model/experts.h"
#include "runtime/model/stage.h"
#include "program/times/costs_parts.h"
#include "program/times/costs_resolve.h"
#include "runtime/simulator/simulator.h"
#include "tests/model/harness.h"

#include <stdio.h>

enum { STAGES = 3, EVENTS_BYTES = 1 << 14 };
static const char *const verbs[] = {[PAIR_COMPUTE] = "run", [PAIR_POST] = "post", [PAIR_WAIT] = "wait"};

/* A list of operations as text, one per line: "post dispatch(F) of layer 0". */
typedef struct Events {
    char text[EVENTS_BYTES];
    char last[64];
} Events;

/* Operations of one component that follow each other are one event. */
static void add_event(Events *events, PairOpKind kind, RecipeEntry entry, uint32_t layer)
{
    char name[32], line[64];
    recipe_entry_text(entry, name, sizeof name);
    snprintf(line, sizeof line, "%s %s of layer %u\n", verbs[kind], name, layer);
    if (strcmp(line, events->last) == 0)
        return;
    memcpy(events->last, line, sizeof line);
    assert_true(strlen(events->text) + strlen(line) < EVENTS_BYTES);
    strcat(events->text, line);
}

/* --- the list of a real stage --- */

static bool has_kind(const PairList *list, size_t begin, size_t end, OpKind kind)
{
    for (size_t i = begin; i < end; i++)
        if (list->list.ops[i].kind == kind)
            return true;
    return false;
}

/* Shared experts need no communication, so the merged list may run them before the wait for the all-to-all that mlp
   needs. If the recipe does not name them, they are a part of mlp for the simulator, and this test leaves them out. */
static bool is_left_out(const PairList *list, const Stage *stage, const PairPart *part)
{
    return stage->parts[part->index].component.kind == &component_shared &&
           !recipe_has(&list->recipe, RECIPE_SHARED, RECIPE_FIRST);
}

/* The component and pass to which a recipe assigns operations begin .. part->end - 1 of the list. */
static RecipeEntry entry_of(const PairList *list, const Stage *stage, const PairPart *part, size_t begin)
{
    const ComponentKind *kind = stage->parts[part->index].component.kind;
    const uint8_t pass = list->both_forward ? (uint8_t)(RECIPE_FIRST + part->half) : (uint8_t)part->pass;
    const bool parted = recipe_has(&list->recipe, RECIPE_CORE, pass) && kind->part == RECIPE_ATTENTION;
    const bool core = kind == &component_router || has_kind(list, begin, part->end, OPERATION_attention_forward);
    const bool shared = recipe_has(&list->recipe, RECIPE_SHARED, pass) && kind == &component_shared;
    return (RecipeEntry){(uint8_t)(parted   ? core ? RECIPE_CORE : RECIPE_QKV
                                   : shared ? RECIPE_SHARED
                                            : kind->part),
                         pass};
}

static void real_events(const PairList *list, const Stage *stage, uint32_t layers, Events *events)
{
    *events = (Events){.text = ""};
    for (size_t i = 0, begin = 0; i < list->part_count; begin = list->parts[i++].end) {
        const PairPart *part = &list->parts[i];
        const uint32_t layer = stage->parts[part->index].layer;
        const bool is_forward = list->both_forward || !part->half;
        const PairOpKind kind = has_kind(list, begin, part->end, OPERATION_rows_post)   ? PAIR_POST
                                : has_kind(list, begin, part->end, OPERATION_rows_wait) ? PAIR_WAIT
                                                                                        : PAIR_COMPUTE;
        if (!is_left_out(list, stage, part))
            add_event(events, kind, entry_of(list, stage, part, begin), is_forward ? layer : layers - 1 - layer);
    }
}

/* --- the walk of the simulator --- */

static void simulated_events(const Recipe *recipe, uint32_t layers, bool weights, Events *events)
{
    const PairOrder order = pair_order(recipe, &costs_unit);
    PairWalk walk = pair_walk(&order, layers, layers, weights);
    *events = (Events){.text = ""};
    for (PairOp op; pair_next(&walk, &op);)
        add_event(events, op.kind, op.entry, op.layer);
}

/* --- */

#define ENTRY(component, pass)            \
    {                                     \
        RECIPE_##component, RECIPE_##pass \
    }
enum { PREFILL = 2 };
static const Recipe recipes[] = {
    /* schedules/dualpipe.dps */
    {.entries = {{ENTRY(ATTENTION, F), ENTRY(MLP, B), ENTRY(MLP, W), ENTRY(MLP, F), ENTRY(ATTENTION, B),
                  ENTRY(ATTENTION, W)},
                 {ENTRY(COMBINE, B), ENTRY(DISPATCH, F), ENTRY(DISPATCH, B), ENTRY(COMBINE, F)}},
     .counts = {6, 4}},
    /* all-to-alls of both halves are in flight at once; W comes late */
    {.entries = {{ENTRY(ATTENTION, F), ENTRY(MLP, F), ENTRY(MLP, B), ENTRY(ATTENTION, B), ENTRY(MLP, W),
                  ENTRY(ATTENTION, W)},
                 {ENTRY(DISPATCH, F), ENTRY(COMBINE, B), ENTRY(COMBINE, F), ENTRY(DISPATCH, B)}},
     .counts = {6, 4}},
    /* schedules/prefill.dps */
    [PREFILL] = {.entries = {{ENTRY(ATTENTION, SECOND), ENTRY(SHARED, FIRST), ENTRY(ATTENTION, FIRST),
                              ENTRY(MLP, SECOND), ENTRY(MLP, FIRST), ENTRY(SHARED, SECOND)},
                             {ENTRY(COMBINE, FIRST), ENTRY(DISPATCH, SECOND), ENTRY(DISPATCH, FIRST),
                              ENTRY(COMBINE, SECOND)}},
                 .counts = {6, 4}},
    /* schedules/decode.dps */
    {.entries = {{ENTRY(SHARED, FIRST), ENTRY(QKV, SECOND), ENTRY(MLP, FIRST), ENTRY(CORE, SECOND),
                  ENTRY(SHARED, SECOND), ENTRY(QKV, FIRST), ENTRY(MLP, SECOND), ENTRY(CORE, FIRST)},
                 {ENTRY(DISPATCH, FIRST), ENTRY(COMBINE, FIRST), ENTRY(DISPATCH, SECOND), ENTRY(COMBINE, SECOND)}},
     .counts = {8, 4}},
};

static void compare(Device *device, const ModelConfig *config, const Recipe *recipe, uint32_t layers, bool weights)
{
    static Events real, simulated;
    Stage *stage;
    PairList *list;
    OK(stage_open(config, device, 1, STAGES, 1, &stage, error));
    const StagePair pair = {
        .forward = stage, .backward = stage, .weights = weights, .both_forward = recipe_is_forward(recipe)};
    OK(stage_pair_list(&pair, recipe, &list, error));
    real_events(list, stage, layers, &real);
    simulated_events(recipe, layers, weights, &simulated);
    assert_string_equal(simulated.text, real.text);
    stage_close(stage);
}

TEST(the_order_is_that_of_the_merged_list)
{
    const ExpertGroup group = {.members = 2};
    Device *device;
    OK(device_open("cpu", 0, &device, error));
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++)
        for (uint32_t layers = 1; layers <= 3; layers++) {
            char count[16];
            snprintf(count, sizeof count, "layers=%u", STAGES * layers);
            const char *const settings[] = {"hidden=8",        "heads=2",        "sequence=4", "experts=4",
                                            "expert_hidden=8", "dense_layers=0", count,        NULL};
            ModelConfig config = config_of("moe", settings, STAGES);
            config.expert_group = &group;
            compare(device, &config, &recipes[r], layers, true);
            compare(device, &config, &recipes[r], layers, false);
        }
    device_close(device);
}

/* The time that the simulator takes for the operations of an F&B if every sleep ends on time and all all-to-alls share
   one link. */
static double time_of_walk(const Recipe *recipe, const Costs *costs, uint32_t layers)
{
    const PairOrder order = pair_order(recipe, costs);
    PairWalk walk = pair_walk(&order, layers, layers, true);
    double now = 0, link = 0, arrival[2] = {0};
    for (PairOp op; pair_next(&walk, &op);)
        if (op.kind == PAIR_COMPUTE)
            now += op.time;
        else if (op.kind == PAIR_POST)
            arrival[op.half] = link = fmax(link, now) + op.time;
        else
            now = fmax(now, arrival[op.half]);
    return now;
}

/* Communication is posted as early as the recipe allows, also that of the next layer: with random times of the
   components each walk takes the predicted time. */
TEST(a_walk_takes_the_predicted_time)
{
    static const char *const parts[] = {"attention.F", "attention.B", "attention.W", "dispatch.F",
                                        "dispatch.B",  "mlp.F",       "mlp.B",       "mlp.W",
                                        "combine.F",   "combine.B",   "qkv.F",       "shared.F"};
    for (uint64_t seed = 0; seed < 100; seed++) {
        const Recipe *recipe = &recipes[seed % (sizeof recipes / sizeof *recipes)];
        Arena arena = {0};
        Costs costs = costs_unit;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char text[40];
            snprintf(text, sizeof text, "%s=%d", parts[i], (int)(random_bits(seed, i) % 100));
            OK(costs_set(&costs, text, &arena, error));
        }
        const uint32_t layers = 1 + (uint32_t)seed % 5;
        costs.layers = layers;
        const double predicted = recipe_times(recipe, &costs, &arena).makespan;
        assert_true(fabs(time_of_walk(recipe, &costs, layers) - predicted) < 1e-9);
        arena_free(&arena);
    }
}

/* In an F&B, combine(B) of a layer is posted as soon as attention(B) of the layer that comes before it in the backward
   has run. In an F&F, combine is posted before the shared experts whose result it adds. */
TEST(communication_is_posted_early)
{
    static Events events;
    simulated_events(&recipes[0], 2, true, &events);
    assert_non_null(strstr(events.text, "run attention(B) of layer 0\n"
                                        "post combine(B) of layer 1\n"
                                        "run attention(W) of layer 0\n"));
    simulated_events(&recipes[PREFILL], 2, true, &events);
    assert_non_null(strstr(events.text, "run mlp(1) of layer 0\n"
                                        "post combine(1) of layer 0\n"
                                        "wait dispatch(0) of layer 0\n"
                                        "run mlp(0) of layer 0\n"
                                        "post combine(0) of layer 0\n"
                                        "run shared(1) of layer 0\n"
                                        "wait combine(1) of layer 0\n"));
}

/* A simulated F&F sleeps at least as long as its walk takes, and the walk takes the predicted time. */
TEST(a_pair_takes_the_time_of_its_walk)
{
    const Recipe *recipe = &recipes[PREFILL];
    Arena arena = {0};
    RankProgram rank = {.chunk_count = 1};
    const Program program = {.stages = 1, .rank_count = 1, .ranks = &rank, .recipes.common = (Recipe *)recipe};
    Costs costs = costs_unit;
    OK(costs_set(&costs, "attention.F=1,mlp.F=3,shared.F=2,dispatch.F=1,combine.F=2,layers=2", &arena, error));
    costs = costs_resolve(&costs, 1, &program.recipes, &arena);
    assert_true(costs.follows_recipe);
    PairOrder orders[1];
    assert_int_equal(simulator_orders(&program), 1);
    const Simulator simulator = simulator_of(&program, 0, &costs, NULL, orders);
    PassPair pair = {.both_forward = true};
    const double expected = time_of_walk(recipe, &costs, 2);
    assert_true(fabs(expected - costs_pair(&costs, 0, 0, COST_F)) < 1e-9);
    const int64_t begun = clock_nanoseconds();
    OK(simulator_stages.overlap((void *)&simulator, &pair, error));
    assert_true((double)(clock_nanoseconds() - begun) >= expected * 1e6 - 1000); /* times are rounded to ns */
    arena_free(&arena);
}

/* F&Bs of chunks 0 and 1 follow the recipe for these chunks; other F&Bs follow the common recipe. Each takes at least
   the time of its recipe. */
TEST(each_pair_follows_the_recipe_of_its_chunks)
{
    Arena arena = {0};
    Recipe common = recipes[0];
    ChunkRecipe own = {.first = 0, .second = 1, .recipe = recipes[1]};
    RankProgram rank = {.chunk_count = 2};
    const Program program = {
        .stages = 1, .rank_count = 1, .ranks = &rank, .recipes = {.common = &common, .own = &own, .count = 1}};
    Costs costs = costs_unit;
    OK(costs_set(&costs, "attention.F=1,attention.B=2,attention.W=1,mlp.F=2,mlp.B=2,mlp.W=2", &arena, error));
    OK(costs_set(&costs, "dispatch.F=5,dispatch.B=3,combine.F=4,combine.B=6,layers=2", &arena, error));
    costs = costs_resolve(&costs, 1, &program.recipes, &arena);
    PairOrder orders[2];
    assert_int_equal(simulator_orders(&program), 2);
    const Simulator simulator = simulator_of(&program, 0, &costs, NULL, orders);
    double expected[2];
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        const Costs *pair_costs = costs_of_pair(&costs, 0, chunk);
        assert_true(pair_costs->follows_recipe);
        expected[chunk] = time_of_walk(&recipes[chunk], &costs, 2);
        assert_true(
            fabs(costs_pair(pair_costs, 0, 0, COST_B) - recipe_times(&recipes[chunk], &costs, &arena).makespan) < 1e-9);
        PassPair pair = {.weights = true, .backward.chunk = chunk};
        const int64_t begun = clock_nanoseconds();
        OK(simulator_stages.overlap((void *)&simulator, &pair, error));
        assert_true((double)(clock_nanoseconds() - begun) >= expected[chunk] * 1e6 - 1000);
    }
    assert_true(expected[1] > expected[0] + 1);
    arena_free(&arena);
}

/* An F&B that defers the W of attention, and then this W. Each sleeps at least for its predicted time. There is no
   communication to hide, so both predicted times add up to that of an F&B that includes this W. */
TEST(what_is_put_off_takes_its_time_after_the_pair)
{
    Arena arena = {0};
    Recipe whole = {.entries = {{ENTRY(ATTENTION, F), ENTRY(MLP, B), ENTRY(MLP, W), ENTRY(MLP, F), ENTRY(ATTENTION, B),
                                 ENTRY(ATTENTION, W)}},
                    .counts = {6}};
    Recipe split = whole;
    split.counts[RECIPE_COMPUTE]--;
    split.entries[RECIPE_AFTER][0] = (RecipeEntry)ENTRY(ATTENTION, W);
    split.counts[RECIPE_AFTER] = 1;
    Costs given = costs_unit;
    OK(costs_set(&given, "attention.F=1,attention.B=2,attention.W=3,mlp.F=2,mlp.B=2,mlp.W=4,head.W=5,layers=2", &arena,
                 error));
    const Recipes both[] = {{.common = &whole}, {.common = &split}};
    const Costs in_pair = costs_resolve(&given, 1, &both[0], &arena),
                costs = costs_resolve(&given, 1, &both[1], &arena);
    const double pair = costs_pair(&costs, 0, 0, COST_B), after = costs_put_off(&costs, 1, 0, recipe_put_off(&split));
    assert_true(fabs(after - 6) < 1e-9);
    assert_true(fabs(pair + after - costs_pair(&in_pair, 0, 0, COST_B)) < 1e-9);
    RankProgram rank = {.chunk_count = 1};
    const Program program = {.stages = 1, .rank_count = 1, .ranks = &rank, .recipes = both[1]};
    PairOrder orders[1];
    assert_int_equal(simulator_orders(&program), 1);
    const Simulator simulator = simulator_of(&program, 0, &costs, NULL, orders);
    PassPair work = {.weights = true};
    const PassSlots slots[] = {{.put_off = 1u << RECIPE_ATTENTION, .only_put_off = true},
                               {.put_off = 1u << RECIPE_ATTENTION}};
    int64_t begun = clock_nanoseconds();
    OK(simulator_stages.overlap((void *)&simulator, &work, error));
    assert_true((double)(clock_nanoseconds() - begun) >= pair * 1e6 - 1000);
    /* the deferred W of attention; the other weight gradients, which dprun --in-turn computes before that W */
    const double times[] = {after, costs_pass(&costs, 0, COST_W) - after};
    for (int i = 0; i < 2; i++) {
        begun = clock_nanoseconds();
        OK(simulator_stages.pass((void *)&simulator, STAGE_BACKWARD_WEIGHT, &slots[i], error));
        assert_true((double)(clock_nanoseconds() - begun) >= times[i] * 1e6 - 1000);
    }
    arena_free(&arena);
}

int main(void) { return test_program("simulated_pair", NULL, NULL); }
