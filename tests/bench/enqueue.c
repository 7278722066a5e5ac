/* Measures how long the host takes per pass on the CUDA device: the interpreter and the device's code, without the
   calls of CUDA. Prints lines: name value unit. */

#include "tests/bench/no_cuda.h"
#include "tests/bench/pipeline_run.h"

enum { MICROBATCHES = 200, STEPS = 15 };

typedef struct Seen {
    double busy[STEPS];  /* seconds of all passes of a step */
    size_t calls[STEPS]; /* number of CUDA calls of the run up to the end of the step */
} Seen;

static void on_step(void *context, const StepReport *report)
{
    Seen *seen = context;
    seen->busy[report->step - 1] = report->busy[0];
    seen->calls[report->step - 1] = calls;
}

/* F and B in turn on one rank, for a GPT of two layers; B is I and W. In the first step the device binds every F and B;
   later steps reuse what it has bound. */
static void measure(char *hidden, char *sequence, char *way, const char *name)
{
    char *arguments[] = {
        "dprun",      "--device=cuda",     "--set", hidden,     "--set", sequence, "--set=layers=2", "--set=heads=4",
        "--steps=15", "--transport=local", way,     "prog.bin", NULL};
    Seen seen = {0};
    const SessionHooks hooks = {.observer = {.context = &seen, .step = on_step}};
    run_pipeline("enqueue", 1, MICROBATCHES, true, &hooks, (int)(sizeof arguments / sizeof *arguments) - 1, arguments);
    double least = seen.busy[1];
    for (int s = 2; s < STEPS; s++)
        least = seen.busy[s] < least ? seen.busy[s] : least;
    printf("enqueue.%s.first %.2f us\nenqueue.%s %.2f us (goal 5)\nenqueue.%s.calls %.1f calls\n", name,
           seen.busy[0] * 1e6 / (2 * MICROBATCHES), name, least * 1e6 / (2 * MICROBATCHES), name,
           (double)(seen.calls[STEPS - 1] - seen.calls[0]) / ((STEPS - 1) * 2 * MICROBATCHES));
}

int main(void)
{
    measure("hidden=96", "sequence=64", "--transport=local", "small");
    measure("hidden=96", "sequence=64", "--in-turn", "small_in_turn");
    measure("hidden=512", "sequence=2048", "--transport=local", "large");
    return 0;
}
