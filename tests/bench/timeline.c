/* How many passes of a schedule dpc computes the times of, per second of processor time: with the same costs for all
   stages, and with separate costs for every stage and for the links between neighbouring ranks. Prints lines: name
   value unit. Run from the top folder. */

#include "compiler/compile.h"

#include "base/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RUNS = 7 };

static Costs costs_of_each(const Schedule *schedule, Arena *arena)
{
    static const char *const kinds[] = {"F", "I", "W", "FB"};
    Costs costs = costs_unit;
    Error error;
    char text[96];
    for (uint32_t s = 0; s < schedule->pipes[0].stages; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            snprintf(text, sizeof text, "%s[%u]=%g", kinds[k], s, 1 + (double)k + 0.01 * s);
            costs_set(&costs, text, arena, &error);
        }
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const uint32_t next = (r + 1) % schedule->ranks;
        snprintf(text, sizeof text, "comm[%u->%u]=0.1,bandwidth[%u->%u]=2", r, next, next, r);
        costs_set(&costs, text, arena, &error);
    }
    costs.bytes = 1;
    return costs;
}

static void measure(const Compilation *c, const char *name, const char *kind, const Costs *costs)
{
    uint64_t passes = 0;
    double rates[RUNS];
    for (uint32_t r = 0; r < c->schedule.ranks; r++)
        for (uint32_t i = 0; i < c->schedule.orders[r].count; i++)
            passes += c->schedule.orders[r].actions[i].kind <= ACTION_W;
    for (int i = 0; i < RUNS; i++) {
        Arena arena = {.exhausted = c->arena->exhausted};
        Timeline timeline;
        const clock_t start = clock();
        timeline_run(&c->schedule, &c->table, costs, &arena, &timeline);
        rates[i] = (double)passes / ((double)(clock() - start) / CLOCKS_PER_SEC);
        arena_free(&arena);
    }
    qsort(rates, RUNS, sizeof *rates, compare_doubles);
    printf("timeline.%s.%s %.1f million passes/s (%llu passes; median of %d, %.1f..%.1f; goal 10)\n", name, kind,
           rates[RUNS / 2] / 1e6, (unsigned long long)passes, RUNS, rates[0] / 1e6, rates[RUNS - 1] / 1e6);
}

static int simulate(const char *name, const char *path, int64_t ranks, int64_t microbatches)
{
    jmp_buf exhausted;
    Arena arena = {.exhausted = &exhausted};
    if (setjmp(exhausted))
        return 1;
    Source source;
    Parameters parameters = {0};
    Error error = {""};
    parameters_set_ranks(&parameters, ranks);
    parameters_set_microbatches(&parameters, microbatches);
    Compilation c = {.arena = &arena, .source = &source, .parameters = &parameters};
    if (source_read(path, &arena, &source, &error) != STATUS_OK || compile(&c, &error) != STATUS_OK) {
        fprintf(stderr, "%s: does not compile: %s\n", path, error.text);
        return 1;
    }
    const Costs each = costs_of_each(&c.schedule, &arena);
    measure(&c, name, "one", &costs_unit);
    measure(&c, name, "each", &each);
    arena_free(&arena);
    return 0;
}

int main(void)
{
    return simulate("1f1b_32", "schedules/1f1b.dps", 32, 1024) ||
           simulate("interleaved_64", "schedules/interleaved-1f1b.dps", 64, 512) ||
           simulate("zb_v_64", "schedules/zb-v.dps", 64, 512) ||
           simulate("dualpipe_128", "schedules/dualpipe.dps", 128, 1024);
}
