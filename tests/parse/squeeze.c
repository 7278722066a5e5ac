/* `squeeze`: the orders that it makes, and that they never take more time or memory. */

#include "compiler/output/emit.h"
#include "tests/parse/front.h"

static char *csv_of(const Schedule *schedule)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    emit_csv(schedule, false, stream);
    fclose(stream);
    return text;
}

/* --- an independent measure: each pass takes one slot and starts as soon as it can --- */

typedef struct Measure {
    int makespan, peak, passes;
} Measure;

enum { STAGES = 130, MICROBATCHES = 110 };

static Measure measure(const Schedule *schedule)
{
    static int forward[STAGES][MICROBATCHES], backward[STAGES][MICROBATCHES];
    Measure found = {0, 0, 0};
    uint32_t next[STAGES] = {0};
    int now[STAGES] = {0}, held[STAGES] = {0};
    memset(forward, 0, sizeof forward);
    memset(backward, 0, sizeof backward);
    const uint32_t last = schedule->pipes[0].stages - 1;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t r = 0; r < schedule->ranks; r++)
            while (next[r] < schedule->orders[r].count) {
                const Action *pass = &schedule->orders[r].actions[next[r]];
                const uint32_t s = pass->stage, m = pass->microbatch;
                const int own = pass->kind == ACTION_F ? 1 : pass->kind == ACTION_I ? forward[s][m] : backward[s][m];
                const int other = pass->kind == ACTION_F   ? s ? forward[s - 1][m] : 1
                                  : pass->kind == ACTION_I ? s < last ? backward[s + 1][m] : 1
                                                           : 1;
                if (!own || !other)
                    break;
                now[r] = now[r] > 1 ? now[r] : 1; /* times count from 1; 0 means not yet */
                now[r] = own > now[r] ? own : now[r];
                now[r] = 1 + (other > now[r] ? other : now[r]);
                if (pass->kind == ACTION_F)
                    forward[s][m] = now[r];
                else if (pass->kind == ACTION_I)
                    backward[s][m] = now[r];
                held[r] += pass->kind == ACTION_F;
                found.peak = held[r] > found.peak ? held[r] : found.peak;
                held[r] -= pass->kind == ACTION_W;
                found.makespan = now[r] - 1 > found.makespan ? now[r] - 1 : found.makespan;
                found.passes++;
                next[r]++;
                moved = true;
            }
    }
    for (uint32_t r = 0; r < schedule->ranks; r++)
        assert_int_equal(next[r], schedule->orders[r].count);
    return found;
}

/* --- orders --- */

static void assert_squeezed(const char *text, const char *expected)
{
    Front front;
    front_run(&front, text);
    if (!front.good)
        fail_msg("%s", front.report);
    char *order = csv_of(&front.schedule);
    assert_string_equal(order, expected);
    free(order);
    front_close(&front);
}

#define ONE_BY_ONE "schedule t; ranks P = 2; microbatches M = 3; pipe a: P stages, stage s on s, M microbatches;\n"

TEST(orders)
{
    /* As written, a rank holds one activation, and squeeze keeps to that: an F comes after the W of the microbatch
       before. */
    assert_squeezed(ONE_BY_ONE "nFIW : M; squeeze;",
                    "0F0,0I0,0W0,0F1,0I1,0W1,0F2,0I2,0W2\n1F0,1I0,1W0,1F1,1I1,1W1,1F2,1I2,1W2\n");
    /* The condition of squeeze may use parameters. */
    assert_squeezed(ONE_BY_ONE "param some = 0; F : 2; IW : 2; FIW; squeeze if some;",
                    "0F0,0F1,0I0,0W0,0I1,0W1,0F2,0I2,0W2\n1F0,1F1,1I0,1W0,1I1,1W1,1F2,1I2,1W2\n");
    assert_squeezed(ONE_BY_ONE "param some = 2; F : 2; IW : 2; FIW; squeeze if some == P;",
                    "0F0,0F1,0I0,0I1,0W0,0F2,0W1,0I2,0W2\n1F0,1F1,1I0,1I1,1W0,1W1,1F2,1I2,1W2\n");
    /* As written, a rank holds two activations: both I run before a W, which then frees memory for the third F. */
    assert_squeezed(ONE_BY_ONE "F : 2; IW : 2; FIW; squeeze;",
                    "0F0,0F1,0I0,0I1,0W0,0F2,0W1,0I2,0W2\n1F0,1F1,1I0,1I1,1W0,1W1,1F2,1I2,1W2\n");
}

TEST(what_cannot_be_squeezed)
{
    REPORTS("schedule t; ranks P = 4000; microbatches M = 50; pipe a: P stages, stage s on s, M microbatches; nFIW : "
            "M; squeeze;",
            "1:108: error: too long for `squeeze`: 4000 ranks of 40",
            "fewer ranks, stages or microbatches need fewer time slots");
    REPORTS(TWO "order auto(memory = 2*P); squeeze;",
            "2:27: error: `squeeze` moves the passes of steps: with `order auto` leave it out");
    REPORTS(TWO "nFIW : M; squeeze if r;", "the condition of `squeeze` is", "rank");
    REPORTS(TWO "nFIW : M; squeeze if x;", "error:", "x");
    REPORTS(TWO "nFIW : M; squeeze if 1/(M-M);", "division by zero");
    REPORTS(TWO "nFB : M; squeeze;",
            "t.dps:2:3: error: `squeeze` moves only passes that take one time slot (F, I, W); a B takes two",
            "t.dps:2:10: note: squeezed here", "help: write the B as an I and a W");
    REPORTS(TWO "if r { F; F&I; I; } else { F : 2; I : 2; } W : 2; squeeze;",
            "2:11: error: `squeeze` moves only passes that take one time slot (F, I, W); an F&B or F&F takes several");
}

/* --- random orders --- */

static uint64_t random_state;

static int below(int limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)limit);
}

enum { RANKS_MAX = 4, STAGES_MAX = 8, MICROBATCHES_MAX = 6 };

/* A random legal order, as steps that name every pass: the next pass is chosen among those that can run. `squeezed`:
   with `squeeze` at the end. */
static char *random_file(bool squeezed)
{
    char *text = NULL, *steps[RANKS_MAX];
    size_t size, sizes[RANKS_MAX];
    FILE *stream = open_memstream(&text, &size), *of_rank[RANKS_MAX];
    const int ranks = 1 + below(RANKS_MAX), chunks = 1 + below(STAGES_MAX / ranks),
              microbatches = 1 + below(MICROBATCHES_MAX);
    const int stages = ranks * chunks;
    bool done[3][STAGES_MAX][MICROBATCHES_MAX] = {{{false}}};
    for (int r = 0; r < ranks; r++)
        of_rank[r] = open_memstream(&steps[r], &sizes[r]);
    for (int left = 3 * stages * microbatches; left;) {
        const int kind = below(3), s = below(stages), m = below(microbatches);
        const bool ready = kind == 0   ? !s || done[0][s - 1][m]
                           : kind == 1 ? done[0][s][m] && (s == stages - 1 || done[1][s + 1][m])
                                       : done[1][s][m];
        if (done[kind][s][m] || !ready)
            continue;
        done[kind][s][m] = true;
        left--;
        fprintf(of_rank[s % ranks], " %c%d[%d];", "FIW"[kind], s / ranks, m);
    }
    fprintf(stream,
            "schedule t; ranks P = %d; microbatches M = %d; pipe a: %d*P stages, stage s on s %% P, M microbatches;\n",
            ranks, microbatches, chunks);
    for (int r = 0; r < ranks; r++) {
        fclose(of_rank[r]);
        fprintf(stream, "if r == %d {%s }\n", r, steps[r]);
        free(steps[r]);
    }
    fputs(squeezed ? "squeeze;" : "", stream);
    fclose(stream);
    return text;
}

static Measure measure_random(uint64_t seed, bool squeezed)
{
    random_state = seed;
    char *text = random_file(squeezed);
    Front front;
    front_run(&front, text);
    if (!front.good)
        fail_msg("%s\n%s", front.report, text);
    const Measure found = measure(&front.schedule);
    front_close(&front);
    free(text);
    return found;
}

TEST(random_orders)
{
    int shorter = 0;
    for (uint64_t seed = 0; seed < 500; seed++) {
        const Measure before = measure_random(seed, false), after = measure_random(seed, true);
        assert_int_equal(after.passes, before.passes);
        assert_true(after.makespan <= before.makespan && after.peak <= before.peak);
        shorter += after.makespan < before.makespan;
    }
    assert_true(shorter > 200);
}

/* --- the schedules for which squeeze was made --- */

/* Makespans of V-Half and V-Min at F = I = W = 1, by the authors' own code (sail-sg/zero-bubble-pipeline-parallelism,
   zbv_greedy.py at 39f2c186, run at these sizes): P from 2 on; M = P/2, P, 3P/2. */
enum { PUBLISHED_RANKS = 24 };
static const short published_half[PUBLISHED_RANKS - 1][3] = {
    {10, 15, 19},    {14, 23, 29},    {22, 34, 41},    {26, 44, 53},    {35, 48, 65},    {39, 66, 77},
    {48, 65, 89},    {52, 82, 101},   {61, 83, 113},   {65, 104, 125},  {74, 101, 137},  {78, 126, 149},
    {87, 119, 161},  {91, 142, 173},  {99, 137, 185},  {103, 164, 197}, {112, 155, 209}, {116, 186, 221},
    {125, 173, 233}, {129, 202, 245}, {138, 191, 257}, {142, 224, 269}, {151, 209, 281},
};
static const short published_min[PUBLISHED_RANKS - 1][3] = {
    {9, 15, 21},     {13, 26, 29},    {23, 35, 47},    {26, 45, 57},    {37, 53, 71},    {41, 65, 83},
    {51, 75, 99},    {55, 83, 107},   {65, 95, 125},   {69, 105, 135},  {79, 113, 149},  {83, 125, 161},
    {93, 135, 177},  {97, 143, 185},  {107, 155, 203}, {111, 165, 213}, {121, 173, 227}, {125, 185, 239},
    {135, 195, 255}, {139, 203, 263}, {149, 215, 281}, {153, 225, 291}, {163, 233, 305},
};

static Measure measure_schedule(const char *path, int ranks, int microbatches)
{
    Parameters parameters = {0};
    parameters_set_ranks(&parameters, ranks);
    parameters_set_microbatches(&parameters, microbatches);
    Front front;
    front_run_file(&front, path, &parameters);
    if (!front.good)
        fail_msg("%s", front.report);
    const Measure found = measure(&front.schedule);
    front_close(&front);
    return found;
}

/* The squeezed orders of V-Half and V-Min are no longer than those of their authors. For more microbatches, schedules.c
   checks the least bubble that the peak allows. */
TEST(no_longer_than_published)
{
    for (int p = 2; p <= PUBLISHED_RANKS; p++)
        for (int i = 0; i < 3; i++) {
            const int microbatches = i == 0 ? p / 2 : i == 1 ? p : 3 * p / 2;
            const Measure half = measure_schedule("schedules/v-half.dps", p, microbatches);
            const Measure least = measure_schedule("schedules/v-min.dps", p, microbatches);
            assert_true(half.makespan <= published_half[p - 2][i] && half.peak <= 2 * ((p + 2) / 2));
            assert_true(least.makespan <= published_min[p - 2][i] && least.peak <= 2 * ((p + 4) / 3));
        }
}

int main(void) { return test_program("squeeze", NULL, NULL); }
