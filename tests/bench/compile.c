/* Time and memory of dpc for large schedules, including all proofs, and the speed of decoding and verifying the
   programs, as dprun does when it loads them. Prints lines: name value unit. Run from the top folder with BUILD set. */

#include "base/clock.h"
#include "base/file.h"
#include "program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUNS = 5 };

static char dpc[4096], output[4096];

typedef struct Cost {
    double seconds, processor_seconds, peak; /* peak: MiB of resident memory */
} Cost;

static double seconds_of(struct timeval time) { return (double)time.tv_sec + 1e-6 * (double)time.tv_usec; }

static Cost run(char *const *arguments)
{
    fflush(stdout); /* flushed before the fork: otherwise the child would print the buffered text again */
    const int64_t start = clock_nanoseconds();
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout))
            _exit(1);
        execv(dpc, arguments);
        _exit(1);
    }
    int status;
    struct rusage usage;
    if (child < 0 || wait4(child, &status, 0, &usage) != child || status != 0) {
        fprintf(stderr, "%s failed\n", dpc);
        exit(1);
    }
    return (Cost){(double)(clock_nanoseconds() - start) * 1e-9, seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime),
                  (double)usage.ru_maxrss / 1024};
}

static int compare(const void *left, const void *right)
{
    const Cost *a = left, *b = right;
    return (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

/* Prints the bytes of the program per instruction, and how fast it is decoded and verified. */
static void measure_program(const char *name)
{
    Arena arena = {0};
    Error error = {""};
    char *bytes;
    size_t size;
    Program *program;
    uint64_t instructions = 0;
    Status status = file_read(output, &arena, &bytes, &size, &error);
    const int64_t start = clock_nanoseconds();
    if (status == STATUS_OK)
        status = program_decode((const uint8_t *)bytes, size, &arena, &program, &error);
    if (status == STATUS_OK)
        status = program_verify(program, &error);
    const double seconds = (double)(clock_nanoseconds() - start) * 1e-9;
    if (status != STATUS_OK) {
        fprintf(stderr, "%s: %s\n", name, error.text);
        exit(1);
    }
    for (uint32_t r = 0; r < program->rank_count; r++)
        instructions += program->ranks[r].instruction_count;
    printf("compile.%s.instruction %.2f bytes (%llu instructions; goal 16)\n", name,
           (double)size / (double)instructions, (unsigned long long)instructions);
    printf("compile.%s.load %.1f million/s (instructions decoded and verified; goal 10)\n", name,
           (double)instructions / seconds / 1e6);
    arena_free(&arena);
}

static void measure(const char *name, int runs, const char *goal, char *const *options, int count)
{
    Cost costs[RUNS];
    char *arguments[16] = {dpc};
    for (int i = 0; i < count; i++)
        arguments[i + 1] = options[i];
    for (int i = 0; i < runs; i++)
        costs[i] = run(arguments);
    qsort(costs, (size_t)runs, sizeof *costs, compare);
    const Cost *median = &costs[runs / 2];
    printf("compile.%s.seconds %.3f s (median of %d, %.3f..%.3f; goal %s)\n", name, median->seconds, runs,
           costs[0].seconds, costs[runs - 1].seconds, goal);
    printf("compile.%s.processor %.3f s (of that run)\n", name, median->processor_seconds);
    printf("compile.%s.memory %.0f MiB\n", name, median->peak);
    arguments[count + 1] = "-o";
    arguments[count + 2] = output;
    run(arguments);
    measure_program(name);
    unlink(output);
}

#define MEASURE(name, runs, goal, ...) \
    measure(name, runs, goal, (char *const[]){__VA_ARGS__}, sizeof(char *const[]){__VA_ARGS__} / sizeof(char *))

int main(void)
{
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    snprintf(dpc, sizeof dpc, "%s/dpc", build);
    snprintf(output, sizeof output, "%s/bench-compile.%d.bin", build, (int)getpid());
    MEASURE("interleaved_64", RUNS, "0.25", "--ranks=64", "--microbatches=512", "-Dchunks=4",
            "schedules/interleaved-1f1b.dps");
    MEASURE("dualpipe_1024", 1, "30; memory 8192", "--ranks=1024", "--microbatches=4096", "schedules/dualpipe.dps");
    return 0;
}
