/* The cost of --trace: the same training with and without it, in turn. Prints lines: name value unit. */
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { PAIRS = 9 };

typedef struct Cost {
    double wall, processor; /* seconds */
} Cost;

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static Cost run(const char *build, const char *folder, const char *option)
{
    char command[512];
    snprintf(command, sizeof command, "%s/dprun --json --steps 60 %s%s%s %s/prog.bin >/dev/null 2>&1", build, option,
             *option ? folder : "", *option ? "/trace.json" : "", folder);
    const double processor = processor_seconds();
    const int64_t begun = clock_nanoseconds();
    if (system(command) != 0)
        exit(1);
    return (Cost){(double)(clock_nanoseconds() - begun) * 1e-9, processor_seconds() - processor};
}

/* Keeps the shortest times of several runs in `least`: other programs can only make a run longer. */
static void take_least(Cost *least, Cost cost)
{
    least->wall = cost.wall < least->wall ? cost.wall : least->wall;
    least->processor = cost.processor < least->processor ? cost.processor : least->processor;
}

int main(void)
{
    char folder[] = "/tmp/trace.XXXXXX", command[512];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    Cost without = {1e9, 1e9}, with = {1e9, 1e9};
    if (!mkdtemp(folder))
        return 1;
    snprintf(command, sizeof command, "%s/dpc --ranks 2 --microbatches 8 schedules/1f1b.dps -o %s/prog.bin", build,
             folder);
    if (system(command) != 0)
        return 1;
    for (int i = 0; i < PAIRS; i++) {
        take_least(&without, run(build, folder, ""));
        take_least(&with, run(build, folder, "--trace "));
    }
    printf("trace.run %.3f s, %.3f s of processor time (least of %d)\n", without.wall, without.processor, PAIRS);
    printf("trace.time_with_over_without %.4f ratio (goal 1.01)\n", with.wall / without.wall);
    printf("trace.processor_time_with_over_without %.4f ratio (goal 1.01)\n", with.processor / without.processor);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}
