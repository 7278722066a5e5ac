/* How well does one run predict the next? Two ranks train on two cores; costs come from the trace of a first run, and the makespan
   that they predict is held against runs that follow. Where that is allowed all of them run before other programs. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 5, STEPS = 12, LINE_BYTES = 1 << 16 };
static const char schedule[] = "--ranks 2 --microbatches 8 schedules/1f1b.dps";
static const char model[] = "--set hidden=256 --set heads=8 --set sequence=256 --set microbatch_size=2 --set layers=4";

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The median of the numbers behind `name` in what the command prints, the first left out where there are more; < 0: it failed. */
static double median(const char *command, const char *name)
{
    static char line[LINE_BYTES];
    double values[STEPS];
    int count = 0;
    FILE *pipe = popen(command, "r");
    while (pipe && fgets(line, sizeof line, pipe)) {
        const char *found = strstr(line, name);
        if (found && count < STEPS)
            values[count++] = strtod(found + strlen(name), NULL);
    }
    if (!pipe || pclose(pipe) != 0 || count == 0)
        return -1;
    const int skipped = count > 1;
    qsort(values + skipped, (size_t)(count - skipped), sizeof *values, compare);
    return values[skipped + (count - skipped) / 2];
}

int main(void)
{
    char folder[] = "/tmp/calibrate.XXXXXX", command[2048];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    const char *priority = system("chrt -f 1 true 2>/dev/null") == 0 ? "chrt -f 1 " : "";
    if (!mkdtemp(folder))
        return 1;
    snprintf(command, sizeof command,
             "%s/dpc %s -o %s/prog.bin && %s%s/dprun %s --steps %d --json --trace %s/trace %s/prog.bin >/dev/null 2>&1 && "
             "%s/dpc calibrate -o %s/costs %s/trace",
             build, schedule, folder, priority, build, model, STEPS, folder, folder, build, folder, folder);
    if (system(command) != 0)
        return 1;
    snprintf(command, sizeof command, "%s/dpc %s --cost @%s/costs --emit=stats", build, schedule, folder);
    const double predicted = median(command, "\"makespan\": ");
    printf("calibrate.predicted %.2f ms\n", predicted);
    double worst = 0;
    snprintf(command, sizeof command, "%s%s/dprun %s --steps %d --json %s/prog.bin 2>/dev/null", priority, build, model, STEPS, folder);
    for (int i = 0; i < RUNS; i++) {
        const double measured = median(command, "\"makespan_ms\":");
        if (measured < 0)
            return 1;
        const double error = measured / predicted - 1;
        printf("calibrate.measured %.2f ms (median of %d steps; error of the prediction %+.2f %%)\n", measured, STEPS - 1, 100 * error);
        worst = error * error > worst * worst ? error : worst;
    }
    printf("calibrate.worst_error %.2f %% (goal 5)\n", 100 * worst);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}
