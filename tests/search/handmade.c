/* In the memory of a published order the search never finds a longer one for the same placement. Tests random times and
   many sizes, with a search that stops early. */

#include "tests/search/costs_of.h"
#include "tests/search/placement.h"
#include "tests/timeline/compiled.h"

#include <stdio.h>

enum { ROUNDS = 12, TRIED = 100 }; /* rounds per number of ranks; orders that the search tries */

static atomic_int stop;

static void stop_soon(void *context, const SearchProgress *progress)
{
    (void)context;
    stop = progress->tried >= TRIED;
}

typedef struct Times {
    double forward, input, weight, message;
} Times;

static double random_time(uint64_t *seed, bool whole)
{
    return 1 + (whole ? (double)random_below(seed, 6) : (double)random_below(seed, 1000) / 100);
}

static Times random_times(uint64_t *seed)
{
    Times times;
    const bool whole = random_below(seed, 3);
    times.forward = random_time(seed, whole);
    times.input = random_time(seed, whole);
    times.weight = random_time(seed, whole);
    times.message = random_below(seed, 2) ? 0 : (double)random_below(seed, 4) / 2;
    return times;
}

/* The memory that F adds and that I adds (negative: it frees memory); W frees the rest. */
typedef struct Unit {
    int64_t forward, input;
} Unit;

static const Unit halves = {SEARCH_FORWARD, SEARCH_INPUT}, until_weight = {1, 0};

static double searched(Schedule *schedule, const Costs *costs, Unit unit, const int64_t *memory, Arena *arena)
{
    const SearchTask task = {costs, unit.forward, unit.input, -unit.forward - unit.input, memory, 1, false};
    const SearchControl control = {&stop, stop_soon, NULL};
    SearchProgress found;
    stop = 0;
    search_order(schedule, &task, &control, (Span){0, 0}, arena, &found);
    return found.cost;
}

/* Returns for each rank the peak memory of its order, but at least search_least_memory. If `shared`, all ranks get the
   largest of these numbers. */
static int64_t *memory_of(const Schedule *schedule, Unit unit, bool shared, Arena *arena)
{
    int64_t *memory = arena_array(arena, schedule->ranks, sizeof *memory), most = 0;
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        int64_t held = 0;
        memory[r] = search_least_memory(schedule, r, unit.forward);
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const int64_t changes[ACTION_KINDS] = {[ACTION_F] = unit.forward,
                                                   [ACTION_B] = -unit.forward,
                                                   [ACTION_I] = unit.input,
                                                   [ACTION_W] = -unit.forward - unit.input};
            held += changes[schedule->orders[r].actions[i].kind];
            memory[r] = held > memory[r] ? held : memory[r];
        }
        most = memory[r] > most ? memory[r] : most;
    }
    for (uint32_t r = 0; shared && r < schedule->ranks; r++)
        memory[r] = most;
    return memory;
}

TEST(never_longer_than_a_published_order)
{
    static const char *const names[] = {
        "gpipe", "1f1b",   "eager-1f1b", "interleaved-1f1b", "interleaved-zb", "hanayo",   "zb-h1",    "zb-h2",
        "zb-v",  "v-half", "v-min",      "chimera",          "bitpipe",        "dualpipe", "dualpipev"};
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[100];
        uint32_t cases = 0, shorter = 0;
        snprintf(path, sizeof path, "schedules/%s.dps", names[i]);
        for (int64_t ranks = 2; ranks <= 8; ranks++)
            for (int round = 0; round < ROUNDS; round++) {
                Arena arena = {0};
                Compilation c;
                Timeline timeline;
                const Times times = random_times(&seed);
                const Costs costs = costs_of(times.forward, times.input, times.weight, times.message);
                if (compiled(path, ranks, 1 + (int64_t)random_below(&seed, 4 * (uint64_t)ranks), &arena, &c)) {
                    assert_true(timeline_run(&c.schedule, &c.table, &costs, &arena, &timeline));
                    const double written = timeline_bubble(&c.schedule, &timeline).cost;
                    const Unit unit = round % 4 < 2 ? halves : until_weight;
                    const double found =
                        searched(&c.schedule, &costs, unit, memory_of(&c.schedule, unit, round % 2, &arena), &arena);
                    if (found > written + 1e-6)
                        fail_msg("%s: %u ranks, %u microbatches, F=%g I=%g W=%g comm=%g: %g, found %g", names[i],
                                 c.schedule.ranks, c.schedule.microbatches, times.forward, times.input, times.weight,
                                 times.message, written, found);
                    cases++;
                    shorter += found < written - 1e-6;
                }
                arena_free(&arena);
            }
        print_message("%s: %u cases, the search finds shorter orders in %u\n", names[i], cases, shorter);
        assert_true(cases >= 20);
    }
}

TEST(never_longer_with_twice_the_memory)
{
    uint64_t seed = 1;
    for (uint32_t chunks = 1; chunks <= 2; chunks++)
        for (uint32_t ranks = 2; ranks <= 8; ranks++)
            for (int round = 0; round < ROUNDS; round++) {
                Arena arena = {0};
                const Times times = random_times(&seed);
                const Costs costs = costs_of(times.forward, times.input, times.weight, times.message);
                const uint32_t microbatches = 1 + (uint32_t)random_below(&seed, 4 * ranks);
                double found[2];
                for (int twice = 0; twice < 2; twice++) {
                    Schedule schedule;
                    int64_t *memory = arena_array(&arena, ranks, sizeof *memory);
                    for (uint32_t r = 0; r < ranks; r++)
                        memory[r] = 2 * (int64_t)ranks * chunks * (1 + twice);
                    placement_usual(&arena, ranks, chunks, true, 1, microbatches, &schedule);
                    found[twice] = searched(&schedule, &costs, halves, memory, &arena);
                }
                if (found[1] > found[0] + 1e-6)
                    fail_msg(
                        "%u ranks of %u chunks, %u microbatches, F=%g I=%g W=%g comm=%g: %g, with twice the memory %g",
                        ranks, chunks, microbatches, times.forward, times.input, times.weight, times.message, found[0],
                        found[1]);
                arena_free(&arena);
            }
}

int main(void) { return test_program("handmade", NULL, NULL); }
