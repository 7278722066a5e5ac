/* Every schedule in schedules/ that trains, at many sizes: legal by an independent check, and with those figures of its
   source that its entry in `published` checks. Leaves out auto-v, whose order is searched for the given costs and
   memory. */

#include "tests/parse/front.h"
#include "tests/sanitized.h"

/* A run in which F, I and W take 1 each, B takes `backward_time`, and messages take no time. */
typedef struct Run {
    const Schedule *schedule;
    int backward_time;
    int *forward, *backward; /* [pipe][stage][microbatch], flat: end of F, of B or I, counted from 1; 0: not yet */
    unsigned char *seen;     /* [pipe][stage][microbatch], flat: bits of ActionKind */
    size_t per_pipe;
    int makespan, cost; /* cost: the longest time from the start to the end of a rank */
    uint32_t *peak;     /* [rank]: the most activations that are held at once, each from its F to its B or W */
    uint32_t *used;     /* [pipe][stage][microbatch], flat: the version of the weights that the F used */
    uint32_t *versions; /* [rank]: how many versions its U have made; a rank that runs U has one chunk */
} Run;

static size_t place_of(const Run *run, const Action *action, uint32_t stage)
{
    const PlacedPipe *pipe = &run->schedule->pipes[action->pipe];
    return action->pipe * run->per_pipe + (size_t)stage * pipe->microbatches + action->microbatch;
}

/* Raises *start to the time at which the inputs of the pass are computed. False: an input has not been computed yet. */
static bool is_ready(const Run *run, const Action *action, int *start)
{
    const PlacedPipe *pipe = &run->schedule->pipes[action->pipe];
    const size_t here = place_of(run, action, action->stage);
    int needs[2] = {1, 1};
    if (action->kind == ACTION_F)
        needs[0] = action->stage ? run->forward[place_of(run, action, action->stage - 1u)] : 1;
    else
        needs[0] = action->kind == ACTION_W ? run->backward[here] : run->forward[here];
    if (action->kind != ACTION_F && action->kind != ACTION_W && action->stage + 1u < pipe->stages)
        needs[1] = run->backward[place_of(run, action, action->stage + 1u)];
    for (int i = 0; i < 2; i++)
        *start = needs[i] > *start ? needs[i] : *start;
    return needs[0] && needs[1];
}

static void end_pass(Run *run, const Action *action, int end)
{
    const size_t here = place_of(run, action, action->stage);
    assert_int_equal(run->seen[here] & 1 << action->kind, 0);
    run->seen[here] |= (unsigned char)(1 << action->kind);
    if (action->kind == ACTION_F)
        run->forward[here] = end;
    else if (action->kind != ACTION_W)
        run->backward[here] = end;
}

static void use_version(Run *run, const Action *forward, uint32_t newest)
{
    const uint32_t *versions = run->schedule->pipes[forward->pipe].versions;
    uint32_t *used = &run->used[place_of(run, forward, forward->stage)];
    *used = versions ? versions[forward->microbatch] : newest;
    assert_true(*used <= newest);
}

/* Runs the U of all copies of a stage when the last copy has reached it. False: a copy has not reached it. */
static bool meet(Run *run, const Action *update, uint32_t *next, int *now)
{
    const Schedule *schedule = run->schedule;
    int last = 0;
    for (int together = 0; together < 2; together++)
        for (uint32_t r = 0; r < schedule->ranks; r++)
            for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++) {
                if (schedule->chunks[r][c].stage != update->stage)
                    continue;
                const Action *other =
                    next[r] < schedule->orders[r].count ? &schedule->orders[r].actions[next[r]] : NULL;
                if (!together && (!other || other->kind != ACTION_U || other->stage != update->stage))
                    return false;
                if (together) {
                    assert_int_equal(update->microbatch, ++run->versions[r]);
                    now[r] = last;
                    next[r]++;
                }
                last = now[r] > last ? now[r] : last;
            }
    return true;
}

/* Runs every rank as far as possible, repeatedly. Times count from 1; 0 means not yet. */
static void simulate(Run *run)
{
    const Schedule *schedule = run->schedule;
    const uint32_t ranks = schedule->ranks;
    uint32_t *next = calloc(ranks, sizeof *next), *held = calloc(ranks, sizeof *held);
    int *now = calloc(ranks, sizeof *now), *begin = calloc(ranks, sizeof *begin);
    for (bool progress = true; progress;) {
        progress = false;
        for (uint32_t r = 0; r < ranks; r++)
            while (next[r] < schedule->orders[r].count) {
                const Action *action = &schedule->orders[r].actions[next[r]];
                int start = now[r] ? now[r] : 1;
                assert_false(action_is_message(action));
                if (action->kind == ACTION_U) {
                    if (!meet(run, action, next, now))
                        break;
                    progress = true;
                    continue;
                }
                assert_true(action->microbatch < schedule->pipes[action->pipe].microbatches);
                const Home home = stage_home(&schedule->pipes[action->pipe], action->stage, action->microbatch);
                assert_int_equal(home.rank, r);
                assert_int_equal(home.chunk, action->chunk);
                if (!is_ready(run, action, &start))
                    break;
                begin[r] = begin[r] ? begin[r] : start;
                now[r] = start + (action->kind == ACTION_B ? run->backward_time : 1);
                end_pass(run, action, now[r]);
                if (action->kind == ACTION_F)
                    use_version(run, action, run->versions[r]);
                held[r] += action->kind == ACTION_F;
                run->peak[r] = held[r] > run->peak[r] ? held[r] : run->peak[r];
                held[r] -= action->kind == ACTION_B || action->kind == ACTION_W;
                next[r]++;
                progress = true;
            }
    }
    for (uint32_t r = 0; r < ranks; r++) {
        assert_int_equal(next[r], schedule->orders[r].count); /* else there is a deadlock */
        run->makespan = now[r] - 1 > run->makespan ? now[r] - 1 : run->makespan;
        run->cost = now[r] - begin[r] > run->cost ? now[r] - begin[r] : run->cost;
    }
    free(next);
    free(held);
    free(now);
    free(begin);
}

static void check_each_once(const Run *run)
{
    enum { F = 1 << ACTION_F, B = 1 << ACTION_B, I = 1 << ACTION_I, W = 1 << ACTION_W };
    for (uint32_t p = 0; p < run->schedule->pipe_count; p++) {
        const PlacedPipe *pipe = &run->schedule->pipes[p];
        for (size_t i = 0; i < (size_t)pipe->stages * pipe->microbatches; i++) {
            const int seen = run->seen[p * run->per_pipe + i];
            assert_true(seen == (F | B) || seen == (F | I | W));
        }
    }
}

static void check_pairs(const Schedule *schedule)
{
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            if (!action->overlap)
                continue;
            assert_true(i + 1 < schedule->orders[r].count);
            assert_int_equal(action->kind, ACTION_F);
            assert_true(action[1].kind == ACTION_B || action[1].kind == ACTION_I);
            assert_false(action[1].overlap);
            assert_true(action->pipe != action[1].pipe || action->microbatch != action[1].microbatch);
        }
}

typedef struct Size {
    int ranks, microbatches, parameter;
} Size;

typedef struct Case {
    const char *name;
    bool (*fits)(Size size);                  /* NULL: always */
    void (*facts)(const Run *run, Size size); /* checks the source's figures with B = 2F and with B = F; NULL: none */
    const char *parameter;                    /* its values are 1 to 4 (but see around_ranks); NULL: none */
    const char *other;                        /* name of another parameter, which is set to `value`; NULL: none */
    int value;
    bool around_ranks; /* the values are ranks-1 to ranks+2 instead, but at least 1 */
} Case;

static void check_run(const Case *of, const Schedule *schedule, Size size, int backward_time)
{
    Arena arena = {0};
    Run run = {.schedule = schedule, .backward_time = backward_time};
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        const size_t passes = (size_t)schedule->pipes[p].stages * schedule->pipes[p].microbatches;
        run.per_pipe = passes > run.per_pipe ? passes : run.per_pipe;
    }
    run.forward = arena_array(&arena, schedule->pipe_count * run.per_pipe, sizeof *run.forward);
    run.backward = arena_array(&arena, schedule->pipe_count * run.per_pipe, sizeof *run.backward);
    run.seen = arena_array(&arena, schedule->pipe_count * run.per_pipe, 1);
    run.peak = arena_array(&arena, schedule->ranks, sizeof *run.peak);
    run.used = arena_array(&arena, schedule->pipe_count * run.per_pipe, sizeof *run.used);
    run.versions = arena_array(&arena, schedule->ranks, sizeof *run.versions);
    simulate(&run);
    check_each_once(&run);
    check_pairs(schedule);
    if (of->facts)
        of->facts(&run, size);
    arena_free(&arena);
}

static void check_size(const Case *of, Size size)
{
    char path[64];
    snprintf(path, sizeof path, "schedules/%s.dps", of->name);
    Parameters parameters = {0};
    Arena arena = {0};
    parameters_set_ranks(&parameters, size.ranks);
    parameters_set_microbatches(&parameters, size.microbatches);
    if (of->parameter)
        parameters_set(&parameters, &arena, of->parameter, size.parameter);
    if (of->other)
        parameters_set(&parameters, &arena, of->other, of->value);
    Front front;
    front_run_file(&front, path, &parameters);
    const bool fits = !of->fits || of->fits(size);
    if (fits != front.good)
        fail_msg("%s with %d ranks, %d microbatches, parameter %d: %s", of->name, size.ranks, size.microbatches,
                 size.parameter, fits ? front.report : "should have been refused");
    for (int backward_time = 1; fits && backward_time <= 2; backward_time++)
        check_run(of, &front.schedule, size, backward_time);
    front_close(&front);
    arena_free(&arena);
}

/* --- figures of the sources --- */

static int most(int a, int b) { return a > b ? a : b; }
static int least(int a, int b) { return a < b ? a : b; }

static uint32_t largest_peak(const Run *run)
{
    uint32_t peak = 0;
    for (uint32_t r = 0; r < run->schedule->ranks; r++)
        peak = run->peak[r] > peak ? run->peak[r] : peak;
    return peak;
}

static void naive_facts(const Run *run, Size size)
{
    assert_int_equal(run->makespan, (1 + run->backward_time) * size.microbatches * size.ranks);
    assert_int_equal(largest_peak(run), 1);
}

static void gpipe_facts(const Run *run, Size size)
{
    assert_int_equal(run->makespan, (1 + run->backward_time) * (size.microbatches + size.ranks - 1));
    for (int r = 0; r < size.ranks; r++)
        assert_int_equal(run->peak[r], size.microbatches);
}

static void one_facts(const Run *run, Size size)
{
    assert_int_equal(run->makespan, (1 + run->backward_time) * (size.microbatches + size.ranks - 1));
    for (int r = 0; r < size.ranks; r++)
        assert_int_equal(run->peak[r], least(size.microbatches, size.ranks - r));
}

static void eager_facts(const Run *run, Size size)
{
    assert_int_equal(run->makespan, (1 + run->backward_time) * (size.microbatches + size.ranks - 1));
}

static void looped_facts(const Run *run, Size size)
{
    const int passes = size.microbatches * size.parameter;
    if (size.microbatches >= size.ranks)
        assert_int_equal(run->makespan, (1 + run->backward_time) * (passes + size.ranks - 1));
    for (int r = 0; r < size.ranks; r++)
        assert_int_equal(run->peak[r], passes);
}

/* `most`: the peak of the last rank with one chunk. */
static void interleaved(const Run *run, Size size, int chunks, int group, int most)
{
    const int passes = size.microbatches * chunks;
    assert_int_equal(run->cost - (1 + run->backward_time) * passes, (1 + run->backward_time) * (size.ranks - 1));
    for (int r = 0; r < size.ranks; r++)
        assert_int_equal(run->peak[r], least(passes, 2 * (size.ranks - 1 - r) + (chunks - 1) * group + most));
}

static void interleaved_facts(const Run *run, Size size)
{
    if (size.microbatches % size.ranks == 0 && size.parameter > 1)
        interleaved(run, size, size.parameter, size.ranks, 1);
}

/* The figures for groups of `size.parameter` microbatches, where every group has at least P microbatches. */
static void groups_facts(const Run *run, Size size)
{
    const int last = size.microbatches % size.parameter;
    if (size.microbatches >= size.ranks && (last == 0 || last >= size.ranks))
        interleaved(run, size, 3, least(size.parameter, size.microbatches), 1);
}

/* Megatron's order with F&Bs that save nothing: the bubble of interleaved 1F1B, and one activation more. */
static void megatron_facts(const Run *run, Size size)
{
    if (size.microbatches % size.ranks == 0)
        interleaved(run, size, size.parameter, size.ranks, 2);
}

static bool early_fits(Size size) { return size.parameter == 1; }

static void loop_facts(const Run *run, Size size)
{
    for (int r = 0; size.microbatches % size.ranks == 0 && r < size.ranks; r++)
        assert_int_equal(run->peak[r], least(2 * size.microbatches, 2 * (size.ranks - 1 - r) + size.ranks + 2));
}

static void megatron_groups_facts(const Run *run, Size size)
{
    const int last = size.microbatches % size.parameter;
    if (size.microbatches >= size.ranks && (last == 0 || last >= size.ranks))
        interleaved(run, size, 3, least(size.parameter, size.microbatches), 2);
}

static bool groups_fit(Size size) { return size.parameter >= least(size.ranks, size.microbatches); }

/* If P divides M, the bubble is (P-1)(F+I-W), and the peak of every rank is P activations times its number of
   chunks. */
static void interleaved_zb_facts(const Run *run, Size size)
{
    if (size.microbatches % size.ranks)
        return;
    assert_int_equal(run->cost - 3 * size.microbatches * size.parameter, size.ranks - 1);
    for (int r = 0; r < size.ranks; r++)
        assert_int_equal(run->peak[r], size.parameter * size.ranks);
}

static void h1_facts(const Run *run, Size size)
{
    if (size.microbatches >= size.ranks)
        assert_int_equal(run->cost - 3 * size.microbatches, size.ranks - 1);
}

static void h2_facts(const Run *run, Size size)
{
    if (size.microbatches >= 2 * size.ranks - 1)
        assert_int_equal(run->cost, 3 * size.microbatches);
}

static void v_facts(const Run *run, Size size)
{
    assert_true(largest_peak(run) <= (uint32_t)(2 * size.ranks));
    if (size.microbatches >= 2 * size.ranks - 1)
        assert_int_equal(run->cost, 6 * size.microbatches);
}

/* Qi et al., NeurIPS 2024: no rank holds more than `peak` activations of a chunk. With 2P microbatches or more a rank
   holds so many, and the bubble is at most `slack` above the least that this peak allows. */
static void controllable_facts(const Run *run, Size size, int peak, int slack)
{
    assert_true(largest_peak(run) <= (uint32_t)peak);
    if (size.microbatches < 2 * size.ranks)
        return;
    assert_int_equal(largest_peak(run), peak);
    const int least_bubble = most(0, 6 * size.ranks - 3 * peak - 1);
    assert_in_range(run->cost - 6 * size.microbatches, least_bubble, least_bubble + slack);
}

static void half_facts(const Run *run, Size size)
{
    controllable_facts(run, size, 2 * ((size.ranks + 2) / 2), size.ranks == 2);
}

/* half-tide is checked here only with tide=1: with tide=0 its order is that of V-Half. */
static bool tide_fits(Size size) { return size.parameter == 1; }

static void tide_facts(const Run *run, Size size)
{
    assert_true(largest_peak(run) <= 2 * (((uint32_t)size.ranks + 2) / 2));
    if (size.ranks >= 3 && size.microbatches >= 2 * size.ranks)
        assert_int_equal(largest_peak(run), 2 * ((size.ranks + 2) / 2));
}

static void min_facts(const Run *run, Size size)
{
    controllable_facts(run, size, 2 * ((size.ranks + 4) / 3), size.ranks % 3 == 2 ? 4 : 0);
}

static bool dualpipe_fits(Size size) { return size.ranks % 2 == 0 && size.microbatches % 2 == 0; }
/* ebb-v and ebb-two refuse values of `drain` above 2. */
static bool drain_fits(Size size) { return size.parameter <= 2; }
static bool two_drains_fit(Size size) { return dualpipe_fits(size) && drain_fits(size); }

/* Peak: the number of stages + 1; with fewer than 2P+2 microbatches it may be one less, with fewer than 2P any smaller
   number. */
static void dualpipe_facts(const Run *run, Size size)
{
    assert_true(largest_peak(run) <= (uint32_t)size.ranks + 1);
    if (size.microbatches >= 2 * size.ranks)
        assert_true(largest_peak(run) >= (uint32_t)size.ranks);
    if (size.microbatches >= 2 * size.ranks + 2)
        assert_int_equal(largest_peak(run), size.ranks + 1);
}

static void dualpipev_facts(const Run *run, Size size)
{
    assert_true(largest_peak(run) <= 2 * (uint32_t)size.ranks + 1);
    if (size.microbatches >= 2 * size.ranks)
        assert_true(largest_peak(run) >= 2 * (uint32_t)size.ranks);
    if (size.microbatches >= 2 * size.ranks + 2)
        assert_int_equal(largest_peak(run), 2 * size.ranks + 1);
}

/* --- schedules by slots: P microbatches are a unit. With B = F the units follow each other without a gap --- */

/* A unit is P microbatches. If P divides M, a rank is idle for `bubble` if B = F = 1; for B >= F = 1 it is idle for B *
   bubble, plus bubble * (B-F) for each unit after the first. */
static void slots_facts(const Run *run, Size size, int chunks, int bubble)
{
    const int units = size.microbatches / size.ranks, longer = run->backward_time - 1;
    if (size.microbatches % size.ranks)
        return;
    assert_int_equal(run->makespan - (1 + run->backward_time) * chunks * size.microbatches,
                     bubble * run->backward_time + (units - 1) * bubble * longer);
}

static void hanayo_facts(const Run *run, Size size)
{
    slots_facts(run, size, 2 * size.parameter, 2 * (size.ranks - 1));
    assert_true(largest_peak(run) <= 2 * (uint32_t)(size.parameter * size.ranks));
}

static bool even_fits(Size size) { return size.ranks % 2 == 0 && size.microbatches >= 2; }

static void chimera_facts(const Run *run, Size size)
{
    slots_facts(run, size, 1, size.ranks - 2);
    for (int r = 0; r < size.ranks && size.microbatches % size.ranks == 0; r++)
        assert_in_range(run->peak[r], size.ranks / 2 + 1, size.ranks);
}

static void bitpipe_facts(const Run *run, Size size)
{
    slots_facts(run, size, 2, size.ranks - 2);
    assert_true(largest_peak(run) <= 2 * (uint32_t)size.ranks);
}

/* The first `replicated` stages are on size.parameter ranks each. */
static void replicas_facts(const Run *run, Size size, int replicated)
{
    const int copies = size.parameter, shared = replicated * copies, stages = size.ranks - shared + replicated;
    const int longest = stages > replicated ? size.microbatches : (size.microbatches + copies - 1) / copies;
    assert_int_equal(run->makespan, (1 + run->backward_time) * (longest + stages - 1));
    for (int r = 0; r < size.ranks; r++) {
        const int ranks = r < shared ? copies : 1, replica = r < shared ? r % copies : 0;
        const int own = (size.microbatches - replica + ranks - 1) / ranks;
        assert_int_equal(run->peak[r], least(own, (size.ranks - (r - replica) + ranks - 1) / ranks));
    }
}

static bool one_replicated_fits(Size size)
{
    return size.parameter <= size.ranks && size.parameter <= size.microbatches;
}
static void one_replicated_facts(const Run *run, Size size) { replicas_facts(run, size, 1); }
static bool two_replicated_fits(Size size)
{
    return 2 * size.parameter <= size.ranks && size.parameter <= size.microbatches;
}
static void two_replicated_facts(const Run *run, Size size) { replicas_facts(run, size, 2); }

/* --- asynchronous: the version of the weights that each microbatch uses --- */

/* Harlap et al., SOSP 2019, section 3.3: when stage r begins a microbatch, P-1-r earlier ones are in flight on it (all
   earlier ones if these are fewer). */
static void pipedream_facts(const Run *run, Size size)
{
    one_facts(run, size);
    for (int s = 0; s < size.ranks; s++) {
        assert_int_equal(run->versions[s], size.microbatches);
        for (int m = 0; m < size.microbatches; m++)
            assert_int_equal(run->used[s * size.microbatches + m], most(m - (size.ranks - 1 - s), 0));
    }
}

/* PipeDream with replicated stages: the replicas of a stage take the microbatches in turn, and one microbatch of each
   replica makes a version. The last version may have fewer. */
static void rr_facts(const Run *run, Size size, int replicated)
{
    const int shared = replicated * size.parameter, stages = size.ranks - shared + replicated;
    replicas_facts(run, size, replicated);
    for (int s = 0; s < stages; s++) {
        const int copies = s < replicated ? size.parameter : 1,
                  first = s < replicated ? s * copies : s - replicated + shared;
        for (int r = first; r < first + copies; r++)
            assert_int_equal(run->versions[r], (size.microbatches + copies - 1) / copies);
        for (int m = 0; m < size.microbatches; m++)
            assert_int_equal(run->used[s * size.microbatches + m],
                             most(m / copies - (size.ranks - 1 - first) / copies, 0));
    }
}

static void one_rr_facts(const Run *run, Size size) { rr_facts(run, size, 1); }
static void two_rr_facts(const Run *run, Size size) { rr_facts(run, size, 2); }

/* Narayanan et al., ICML 2021, section 3.1: if m microbatches make a version (here size.parameter), input k, counted
   from 1, uses version max(floor((k-1)/m)-1, 0). */
static void two_buffers_facts(const Run *run, Size size)
{
    one_facts(run, size);
    for (int s = 0; s < size.ranks; s++) {
        assert_int_equal(run->versions[s], (size.microbatches + size.parameter - 1) / size.parameter);
        for (int k = 1; k <= size.microbatches; k++)
            assert_int_equal(run->used[s * size.microbatches + k - 1], most((k - 1) / size.parameter - 1, 0));
    }
}

static bool two_buffers_fits(Size size) { return size.parameter >= size.ranks; }

static const Case published[] = {
    {"naive", NULL, naive_facts, NULL, NULL, 0, false},
    {"gpipe", NULL, gpipe_facts, NULL, NULL, 0, false},
    {"1f1b", NULL, one_facts, NULL, NULL, 0, false},
    {"1f1b-rr", one_replicated_fits, one_replicated_facts, "replicas", NULL, 0, false},
    {"1f1b-rr", two_replicated_fits, two_replicated_facts, "replicas", "replicated", 2, false},
    {"eager-1f1b", NULL, eager_facts, NULL, NULL, 0, false},
    {"looped-bfs", NULL, looped_facts, "chunks", NULL, 0, false},
    {"interleaved-1f1b", NULL, interleaved_facts, "chunks", NULL, 0, false},
    {"interleaved-1f1b", groups_fit, groups_facts, "group", "chunks", 3, true},
    {"megatron-moe", NULL, megatron_facts, "chunks", NULL, 0, false},
    {"megatron-moe", groups_fit, megatron_groups_facts, "group", "chunks", 3, true},
    {"ebb-loop", NULL, megatron_facts, "chunks", "early", 0, false},
    {"ebb-loop", early_fits, loop_facts, "early", NULL, 0, false},
    {"interleaved-zb", NULL, interleaved_zb_facts, "chunks", NULL, 0, false},
    {"zb-h1", NULL, h1_facts, NULL, NULL, 0, false},
    {"zb-h2", NULL, h2_facts, NULL, NULL, 0, false},
    {"zb1p", NULL, h1_facts, NULL, NULL, 0, false},
    {"zb2p", NULL, h2_facts, NULL, NULL, 0, false},
    {"zb-v", NULL, v_facts, NULL, NULL, 0, false},
    {"v-half", NULL, half_facts, NULL, NULL, 0, false},
    {"half-tide", NULL, half_facts, NULL, "tide", 0, false},
    {"half-tide", tide_fits, tide_facts, "tide", NULL, 0, false},
    {"v-min", NULL, min_facts, NULL, NULL, 0, false},
    {"dualpipe", dualpipe_fits, dualpipe_facts, NULL, NULL, 0, false},
    {"dualpipev", NULL, dualpipev_facts, NULL, NULL, 0, false},
    {"ebb-v", NULL, dualpipev_facts, NULL, "drain", 0, false},
    {"ebb-v", drain_fits, dualpipev_facts, "drain", NULL, 0, false},
    {"ebb-two", dualpipe_fits, dualpipe_facts, NULL, "drain", 0, false},
    {"ebb-two", two_drains_fit, dualpipe_facts, "drain", NULL, 0, false},
    {"hanayo", NULL, hanayo_facts, "waves", NULL, 0, false},
    {"chimera", even_fits, chimera_facts, NULL, NULL, 0, false},
    {"bitpipe", even_fits, bitpipe_facts, NULL, NULL, 0, false},
    {"pipedream", NULL, pipedream_facts, NULL, NULL, 0, false},
    {"pipedream-rr", one_replicated_fits, one_rr_facts, "replicas", NULL, 0, false},
    {"pipedream-rr", two_replicated_fits, two_rr_facts, "replicas", "replicated", 2, false},
    {"pipedream-2bw", two_buffers_fits, two_buffers_facts, "G", NULL, 0, true},
};

static void check_sizes(int ranks, int microbatches)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        for (int parameter = 1; parameter <= (published[i].parameter ? 4 : 1); parameter++)
            check_size(&published[i], (Size){ranks, microbatches,
                                             published[i].around_ranks ? most(ranks + parameter - 2, 1) : parameter});
}

TEST(small_sizes)
{
    for (int ranks = 1; ranks <= 9; ranks++)
        for (int microbatches = 1; microbatches <= 3 * ranks + 2; microbatches++)
            check_sizes(ranks, microbatches);
}

TEST(large_sizes)
{
    static const int ranks[] = {16, 33, 64};
    for (int i = 0; i < (SANITIZED ? 1 : 3); i++) {
        const int p = ranks[i], microbatches[] = {1, p - 1, p, 2 * p - 1, 2 * p, 2 * p + 2, 4 * p};
        for (int k = 0; k < 7; k++)
            check_sizes(p, microbatches[k]);
    }
}

int main(void) { return test_program("schedules", NULL, NULL); }
