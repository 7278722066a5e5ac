/* The command line of dprun: which values are accepted. Each mistake gives a message of one line, and STATUS_BAD_USAGE;
   a missing file of a model gives STATUS_BAD_INPUT. */
#include "runtime/command/options.h"
#include "runtime/model/spec.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static Status parse(Arena *arena, CommandLine *line, Error *error, char **arguments)
{
    int count = 0;
    while (arguments[count])
        count++;
    *error = (Error){0};
    return options_parse(count, arguments, arena, line, error);
}

#define PARSE(...) parse(&arena, &line, &error, (char *[]){"dprun", __VA_ARGS__, NULL})

TEST(test_defaults)
{
    Arena arena = {0};
    CommandLine line;
    Error error;
    assert_int_equal(PARSE("prog.bin"), STATUS_OK);
    assert_string_equal(line.program, "prog.bin");
    assert_true(line.run.steps == 400 && line.run.deadline == 60.0 && strcmp(model_name(&line.run.model), "gpt") == 0 &&
                line.run.held_out == 65536);
    assert_true(!line.json && !line.reference && !line.forward_only && !line.run.save && !line.run.data);
    assert_int_equal(PARSE("--forward-only", "prog.bin"), STATUS_OK);
    assert_true(line.run.steps == 1 && line.forward_only);
    assert_true(!line.run.in_turn);
    assert_int_equal(PARSE("--in-turn", "prog.bin"), STATUS_OK);
    assert_true(line.run.in_turn);
    assert_int_equal(PARSE("--device=sim", "--cost", "F=3,unit=0.5", "--cost=F[1]=2", "prog.bin"), STATUS_OK);
    assert_true(line.run.steps == 3 && line.run.simulated && costs_pass(&line.run.costs, 0, COST_F) == 3);
    assert_true(costs_pass(&line.run.costs, 1, COST_F) == 2 && costs_seconds(&line.run.costs) == 0.5);
    arena_free(&arena);
}

TEST(test_all_options)
{
    Arena arena = {0};
    CommandLine line;
    Error error;
    assert_int_equal(PARSE("--steps", "7", "--model=mlp", "--set", "hidden=32", "prog.bin", "--set=hidden=48", "--seed",
                           "9", "--json", "--deadline", "0.5", "--device", "cpu", "--transport", "mpi", "--rank-map",
                           "2,0,1", "--save", "w", "--trace", "t", "--trace-steps", "100", "--data", "d",
                           "--reference"),
                     STATUS_OK);
    assert_true(line.run.steps == 7 && strcmp(model_name(&line.run.model), "mlp") == 0 && line.run.model.hidden == 48 &&
                line.run.model.seed == 9);
    assert_true(line.run.trace_steps == 100 && line.json && line.reference && line.run.deadline == 0.5 &&
                strcmp(line.run.transport->name, "mpi") == 0);
    assert_int_equal(line.run.rank_map_count, 3);
    assert_memory_equal(line.run.rank_map, ((int[]){2, 0, 1}), 3 * sizeof(int));
    assert_string_equal(line.program, "prog.bin");
    assert_string_equal(line.run.data, "d");
    assert_int_equal(PARSE("--help"), STATUS_OK);
    assert_true(line.help);
    assert_int_equal(PARSE("--version"), STATUS_OK);
    assert_true(line.version);
    arena_free(&arena);
}

TEST(test_mistakes)
{
    static const struct {
        char *arguments[5];
        Status status;
        const char *words;
    } mistakes[] = {
        {{"dprun", "--trace-steps", "3", "prog.bin"}, STATUS_BAD_USAGE, "--trace-steps needs --trace"},
        {{"dprun"}, STATUS_BAD_USAGE, "no program"},
        {{"dprun", "a.bin", "b.bin"}, STATUS_BAD_USAGE, "two programs are given, a.bin and b.bin: dprun runs one"},
        {{"dprun", "--stepz", "prog.bin"},
         STATUS_BAD_USAGE,
         "unknown option --stepz; did you mean --steps? dprun --help lists the options"},
        {{"dprun", "-xyz", "prog.bin"}, STATUS_BAD_USAGE, "unknown option -x; dprun --help lists the options"},
        {{"dprun", "--json=1", "prog.bin"}, STATUS_BAD_USAGE, "--json takes no value: '--json=1'"},
        {{"dprun", "prog.bin", "--steps"}, STATUS_BAD_USAGE, "--steps needs a value"},
        {{"dprun", "--steps=0", "prog.bin"}, STATUS_BAD_USAGE, "--steps: '0'"},
        {{"dprun", "--steps=-3", "prog.bin"}, STATUS_BAD_USAGE, "--steps: '-3'"},
        {{"dprun", "--steps=3x", "prog.bin"}, STATUS_BAD_USAGE, "--steps: '3x'"},
        {{"dprun", "--steps=99999999999999999999", "prog.bin"}, STATUS_BAD_USAGE, "--steps"},
        {{"dprun", "--deadline=soon", "prog.bin"}, STATUS_BAD_USAGE, "--deadline: 'soon'"},
        {{"dprun", "--deadline=-1", "prog.bin"},
         STATUS_BAD_USAGE,
         "--deadline: '-1' is not a number of seconds from 0.1 to 1e+09, or 0 for never"},
        {{"dprun", "--deadline=inf", "prog.bin"}, STATUS_BAD_USAGE, "--deadline: 'inf'"},
        {{"dprun", "--deadline=nan", "prog.bin"}, STATUS_BAD_USAGE, "--deadline: 'nan'"},
        {{"dprun", "--deadline=1e300", "prog.bin"}, STATUS_BAD_USAGE, "--deadline: '1e300'"},
        {{"dprun", "--deadline=1e-300", "prog.bin"}, STATUS_BAD_USAGE, "--deadline: '1e-300'"},
        {{"dprun", "--seed=", "prog.bin"}, STATUS_BAD_USAGE, "--seed: ''"},
        {{"dprun", "--device=tpu", "prog.bin"}, STATUS_BAD_USAGE, "--device: 'tpu'"},
        {{"dprun", "--device=sim", "--save=w", "prog.bin"}, STATUS_BAD_USAGE, "--device sim cannot be combined with"},
        {{"dprun", "--device=sim", "--load=w", "prog.bin"}, STATUS_BAD_USAGE, "--device sim cannot be combined with"},
        {{"dprun", "--device=sim", "--cost=F=x", "prog.bin"}, STATUS_BAD_USAGE, "F = x"},
        {{"dprun", "--device=sim", "--cost=qkv.F=1", "prog.bin"}, STATUS_BAD_USAGE, "attention.F, which is not given"},
        {{"dprun", "--cost=F=1", "prog.bin"}, STATUS_BAD_USAGE, "--cost needs --device sim"},
        {{"dprun", "--transport=tcp", "prog.bin"}, STATUS_BAD_USAGE, "--transport: 'tcp'"},
        {{"dprun", "--transport=nccl", "--device=cpu", "prog.bin"}, STATUS_BAD_USAGE, "--transport nccl is for GPUs"},
        {{"dprun", "--transport=mpi", "--device=cuda", "prog.bin"}, STATUS_BAD_USAGE, "use --transport nccl"},
        {{"dprun", "--transport=mpi", "--rank-map=0,0", "prog.bin"}, STATUS_BAD_USAGE, "--rank-map: '0,0'"},
        {{"dprun", "--transport=mpi", "--rank-map=0,2", "prog.bin"}, STATUS_BAD_USAGE, "--rank-map: '0,2'"},
        {{"dprun", "--transport=mpi", "--rank-map=1;0", "prog.bin"}, STATUS_BAD_USAGE, "--rank-map: '1;0'"},
        {{"dprun", "--transport=mpi", "--rank-map=", "prog.bin"}, STATUS_BAD_USAGE, "--rank-map: ''"},
        {{"dprun", "--transport=local", "--rank-map=1,0", "prog.bin"}, STATUS_BAD_USAGE, "mpirun"},
        {{"dprun", "--expert-parallel=2", "--device=sim", "prog.bin"},
         STATUS_BAD_USAGE,
         "--expert-parallel cannot be combined with --device sim: --expert-parallel needs all-to-alls, which the "
         "simulator does not "
         "have"},
        {{"dprun", "--expert-rows=2", "prog.bin"}, STATUS_BAD_USAGE, "--expert-rows needs --expert-parallel"},
        {{"dprun", "--expert-rows=2", "--expert-parallel=1", "prog.bin"},
         STATUS_BAD_USAGE,
         "--expert-rows needs --expert-parallel of 2 or more"},
        {{"dprun", "--save=w", "--forward-only", "prog.bin"}, STATUS_BAD_USAGE, "--save"},
        {{"dprun", "--held-out=0", "prog.bin"}, STATUS_BAD_USAGE, "--held-out: '0'"},
        {{"dprun", "--held-out=some", "prog.bin"},
         STATUS_BAD_USAGE,
         "--held-out: 'some' is not a number of tokens of at least 1, or all"},
        {{"dprun", "--held-out=all", "--model=mlp", "prog.bin"},
         STATUS_BAD_USAGE,
         "--held-out needs a model that trains on text"},
        {{"dprun", "--held-out=9", "--forward-only", "prog.bin"},
         STATUS_BAD_USAGE,
         "--forward-only cannot be combined with --save, --profile or --held-out: --forward-only learns nothing"},
        {{"dprun", "--held-out=9", "--device=sim", "prog.bin"},
         STATUS_BAD_USAGE,
         "--device sim cannot be combined with"},
        {{"dprun", "--check", "--trace=t", "prog.bin"},
         STATUS_BAD_USAGE,
         "--check cannot be combined with --reference, --outputs"},
        {{"dprun", "--check", "-"}, STATUS_BAD_USAGE, "--check reads standard input twice: put it into a regular file"},
        {{"dprun", "--check", "--data=/dev/null", "prog.bin"}, STATUS_BAD_USAGE, "--check reads /dev/null twice"},
        {{"dprun", "--check", "--device=sim", "prog.bin"}, STATUS_BAD_USAGE, "--trace, --profile or --device sim"},
        {{"dprun", "--set=hiden=3", "prog.bin"}, STATUS_BAD_USAGE, "hidden"},
        {{"dprun", "--set=hidden", "prog.bin"}, STATUS_BAD_USAGE, "--set: 'hidden' is not 'key = value'"},
        {{"dprun", "--set=model=mlp", "prog.bin"}, STATUS_BAD_USAGE, "--model"},
        {{"dprun", "--model=/no/such/model", "prog.bin"}, STATUS_BAD_INPUT, "/no/such/model"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        Arena arena = {0};
        CommandLine line;
        Error error;
        char *arguments[6] = {0};
        memcpy(arguments, mistakes[i].arguments, sizeof mistakes[i].arguments);
        const Status status = parse(&arena, &line, &error, arguments);
        if (status != mistakes[i].status || !strstr(error.text, mistakes[i].words) || strchr(error.text, '\n'))
            fail_msg("case %zu: status %d, \"%s\"", i, (int)status, error.text);
        arena_free(&arena);
    }
}

/* --transport local under mpirun is refused, because each process would run all ranks. */
TEST(test_local_under_mpirun)
{
    Arena arena = {0};
    CommandLine line;
    Error error;
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    assert_int_equal(PARSE("--transport=local", "prog.bin"), STATUS_BAD_USAGE);
    assert_non_null(strstr(error.text, "--transport local: each of the 4 processes would run all ranks; leave out "
                                       "--transport, or start dprun without mpirun"));
    assert_int_equal(PARSE("prog.bin"), STATUS_OK);
    assert_string_equal(line.run.transport->name, "mpi");
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    assert_int_equal(PARSE("--transport=local", "prog.bin"), STATUS_OK);
    assert_false(line.run.transport->processes);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    arena_free(&arena);
}

static char *help_text(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    options_help(stream);
    assert_int_equal(fclose(stream), 0);
    return text;
}

TEST(test_help_lists_models)
{
    char *help = help_text();
    for (size_t m = 0; models[m]; m++)
        if (!strstr(strstr(help, "--model"), models[m]->name))
            fail_msg("dprun --help does not list the model %s", models[m]->name);
    free(help);
}

/* The rules in the help come from the same table as the checks. */
TEST(test_help_says_the_rules)
{
    static const char *const rules[] = {
        "so many of them, by default up to 16 (with --trace)\n",
        "divide the experts of a layer among them (default 1) (not with --device sim)\n",
        "run the schedule without its backward half (not with --save, --profile or --held-out)\n",
    };
    char *help = help_text();
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strstr(help, rules[i]))
            fail_msg("dprun --help does not say '%s'", rules[i]);
    for (const char *text = help, *end; *text; text = end + 1) {
        end = strchr(text, '\n');
        if (!end || end - text > 120)
            fail_msg("a line of dprun --help is too wide: %s", text);
    }
    free(help);
}

int main(void)
{
    static const char *const launchers[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        unsetenv(launchers[i]);
    return test_program("options", NULL, NULL);
}
