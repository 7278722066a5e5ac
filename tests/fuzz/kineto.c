/* Fuzz target of maps and traces of the PyTorch profiler: any bytes as a map, a line of ---, and a trace. The result is
   an error with a message, or sums that add up; never a crash, a leak or a hang. */

#include "study/measured/kineto_costs.h"
#include "study/measured/kineto_passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* Makes a file in memory. Returns its descriptor, and the path that opens it. */
static int make_file(const uint8_t *data, size_t size, char path[static 32])
{
    const int file = memfd_create("fuzz", 0);
    demand(file >= 0 && write(file, data, size) == (ssize_t)size, "no file in memory");
    snprintf(path, 32, "/proc/self/fd/%d", file);
    return file;
}

static void check_profile(const KinetoProfile *profile, Arena *arena)
{
    size_t runs = 0;
    const ComponentTimes times = component_times(profile, 1, arena);
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < times.counts[s]; i++) {
            const ComponentTime *time = &times.entries[s][i];
            demand(time->least <= time->greatest && time->mean >= 0, "a mean of no times");
            runs += time->count;
        }
    demand(runs == profile->span_count, "a run of a component counts in no mean");
    for (uint32_t i = 0; i < profile->group_count; i++) {
        const ProfileGroup *group = &profile->groups[i];
        demand(group->both <= group->busy[RECIPE_COMPUTE] && group->both <= group->busy[RECIPE_COMM],
               "streams are busy at once for longer than one of them is");
        demand(group->idle >= 0, "busy for longer than the whole");
        kineto_recipe_times(profile, i, arena);
    }
    demand(kineto_typical_group(profile, arena) < profile->group_count, "no group is typical");
}

static void check_passes(const Trace *trace)
{
    for (size_t i = 0; i < trace->count; i++) {
        const TraceEvent *event = &trace->events[i];
        demand(event->stage < trace->stages && event->end >= event->start, "a pass of no stage");
    }
}

static void try_both(char *map_path, char *trace_path, Arena *arena)
{
    KinetoMap map;
    KinetoTrace trace;
    KinetoProfile profile;
    Trace passes;
    Error errors[4] = {{""}};
    const Status mapped = kineto_map_read(map_path, arena, &map, &errors[0]);
    const Status read = kineto_read(trace_path, arena, &trace, &errors[1]);
    demand(mapped == STATUS_OK || *errors[0].text, "a map is refused without words");
    demand(read == STATUS_OK || *errors[1].text, "a trace is refused without words");
    if (mapped != STATUS_OK || read != STATUS_OK)
        return;
    const Status profiled = kineto_profile(&trace, &map, arena, &profile, &errors[2]);
    const Status passed = kineto_passes(&map, 1, &trace_path, arena, &passes, &errors[3]);
    demand(profiled == STATUS_OK || *errors[2].text, "no component, and no words");
    demand(passed == STATUS_OK || *errors[3].text, "no pass, and no words");
    if (profiled == STATUS_OK)
        check_profile(&profile, arena);
    if (passed == STATUS_OK)
        check_passes(&passes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char line[] = "\n---\n";
    const uint8_t *end = memmem(data, size, line, sizeof line - 1);
    const uint8_t *trace = end ? end + sizeof line - 1 : data;
    Arena arena = {0};
    char map_path[32], trace_path[32];
    const int map_file = make_file(data, end ? (size_t)(end - data) : size, map_path);
    const int trace_file = make_file(trace, size - (size_t)(trace - data), trace_path);
    try_both(map_path, trace_path, &arena);
    close(map_file);
    close(trace_file);
    arena_free(&arena);
    return 0;
}
