/* Does a step take as long as its measured passes predict? Two ranks on two cores run 1F1B. The makespan is computed
   again from the measured time of every single pass, with messages that take no time, and compared with the measured
   makespan. */

#include "compiler/order/csv.h"
#include "compiler/prove/prove.h"
#include "compiler/schedule/passes.h"
#include "compiler/schedule/timeline.h"
#include "base/compare.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, STEPS_MAX = 64 };

static const char *build;

static int shell(const char *format, const char *folder)
{
    char command[4096];
    snprintf(command, sizeof command, format, build, folder);
    return system(command);
}

static double number_behind(const char *line, const char *key)
{
    const char *found = strstr(line, key);
    return found ? strtod(found + strlen(key), NULL) : 0;
}

/* Reads one step of the trace: the times of the passes, in ms, into `measured`, in the order of each rank. Returns the
   measured makespan in ms; 0: the trace lacks a pass of the step. */
static double read_step(char *trace, unsigned step, const Schedule *schedule, double **measured)
{
    double first = 1e300, last = 0;
    uint32_t position[RANKS] = {0};
    for (char *line = trace; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        const unsigned rank = (unsigned)number_behind(line, "\"pid\":");
        if (strstr(line, "\"cat\":\"compute\"") && (unsigned)number_behind(line, "\"step\":") == step && rank < RANKS &&
            position[rank] < schedule->orders[rank].count) {
            const double start = number_behind(line, "\"ts\":") / 1e3, duration = number_behind(line, "\"dur\":") / 1e3;
            measured[rank][position[rank]++] = duration;
            first = start < first ? start : first;
            last = start + duration > last ? start + duration : last;
        }
        if (end)
            *end = '\n';
        else
            break;
    }
    for (int r = 0; r < RANKS; r++)
        if (position[r] != schedule->orders[r].count)
            return 0;
    return last - first;
}

static int measure(const char *folder, Arena *arena)
{
    char path[200], *text, *trace;
    size_t size;
    Error error = {""};
    snprintf(path, sizeof path, "%s/order.csv", folder);
    Source source = {.path = path};
    if (file_read(path, arena, &text, &source.size, &error) != STATUS_OK)
        return 1;
    source.text = text;
    source_lines(&source, arena);
    Diagnostics *diagnostics = diag_new(arena, &source);
    Schedule schedule;
    PassTable table;
    if (!csv_read(&source, arena, diagnostics, &schedule) || !prove_passes(&schedule, arena, diagnostics, &table))
        return 1;
    snprintf(path, sizeof path, "%s/trace.json", folder);
    if (file_read(path, arena, &trace, &size, &error) != STATUS_OK)
        return 1;
    double *measured[RANKS], ratios[STEPS_MAX];
    for (int r = 0; r < RANKS; r++)
        measured[r] = arena_array(arena, schedule.orders[r].count, sizeof **measured);
    int count = 0;
    double taken = 0, predicted = 0;
    for (unsigned step = 2; step < STEPS_MAX; step++) { /* the first step is warm-up */
        const double makespan = read_step(trace, step, &schedule, measured);
        if (makespan <= 0)
            continue;
        Timeline timeline;
        if (!timeline_run_measured(&schedule, &table, &costs_unit, (const double *const *)measured, arena, &timeline))
            return 1;
        ratios[count++] = makespan / timeline.makespan;
        taken = makespan;
        predicted = timeline.makespan;
    }
    if (!count)
        return 1;
    qsort(ratios, (size_t)count, sizeof *ratios, compare_doubles);
    printf("makespan_measured %.2f ms\n", taken);
    printf("makespan_predicted_from_passes %.2f ms\n", predicted);
    printf("makespan_measured_over_predicted %.4f ratio (median of %d steps, %.4f..%.4f)\n", ratios[count / 2], count,
           ratios[0], ratios[count - 1]);
    return 0;
}

int main(void)
{
    char folder[] = "/tmp/makespan.XXXXXX", command[300];
    Arena arena = {0};
    build = getenv("BUILD") ? getenv("BUILD") : "build";
    if (!mkdtemp(folder))
        return 1;
    int failed = shell("%s/dpc --ranks 2 --microbatches 8 schedules/1f1b.dps -o %s/prog.bin", folder) ||
                 shell("%s/dpc --ranks 2 --microbatches 8 schedules/1f1b.dps --emit=csv:%s/order.csv", folder) ||
                 shell("%1$s/dprun --set hidden=256 --set heads=8 --set sequence=256 --set microbatch_size=2 --set "
                       "layers=4 --steps 16 --json "
                       "--trace %2$s/trace.json %2$s/prog.bin >/dev/null",
                       folder) ||
                 measure(folder, &arena);
    if (failed)
        fprintf(stderr, "makespan: the measurement failed\n");
    arena_free(&arena);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) || failed;
}
