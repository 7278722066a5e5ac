#include "runtime/executor/clocks.h"

#include "base/clock.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUESTIONS = 64 };

/* Identifies a clock: the boot id of the machine and the time namespace of the process. Processes with equal names read
   the same clock. */
typedef struct ClockName {
    char text[96];
} ClockName;

/* Where a rank runs. */
typedef struct Machine {
    ClockName clock;
    /* the processors that may compute the rank's passes; empty: unknown, or no processor computes them */
    cpu_set_t processors;
} Machine;

static ClockName clock_name(void)
{
    ClockName name = {""};
    const int boot = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = boot < 0 ? 0 : read(boot, name.text, 40);
    if (boot >= 0)
        close(boot);
    length = length < 0 ? 0 : length;
    if (readlink("/proc/self/ns/time", name.text + length, 40) < 0)
        name.text[length] = '\0';
    return name;
}

/* Asks rank 0 for its time QUESTIONS times and keeps the quickest answer. For each question all ranks call `gather`
   twice: rank 0 reads its clock between the two calls and sends the time in the second one. So rank 0 read its clock
   after this rank began the first call, and before this rank finished the second. */
static Status ask(World *world, int64_t *times, ClockSample *sample, Error *error)
{
    int64_t shortest = INT64_MAX;
    for (int i = 0; i < QUESTIONS; i++) {
        const int64_t asked = clock_nanoseconds();
        TRY(world->run->gather(world, &asked, sizeof asked, times, error));
        const int64_t now = clock_nanoseconds();
        TRY(world->run->gather(world, &now, sizeof now, times, error));
        const int64_t way = clock_nanoseconds() - asked;
        if (way < shortest) {
            shortest = way;
            *sample = (ClockSample){.at = asked + way / 2, .ahead = asked + way / 2 - times[0]};
        }
    }
    return STATUS_OK;
}

/* The lowest rank that reads the same clock as `rank`. */
static int leader_of(const Machine *machines, int rank)
{
    int first = 0;
    while (strcmp(machines[first].clock.text, machines[rank].clock.text) != 0)
        first++;
    return first;
}

/* The number of processors that may compute passes, on all machines together; 0 if it is unknown for any rank. Counts
   each processor once: adds the processors of each rank to those of the lowest rank with the same clock (leader_of). */
static uint32_t count_processors(Machine *machines, uint32_t ranks)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        cpu_set_t *leaders = &machines[leader_of(machines, (int)r)].processors;
        if (CPU_COUNT(&machines[r].processors) == 0)
            return 0;
        CPU_OR(leaders, leaders, &machines[r].processors);
    }
    for (uint32_t r = 0; r < ranks; r++)
        count += leader_of(machines, (int)r) == (int)r ? (uint32_t)CPU_COUNT(&machines[r].processors) : 0;
    return count;
}

static Status compare(World *world, bool computes, Machine *machines, int64_t *times, ClockSample *samples,
                      ClockSample *sample, uint32_t *processors, Error *error)
{
    const int ranks = world->config.size, rank = world->number;
    Machine own = {.clock = clock_name()};
    bool same = true;
    if (!computes || sched_getaffinity(0, sizeof own.processors, &own.processors) != 0)
        CPU_ZERO(&own.processors);
    *sample = (ClockSample){.at = clock_nanoseconds()};
    TRY(world->run->gather(world, &own, sizeof own, machines, error));
    for (int r = 1; r < ranks; r++)
        same = same && leader_of(machines, r) == 0;
    *processors = count_processors(machines, (uint32_t)ranks);
    if (same)
        return STATUS_OK;
    TRY(ask(world, times, sample, error));
    if (leader_of(machines, rank) == 0)
        sample->ahead = 0;
    TRY(world->run->gather(world, sample, sizeof *sample, samples, error));
    *sample = samples[leader_of(machines, rank)];
    return STATUS_OK;
}

Status clocks_compare(World *world, bool computes, ClockSample *sample, uint32_t *processors, Error *error)
{
    const size_t ranks = (size_t)world->config.size;
    Machine *machines = calloc(ranks, sizeof *machines);
    ClockSample *samples = calloc(ranks, sizeof *samples);
    int64_t *times = calloc(ranks, sizeof *times);
    Status status = machines && samples && times
                        ? compare(world, computes, machines, times, samples, sample, processors, error)
                        : error_set(error, STATUS_RUN_FAILED, "no memory for the clock times of %zu ranks", ranks);
    free(machines);
    free(samples);
    free(times);
    if (status != STATUS_OK)
        error_prefix(error, "%s, comparing clocks: ", world_member_name(&world->config, world->number).text);
    return status;
}

int64_t clock_common(const ClockSample compared[2], int64_t own)
{
    const double apart = (double)(compared[1].at - compared[0].at);
    const double drift = apart > 0 ? (double)(compared[1].ahead - compared[0].ahead) / apart : 0;
    return own - compared[0].ahead - (int64_t)((double)(own - compared[0].at) * drift);
}
