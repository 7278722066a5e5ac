/* Does one profile predict every schedule? dprun --profile measures the parts of a model with one schedule, two ranks
   on two cores. From that file dpc predicts the makespan of five schedules, and dprun runs them: the mean of the
   fastest 10 % of their steps is compared with the prediction.

   Passes are faster if few activations are live, because more of them fit in the processor's caches. A sum over parts
   does not contain this: with layers of hidden size 64 to 208, predictions were 3 % too short to 6 % too long. The
   model below has layers whose weights alone exceed a core's caches, under every schedule. DualPipe is profiled: it has
   more activations live than 1F1B, fewer than GPipe, and F&Bs.

   On a shared machine the speed changes, often for longer than a run takes. So the profile and the five runs are
   repeated in turn, with real-time priority where that is allowed, and the mean of the smallest 10 % of the predictions
   is compared with that of the measurements. The quartiles of the errors of single rounds say how steady the speed
   was. */

#include "base/compare.h"
#include "tests/bench/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEDULES = 5, ROUNDS = 20, STEPS = 21, COMMAND_BYTES = 1024 };

static const struct {
    const char *name, *options;
} schedules[SCHEDULES] = {
    {"1f1b", ""}, {"zb-h1", ""}, {"gpipe", ""}, {"dualpipe", ""}, {"interleaved-1f1b", "-D chunks=2"}};
static const char profiled[] = "dualpipe";
static const char sizes[] = "--ranks 2 --microbatches 4";
static const char model[] = "--set hidden=448 --set heads=4 --set sequence=32 --set microbatch_size=2 --set layers=4";
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

/* Makes a profile with dprun, and writes the makespans that dpc predicts from it for all schedules. 0: a command
   failed. */
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

/* The mean of the smallest 10 % of the values. Sorts a copy of them. */
static double fastest_tenth(const double *values, int count)
{
    double sorted[ROUNDS + STEPS], sum = 0;
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_doubles);
    for (int i = 0; i < count / 10; i++)
        sum += sorted[i];
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

/* Prints how many pairs of schedules have measured makespans that differ by more than the goal, and how many of these
   pairs the prediction puts in the right order. */
static void report_ranking(const double *predicted, const double *measured)
{
    int pairs = 0, right = 0;
    for (int a = 0; a < SCHEDULES; a++)
        for (int b = 0; b < SCHEDULES; b++)
            if (measured[a] > (1 + goal) * measured[b]) {
                pairs++;
                right += predicted[a] > predicted[b];
            }
    printf("predict.ranked_right %d of %d pairs that differ by more than %.0f %%\n", right, pairs, 100 * goal);
}

static void report(double (*predictions)[ROUNDS], double (*measurements)[ROUNDS])
{
    double predicted[SCHEDULES], measured[SCHEDULES], errors[ROUNDS], worst = 0;
    for (int s = 0; s < SCHEDULES; s++) {
        predicted[s] = fastest_tenth(predictions[s], ROUNDS);
        measured[s] = fastest_tenth(measurements[s], ROUNDS);
        for (int round = 0; round < ROUNDS; round++)
            errors[round] = 100 * (predictions[s][round] / measurements[s][round] - 1);
        qsort(errors, ROUNDS, sizeof *errors, compare_doubles);
        const double error = predicted[s] / measured[s] - 1;
        printf("predict.%s predicted %.2f ms, measured %.2f, error %+.1f %%; half of the rounds %+.1f to %+.1f %%\n",
               schedules[s].name, predicted[s], measured[s], 100 * error, errors[ROUNDS / 4],
               errors[ROUNDS - 1 - ROUNDS / 4]);
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
