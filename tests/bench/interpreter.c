/* Measures the time of the interpreter per instruction, compares the memory used with the planned memory, and measures
   the time until a run is ready for its first step. Prints lines: name value unit. */

#include "base/compare.h"
#include "tests/bench/pipeline_run.h"

#include <unistd.h>

enum { INSTRUCTIONS = 40000, STEPS = 15 };

typedef struct Seen {
    double busy[STEPS]; /* seconds of all passes of a step on rank 0 */
    size_t resident;    /* resident bytes of this process after the last step */
    uint64_t planned;
    double ready; /* seconds */
} Seen;

static size_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *stream = fopen("/proc/self/statm", "r");
    if (stream && fscanf(stream, "%*u %lu", &pages) != 1)
        pages = 0;
    if (stream)
        fclose(stream);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void on_ready(void *context, const RunFacts *facts)
{
    Seen *seen = context;
    seen->planned = facts->planned_bytes;
    seen->ready = facts->ready_seconds;
}

static void on_step(void *context, const StepReport *report)
{
    Seen *seen = context;
    seen->busy[report->step - 1] = report->busy[0];
    if (report->last)
        seen->resident = resident_bytes();
}

static Status empty_pass(Stage *stage, const PassBuffers *buffers, Error *error)
{
    (void)stage, (void)error;
    if (buffers->loss)
        *buffers->loss = 1;
    return STATUS_OK;
}

static Seen run(uint32_t ranks, uint32_t microbatches, bool reference, const Passes *passes, int count,
                char **arguments)
{
    Seen seen = {0};
    const SessionHooks hooks = {.observer = {.context = &seen, .ready = on_ready, .step = on_step}, .passes = passes};
    run_pipeline("interpreter", ranks, microbatches, reference, &hooks, count, arguments);
    return seen;
}

#define RUN(ranks, microbatches, reference, passes, ...)                                          \
    run(ranks, microbatches, reference, passes, sizeof((char *[]){__VA_ARGS__}) / sizeof(char *), \
        (char *[]){__VA_ARGS__, NULL})

/* One rank runs F and B in turn, and these compute nothing. Their measured time is that from the end of one instruction
   to the end of the next, so it is the interpreter's time per instruction. */
static void measure_instructions(void)
{
    const Passes empty = {.forward = empty_pass, .backward_input = empty_pass, .backward_weight = empty_pass};
    Seen seen = RUN(1, INSTRUCTIONS / 2, true, &empty, "dprun", "--model=mlp", "--set=hidden=8", "--set=sequence=1",
                    "--set=microbatch_size=1", "--steps=15", "--transport=local", "prog.bin");
    qsort(seen.busy, STEPS, sizeof *seen.busy, compare_doubles);
    printf("interpreter.instruction %.1f ns (median of %d steps, %.1f..%.1f; goal 50)\n",
           seen.busy[STEPS / 2] * 1e9 / INSTRUCTIONS, STEPS, seen.busy[0] * 1e9 / INSTRUCTIONS,
           seen.busy[STEPS - 1] * 1e9 / INSTRUCTIONS);
}

/* Runs a tiny program first: the memory that it takes belongs to libraries and is not counted. */
static void measure_memory(void)
{
    const Seen first = RUN(4, 2, false, NULL, "dprun", "--set=hidden=64", "--set=heads=2", "--set=sequence=16",
                           "--steps=1", "--transport=local", "prog.bin");
    printf("start.first_run %.1f ms (the library's own start and 4 ranks)\n", first.ready * 1e3);
    const size_t before = resident_bytes();
    const Seen seen = RUN(4, 8, false, NULL, "dprun", "--set=hidden=256", "--set=heads=4", "--set=sequence=128",
                          "--set=microbatch_size=2", "--steps=2", "--transport=local", "prog.bin");
    const double planned = (double)seen.planned, resident = (double)(seen.resident - before);
    printf("memory.planned %.1f MiB\nmemory.resident %.1f MiB\n", planned / (1 << 20), resident / (1 << 20));
    printf("memory.resident_over_planned %.4f ratio (goal 0.9..1.1)\n", resident / planned);
}

static void measure_start(void)
{
    const Seen seen = RUN(8, 2, false, NULL, "dprun", "--steps=1", "--transport=local", "prog.bin");
    printf("start.ready_8 %.1f ms (goal 50)\n", seen.ready * 1e3);
}

int main(void)
{
    measure_instructions();
    measure_memory();
    measure_start();
    return 0;
}
