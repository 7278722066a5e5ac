/* dprun --profile writes a cost file with the measured times of the parts of the model, which dpc reads. */
#include "program/times/costs.h"
#include "tests/exec/processes.h"

#include <math.h>

enum { LAYERS = 5, MICROBATCHES = 8 };

static char dpc[PATH_MAX];
static Arena arena;

static void compile(const char *schedule, const char *options)
{
    expect(finish(start("%s --ranks 2 --microbatches %d %s -o %s schedules/%s.dps", dpc, MICROBATCHES, options, program,
                        schedule)),
           0, "");
}

/* Reads the cost file from `folder`. */
static Costs costs_from(const char *name)
{
    Costs costs = costs_unit;
    Error error;
    char text[PATH_MAX];
    snprintf(text, sizeof text, "@%s/%s", folder, name);
    if (costs_set(&costs, text, &arena, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return costs;
}

static bool is_listed(const char *list, int part, int pass)
{
    char word[64];
    snprintf(word, sizeof word, " %s.%c ", part_names[part], part_pass_letters[pass]);
    return strstr(list, word);
}

/* Checks that exactly the parts in `list` have a time, and that each time is positive. */
static void check_parts(const Costs *costs, const char *list)
{
    for (int part = 0; part < MODEL_PARTS; part++)
        for (int pass = 0; pass < PART_PASSES; pass++)
            if (is_listed(list, part, pass) != (costs->parts[part][pass] > 0))
                fail_msg("%s.%c is %g", part_names[part], part_pass_letters[pass], costs->parts[part][pass]);
}

static void profile(const char *model)
{
    char head[64];
    expect(finish(start("%s --steps 11 --profile %s/costs %s --set layers=%d %s %s", dprun, folder, small, LAYERS,
                        model, program)),
           0, "");
    assert_non_null(strstr(output, "/costs\n"));
    read_text("costs", output, sizeof output);
    snprintf(head, sizeof head, "# Model %s: layers 5,", *model ? model + strlen("--model ") : "gpt");
    assert_non_null(strstr(output, head));
}

/* Checks the number of samples of `key`. The fastest 10 % of the steps after the first one count: here one step, with
   the samples of all ranks. */
static void expect_samples(const char *key, int count)
{
    char words[64];
    const char *line = strstr(output, key);
    snprintf(words, sizeof words, "# measured: %d times, ", count);
    if (!line || strncmp(strstr(line, "# "), words, strlen(words)) != 0)
        fail_msg("no \"%s\" after %s in:\n%s", words, key, output);
}

/* Checks the bytes of the gradients of the default model with the sizes of `small`: of embeddings, layers and head.
   Each parameter counts once, even if several ranks hold its stage. */
static void check_gradients(const Costs *costs)
{
    enum { HIDDEN = 16, SEQUENCE = 8, VOCABULARY = 256, LAYER = 12 * HIDDEN * HIDDEN + 13 * HIDDEN };
    const double parameters = (2 * VOCABULARY + SEQUENCE) * HIDDEN + LAYERS * LAYER + 2 * HIDDEN;
    assert_true(costs_memory(costs, 0, COST_GRADIENTS) == parameters * sizeof(float));
    assert_true(costs->model_stages == 1);
}

TEST(test_gpt)
{
    compile("1f1b", "");
    profile("");
    const Costs costs = costs_from("costs");
    check_parts(
        &costs,
        " attention.F qkv.F attention.B attention.W attention.U mlp.F mlp.B mlp.W mlp.U embedding.F embedding.W "
        "embedding.U head.F head.B head.W head.U ");
    assert_true(costs.model_layers == LAYERS && costs.unit == 1e-3 && costs.latency > 0 && costs.overlap == 1);
    assert_non_null(strstr(output, "# derived: device cpu runs the parts of an F&B one after the other\n"));
    assert_true(costs.bytes == 2 * 8 * 16 * sizeof(float)); /* microbatch_size, sequence, hidden */
    check_gradients(&costs);
    expect_samples("attention.F ", LAYERS * MICROBATCHES);
    expect_samples("mlp.U ", LAYERS);
    expect_samples("head.W ", MICROBATCHES);
    expect(finish(start("%s compare --ranks 2 --microbatches 8 --replicas 2 --cost @%s/costs schedules/1f1b.dps", dpc,
                        folder)),
           0, "");
    assert_non_null(strstr(output, "sums: time"));
}

/* qkv, a part of attention, and shared, a part of mlp, have times of their own, because recipes of F&Fs name them. The
   times of attention and mlp include them. core, the rest of attention, has no time of its own. */
TEST(test_moe)
{
    compile("1f1b", "");
    profile("--model moe");
    const Costs costs = costs_from("costs");
    check_parts(&costs,
                " attention.F attention.B attention.W attention.U qkv.F dispatch.F dispatch.B mlp.F mlp.B mlp.W "
                "mlp.U shared.F combine.F combine.B embedding.F embedding.W embedding.U head.F head.B head.W "
                "head.U ");
    assert_true(costs.parts[RECIPE_QKV][RECIPE_F] < costs.parts[RECIPE_ATTENTION][RECIPE_F]);
    assert_true(costs.parts[RECIPE_SHARED][RECIPE_F] < costs.parts[RECIPE_MLP][RECIPE_F]);
    expect_samples("qkv.F ", LAYERS * MICROBATCHES);
    expect_samples("shared.F ", LAYERS * MICROBATCHES);
    expect(finish(start("%s --ranks 2 --microbatches 8 --cost @%s/costs schedules/decode.dps", dpc, folder)), 0, "");
}

/* The sum over the ranks of `busy` in the statistics that dpc has printed: the work of all ranks. */
static double work_printed(void)
{
    static const char name[] = "\"busy\": ";
    double sum = 0;
    for (const char *next = output; (next = strstr(next, name)); next += strlen(name))
        sum += strtod(next + strlen(name), NULL);
    return sum;
}

/* The profile of 1f1b predicts the work of five schedules. They divide the model differently, but the total work is the
   same. */
TEST(test_predicts)
{
    static const struct {
        const char *name, *options;
    } schedules[] = {{"1f1b", ""}, {"zb-h1", ""}, {"gpipe", ""}, {"dualpipe", ""}, {"interleaved-1f1b", "-D chunks=2"}};
    double work = 0;
    compile("1f1b", "");
    profile("");
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        expect(finish(start("%s --ranks 2 --microbatches %d %s --cost @%s/costs --emit=stats schedules/%s.dps", dpc,
                            MICROBATCHES, schedules[i].options, folder, schedules[i].name)),
               0, "");
        assert_string_equal(diagnostics, "");
        work = i == 0 ? work_printed() : work;
        if (!(work > 0) || fabs(work_printed() / work - 1) > 1e-9)
            fail_msg("%s works %g, 1f1b %g", schedules[i].name, work_printed(), work);
    }
}

/* Layer 0 of the mlp model needs no gradient of its input, so its I is measured as first_layer.B. */
TEST(test_mlp)
{
    compile("zb-h1", "");
    profile("--model mlp");
    const Costs costs = costs_from("costs");
    check_parts(
        &costs,
        " perceptron.F perceptron.B perceptron.W perceptron.U rows.F first_layer.B squared_error.F squared_error.B ");
    expect_samples("perceptron.F ", LAYERS * MICROBATCHES);
    expect_samples("perceptron.B ", (LAYERS - 1) * MICROBATCHES);
    expect_samples("first_layer.B ", MICROBATCHES);
}

/* DualPipe: each stage has two copies, and a part runs partly in single passes and partly in F&Bs. */
TEST(test_pairs)
{
    compile("dualpipe", "");
    profile("");
    const Costs costs = costs_from("costs");
    check_gradients(&costs);
    assert_true(costs.overlap > 0 && strstr(output, "\noverlap "));
    expect_samples("attention.U ", 2 * LAYERS);
}

TEST(test_standard_output)
{
    compile("gpipe", "");
    expect(finish(start("%s --steps 2 --profile - %s %s >%s/piped", dprun, small, program, folder)), 0,
           "steps      2 in");
    assert_true(costs_from("piped").model_layers == 2);
    expect(finish(start("%s --json --profile - %s", dprun, program)), 2, "can go to standard output");
}

TEST(test_refused)
{
    compile("1f1b", "");
    expect(finish(start("%s --device sim --profile %s/none %s", dprun, folder, program)), 2,
           ": --device sim computes nothing");
    expect(finish(start("%s --forward-only --profile %s/none %s", dprun, folder, program)), 2,
           "--forward-only cannot be combined with --save, --profile");
    expect(finish(start("%s --profile %s %s", dprun, program, program)), 2, "");
    expect(finish(start("%s --set hidden=15 --profile %s/none %s; ls %s/none >&2", dprun, folder, program, folder)), 2,
           "No such file");
}

TEST(test_mpi)
{
    need_mpirun();
    compile("1f1b", "");
    expect(
        finish(start("%s -n 2 %s --steps 3 --profile %s/costs %s %s", mpirun_command(), dprun, folder, small, program)),
        0, "");
    read_text("costs", output, sizeof output);
    const Costs costs = costs_from("costs");
    assert_true(costs.model_layers == 2 && costs.latency > 0 && costs.parts[PART_HEAD][RECIPE_W] > 0 &&
                costs.parts[PART_EMBEDDING][RECIPE_F] > 0);
    expect_samples("attention.F ", 2 * MICROBATCHES);
}

static int set_up(void **state)
{
    (void)state;
    const char *build = getenv("BUILD");
    if (!mkdtemp(folder))
        return 1;
    snprintf(dprun, sizeof dprun, "%s/dprun", build ? build : "build");
    snprintf(dpc, sizeof dpc, "%s/dpc", build ? build : "build");
    snprintf(program, sizeof program, "%s/prog.bin", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(&arena);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void) { return test_program("profile", set_up, tear_down); }
