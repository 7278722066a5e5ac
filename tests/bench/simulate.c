/* Runs all schedules on 8 ranks with simulated passes, and compares the makespans with the predicted ones. The
   difference is the time of interpreter, transport and machine. Compares the measured with the predicted gain of ebb-v
   over DualPipeV. Measures steps of dualpipe and dualpipev with costs of components: the simulator then walks the
   components of each F&B. If the system allows it, the runs have a higher priority than other programs. Prints tables.
   With the name of a part (schedules, gain, components) it runs only that part. */

#include "tests/bench/numbers.h"
#include "tests/transport/plugin.h"
#include "base/compare.h"

#include <glob.h>
#include <stdbool.h>

enum { STEPS = 7 };
static const char costs[] = "F=2,I=2.5,W=2,FB=5.5,comm=0.5"; /* ms */

static double measure(const char *build, const char *priority, const char *folder, const char *transport,
                      const char *schedule, double predicted)
{
    char command[1024], launcher[256] = "";
    double values[STEPS];
    if (strcmp(transport, "mpi") == 0)
        snprintf(launcher, sizeof launcher, "%s -n 8", mpirun_command());
    snprintf(command, sizeof command, "%s%s %s/dprun --device sim --cost %s --steps %d --json %s/prog.bin", priority,
             launcher, build, costs, STEPS, folder);
    const int count = numbers_of(command, "\"makespan_ms\":", values, STEPS);
    if (count != STEPS) {
        fprintf(stderr, "simulate: %s: failed\n", command);
        exit(1);
    }
    qsort(values, STEPS, sizeof *values, compare_doubles);
    const char *slash = strrchr(schedule, '/');
    printf("%-22.*s %-6s %10.2f %10.2f %8.4f\n", (int)strcspn(slash + 1, "."), slash + 1, transport, predicted,
           values[STEPS / 2], values[STEPS / 2] / predicted);
    fflush(stdout);
    return values[STEPS / 2] / predicted;
}

/* Makespans of the steps of one run, in ms. `predicted`: the makespan that dpc predicts, in the unit of the costs. */
typedef struct Makespans {
    double fastest, tenth, median; /* the shortest, the mean of the shortest 3 of 25, the median */
    double predicted;
} Makespans;

/* `times`: an argument of --cost; its unit is ms unless it sets another. in_turn: the halves of an F&B run one after
   the other. */
static Makespans run_steps(const char *build, const char *priority, const char *folder, const char *schedule,
                           const char *times, bool in_turn)
{
    enum { MOST = 25, TENTH = 3 };
    char command[1024];
    double values[MOST];
    Makespans made = {0};
    snprintf(command, sizeof command,
             "%s/dpc --ranks 8 --microbatches 16 --cost %s%s -o %s/prog.bin --emit=stats schedules/%s.dps", build,
             times, in_turn ? ",overlap=1" : "", folder, schedule);
    if (numbers_of(command, "\"makespan\": ", &made.predicted, 1) != 1)
        exit(1);
    snprintf(command, sizeof command, "%s %s/dprun --device sim --cost %s%s --steps %d --json %s/prog.bin", priority,
             build, times, in_turn ? " --in-turn" : "", MOST, folder);
    if (numbers_of(command, "\"makespan_ms\":", values, MOST) != MOST)
        exit(1);
    qsort(values, MOST, sizeof *values, compare_doubles);
    for (int i = 0; i < TENTH; i++)
        made.tenth += values[i] / TENTH;
    made.fastest = values[0];
    made.median = values[MOST / 2];
    return made;
}

/* Prints how much shorter ebb-v (docs/discovery.md) is than DualPipeV, measured and predicted, in percent. */
static void print_gain(const char *build, const char *priority, const char *folder)
{
    /* in ms; an F&B takes 0.8 of the time of its halves */
    static const char times[] = "F=2,I=2.4,W=1.6,FB=4.8,comm=0.2";
    const Makespans published = run_steps(build, priority, folder, "dualpipev", times, false),
                    found = run_steps(build, priority, folder, "ebb-v", times, false);
    printf("simulate.gain_of_ebb_v_over_dualpipev_measured %.2f %% (fastest of 25 steps: %.2f ms instead of %.2f)\n",
           100 * (1 - found.fastest / published.fastest), found.fastest, published.fastest);
    printf("simulate.gain_of_ebb_v_over_dualpipev_predicted %.2f %%\n",
           100 * (1 - found.predicted / published.predicted));
}

/* Runs steps with the component times of DeepSeek's published profile (maps/deepseek-train.map), which are in ms. While
   it was measured, computation had 112 of 132 multiprocessors (compute_share). If a stage has four layers, all times
   are divided by four. */
static void print_components(const char *build, const char *priority, const char *folder)
{
    static const char times[] = "unit=1e-3,attention.F=4.599,mlp.B=5.363,mlp.W=5.073,mlp.F=4.641,attention.B=9.540,"
                                "attention.W=2.396,combine.B=5.784,dispatch.F=6.738,dispatch.B=7.558,combine.F=8.696,"
                                "compute_share=0.8484848";
    static const char *const schedules[] = {"dualpipe", "dualpipev"};
    printf("%-10s %-10s %6s %10s %10s %10s   (ms; times of DeepSeek's components, 25 steps; layers of a stage)\n",
           "schedule", "", "layers", "predicted", "tenth", "median");
    for (int run = 0; run < 8; run++) {
        const char *schedule = schedules[run / 4], *how = run % 2 ? "in_turn" : "overlapped";
        const int layers = run / 2 % 2 ? 4 : 1;
        char of_layers[sizeof times + 40];
        snprintf(of_layers, sizeof of_layers, "%s,layers=%d,unit=%g", times, layers, 1e-3 / layers);
        Makespans made = run_steps(build, priority, folder, schedule, of_layers, run % 2);
        made.predicted /= layers; /* to ms */
        printf("%-10s %-10s %6d %10.2f %10.2f %10.2f\n", schedule, how, layers, made.predicted, made.tenth,
               made.median);
        printf("simulate.%s_%s_%d_fastest_tenth_over_predicted %.4f ratio (goal 1.03)\n", schedule, how, layers,
               made.tenth / made.predicted);
        printf("simulate.%s_%s_%d_median_over_predicted %.4f ratio (goal 1.03)\n", schedule, how, layers,
               made.median / made.predicted);
        fflush(stdout);
    }
}

/* Compares all schedules. False: there are none, or dpc failed. */
static bool print_schedules(const char *build, const char *priority, const char *folder)
{
    glob_t schedules;
    double worst[2] = {0};
    if (glob("schedules/*.dps", 0, NULL, &schedules) != 0)
        return false;
    printf("%-22s %-6s %10s %10s %8s   (ms; %s; median of %d steps%s)\n", "schedule", "", "predicted", "measured",
           "ratio", costs, STEPS, *priority ? "" : "; beside other programs");
    for (size_t i = 0; i < schedules.gl_pathc; i++) {
        char command[1024];
        double predicted = 0;
        snprintf(command, sizeof command, "%s/dpc --ranks 8 --cost %s -o %s/prog.bin --emit=stats %s", build, costs,
                 folder, schedules.gl_pathv[i]);
        if (numbers_of(command, "\"makespan\": ", &predicted, 1) != 1)
            return false;
        for (int mpi = 0; mpi <= mpirun_is_there(); mpi++) {
            const double ratio =
                measure(build, priority, folder, mpi ? "mpi" : "local", schedules.gl_pathv[i], predicted);
            worst[mpi] = ratio > worst[mpi] ? ratio : worst[mpi];
        }
    }
    printf("simulate.worst_measured_over_predicted_local %.4f ratio (goal 1.03)\n", worst[0]);
    printf("simulate.worst_measured_over_predicted_mpi %.4f ratio (goal 1.03)\n", worst[1]);
    globfree(&schedules);
    return true;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/simulate.XXXXXX", command[64];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    const char *priority = priority_of_bench();
    const char *part = argc > 1 ? argv[1] : "";
    if (!mkdtemp(folder) || ((!*part || strcmp(part, "schedules") == 0) && !print_schedules(build, priority, folder)))
        return 1;
    if (!*part || strcmp(part, "gain") == 0)
        print_gain(build, priority, folder);
    if (!*part || strcmp(part, "components") == 0)
        print_components(build, priority, folder);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}
