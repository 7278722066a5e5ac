/* How well does one run predict the next? Two ranks train on two cores. Costs come from the trace of a first run, and
   their prediction is compared with the runs after it. If the system allows it, all runs have a higher priority than
   other programs. A shared machine is fast or slow for seconds at a time, which no costs can predict. So there are two
   figures: for the FASTEST steps of every run, which show the undisturbed machine, and for all steps, together with the
   spread of the runs themselves. */

#include "base/compare.h"
#include "tests/bench/numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 5, STEPS = 1000, FASTEST = 50 };
static const char schedule[] = "--ranks 2 --microbatches 8 schedules/1f1b.dps";
static const char model[] = "--set hidden=64 --set heads=4 --set sequence=64 --set microbatch_size=1 --set layers=4";

/* Reads the makespans that the command prints, without the first step, which is slower; sorts them in ascending order.
   Returns their number; 0: the command failed. */
static int steps_of(const char *command, double *makespans)
{
    int count = numbers_of(command, "\"makespan_ms\":", makespans, STEPS);
    if (count)
        memmove(makespans, makespans + 1, (size_t)--count * sizeof *makespans);
    qsort(makespans, (size_t)count, sizeof *makespans, compare_doubles);
    return count;
}

static double mean(const double *values, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    return sum / count;
}

/* The makespan predicted by costs from the trace in `folder`; 0: a command failed. */
static double predict(const char *build, const char *folder, const char *options)
{
    char command[2048];
    double makespan = 0;
    snprintf(command, sizeof command,
             "%s/dpc calibrate %s -o %s/costs %s/trace && %s/dpc %s --cost @%s/costs --emit=stats", build, options,
             folder, folder, build, schedule, folder);
    return numbers_of(command, "\"makespan\": ", &makespan, 1) ? makespan : 0;
}

/* Prints two lines: the prediction, and each run with its distance from it; then the largest of these distances, and
   how far the slowest run lies above the fastest. */
static void report(const char *name, double predicted, const double *measured)
{
    double worst = 0, least = measured[0], most = measured[0];
    printf("calibrate.%s predicted %.2f ms, measured", name, predicted);
    for (int i = 0; i < RUNS; i++) {
        const double error = measured[i] / predicted - 1;
        printf(" %.2f (%+.2f %%)", measured[i], 100 * error);
        worst = error * error > worst * worst ? error : worst;
        least = measured[i] < least ? measured[i] : least;
        most = measured[i] > most ? measured[i] : most;
    }
    printf("\ncalibrate.%s.worst_error %+.2f %% (goal 5; the runs themselves lie %.2f %% apart)\n", name, 100 * worst,
           100 * (most / least - 1));
}

int main(void)
{
    char folder[] = "/tmp/calibrate.XXXXXX", command[2048];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    const char *priority = priority_of_bench();
    if (!mkdtemp(folder))
        return 1;
    snprintf(command, sizeof command,
             "%s/dpc %s -o %s/prog.bin && %s%s/dprun %s --steps %d --json --trace %s/trace --trace-steps %d "
             "%s/prog.bin >/dev/null 2>&1",
             build, schedule, folder, priority, build, model, STEPS, folder, STEPS, folder);
    if (system(command) != 0)
        return 1;
    double quiet[RUNS], all[RUNS], makespans[STEPS];
    snprintf(command, sizeof command, "--fastest %d", FASTEST);
    const double predicted_quiet = predict(build, folder, command), predicted = predict(build, folder, "");
    if (predicted_quiet <= 0 || predicted <= 0)
        return 1;
    snprintf(command, sizeof command, "%s%s/dprun %s --steps %d --json %s/prog.bin 2>/dev/null", priority, build, model,
             STEPS, folder);
    for (int i = 0; i < RUNS; i++) {
        const int count = steps_of(command, makespans);
        if (count <= FASTEST)
            return 1;
        quiet[i] = mean(makespans, FASTEST);
        all[i] = mean(makespans, count);
    }
    report("fastest", predicted_quiet, quiet);
    report("all", predicted, all);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}
