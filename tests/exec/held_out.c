/* The loss on held-out data: with equal weights it is the same for every number and size of microbatches. */

#include "tests/exec/pipelines.h"
#include "tests/exec/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/held_out.XXXXXX", data[64], weights[64];

typedef struct Loss {
    double held_out;
    uint64_t tokens;
} Loss;

static void on_step(void *context, const StepReport *report)
{
    Loss *loss = context;
    if (report->has_held_out)
        *loss = (Loss){report->held_out_loss, report->held_out_tokens};
}

/* Runs with these numbers of ranks and microbatches, and this size of a microbatch. `options`: four more arguments.
   Returns the held-out loss. */
static Loss run(uint32_t ranks, uint32_t microbatches, uint32_t size, const char *const options[4])
{
    Error error = {""};
    Run run = {0};
    char microbatch_size[32];
    snprintf(microbatch_size, sizeof microbatch_size, "microbatch_size=%u", size);
    char *arguments[] = {"dprun",
                         "--set",
                         "hidden=16",
                         "--set",
                         "heads=2",
                         "--set",
                         "sequence=8",
                         "--set",
                         "layers=4",
                         "--set",
                         microbatch_size,
                         "--transport=local",
                         "--data",
                         data,
                         (char *)options[0],
                         (char *)options[1],
                         (char *)options[2],
                         (char *)options[3],
                         "prog.bin",
                         NULL};
    Program *program = pipeline_program(&run.arena, ranks, 1, microbatches);
    Status status = options_parse(19, arguments, &run.arena, &run.line, &error);
    if (status == STATUS_OK)
        status = program_derive(program, &(LoadOptions){0}, &run.arena, &run.loaded, &error);
    if (status != STATUS_OK)
        fail_msg("%s", error.text);
    Loss loss = {0};
    run_to_end(&run, &(SessionHooks){.observer = {.context = &loss, .step = on_step}});
    return loss;
}

/* 3000 bytes, of which the last 300 are held out: 37 windows of 8. The bytes of later windows are more varied, so the
   loss shows which windows were used. */
static int prepare(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    snprintf(data, sizeof data, "%s/data", folder);
    snprintf(weights, sizeof weights, "%s/weights", folder);
    FILE *stream = fopen(data, "w");
    uint32_t random = 1;
    for (int i = 0; stream && i < 3000; i++) {
        random = random * 1103515245u + 12345u;
        fputc('a' + (int)(random >> 16) % (1 + (i % 300) / 20), stream);
    }
    if (!stream || fclose(stream) != 0)
        return 1;
    run(2, 4, 2, (const char *const[]){"--steps", "20", "--save", weights});
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    unlink(data);
    unlink(weights);
    return rmdir(folder);
}

static Loss evaluate(uint32_t ranks, uint32_t microbatches, uint32_t size, const char *held_out)
{
    char load[80];
    snprintf(load, sizeof load, "--load=%s", weights);
    return run(ranks, microbatches, size, (const char *const[]){"--set=learning_rate=0", "--steps=1", load, held_out});
}

TEST(equal_weights_have_an_equal_loss)
{
    const Loss expected = evaluate(1, 37, 1, "--held-out=all"); /* one window per microbatch */
    assert_int_equal(expected.tokens, 37 * 8);
    assert_true(expected.held_out > 0.5 && expected.held_out < 5);
    for (uint32_t microbatches = 1; microbatches <= 40; microbatches += 13)
        for (uint32_t size = 1; size <= 64; size = size < 8 ? size + 1 : 2 * size) {
            const Loss loss = evaluate(1 + size % 3, microbatches, size, "--held-out=all");
            assert_int_equal(loss.tokens, expected.tokens);
            if (!(fabs(loss.held_out - expected.held_out) < 1e-6))
                fail_msg("%u microbatches of %u: loss %.9f, not %.9f", microbatches, size, loss.held_out,
                         expected.held_out);
        }
}

/* --held-out N evaluates only the first N tokens, rounded down to whole windows, but at least one window. */
TEST(the_first_tokens_count)
{
    static const struct {
        const char *option;
        uint64_t tokens;
    } cases[] = {{"--held-out=3", 8},     {"--held-out=8", 8},     {"--held-out=47", 40},
                 {"--held-out=296", 296}, {"--held-out=297", 296}, {"--held-out=65536", 296}};
    double last = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Loss one = evaluate(1, 1, 1, cases[i].option), other = evaluate(2, 3, 4, cases[i].option);
        assert_int_equal(one.tokens, cases[i].tokens);
        assert_int_equal(other.tokens, cases[i].tokens);
        assert_true(fabs(one.held_out - other.held_out) < 1e-6);
        assert_true(i == 0 || cases[i].tokens == cases[i - 1].tokens ? i == 0 || one.held_out == last
                                                                     : one.held_out > last);
        last = one.held_out;
    }
}

int main(void) { return test_program("held_out", prepare, clean_up); }
