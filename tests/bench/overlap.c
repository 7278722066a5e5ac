/* How much of the time of all-to-alls is hidden behind computing in F&Bs. Two replicas of one rank divide the experts
   of each layer. In a round the same steps run without a network, and then over a network on which the all-to-alls take
   50, 90 or 110 % of the time of computing: once with the halves of each F&B merged, once in turn. If the system allows
   it, the runs have a higher priority than other programs. Prints lines: name value unit. Run from the top folder with
   BUILD set. */

#include "base/compare.h"
#include "tests/bench/numbers.h"

#include <math.h>
#include <stdbool.h>

enum { ROUNDS = 9, STEPS = 20, MICROBATCHES = 9 };

static const char schedule[] =
    "schedule pairs; ranks P = 1; microbatches M = 9; pipe a: P stages, stage s on s, M microbatches;"
    "overlap F&B { compute: attention(F) mlp(B) mlp(W) mlp(F) attention(B) attention(W);"
    "              comm: combine(B) dispatch(F) dispatch(B) combine(F); }"
    "F[0]; repeat i < M - 1 { F[i+1]&B[i]; } B[M-1];";

typedef struct Bench {
    const char *build, *priority, *folder;
} Bench;

/* The fastest of some steps, in ms. `bandwidth`: of the network, in bytes a second; 0: no network. */
static double fastest(const Bench *bench, double bandwidth, bool in_turn)
{
    char command[1024], link[64] = "";
    double steps[STEPS];
    if (bandwidth > 0)
        snprintf(link, sizeof link, "--link bandwidth=%.0f", bandwidth);
    snprintf(command, sizeof command,
             "%s%s/dprun --model moe --set hidden=128 --set heads=4 --set layers=2 --set dense_layers=0 "
             "--set sequence=32 --set microbatch_size=2 --held-out 64 --replicas 2 --expert-parallel 2 --steps %d "
             "--json %s %s %s/prog.bin 2>/dev/null",
             bench->priority, bench->build, STEPS, link, in_turn ? "--in-turn" : "", bench->folder);
    if (numbers_of(command, "\"makespan_ms\":", steps, STEPS) != STEPS) {
        fprintf(stderr, "overlap: failed: %s\n", command);
        exit(1);
    }
    qsort(steps, STEPS, sizeof *steps, compare_doubles);
    return steps[0];
}

static void print_quartiles(const char *name, double *values, const char *unit)
{
    qsort(values, ROUNDS, sizeof *values, compare_doubles);
    printf("overlap.%s %.3f %s (median of %d rounds; quartiles %.3f and %.3f)\n", name, values[ROUNDS / 2], unit,
           ROUNDS, values[ROUNDS / 4], values[ROUNDS - 1 - ROUNDS / 4]);
}

/* Measures with all-to-alls that take `percent` of the time of computing. At most the shorter of the two times can be
   hidden, and only in F&Bs: of the MICROBATCHES F and B, one of each is in no F&B. The time of computing drifts on a
   busy machine, so each round corrects *bandwidth for the next one. */
static void measure(const Bench *bench, int percent, double *bandwidth, const char *goal)
{
    double merged[ROUNDS], in_turn[ROUNDS], shares[ROUNDS];
    char name[40];
    for (int i = 0; i < ROUNDS; i++) {
        const double alone = fastest(bench, 0, true);
        merged[i] = fastest(bench, *bandwidth, false) / alone;
        in_turn[i] = fastest(bench, *bandwidth, true) / alone;
        const double communication = in_turn[i] - 1;
        shares[i] = (in_turn[i] - merged[i]) / (fmin(1, communication) * (MICROBATCHES - 1) / MICROBATCHES);
        *bandwidth *= communication * 100 / percent;
    }
    snprintf(name, sizeof name, "step_%d_percent", percent);
    print_quartiles(name, merged, "of a step without a network");
    snprintf(name, sizeof name, "step_%d_percent_in_turn", percent);
    print_quartiles(name, in_turn, "of a step without a network");
    snprintf(name, sizeof name, "hidden_%d_percent", percent);
    print_quartiles(name, shares, goal);
    fflush(stdout);
}

int main(void)
{
    char folder[] = "/tmp/overlap.XXXXXX", command[1024];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    const Bench bench = {build, priority_of_bench(), folder};
    if (!mkdtemp(folder))
        return 1;
    snprintf(command, sizeof command, "printf '%%s' '%s' >%s/pairs.dps && %s/dpc %s/pairs.dps -o %s/prog.bin", schedule,
             folder, build, folder, folder);
    if (system(command) != 0)
        return 1;
    double bandwidth = 1e8;
    measure(&bench, 50, &bandwidth, "share (goal 0.95)");
    measure(&bench, 90, &bandwidth, "share (goal 0.95)");
    measure(&bench, 110, &bandwidth, "share (goal 0.90)");
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}
