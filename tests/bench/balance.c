/* Processor time of the placement of experts, without reading and printing: for 61 layers of 256 experts with 288
   physical experts on 32 GPUs, without and with nodes, and for 58 layers with 320 physical experts on 64 GPUs, and with
   288 on 144 GPUs. Loads are log-normal, as in profiles of mixtures of experts. Prints lines: name value unit. */

#include "balance/balance.h"

#include "base/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RUNS = 9, EXPERTS = 256 };

typedef struct Case {
    const char *name;
    uint32_t layers;
    BalanceShape shape;
    double eplb_goal, best_goal; /* milliseconds; 0: none */
} Case;

static double uniform(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)((state >> 33) + 1) / 2147483649.0;
}

static void place(const Case *c, bool best, const double *loads, uint32_t *placement, double *gap)
{
    Arena arena = {0};
    Error error;
    if (!best)
        balance_eplb(&c->shape, c->layers, loads, placement, &arena);
    for (uint32_t l = 0; best && l < c->layers; l++) {
        double bound;
        const double *layer = loads + (size_t)l * EXPERTS;
        uint32_t *slots = placement + (size_t)l * c->shape.replicas;
        balance_best(&c->shape, &(BalanceRequest){.distinct = false}, layer, slots, &bound, &arena, &error);
        gap[l] = bound - balance_of(&c->shape, layer, slots, &arena);
    }
    arena_free(&arena);
}

static void measure(const Case *c, bool best, double goal)
{
    double times[RUNS], gap[EXPERTS], mean = 0, worst = 0;
    double *loads = malloc((size_t)c->layers * EXPERTS * sizeof *loads);
    uint32_t *placement = malloc((size_t)c->layers * c->shape.replicas * sizeof *placement);
    for (uint32_t i = 0; i < c->layers * EXPERTS; i++)
        loads[i] = floor(10000 * exp(0.8 * sqrt(-2 * log(uniform())) * cos(2 * acos(-1) * uniform())));
    for (int i = 0; i < RUNS; i++) {
        const clock_t start = clock();
        place(c, best, loads, placement, gap);
        times[i] = 1e3 * (double)(clock() - start) / CLOCKS_PER_SEC;
    }
    for (uint32_t l = 0; best && l < c->layers; l++) {
        mean += gap[l] / c->layers;
        worst = fmax(worst, gap[l]);
    }
    qsort(times, RUNS, sizeof *times, compare_doubles);
    printf("balance.%s.%s %.2f ms (median of %d, %.2f..%.2f", c->name, best ? "best" : "eplb", times[RUNS / 2], RUNS,
           times[0], times[RUNS - 1]);
    if (goal > 0)
        printf("; goal %g", goal);
    if (best)
        printf("; gap to the bound %.2g on average, %.2g at most", mean, worst);
    printf(")\n");
    free(loads);
    free(placement);
}

int main(void)
{
    static const Case cases[] = {{"32_gpus", 61, {EXPERTS, 288, 32, 1, 1, FRONT_DPC}, 1, 50},
                                 {"32_gpus_in_4_nodes", 61, {EXPERTS, 288, 32, 8, 4, FRONT_DPC}, 1, 0},
                                 {"64_gpus", 58, {EXPERTS, 320, 64, 1, 1, FRONT_DPC}, 2, 0},
                                 {"144_gpus", 58, {EXPERTS, 288, 144, 1, 1, FRONT_DPC}, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        measure(&cases[i], false, cases[i].eplb_goal);
        measure(&cases[i], true, cases[i].best_goal);
    }
    return 0;
}
