/* How well does one run predict the next? Two ranks train on two cores; costs come from the trace of a first run, and
   the makespan that they predict is held against runs that follow. Where that is allowed all of them run before other
   programs. A machine that others share is now fast, now slow, for seconds, and no costs can say when. So there are two
   figures: of the FASTEST steps of every run, the machine as it is when it is left alone, and of all steps, beside it
   how far the runs themselves lie apart. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 5, STEPS = 1000, FASTEST = 50, LINE_BYTES = 1 << 16 };
static const char schedule[] = "--ranks 2 --microbatches 8 schedules/1f1b.dps";
static const char model[] = "--set hidden=64 --set heads=4 --set sequence=64 --set microbatch_size=1 --set layers=4";

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The numbers behind `name` in what the command prints, ascending, the first left out where there are more. Returns
   their count; 0: the command failed. */
static int numbers(const char *command, const char *name, double *values)
{
    static char line[LINE_BYTES];
    int count = 0;
    FILE *pipe = popen(command, "r");
    while (pipe && fgets(line, sizeof line, pipe)) {
        const char *found = strstr(line, name);
        if (found && count < STEPS)
            values[count++] = strtod(found + strlen(name), NULL);
    }
    if (!pipe || pclose(pipe) != 0)
        return 0;
    if (count > 1)
        memmove(values, values + 1, (size_t)--count * sizeof *values);
    qsort(values, (size_t)count, sizeof *values, compare);
    return count;
}

static double mean(const double *values, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    return sum / count;
}

/* The makespan that costs from the trace in `folder` predict; 0: a command failed. */
static double predict(const char *build, const char *folder, const char *options)
{
    char command[2048];
    double makespan[STEPS];
    snprintf(command, sizeof command,
             "%s/dpc calibrate %s -o %s/costs %s/trace && %s/dpc %s --cost @%s/costs --emit=stats", build, options,
             folder, folder, build, schedule, folder);
    return numbers(command, "\"makespan\": ", makespan) == 1 ? makespan[0] : 0;
}

/* One row: how far the runs lie from the prediction, and from each other. */
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
    const char *priority = system("chrt -f 1 true 2>/dev/null") == 0 ? "chrt -f 1 " : "";
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
        const int count = numbers(command, "\"makespan_ms\":", makespans);
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
