/* Does one profile predict every schedule? dprun --profile measures the parts of a model with one schedule, two
   ranks on two cores. From that file dpc predicts the makespan of five schedules, and dprun runs them: the mean
   of the fastest tenth of their steps is compared with the prediction.

   Passes are faster if few activations are live, because more of them fit in the processor's caches. A sum over parts
   does not contain this: with the profile of 1F1B, GPipe is predicted 7 % too short. DualPipe is between the two, so it
   is profiled.

   The machine may be shared, and now fast, now slow, often for longer than a run takes. So a round is short: a
   profile and a run of each schedule within a few seconds, before other programs where that is allowed. Each round
   gives the ratio of prediction and measurement for each schedule. The median of the rounds counts, and the quartiles
   say how far it can be trusted. */

#include "tests/bench/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEDULES = 5, ROUNDS = 41, STEPS = 30, COMMAND_BYTES = 1024 };

static const struct {
    const char *name, *options;
} schedules[SCHEDULES] = {
    {"1f1b", ""}, {"zb-h1", ""}, {"gpipe", ""}, {"dualpipe", ""}, {"interleaved-1f1b", "-D chunks=2"}};
static const char profiled[] = "dualpipe";
static const char sizes[] = "--ranks 2 --microbatches 4";
/* so large that the activations of one pass do not fit into a second-level cache under any schedule */
static const char model[] = "--set hidden=64 --set heads=2 --set sequence=64 --set microbatch_size=4 --set layers=4";
static const double goal = 0.05;

static char folder[] = "/tmp/predict.XXXXXX";
static const char *build, *priority;

static int shell(const char *command) { return system(command) == 0; }

static int compile(void)
{
    char command[COMMAND_BYTES];
    for (int s = 0; s < SCHEDULES; s++) {
        snprintf(command, sizeof command, "%s/dpc %s %s -o %s/%s.bin schedules/%s.dps", build, sizes,
                 schedules[s].options, folder, schedules[s].name, schedules[s].name);
        if (!shell(command))
            return 0;
    }
    return 1;
}

/* A profile, and what it predicts. */
static int predict(double *makespans)
{
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command, "%s%s/dprun %s --steps %d --profile %s/costs %s/%s.bin >/dev/null 2>&1", priority,
             build, model, STEPS, folder, folder, profiled);
    if (!shell(command))
        return 0;
    for (int s = 0; s < SCHEDULES; s++) {
        snprintf(command, sizeof command, "%s/dpc %s %s --cost @%s/costs --emit=stats schedules/%s.dps", build, sizes,
                 schedules[s].options, folder, schedules[s].name);
        if (numbers_of(command, "\"makespan\": ", &makespans[s], 1) != 1)
            return 0;
    }
    return 1;
}

static double fastest_tenth(double *values, int count)
{
    double sum = 0;
    qsort(values, (size_t)count, sizeof *values, compare_numbers);
    for (int i = 0; i < count / 10; i++)
        sum += values[i];
    return sum / (count / 10);
}

static int run(double *makespans)
{
    char command[COMMAND_BYTES];
    double steps[STEPS];
    for (int s = 0; s < SCHEDULES; s++) {
        snprintf(command, sizeof command, "%s%s/dprun %s --steps %d --json %s/%s.bin 2>/dev/null", priority, build,
                 model, STEPS, folder, schedules[s].name);
        if (numbers_of(command, "\"makespan_ms\":", steps, STEPS) < STEPS)
            return 0;
        makespans[s] = fastest_tenth(steps + 1, STEPS - 1); /* the first step is slower */
    }
    return 1;
}

/* The quartile of the rounds' values: 1, 2 (the median) or 3. */
static double quartile(const double *values, int which)
{
    double sorted[ROUNDS];
    memcpy(sorted, values, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof *sorted, compare_numbers);
    return sorted[(ROUNDS - 1) * which / 4];
}

/* The time of schedule a divided by that of b: the median of the rounds. */
static double longer(double (*times)[ROUNDS], int a, int b)
{
    double ratios[ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        ratios[round] = times[a][round] / times[b][round];
    return quartile(ratios, 2);
}

/* Pairs of schedules that differ by more than the goal, and how many of these the prediction puts in the right order.
 */
static void report_ranking(double (*predicted)[ROUNDS], double (*measured)[ROUNDS])
{
    int pairs = 0, right = 0;
    for (int a = 0; a < SCHEDULES; a++)
        for (int b = 0; b < SCHEDULES; b++)
            if (longer(measured, a, b) > 1 + goal) {
                pairs++;
                right += longer(predicted, a, b) > 1;
            }
    printf("predict.ranked_right %d of %d pairs that differ by more than %.0f %%\n", right, pairs, 100 * goal);
}

static void report(double (*predicted)[ROUNDS], double (*measured)[ROUNDS])
{
    double worst = 0;
    for (int s = 0; s < SCHEDULES; s++) {
        double ratios[ROUNDS];
        for (int round = 0; round < ROUNDS; round++)
            ratios[round] = predicted[s][round] / measured[s][round];
        const double error = quartile(ratios, 2) - 1;
        printf(
            "predict.%s predicted %.2f ms, measured %.2f; a round's error %+.1f %%, half of them %+.1f to %+.1f %%\n",
            schedules[s].name, quartile(predicted[s], 2), quartile(measured[s], 2), 100 * error,
            100 * (quartile(ratios, 1) - 1), 100 * (quartile(ratios, 3) - 1));
        worst = fabs(error) > fabs(worst) ? error : worst;
    }
    printf("predict.worst_error %+.1f %% (goal %.0f)\n", 100 * worst, 100 * goal);
    report_ranking(predicted, measured);
}

int main(void)
{
    static double predicted[SCHEDULES][ROUNDS], measured[SCHEDULES][ROUNDS];
    char command[COMMAND_BYTES];
    build = getenv("BUILD") ? getenv("BUILD") : "build";
    priority = priority_of_bench();
    if (!mkdtemp(folder) || !compile())
        return 1;
    for (int round = 0; round < ROUNDS; round++) {
        double guessed[SCHEDULES], found[SCHEDULES];
        if (!predict(guessed) || !run(found))
            return 1;
        for (int s = 0; s < SCHEDULES; s++) {
            predicted[s][round] = guessed[s];
            measured[s][round] = found[s];
        }
    }
    report(predicted, measured);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return !shell(command);
}
