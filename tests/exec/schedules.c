/* Every schedule trains: over several steps its losses, norms of gradients, held-out loss and saved weights equal those
   of the whole model on one rank, which runs one microbatch after the other. They are equal to the bit. (For an
   asynchronous program the reference uses the same versions of weights.) */

#include "tests/sanitized.h"
#include "tests/exec/training.h"
#include "tests/program/generator.h"

static void compare(const char *path, const char *arguments, const char *model)
{
    Result pipelined, reference;
    char what[2000];
    snprintf(what, sizeof what, "%s, %s, against its reference", arguments, model);
    train(&(Training){.path = path, .model = model}, &pipelined);
    train(&(Training){.path = path, .model = model, .reference = true}, &reference);
    assert_equal_numbers(what, &pipelined, &reference);
    release(&pipelined);
    release(&reference);
}

/* Trains the program with so many of the models, which take turns. */
static void check(const char *arguments, int models)
{
    static int turn;
    const char *const names[] = {"gpt", "mlp", experts};
    char program[200];
    compile_program(arguments, program);
    for (int m = 0; m < models; m++)
        compare(program, arguments, names[turn++ % 3]);
}

/* A build with a sanitizer is twenty times slower. It tests one size of each schedule, with one model: what it can find
   depends neither on the size nor on the pair of schedule and model. */
static void schedule_equals_reference(void **state)
{
    const char *schedule = *state;
    for (int ranks = SANITIZED ? 4 : 2; ranks <= (SANITIZED ? 4 : 8); ranks *= 2)
        for (int times = 2; times <= (SANITIZED ? 2 : 3); times++) {
            char arguments[1000];
            snprintf(arguments, sizeof arguments, "--ranks %d --microbatches %d %s", ranks, times * ranks, schedule);
            check(arguments, SANITIZED || times == 3 ? 1 : 3);
        }
}

static void check_text(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    check(path, 3);
}

/* Stages on several ranks: numbers of copies that do not divide the number of microbatches; a stage whose next one is
   on the same rank for some microbatches and on another rank for the others; split backwards; two pipes, of which one
   has more copies; an order from a table. Also ebb-v and ebb-two with drain=2, and half-tide with tide=1. */
TEST(replicas_equal_reference)
{
    check("--ranks 5 --microbatches 7 -D replicas=2 -D replicated=2 schedules/1f1b-rr.dps", 3);
    check("--ranks 4 --microbatches 7 -D replicas=4 schedules/1f1b-rr.dps", 3);
    check("--ranks 6 --microbatches 5 -D replicas=2 -D replicated=3 schedules/1f1b-rr.dps", 3);
    check("--ranks 3 --microbatches 6 -D drain=2 schedules/ebb-v.dps", 3);
    check("--ranks 6 --microbatches 14 -D drain=2 schedules/ebb-two.dps", 3);
    check("--ranks 4 --microbatches 9 -D tide=1 schedules/half-tide.dps", 3);
    check_text("chunks.dps",
               "schedule chunks; ranks P = 3; microbatches M = 7;\n"
               "pipe a: 4 stages, stage s of m on s == 0 ? m%2 : s == 1 ? m/2%2 : s == 2 ? 2 : m%3, M microbatches;\n"
               "if r < 2 { nF0 : (M+1-r)/2; nF1 : r == 0 ? 4 : 3; nF2 : (M+2-r)/3; nI2 : (M+2-r)/3;\n"
               "           nI1W : r == 0 ? 4 : 3; nI0W : (M+1-r)/2; nW : (M+2-r)/3; }\n"
               "else { nF0 : M; nF1B1 : M/3; nB0 : M; }\n");
    check_text("pipes.dps", "schedule pipes; ranks P = 5; microbatches M = 8;\n"
                            "pipe a: 2 stages, stage s of m on 2*s + m%2, 5 microbatches;\n"
                            "pipe b: 2 stages, stage s on s == 0 ? 4 : 0, 3 microbatches;\n"
                            "if r == 0 { nF0 : 3; nF1 : 3; nB1 : 3; nB0 : 3; }\n"
                            "else { let n = r == 4 ? 3 : r == 1 || r == 3 ? 2 : 3; nF : n; nB : n; }\n");
    check_text("order.csv", "0F0,0F2,0F3,0B2,0B3,0B0\n"
                            "0F1,1F0,1F2,1I2,1I0,1W0,1W2,0B1\n"
                            "1F1,1F3,1B3,1B1\n");
}

/* With equal numbers of layers and microbatches, four schedules have the same losses before the first update, to the
   bit. A norm is a sum over the ranks' stages, which differ between schedules, so norms and later losses may differ in
   their last bits. */
TEST(equal_layers_and_microbatches_train_the_same_model)
{
    static const char *const schedules[] = {
        "--ranks 2 --microbatches 6 schedules/1f1b.dps", "--ranks 2 --microbatches 6 schedules/dualpipev.dps",
        "--ranks 4 --microbatches 6 schedules/chimera.dps", "--ranks 3 --microbatches 6 schedules/zb-h1.dps"};
    Result first, other;
    char program[200];
    compile_program(schedules[0], program);
    train(&(Training){.path = program, .model = "gpt", .layers = 4}, &first);
    for (int s = 1; s < 4; s++) {
        compile_program(schedules[s], program);
        train(&(Training){.path = program, .model = "gpt", .layers = 4}, &other);
        assert_memory_equal(first.numbers.losses[0], other.numbers.losses[0], sizeof first.numbers.losses[0]);
        for (int step = 0; step < STEPS; step++)
            assert_true(fabs(first.numbers.norms[step] / other.numbers.norms[step] - 1) < 1e-5);
        assert_true(fabs(first.numbers.held_out - other.numbers.held_out) < 1e-5);
        release(&other);
    }
    release(&first);
}

/* Random recipes of F&Bs do not change any bit of the results, with one layer per stage. */
TEST(recipes_change_no_bit)
{
    static const char *const schedules[] = {"--ranks 4 --microbatches 10 schedules/dualpipe.dps",
                                            "--ranks 2 --microbatches 8 schedules/dualpipev.dps"};
    const char *const models[] = {"gpt", "mlp", experts};
    uint64_t seed = 11;
    for (int s = 0; s < 2; s++) {
        char command[4096], program[200];
        const char *build = getenv("BUILD");
        snprintf(program, sizeof program, "%s/prog.bin", folder);
        snprintf(command, sizeof command,
                 "sed '/^overlap F&B/,/^}/d' %s >%s/plain.dps && %s/dpc %.*s %s/plain.dps -o %s",
                 strstr(schedules[s], "schedules/"), folder, build ? build : "build",
                 (int)(strstr(schedules[s], "schedules/") - schedules[s]), schedules[s], folder, program);
        if (system(command) != 0)
            fail_msg("%s", command);
        for (int m = 0; m < 3; m++) {
            Result plain, ordered;
            train(&(Training){.path = program, .model = models[m]}, &plain);
            for (int i = 0; i < (SANITIZED ? 3 : 8); i++) {
                /* one recipe for all F&Bs, or one for the F&Bs of two chunks, or both */
                Recipe common = random_recipe(&seed);
                ChunkRecipe own = {(uint8_t)(i % 2), (uint8_t)(i / 2 % 2), random_recipe(&seed)};
                const Recipes recipes = {.common = i % 3 == 1 ? NULL : &common, .own = &own, .count = i > 0};
                train(&(Training){.path = program, .model = models[m], .recipes = &recipes}, &ordered);
                assert_equal_numbers("with recipes, against none", &ordered, &plain);
                release(&ordered);
            }
            release(&plain);
        }
    }
}

int main(void)
{
    return test_each_file("schedules", "schedules/*.dps", schedule_equals_reference, make_folder, remove_folder);
}
