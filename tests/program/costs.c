/* Costs of stages, F&Bs, F&Fs and links; which cost counts if several are given, and which texts are refused. */

#include "program/times/costs_resolve.h"
#include "tests/search/costs_of.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Arena arena;

static Costs costs_from(const char *text)
{
    Costs costs = costs_unit;
    Error error = {""};
    if (costs_set(&costs, text, &arena, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return costs;
}

static int free_arena(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

TEST(test_defaults)
{
    const Costs unit = costs_unit, other = costs_of(2, 3, 4, 5);
    assert_true(costs_pass(&other, 0, COST_F) == 2 && costs_pass(&other, 1, COST_I) == 3 &&
                costs_pass(&other, 2, COST_W) == 4);
    assert_true(costs_pass(&other, 0, COST_B) == 7 && costs_message(&other, 1, 0) == 5);
    assert_true(costs_pass(&unit, 5, COST_F) == 1 && costs_pass(&unit, 5, COST_B) == 2 &&
                costs_pass(&unit, 0, COST_U) == 0);
    assert_true(costs_pair(&unit, 0, 0, COST_B) == 3 && costs_pair(&unit, 0, 1, COST_I) == 2);
    assert_true(costs_message(&unit, 0, 1) == 0 && costs_memory(&unit, 0, COST_MEMORY_I) == 0 &&
                costs_seconds(&unit) == 1e-3);
}

TEST(test_stages)
{
    const Costs costs = costs_from("F=2,F[3]=5,I[3]=4,F[100]=6,B[2]=7,memory_W=1.5K,memory_W[1]=2");
    for (uint32_t stage = 0; stage < 110; stage++) {
        assert_true(costs_pass(&costs, stage, COST_F) == (stage == 3 ? 5 : stage == 100 ? 6 : 2));
        assert_true(costs_pass(&costs, stage, COST_I) == (stage == 3 ? 4 : 1));
        assert_true(costs_pass(&costs, stage, COST_W) == 1);
        assert_true(costs_pass(&costs, stage, COST_B) == (stage == 3 ? 5 : stage == 2 ? 7 : 2));
        assert_true(costs_memory(&costs, stage, COST_MEMORY_W) == (stage == 1 ? 2 : 1536));
    }
    /* of several settings the last one counts; a cost of one stage takes precedence over that of all stages */
    const Costs later = costs_from("F[1]=3,F=2,F[1]=4,B=3,I=9");
    assert_true(costs_pass(&later, 1, COST_F) == 4 && costs_pass(&later, 0, COST_F) == 2 &&
                costs_pass(&later, 0, COST_B) == 3);
}

TEST(test_pairs)
{
    const Costs whole = costs_from("F=2,I=3,W=1,FB=5");
    assert_true(costs_pair(&whole, 0, 4, COST_B) == 5);
    assert_true(costs_pair(&whole, 0, 4, COST_I) == 5.0 * 5 / 6);
    const Costs factor = costs_from("F=2,I=3,W=1,overlap=0.75,F[1]=4");
    assert_true(costs_pair(&factor, 0, 2, COST_B) == 4.5);
    assert_true(costs_pair(&factor, 1, 0, COST_B) == 6);
    assert_true(costs_pair(&factor, 0, 1, COST_I) == 0.75 * 5);
    /* FB is 3/4 of F + B on stage 0, and half of F + B on stage 1 */
    const Costs both = costs_from("F=2,I=1,W=1,FB=3,FB[1]=2");
    assert_true(costs_pair(&both, 0, 1, COST_B) == 0.75 * 2 + 0.5 * 2);
    assert_true(costs_pair(&both, 1, 0, COST_I) == 0.5 * 2 + 0.75 * 1);
    const Costs nothing = costs_from("F=0,I=0,W=0,FB=3");
    assert_true(costs_pair(&nothing, 0, 0, COST_B) == 0);
}

TEST(test_links)
{
    const Costs costs = costs_from(
        "comm=1,comm[2->1]=5,comm[0->1]=2,bytes=100,bandwidth=50,bandwidth[1->2]=25,comm[0->3]=4,comm[0->1]=3");
    assert_true(costs_message(&costs, 0, 1) == 3 + 2);
    assert_true(costs_message(&costs, 1, 0) == 1 + 2);
    assert_true(costs_message(&costs, 1, 2) == 1 + 4);
    assert_true(costs_message(&costs, 2, 1) == 5 + 2);
    assert_true(costs_message(&costs, 0, 3) == 4 + 2);
    assert_true(costs_message(&costs, 2, 2) == 0);
    const Costs seconds = costs_from("bandwidth=2e6,bytes=1e6,unit=1e-3"); /* half a second */
    assert_true(fabs(costs_message(&seconds, 0, 1) - 500) < 1e-9 && costs_seconds(&seconds) == 1e-3);
    Costs many = costs_unit; /* links may be set in any order */
    for (uint32_t i = 0; i < 1000; i++) {
        Error error;
        char text[64];
        const uint32_t from = i * 7919 % 1000;
        snprintf(text, sizeof text, "comm[%u->%u]=%u", from, from * 31 % 997 + 1000, from);
        assert_int_equal(costs_set(&many, text, &arena, &error), STATUS_OK);
    }
    for (uint32_t from = 0; from < 1000; from++)
        assert_true(costs_message(&many, from, from * 31 % 997 + 1000) == from &&
                    costs_message(&many, from, 999 - from) == 0);
}

TEST(test_recut)
{
    const Costs costs = costs_from("stages=4,F=2,F[1]=6,W=3,B[3]=8,FB[0]=5,memory_I=4,bytes=9,overlap=0.5");
    const Costs finer = costs_resolve(&costs, 8, NULL, &arena), coarser = costs_resolve(&costs, 2, NULL, &arena),
                same = costs_resolve(&costs, 4, NULL, &arena), third = costs_resolve(&costs, 3, NULL, &arena);
    for (uint32_t s = 0; s < 8; s++) {
        assert_true(costs_pass(&finer, s, COST_F) == (s / 2 == 1 ? 3 : 1) &&
                    costs_pass(&finer, s, COST_W) == (s / 2 == 3 ? 2 : 1.5));
        assert_true(costs_pass(&finer, s, COST_B) == (s / 2 == 3 ? 4 : 2) &&
                    costs_memory(&finer, s, COST_MEMORY_I) == 2);
        assert_true(costs_pair(&finer, s, s, COST_B) == (s < 2 ? 2.5 : s < 4 ? 2.5 : s < 6 ? 1.5 : 2.5));
    }
    assert_true(costs_pass(&coarser, 0, COST_F) == 8 && costs_pass(&coarser, 1, COST_F) == 4 &&
                costs_pass(&coarser, 1, COST_B) == 12);
    assert_true(costs_pass(&third, 0, COST_F) == 4 && fabs(costs_pass(&third, 1, COST_F) - 16.0 / 3) < 1e-12 &&
                fabs(costs_pass(&third, 2, COST_F) - 8.0 / 3) < 1e-12);
    assert_true(costs_pass(&same, 1, COST_F) == 6 && finer.bytes == 9 && costs_seconds(&finer) == 1e-3);
}

static Costs resolved_from(const char *text, uint32_t stages)
{
    const Costs costs = costs_from(text);
    return costs_resolve(&costs, stages, NULL, &arena);
}

enum { ALL_USED = (1 << STAGE_COSTS) - 1 };

/* How I and W of a stage are found, in this order: the given value (one for all stages counts only if the stage has no
   B of its own); B minus the other half, but at least 0; B divided in the ratio of the stages that have both I and W;
   half of B each; without a B, 1. */
TEST(test_halves)
{
    static const struct {
        const char *text;
        double input, weight; /* expected I and W of stage 1 of 3 */
        const char *derived;
    } cases[] = {
        {"I[1]=3,W[1]=4,B[1]=9", 3, 4, "I[0,2] and W[0,2]: 1, the default"},
        {"B[1]=9,I[1]=3", 3, 6, "W[1]: B - I\n"},
        {"B[1]=9,W[1]=3", 6, 3, "I[1]: B - W\n"},
        {"B[1]=9,W[1]=10", 0, 10, "I[1]: 0, as W takes more than B\n"},
        {"B[1]=9,I[0]=2,W[0]=1,I[2]=4,W[2]=2", 6, 3,
         "I[1] and W[1]: B in the ratio of I to W of the stages that have both\n"},
        {"B[1]=9,I[0]=5", 4.5, 4.5, "I[1] and W[1]: half of B, as no stage has both I and W\n"},
        {"B[1]=9,I=1,W=2", 4.5, 4.5, "I[1] and W[1]: half of B, as no stage has both I and W\n"},
        {"B[0]=9,I=1,W=2", 1, 2, "I[0] and W[0]: half of B"},
        {"B=9,I=4", 4, 5, "W: B - I\n"},
        {"B=9,W[1]=4", 5, 4, "I[1]: B - W\n"},
        {"B=9", 4.5, 4.5, "I and W: half of B, as neither is given\n"},
        {"B=9,I[0]=2,W[0]=1", 6, 3, "I[1..2] and W[1..2]: B in the ratio"},
        {"I=2,W=3", 2, 3, NULL},
        {"F=3", 1, 1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Costs costs = resolved_from(cases[i].text, 3);
        char *text;
        size_t size;
        FILE *stream = open_memstream(&text, &size);
        costs_put_derived(&costs, ALL_USED, "", stream);
        fclose(stream);
        if (costs_pass(&costs, 1, COST_I) != cases[i].input || costs_pass(&costs, 1, COST_W) != cases[i].weight)
            fail_msg("%s: I %g, W %g", cases[i].text, costs_pass(&costs, 1, COST_I), costs_pass(&costs, 1, COST_W));
        if (cases[i].derived ? !strstr(text, cases[i].derived) : *text)
            fail_msg("%s: says \"%s\", not \"%s\"", cases[i].text, text, cases[i].derived ? cases[i].derived : "");
        free(text);
    }
}

/* Times of single stages, as measured ones are. Missing costs are derived, and reported if they are used. */
TEST(test_derived)
{
    const Costs costs = resolved_from("F[0]=2,F[1]=3,I[0]=4,W[0]=5,B[1]=18", 2);
    assert_true(costs_pass(&costs, 0, COST_B) == 9 && costs_pass(&costs, 1, COST_I) == 8 &&
                costs_pass(&costs, 1, COST_W) == 10);
    assert_true(costs_has_derived(&costs, 1 << COST_B) && costs_has_derived(&costs, 1 << COST_W) &&
                !costs_has_derived(&costs, 1 << COST_F | 1 << COST_U));
    char *text;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    costs_put_derived_json(&costs, 1 << COST_B | 1 << COST_FB | 1 << COST_W, stream);
    fclose(stream);
    assert_string_equal(text, "[\n"
                              "  {\"cost\": \"W\", \"stages\": [1], \"values\": [10], \"rule\": \"B in the ratio of I "
                              "to W of the stages that have both\"},\n"
                              "  {\"cost\": \"B\", \"stages\": [0], \"values\": [9], \"rule\": \"I + W\"},\n"
                              "  {\"cost\": \"FB\", \"stages\": [0, 1], \"values\": [11, 21], \"rule\": \"F + B, as "
                              "neither FB nor overlap is given\"}]");
    free(text);
    const Costs defaults = resolved_from("F[0]=2,F[1]=3", 2), some = resolved_from("F[0]=2", 2),
                overlap = resolved_from("F[0]=2,F[1]=3,overlap=1", 2);
    assert_true(costs_has_derived(&defaults, 1 << COST_B) && costs_has_derived(&defaults, 1 << COST_I));
    assert_true(!costs_has_derived(&some, 1 << COST_B) && costs_has_derived(&some, 1 << COST_F));
    assert_true(!costs_has_derived(&overlap, 1 << COST_FB) && costs_has_derived(&defaults, 1 << COST_FB));
}

/* If the costs are for another number of stages than the program's, missing costs are derived for the stages of the
   costs. Then the model is divided anew. */
TEST(test_derived_then_recut)
{
    const Costs costs = resolved_from("stages=2,F[0]=2,F[1]=4,B[0]=6,B[1]=12,I[1]=8", 4);
    for (uint32_t s = 0; s < 4; s++) {
        assert_true(costs_pass(&costs, s, COST_F) == (s < 2 ? 1 : 2) &&
                    costs_pass(&costs, s, COST_B) == (s < 2 ? 3 : 6));
        assert_true(costs_pass(&costs, s, COST_I) == (s < 2 ? 1.5 : 4) &&
                    costs_pass(&costs, s, COST_W) == (s < 2 ? 1.5 : 2));
    }
    assert_int_equal(costs.stage_count, 4);
    assert_string_equal(costs.derived[0].where, "[1]");
}

TEST(test_unused)
{
    char text[200];
    const Costs stage = costs_from("F[4]=1"), link = costs_from("comm[0->3]=1"), fewer = costs_from("F[4]=1,stages=4");
    assert_true(costs_unused(&stage, 4, 4, text, sizeof text));
    assert_string_equal(text, "F[4] names a stage that does not exist: stages are 0..3");
    assert_true(!costs_unused(&stage, 5, 4, text, sizeof text) && costs_unused(&fewer, 8, 4, text, sizeof text));
    const Costs overruled = costs_from("I=1,B[0]=2,B[1]=2"), own = costs_from("I=1,B[0]=2,I[0]=1"),
                some = costs_from("I=1,B[0]=2");
    assert_true(costs_unused(&overruled, 2, 2, text, sizeof text));
    assert_string_equal(
        text, "I has no effect: each stage has its own I, or a B from which it follows; write I[0] = ... and so on");
    assert_true(!costs_unused(&own, 1, 1, text, sizeof text) && !costs_unused(&some, 2, 2, text, sizeof text));
    assert_true(costs_unused(&link, 4, 3, text, sizeof text) && !costs_unused(&link, 4, 4, text, sizeof text));
}

/* Layers are distributed evenly and in order; if that leaves a rest, the first stages get one layer more. */
TEST(test_dealing)
{
    for (uint32_t stages = 1; stages <= 9; stages++)
        for (uint32_t layers = stages; layers <= 30; layers++) {
            assert_int_equal(stage_first_layer(layers, stages, 0), 0);
            assert_int_equal(stage_first_layer(layers, stages, stages), layers);
            for (uint32_t s = 0, before = layers; s < stages; s++) {
                const uint32_t own = stage_first_layer(layers, stages, s + 1) - stage_first_layer(layers, stages, s);
                assert_true(own <= before && (own == layers / stages || own == layers / stages + 1));
                before = own;
            }
        }
    assert_int_equal(stage_first_layer(10, 4, 2), 6); /* 3 3 2 2 */
}

/* A model of 7 layers: the time of each stage. The sum over the stages is the same for every number of stages. */
TEST(test_parts)
{
    static const char model[] =
        "model_layers=7,attention.F=1,attention.B=2,attention.W=3,attention.U=4,mlp.F=10,mlp.B=20,mlp.W=30,mlp.U=40,"
        "embedding.F=100,embedding.W=300,embedding.U=400,head.F=1000,head.B=2000,head.W=3000,head.U=4000";
    static const uint32_t layers[][4] = {{7}, {4, 3}, {3, 2, 2}, {2, 2, 2, 1}};
    static const struct {
        StageCost cost;
        double layer, first, last;
    } passes[] = {{COST_F, 11, 100, 1000},
                  {COST_I, 22, 0, 2000},
                  {COST_W, 33, 300, 3000},
                  {COST_B, 55, 300, 5000},
                  {COST_U, 44, 400, 4000}};
    for (uint32_t stages = 1; stages <= 4; stages++)
        for (size_t p = 0; p < sizeof passes / sizeof *passes; p++) {
            const Costs costs = resolved_from(model, stages);
            double sum = 0;
            for (uint32_t s = 0; s < stages; s++) {
                const double ends = (s == 0 ? passes[p].first : 0) + (s + 1 == stages ? passes[p].last : 0);
                assert_true(costs_pass(&costs, s, passes[p].cost) == layers[stages - 1][s] * passes[p].layer + ends);
                sum += costs_pass(&costs, s, passes[p].cost);
            }
            assert_true(sum == 7 * passes[p].layer + passes[p].first + passes[p].last);
            assert_false(costs_has_derived(&costs, 1u << passes[p].cost));
        }
}

/* Costs of parts together with other costs: first_layer.B is the I of layer 0; costs of single stages take precedence;
   the time of an F&B; a model with too few layers. */
TEST(test_parts_and_others)
{
    const Costs mlp =
        resolved_from("model_layers=5,rows.F=1,perceptron.F=2,perceptron.B=8,first_layer.B=3,squared_error.B=100", 2);
    assert_true(costs_pass(&mlp, 0, COST_I) == 2 * 8 + 3 && costs_pass(&mlp, 1, COST_I) == 2 * 8 + 100);
    assert_true(costs_pass(&mlp, 0, COST_F) == 1 + 3 * 2 && costs_pass(&mlp, 1, COST_F) == 2 * 2 &&
                costs_pass(&mlp, 0, COST_U) == 0);
    const Costs own = resolved_from("model_layers=4,mlp.F=2,mlp.B=1,head.F=1,F[1]=50,W=7,stages=8", 2);
    assert_true(costs_pass(&own, 0, COST_F) == 4 && costs_pass(&own, 1, COST_F) == 50 &&
                costs_pass(&own, 1, COST_W) == 7);
    assert_int_equal(own.stage_count, 2);
    const Recipe recipe = {.entries = {{{RECIPE_MLP, RECIPE_F}, {RECIPE_MLP, RECIPE_B}, {RECIPE_MLP, RECIPE_W}}},
                           .counts = {3},
                           .share = 1,
                           .whole = 2};
    const Recipes recipes = {.common = (Recipe *)&recipe};
    Costs costs = costs_from("model_layers=3,mlp.F=1,mlp.B=2,mlp.W=3,head.F=10");
    const Costs shared = costs_resolve(&costs, 2, &recipes, &arena);
    assert_true(costs_pair(&shared, 0, 0, COST_B) == 2 * 2 * 6 && costs_pair(&shared, 1, 1, COST_B) == 2 * 6 + 10);
    assert_true(shared.follows_recipe && !costs_resolve(&costs, 2, NULL, &arena).follows_recipe);
    const Costs pair = costs_from("model_layers=3,mlp.F=1,mlp.B=2,mlp.W=3,FB[1]=9");
    /* two layers and one: one overlaps, and the other runs alone; W put off are not in the F&B, but those of all layers
       of the backward come after it */
    const Recipe after = {.entries = {{{RECIPE_MLP, RECIPE_B}, {RECIPE_MLP, RECIPE_F}},
                                      {{RECIPE_DISPATCH, RECIPE_B}},
                                      {{RECIPE_MLP, RECIPE_W}}},
                          .counts = {2, 1, 1}};
    const Recipes later = {.common = (Recipe *)&after};
    const Costs late = costs_from("model_layers=3,mlp.F=2,mlp.B=3,mlp.W=4,dispatch.B=1");
    const Costs uneven = costs_resolve(&late, 2, &later, &arena);
    assert_true(uneven.follows_recipe && costs_pair(&uneven, 1, 1, COST_B) == 5);
    assert_true(costs_pair(&uneven, 0, 1, COST_B) == 5 + 2 && costs_pair(&uneven, 1, 0, COST_B) == 5 + 3 + 1);
    assert_false(costs_resolve(&pair, 2, &recipes, &arena).follows_recipe);
    /* components that the recipe does not order add their time to the F&B, as the head does */
    const Costs more = costs_from("model_layers=3,mlp.F=1,mlp.B=2,mlp.W=3,attention.F=4,attention.W=5,head.F=10");
    const Costs beside = costs_resolve(&more, 2, &recipes, &arena);
    assert_true(costs_pair(&beside, 0, 0, COST_B) == 2 * (2 * 6 + 9) &&
                costs_pair(&beside, 1, 1, COST_B) == 2 * 6 + 9 + 10);
    costs.overlap = 1; /* a given `overlap` takes precedence over the time of the recipe */
    const Costs measured = costs_resolve(&costs, 2, &recipes, &arena);
    assert_false(measured.follows_recipe);
    assert_true(costs_pair(&measured, 0, 1, COST_B) == 2 + 5);
    char text[200];
    assert_true(costs_unused(&costs, 4, 4, text, sizeof text) && !costs_unused(&costs, 3, 3, text, sizeof text));
    assert_string_equal(text, "the model has 3 layers, too few for 4 stages");
}

TEST(test_refused)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"F", "'F' is not 'key = value'"},
        {"F=1,,I=1", "'' is not 'key = value'"},
        {"memry_I=1", "no cost 'memry_I'; did you mean memory_I?"},
        {"xyzzy=1",
         "no cost 'xyzzy'; there are F, I, W, B, FB, FF, U, overlap, memory_I, memory_W, comm, bytes, bandwidth, "
         "gradients, "
         "layers, "
         "multiprocessors, compute_share, model_layers, attention.F, attention.B, attention.W, attention.U, "
         "dispatch.F, dispatch.B, "
         "mlp.F, mlp.B, mlp.W, mlp.U, combine.F, combine.B, perceptron.F, perceptron.B, perceptron.W, perceptron.U, "
         "qkv.F, shared.F, embedding.F, embedding.W, embedding.U, rows.F, first_layer.B, head.F, head.B, head.W, "
         "head.U, "
         "squared_error.F, "
         "squared_error.B, unit, stages"},
        {"memory_w=1", "no cost 'memory_w'; did you mean memory_W?"},
        {"bandwith[0->1]=1", "no cost 'bandwith'; did you mean bandwidth?"},
        {"F=", "F = : it must be a number from 0 to 1e+12"},
        {"F=-1", "F = -1: it must be a number from 0 to 1e+12"},
        {"F=nan", "F = nan: it must be a number from 0 to 1e+12"},
        {"F=inf", "F = inf: it must be a number from 0 to 1e+12"},
        {"F[3]=x", "F[3] = x: it must be a number from 0 to 1e+12"},
        {"rows.B=1", "no cost 'rows.B', only rows.F"},
        {"F=1K", "F = 1K: it must be a number from 0 to 1e+12"},
        {"unit=0", "unit = 0: it must be a number from 1e-12 to 1e+06"},
        {"bytes=1KB", "bytes = 1KB: it must be a number of bytes from 0 to 1.15292e+18, such as 4096, 64K or 1.5G"},
        {"bandwidth=0",
         "bandwidth = 0: it must be a number of bytes from 1e-12 to 1.15292e+18, such as 4096, 64K or 1.5G"},
        {"bytes[1]=1", "bytes[1]: bytes has one value for all stages and ranks: write it without an index"},
        {"F[]=1", "F[]: the brackets must hold a stage from 0 to 65535, as in F[3]"},
        {"F[-1]=1", "F[-1]: the brackets must hold a stage from 0 to 65535, as in F[3]"},
        {"F[1=1", "F[1: the brackets must hold a stage from 0 to 65535, as in F[3]"},
        {"F[1]x=1", "F[1]x: the brackets must hold a stage from 0 to 65535, as in F[3]"},
        {"F[65536]=1", "F[65536]: the brackets must hold a stage from 0 to 65535, as in F[3]"},
        {"F[99999999999999999999]=1",
         "F[99999999999999999999]: the brackets must hold a stage from 0 to 65535, as in F[3]"},
        {"comm[1]=1",
         "comm[1]: the brackets must hold the sending and the receiving rank, from 0 to 65535, as in comm[0->1]"},
        {"comm[1->]=1",
         "comm[1->]: the brackets must hold the sending and the receiving rank, from 0 to 65535, as in comm[0->1]"},
        {"comm[0->1->2]=1",
         "comm[0->1->2]: the brackets must hold the sending and the receiving rank, from 0 to 65535, as in comm[0->1]"},
        {"comm[1->1]=1", "comm[1->1]: a rank sends no messages to itself"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Costs costs = costs_unit;
        Error error = {""};
        assert_int_equal(costs_set(&costs, cases[i].text, &arena, &error), STATUS_BAD_USAGE);
        assert_memory_equal(error.text, "--cost: ", 8);
        assert_string_equal(error.text + 8, cases[i].error);
    }
}

/* Random sequences of words of the format and of other characters are accepted, or refused with a message. */
TEST(test_any_text)
{
    static const char *const words[] = {"F", "FB", "comm", "bandwidth", "bytes", "unit", "memory_W", "[",
                                        "]", "->", "=",    ",",         "0",     "3",    "70000",    "1e9",
                                        "-", ".5", "K",    " ",         "#",     "\t",   "\377",     "nan"};
    uint32_t random = 1, taken = 0, refused = 0;
    for (int i = 0; i < 20000; i++) {
        char text[200] = "F";
        Costs costs = costs_unit;
        Error error = {""};
        for (uint32_t n = 0; n < 1 + (uint32_t)i % 12; n++) {
            random = random * 1664525 + 1013904223;
            strcat(text, words[(random >> 16) % (sizeof words / sizeof *words)]);
        }
        const Status status = costs_set(&costs, text, &arena, &error);
        assert_true(status == STATUS_OK ? !*error.text : status == STATUS_BAD_USAGE && *error.text);
        taken += status == STATUS_OK;
        refused += status != STATUS_OK;
    }
    assert_true(taken > 10 && refused > 1000);
}

int main(void) { return test_program("costs", NULL, free_arena); }
