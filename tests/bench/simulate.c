/* Compares the time of runs with simulated passes to the prediction, for all schedules on 8 ranks. The time above the
   prediction is that of interpreter, transport and machine. It also compares the measured and the predicted gain of
   ebb-v. If the system allows it, the runs have a higher priority than other programs. Prints a table. */

#include "tests/transport/plugin.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 7, LINE_BYTES = 1 << 16 };
static const char costs[] = "F=2,I=2.5,W=2,FB=5.5,comm=0.5"; /* ms */

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The numbers after `name` in the output of the command. */
static int numbers(const char *command, const char *name, double *values, int most)
{
    static char line[LINE_BYTES];
    int count = 0;
    FILE *pipe = popen(command, "r");
    while (pipe && fgets(line, sizeof line, pipe)) {
        const char *found = strstr(line, name);
        if (found && count < most)
            values[count++] = strtod(found + strlen(name), NULL);
    }
    return pipe && pclose(pipe) == 0 ? count : 0;
}

static double measure(const char *build, const char *priority, const char *folder, const char *transport,
                      const char *schedule, double predicted)
{
    char command[1024], launcher[256] = "";
    double values[STEPS];
    if (strcmp(transport, "mpi") == 0)
        snprintf(launcher, sizeof launcher, "%s -n 8", mpirun_command());
    snprintf(command, sizeof command, "%s%s %s/dprun --device sim --cost %s --steps %d --json %s/prog.bin", priority,
             launcher, build, costs, STEPS, folder);
    const int count = numbers(command, "\"makespan_ms\":", values, STEPS);
    if (count != STEPS) {
        fprintf(stderr, "simulate: %s: failed\n", command);
        exit(1);
    }
    qsort(values, STEPS, sizeof *values, compare);
    const char *slash = strrchr(schedule, '/');
    printf("%-22.*s %-6s %10.2f %10.2f %8.4f\n", (int)strcspn(slash + 1, "."), slash + 1, transport, predicted,
           values[STEPS / 2], values[STEPS / 2] / predicted);
    fflush(stdout);
    return values[STEPS / 2] / predicted;
}

/* Returns the makespan of the fastest of many steps of a schedule, in ms. Passes take about 2 ms. *predicted is the
   makespan that dpc predicts. */
static double fastest(const char *build, const char *priority, const char *folder, const char *schedule,
                      double *predicted)
{
    static const char times[] = "F=2,I=2.4,W=1.6,FB=4.8,comm=0.2"; /* ms; an F&B takes 0.8 of its halves */
    enum { MOST = 25 };
    char command[1024];
    double values[MOST];
    snprintf(command, sizeof command,
             "%s/dpc --ranks 8 --microbatches 16 --cost %s -o %s/prog.bin --emit=stats schedules/%s.dps", build, times,
             folder, schedule);
    if (numbers(command, "\"makespan\": ", predicted, 1) != 1)
        exit(1);
    snprintf(command, sizeof command, "%s %s/dprun --device sim --cost %s --steps %d --json %s/prog.bin", priority,
             build, times, MOST, folder);
    const int count = numbers(command, "\"makespan_ms\":", values, MOST);
    if (!count)
        exit(1);
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[0];
}

/* Prints how much shorter ebb-v (schedules/DISCOVERY.md) is than DualPipeV, measured and predicted, in percent. */
static void print_gain(const char *build, const char *priority, const char *folder)
{
    double predicted[2];
    const double published = fastest(build, priority, folder, "dualpipev", &predicted[0]),
                 found = fastest(build, priority, folder, "ebb-v", &predicted[1]);
    printf("simulate.gain_of_ebb_v_over_dualpipev_measured %.2f %% (fastest of 25 steps: %.2f ms instead of %.2f)\n",
           100 * (1 - found / published), found, published);
    printf("simulate.gain_of_ebb_v_over_dualpipev_predicted %.2f %%\n", 100 * (1 - predicted[1] / predicted[0]));
}

int main(void)
{
    char folder[] = "/tmp/simulate.XXXXXX", command[1024];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    const char *priority = system("chrt -f 1 true 2>/dev/null") == 0 ? "chrt -f 1 " : "";
    glob_t schedules;
    double worst[2] = {0};
    if (!mkdtemp(folder) || glob("schedules/*.dps", 0, NULL, &schedules) != 0)
        return 1;
    printf("%-22s %-6s %10s %10s %8s   (ms; %s; median of %d steps%s)\n", "schedule", "", "predicted", "measured",
           "ratio", costs, STEPS, *priority ? "" : "; beside other programs");
    for (size_t i = 0; i < schedules.gl_pathc; i++) {
        double predicted;
        snprintf(command, sizeof command, "%s/dpc --ranks 8 --cost %s -o %s/prog.bin --emit=stats %s", build, costs,
                 folder, schedules.gl_pathv[i]);
        if (numbers(command, "\"makespan\": ", &predicted, 1) != 1)
            return 1;
        for (int mpi = 0; mpi <= mpirun_is_there(); mpi++) {
            const double ratio =
                measure(build, priority, folder, mpi ? "mpi" : "local", schedules.gl_pathv[i], predicted);
            worst[mpi] = ratio > worst[mpi] ? ratio : worst[mpi];
        }
    }
    printf("simulate.worst_measured_over_predicted_local %.4f ratio (goal 1.03)\n", worst[0]);
    printf("simulate.worst_measured_over_predicted_mpi %.4f ratio (goal 1.03)\n", worst[1]);
    print_gain(build, priority, folder);
    globfree(&schedules);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}
