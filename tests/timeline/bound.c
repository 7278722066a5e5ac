/* The lower bound is never above the makespan of an order, and is not too low. Tests random placements (loops, waves,
   arbitrary ones, several pipes, copies of stages), random costs and random orders, also forward-only, some of which
   reach the bound; bounds known from papers; and schedules known to be optimal. */

#include "compiler/schedule/bound.h"
#include "tests/sanitized.h"
#include "tests/timeline/random_costs.h"

#include <math.h>

enum { CASES = 10000, ORDERS = 2, RANKS = 4, STAGES = 6, PIPES = 2, MICROBATCHES = 5 };

static uint64_t seed = 1;
static uint32_t below(uint32_t limit) { return (uint32_t)random_below(&seed, limit); }

/* --- a random placement --- */

static void put_stage(Schedule *schedule, PlacedPipe *pipe, uint32_t p, uint32_t stage, uint32_t microbatch,
                      uint32_t rank)
{
    uint32_t chunk = 0;
    while (chunk < schedule->chunk_counts[rank] &&
           (schedule->chunks[rank][chunk].pipe != p || schedule->chunks[rank][chunk].stage != stage))
        chunk++;
    if (chunk == schedule->chunk_counts[rank])
        schedule->chunks[rank][schedule->chunk_counts[rank]++] = (PlacedChunk){(uint16_t)p, (uint16_t)stage};
    pipe->homes[pipe->replicated ? stage * pipe->written + microbatch : stage] = (Home){(uint16_t)rank, (uint8_t)chunk};
}

/* REPLICAS: the ranks take the microbatches of a stage in turns; SCATTERED: each of them is on any rank */
typedef enum Shape { LOOP, WAVES, ANYWHERE, REPLICAS, SCATTERED, SHAPES } Shape;

static uint32_t rank_of(Shape shape, uint32_t ranks, uint32_t pipe, uint32_t stage, uint32_t microbatch)
{
    const uint32_t at = stage % ranks;
    if (shape == REPLICAS)
        return (stage + microbatch) % ranks;
    if (shape == ANYWHERE || shape == SCATTERED)
        return below(ranks);
    return (shape == WAVES && stage / ranks % 2) != (pipe % 2) ? ranks - 1 - at : at;
}

static Schedule placed(Arena *arena)
{
    const Shape shape = (Shape)below(SHAPES);
    Schedule schedule = {.name = "random", .ranks = 1 + below(RANKS), .pipe_count = 1 + below(PIPES)};
    schedule.forward_only = below(4) == 0;
    const uint32_t stages =
        shape == ANYWHERE || shape == SCATTERED ? 1 + below(STAGES) : schedule.ranks * (1 + below(STAGES / RANKS + 1));
    schedule.pipes = arena_array(arena, schedule.pipe_count, sizeof *schedule.pipes);
    schedule.chunk_counts = arena_array(arena, schedule.ranks, sizeof *schedule.chunk_counts);
    schedule.chunks = arena_array(arena, schedule.ranks, sizeof *schedule.chunks);
    schedule.orders = arena_array(arena, schedule.ranks, sizeof *schedule.orders);
    for (uint32_t r = 0; r < schedule.ranks; r++)
        schedule.chunks[r] = arena_array(arena, PIPES * stages, sizeof **schedule.chunks);
    for (uint32_t p = 0; p < schedule.pipe_count; p++) {
        PlacedPipe *pipe = &schedule.pipes[p];
        const uint32_t microbatches = 1 + below(MICROBATCHES);
        *pipe = (PlacedPipe){.name = "p",
                             .stages = stages,
                             .microbatches = microbatches,
                             .written = microbatches,
                             .first = schedule.microbatches,
                             .replicated = shape >= REPLICAS,
                             .homes = arena_array(arena, stages * microbatches, sizeof *pipe->homes)};
        for (uint32_t s = 0; s < stages; s++)
            for (uint32_t m = 0; m < (pipe->replicated ? microbatches : 1); m++)
                put_stage(&schedule, pipe, p, s, m, rank_of(shape, schedule.ranks, p, s, m));
        schedule.microbatches += microbatches;
    }
    return schedule;
}

/* --- a random order: passes are appended one by one, each after its inputs, so there is no deadlock --- */

typedef enum Done { NOTHING, FORWARD, INPUT, ALL } Done;

typedef struct Maker {
    Schedule *schedule;
    const Costs *costs;
    Arena *arena;
    unsigned char *done[PIPES]; /* [stage * microbatches + microbatch] */
    double *ready[PIPES];       /* the same index: when the last pass of the microbatch on the stage ended */
    double *forward_end[PIPES];
    double free_at[RANKS];
    uint32_t held[RANKS], limit[RANKS];
    uint32_t likes; /* bits 1 << ActionKind of preferred kinds of passes; ACTION_U means F&B */
    bool pairs, halves, wholes;
} Maker;

typedef struct Candidate {
    Action first, second; /* second: the second half of an F&B or F&F */
    bool pair;
    uint32_t rank;
    double start, end;
} Candidate;

static size_t cell(const Maker *maker, const Action *pass, uint32_t stage)
{
    return (size_t)stage * maker->schedule->pipes[pass->pipe].microbatches + pass->microbatch;
}

/* Whether the pass has not run and its inputs have been computed. If so, and if an input comes from another stage,
   raises `*start` to the time at which that has arrived. */
static bool may_come(const Maker *maker, uint32_t rank, const Action *pass, double *start)
{
    const PlacedPipe *pipe = &maker->schedule->pipes[pass->pipe];
    const size_t here = cell(maker, pass, pass->stage);
    const Done done = (Done)maker->done[pass->pipe][here];
    const bool forward = pass->kind == ACTION_F;
    if (pass->kind == ACTION_W)
        return done == INPUT;
    if (done != (forward ? NOTHING : FORWARD))
        return false;
    if (forward ? pass->stage == 0 : pass->stage + 1u == pipe->stages)
        return true;
    const uint32_t other = forward ? pass->stage - 1u : pass->stage + 1u;
    const size_t there = cell(maker, pass, other);
    if (maker->done[pass->pipe][there] < (forward ? FORWARD : INPUT))
        return false;
    const double made = forward ? maker->forward_end[pass->pipe][there] : maker->ready[pass->pipe][there];
    *start = fmax(*start, made + costs_message(maker->costs, stage_home(pipe, other, pass->microbatch).rank, rank));
    return true;
}

static void consider(const Maker *maker, Candidate *best, double *best_value, Candidate next)
{
    const uint32_t kind = next.pair ? ACTION_U : next.first.kind;
    const double value = next.start + (maker->likes >> kind & 1 ? 0 : 0.5) + below(1000) / 1000.0 * 0.3;
    if (value < *best_value) {
        *best_value = value;
        *best = next;
    }
}

static bool best_candidate(const Maker *maker, Candidate *best)
{
    const Schedule *schedule = maker->schedule;
    double best_value = INFINITY;
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        Candidate forwards[64], seconds[64]; /* that may be the halves of an F&B or F&F */
        uint32_t forward_count = 0, second_count = 0;
        for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++) {
            const PlacedChunk *chunk = &schedule->chunks[r][c];
            for (uint8_t kind = ACTION_F; kind <= (schedule->forward_only ? ACTION_F : ACTION_W); kind++) {
                if ((kind == ACTION_B && !maker->wholes) || (kind == ACTION_I && !maker->halves) ||
                    (kind == ACTION_F && maker->held[r] >= maker->limit[r]))
                    continue;
                uint32_t found = 0;
                for (uint32_t m = 0; m < schedule->pipes[chunk->pipe].microbatches && found < 2; m++) {
                    Candidate next = {.rank = r, .start = maker->free_at[r]};
                    next.first = (Action){
                        .kind = kind, .chunk = (uint8_t)c, .pipe = chunk->pipe, .stage = chunk->stage, .microbatch = m};
                    const Home home = stage_home(&schedule->pipes[chunk->pipe], chunk->stage, m);
                    if (home.rank != r || !may_come(maker, r, &next.first, &next.start))
                        continue;
                    next.end = next.start + costs_pass(maker->costs, chunk->stage, (StageCost)kind);
                    consider(maker, best, &best_value, next);
                    if (kind == ACTION_F && forward_count < 64)
                        forwards[forward_count++] = next;
                    if ((schedule->forward_only || kind == ACTION_B || kind == ACTION_I) && second_count < 64)
                        seconds[second_count++] = next;
                    found++;
                }
            }
        }
        for (uint32_t i = 0; maker->pairs && i < forward_count * second_count; i++) {
            Candidate pair = forwards[i / second_count];
            const Candidate *other = &seconds[i % second_count];
            if (pair.first.pipe == other->first.pipe && pair.first.microbatch == other->first.microbatch)
                continue;
            pair.second = other->first;
            pair.pair = pair.first.overlap = true;
            pair.start = fmax(pair.start, other->start);
            pair.end =
                pair.start + costs_pair(maker->costs, pair.first.stage, pair.second.stage, (StageCost)pair.second.kind);
            consider(maker, best, &best_value, pair);
        }
    }
    return best_value < INFINITY;
}

static void add(Maker *maker, uint32_t rank, const Action *pass, double end)
{
    const size_t here = cell(maker, pass, pass->stage);
    order_append(&maker->schedule->orders[rank], maker->arena, pass);
    maker->done[pass->pipe][here] = pass->kind == ACTION_F ? FORWARD : pass->kind == ACTION_I ? INPUT : ALL;
    maker->ready[pass->pipe][here] = end;
    if (pass->kind == ACTION_F)
        maker->forward_end[pass->pipe][here] = end;
    if (pass->kind == ACTION_F)
        maker->held[rank] += !maker->schedule->forward_only;
    else if (pass->kind != ACTION_I)
        maker->held[rank]--;
    maker->free_at[rank] = end;
}

static void make_order(Schedule *schedule, const Costs *costs, Arena *arena)
{
    Maker maker = {.schedule = schedule, .costs = costs, .arena = arena, .likes = below(32), .pairs = below(3)};
    const uint32_t backward = below(3), limit = below(3) ? 1 + below(12) : 0;
    Candidate next;
    maker.halves = backward != 1;
    maker.wholes = backward != 0;
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        const size_t cells = (size_t)schedule->pipes[p].stages * schedule->pipes[p].microbatches;
        maker.done[p] = arena_array(arena, cells, sizeof *maker.done[p]);
        maker.ready[p] = arena_array(arena, cells, sizeof *maker.ready[p]);
        maker.forward_end[p] = arena_array(arena, cells, sizeof *maker.forward_end[p]);
    }
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        maker.limit[r] = limit ? limit : 1 + below(12);
        schedule->orders[r] = (Order){.count = 0};
    }
    for (;;) {
        if (best_candidate(&maker, &next)) {
            add(&maker, next.rank, &next.first, next.end);
            if (next.pair)
                add(&maker, next.rank, &next.second, next.end);
            continue;
        }
        uint32_t full = 0; /* no pass can come next, perhaps only for lack of memory: the limits grow */
        for (uint32_t r = 0; r < schedule->ranks; r++)
            full += maker.limit[r]++ < 1000;
        if (!full)
            return;
    }
}

/* --- the bound --- */

/* The most memory that each rank's order uses if F adds `input` + `weight`, of which I frees `input`. */
static MemoryLimits limits_in(const Schedule *schedule, double input, double weight, Arena *arena)
{
    double *most = arena_array(arena, schedule->ranks, sizeof *most);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        double held = 0;
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const uint8_t kind = schedule->orders[r].actions[i].kind;
            held += kind == ACTION_F   ? input + weight
                    : kind == ACTION_B ? -input - weight
                    : kind == ACTION_I ? -input
                                       : -weight;
            most[r] = fmax(most[r], held);
        }
    }
    return (MemoryLimits){input, weight, most};
}

static void check_bound(const Schedule *schedule, const Costs *costs, const MemoryLimits *limits, double makespan,
                        uint32_t number, Arena *arena)
{
    const double bound = makespan_bound(schedule, costs, limits, arena);
    if (!(bound <= makespan * (1 + 1e-9)))
        fail_msg("case %u: %u ranks, %u pipes of %u stages, %u microbatches: makespan %g, bound %g", number,
                 schedule->ranks, schedule->pipe_count, schedule->pipes[0].stages, schedule->microbatches, makespan,
                 bound);
}

TEST(never_above_a_makespan)
{
    uint32_t optimal = 0;
    for (uint32_t i = 0; i < cases(CASES); i++) {
        Arena arena = {0};
        Schedule schedule = placed(&arena);
        const Costs costs = random_costs(&seed, schedule.pipes[0].stages, &arena);
        PassTable table = pass_table_new(&schedule, &arena);
        bool meets = false;
        for (uint32_t j = 0; j < ORDERS; j++) {
            Timeline times;
            make_order(&schedule, &costs, &arena);
            passes_index(&schedule, &table);
            assert_true(timeline_run(&schedule, &table, &costs, &arena, &times));
            const MemoryLimits own = limits_of_orders(&schedule, &arena);
            const MemoryLimits halves = limits_in(&schedule, 1, 1, &arena);
            const MemoryLimits bytes = limits_in(&schedule, below(50), 1 + below(50), &arena);
            check_bound(&schedule, &costs, &own, times.makespan, i, &arena);
            check_bound(&schedule, &costs, &halves, times.makespan, i, &arena);
            check_bound(&schedule, &costs, &bytes, times.makespan, i, &arena);
            meets = meets || gap_to(times.makespan, makespan_bound(&schedule, &costs, &own, &arena)).gap == 0;
        }
        optimal += meets;
        arena_free(&arena);
    }
    print_message("of %u cases %u have an order that meets the bound\n", cases(CASES), optimal);
    assert_true(optimal > cases(CASES) / 10); /* fewer orders would reach a bound that is too low */
}

/* Bounds that others have proven for stages in a V. */
TEST(known_bounds)
{
    for (int64_t ranks = 2; ranks <= 8; ranks++) {
        Arena arena = {0};
        Compilation c;
        const double p = (double)ranks, m = 3 * p;
        assert_true(compiled("schedules/dualpipev.dps", ranks, 3 * ranks, &arena, &c));
        double *most = arena_array(&arena, (size_t)ranks, sizeof *most);
        const MemoryLimits limits = {0, 1, most};
        for (int64_t k = 2; k <= 2 * ranks; k++) {
            for (int64_t r = 0; r < ranks; r++)
                most[r] = (double)k;
            const double bubble = fmax(0, 6 * p - 3 * (double)k - 1);
            const double bound = makespan_bound(&c.schedule, &costs_unit, &limits, &arena);
            assert_true(bound >= 6 * m + bubble - 1e-9);
        }
        for (int64_t r = 0; r < ranks; r++)
            most[r] = 2 * p + 1;
        Costs costs = costs_unit;
        costs.all[COST_FB] = 2.4;
        assert_true(fabs(makespan_bound(&c.schedule, &costs, &limits, &arena) - ((2 * m - 2 * p) * 2.4 + 7 * p - 1)) <
                    1e-9);
        arena_free(&arena);
    }
}

/* Optimal orders are reported as optimal. */
TEST(known_optima)
{
    static const char *const names[] = {"zb-h1", "zb-h2", "zb-v", "v-half", "v-min"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Arena arena = {0};
        Compilation c;
        Timeline times;
        char path[100];
        snprintf(path, sizeof path, "schedules/%s.dps", names[i]);
        assert_true(compiled(path, 4, 8, &arena, &c));
        assert_true(timeline_run(&c.schedule, &c.table, &costs_unit, &arena, &times));
        const MemoryLimits own = limits_of_orders(&c.schedule, &arena);
        assert_true(fabs(makespan_bound(&c.schedule, &costs_unit, &own, &arena) - times.makespan) < 1e-9);
        arena_free(&arena);
    }
}

int main(void) { return test_program("bound", NULL, NULL); }
