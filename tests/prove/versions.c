/* A rank keeps exactly as many versions of weights as are in use: the newest one, each that a microbatch uses which
   has run forward and not backward, and each that the pipe names for a microbatch which has not run yet. An order is
   refused if a U is missing, superfluous, misplaced or wrongly numbered, or if it uses a version that does not
   exist. */

#include "compiler/compile.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

/* The most versions of its stage that a rank has in use at once. */
static uint32_t most_alive(const Schedule *schedule, uint32_t rank)
{
    const Order *order = &schedule->orders[rank];
    const PlacedPipe *pipe = &schedule->pipes[0];
    uint32_t *used = calloc(pipe->microbatches, sizeof *used), newest = 0, most = 1;
    bool *forward = calloc(pipe->microbatches, sizeof *forward),
         *backward = calloc(pipe->microbatches, sizeof *backward);
    for (uint32_t i = 0; i < order->count; i++) {
        const Action *action = &order->actions[i];
        if (action->kind == ACTION_F) {
            forward[action->microbatch] = true;
            used[action->microbatch] = pipe->versions ? pipe->versions[action->microbatch] : newest;
        }
        if (action->kind == ACTION_B || action->kind == ACTION_I)
            backward[action->microbatch] = true;
        newest += action->kind == ACTION_U;
        uint32_t alive = 1;
        for (uint32_t version = 0; version < newest; version++) {
            bool needed = false;
            for (uint32_t m = 0; m < pipe->microbatches; m++)
                needed |=
                    !backward[m] && (forward[m] ? used[m] == version : pipe->versions && pipe->versions[m] == version);
            alive += needed;
        }
        most = alive > most ? alive : most;
    }
    free(used);
    free(forward);
    free(backward);
    return most;
}

static void check(const char *text, const char *path, uint32_t ranks, uint32_t microbatches, uint32_t group,
                  uint32_t *most)
{
    Arena arena = {0};
    Error error = {""};
    Parameters parameters = {0};
    Source source = {.path = path, .text = text, .size = strlen(text)};
    source_lines(&source, &arena);
    parameters_set_ranks(&parameters, ranks);
    parameters_set_microbatches(&parameters, microbatches);
    if (group)
        parameters_set(&parameters, &arena, "G", group);
    Compilation c = {.arena = &arena, .source = &source, .parameters = &parameters};
    if (compile(&c, &error) != STATUS_OK) {
        diag_print(c.diagnostics, stderr);
        fail_msg("%s: %u ranks, %u microbatches, G = %u: %s", path, ranks, microbatches, group, error.text);
    }
    assert_true(c.program->asynchronous);
    for (uint32_t r = 0; r < ranks; r++) {
        most[r] = c.program->ranks[r].slots[SLOT_WEIGHTS];
        assert_int_equal(most[r], most_alive(&c.schedule, r));
    }
    arena_free(&arena);
}

static void check_file(const char *path, uint32_t ranks, uint32_t microbatches, uint32_t group, uint32_t *most)
{
    Arena arena = {0};
    Error error = {""};
    Source source;
    if (source_read(path, &arena, &source, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    check(source.text, path, ranks, microbatches, group, most);
    arena_free(&arena);
}

/* Harlap et al., SOSP 2019: a stage keeps as many versions as it has microbatches in flight. */
TEST(pipedream_keeps_one_for_each_in_flight)
{
    uint32_t most[64];
    for (uint32_t ranks = 1; ranks <= 7; ranks++)
        for (uint32_t microbatches = 1; microbatches <= 3 * ranks; microbatches++) {
            check_file("schedules/pipedream.dps", ranks, microbatches, 0, most);
            for (uint32_t r = 0; r < ranks; r++)
                if (microbatches >= 2 * (ranks - 1 - r))
                    assert_int_equal(most[r], ranks - r);
        }
}

/* Narayanan et al., ICML 2021: a stage keeps two versions; one if there is only one U. */
TEST(double_buffering_keeps_two)
{
    uint32_t most[64];
    for (uint32_t ranks = 1; ranks <= 5; ranks++)
        for (uint32_t group = ranks; group <= ranks + 2; group++)
            for (uint32_t microbatches = 1; microbatches <= 4 * group + 1; microbatches += ranks) {
                check_file("schedules/pipedream-2bw.dps", ranks, microbatches, group, most);
                for (uint32_t r = 0; r < ranks; r++)
                    assert_int_equal(most[r], microbatches > group ? 2 : 1);
            }
}

/* PipeDream (SOSP 2019), section 3.3: with vertical sync every stage keeps as many versions as the first stage. A split
   backward uses its version until I. */
TEST(versions_named_by_the_pipe_are_kept)
{
    uint32_t most[64];
    static const char vertical[] =
        "schedule vertical; ranks P = 4; microbatches M = 8;\n"
        "pipe a: P stages, stage s on s, M microbatches, microbatch m on version max(m-P+1, 0);\n"
        "let w = min(P-1-r, M);\n"
        "nF : w; nFBU : M-w; nBU : w;\n";
    static const char split[] = "schedule split; ranks P = 4; microbatches M = 8;\n"
                                "pipe a: P stages, stage s on s, M microbatches;\n"
                                "let w = min(P-r, M);\n"
                                "nF : w; nIFWU : M-w; nIWU : w;\n";
    for (uint32_t microbatches = 1; microbatches <= 16; microbatches += 3) {
        check(vertical, "vertical.dps", 4, microbatches, 0, most);
        for (uint32_t r = 0; r < 4 && microbatches >= 8; r++)
            assert_int_equal(most[r], 4);
        check(split, "split.dps", 4, microbatches, 0, most);
        for (uint32_t r = 0; r < 4; r++)
            assert_true(most[r] <= 5 - r);
    }
}

/* --- misplaced U --- */

enum { RANKS = 3, MICROBATCHES = 5, CELLS_MAX = 4 * MICROBATCHES + 8 };

typedef struct Cell {
    char kind; /* F, B or U */
    uint32_t number, version;
} Cell;

typedef struct Orders {
    Cell cells[RANKS][CELLS_MAX];
    uint32_t counts[RANKS];
    bool named;    /* each F names its version, one per microbatch */
    bool replicas; /* ranks 0 and 1 are replicas of stage 0 */
} Orders;

static uint32_t stage_of(const Orders *orders, uint32_t rank) { return orders->replicas && rank ? rank - 1 : rank; }

static uint64_t random_state = 7;

static uint32_t below(uint32_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (uint32_t)(random_state >> 33) % limit;
}

/* 1F1B with a U after every `group` backwards and after the last one. With group > 1 each F names its version. */
static void make_orders(Orders *orders, uint32_t group)
{
    *orders = (Orders){.named = group > 1};
    for (uint32_t r = 0; r < RANKS; r++) {
        Cell *cells = orders->cells[r];
        uint32_t count = 0, forwards = 0, updates = 0;
        for (; forwards < RANKS - 1 - r; forwards++)
            cells[count++] = (Cell){'F', forwards, 0};
        for (uint32_t m = 0; m < MICROBATCHES; m++) {
            if (forwards < MICROBATCHES)
                cells[count++] = (Cell){'F', forwards, forwards / group > 1 ? forwards / group - 2 : 0}, forwards++;
            cells[count++] = (Cell){'B', m, 0};
            if ((m + 1) % group == 0 || m + 1 == MICROBATCHES)
                cells[count++] = (Cell){'U', ++updates, 0};
        }
        orders->counts[r] = count;
    }
}

/* 1F1B-RR on the 2-1 pipeline of the PipeDream paper (SOSP 2019). */
static void make_replicas(Orders *orders)
{
    *orders = (Orders){.replicas = true};
    for (uint32_t r = 0; r < RANKS; r++) {
        Cell *cells = orders->cells[r];
        const uint32_t replicas = r < 2 ? 2 : 1, first = r < 2 ? r : 0;
        uint32_t count = 0, updates = 0;
        if (r < 2)
            cells[count++] = (Cell){'F', first, 0};
        for (uint32_t m = first; m < MICROBATCHES + first; m += replicas) {
            const uint32_t forward = r < 2 ? m + 2 : m;
            if (forward < MICROBATCHES)
                cells[count++] = (Cell){'F', forward, 0};
            if (m < MICROBATCHES)
                cells[count++] = (Cell){'B', m, 0};
            cells[count++] = (Cell){'U', ++updates, 0};
        }
        orders->counts[r] = count;
    }
}

static void mutate(Orders *orders)
{
    const uint32_t r = below(RANKS);
    Cell *cells = orders->cells[r];
    uint32_t *count = &orders->counts[r], i = below(*count), j = below(*count);
    while (cells[i].kind != 'U' && *count > 2 * MICROBATCHES)
        i = below(*count);
    const Cell update = cells[i];
    if (update.kind != 'U')
        return;
    switch (below(5)) {
    case 0: cells[i].number = below(MICROBATCHES + 2); break;
    case 1: /* inserts another U */
        memmove(&cells[j + 1], &cells[j], (*count)++ * sizeof *cells - j * sizeof *cells);
        cells[j] = update;
        break;
    case 2: /* removes it */ memmove(&cells[i], &cells[i + 1], (--*count - i) * sizeof *cells); break;
    case 3: /* moves it */
        memmove(&cells[i], &cells[i + 1], (*count - 1 - i) * sizeof *cells);
        memmove(&cells[j + 1], &cells[j], (*count - 1 - j) * sizeof *cells);
        cells[j] = update;
        break;
    default: /* this mutation numbers all U of the rank in their order */
        for (uint32_t k = 0, updates = 0; k < *count; k++)
            if (cells[k].kind == 'U')
                cells[k].number = ++updates;
        break;
    }
}

/* Whether all ranks reach their end: the two replicas run the same number of U, each U has a gradient, and there is no
   deadlock. */
static bool replicas_end(const Orders *orders)
{
    uint32_t next[RANKS] = {0}, gathered[RANKS] = {0};
    bool forward[2][MICROBATCHES] = {{false}}, backward[2][MICROBATCHES] = {{false}};
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t r = 0; r < RANKS; r++) {
            const Cell *cell = &orders->cells[r][next[r]];
            const uint32_t stage = stage_of(orders, r), other = 1 - r;
            if (next[r] == orders->counts[r])
                continue;
            if (cell->kind == 'U' && stage == 0) {
                if (next[other] == orders->counts[other] || orders->cells[other][next[other]].kind != 'U')
                    continue;
                if (!gathered[0] && !gathered[1])
                    return false;
                next[other]++;
                gathered[0] = gathered[1] = 0;
            } else if (cell->kind == 'F' && (stage == 0 || forward[0][cell->number])) {
                forward[stage][cell->number] = true;
            } else if (cell->kind == 'B' && (stage == 1 || backward[1][cell->number])) {
                backward[stage][cell->number] = true;
                gathered[r]++;
            } else if (cell->kind != 'U') {
                continue;
            }
            next[r]++;
            moved = true;
        }
    }
    return memcmp(next, orders->counts, sizeof next) == 0;
}

static bool is_good(const Orders *orders)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        const bool alone = !orders->replicas || r == 2;
        uint32_t newest = 0, gathered = 0;
        for (uint32_t i = 0; i < orders->counts[r]; i++) {
            const Cell *cell = &orders->cells[r][i];
            if (cell->kind == 'F' && orders->named && cell->version > newest)
                return false;
            if (cell->kind == 'U' && (cell->number != ++newest || (alone && !gathered)))
                return false;
            gathered = cell->kind == 'U' ? 0 : gathered + (cell->kind == 'B');
        }
        if (gathered)
            return false;
    }
    return !orders->replicas || replicas_end(orders);
}

static bool compiles(const Orders *orders)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t i = 0; i < orders->counts[r]; i++) {
            const Cell *cell = &orders->cells[r][i];
            fprintf(stream, "%u%c%u", stage_of(orders, r), cell->kind, cell->number);
            if (cell->kind == 'F' && orders->named)
                fprintf(stream, "v%u", cell->version);
            putc(i + 1 < orders->counts[r] ? ',' : '\n', stream);
        }
    fclose(stream);
    Arena arena = {0};
    Error error = {""};
    const Parameters none = {0};
    Source source = {.path = "mutant.csv", .text = text, .size = size};
    source_lines(&source, &arena);
    Compilation c = {.arena = &arena, .source = &source, .parameters = &none};
    const Status status = compile(&c, &error);
    assert_true(status == STATUS_OK || (status == STATUS_BAD_INPUT && diag_failed(c.diagnostics)));
    arena_free(&arena);
    free(text);
    return status == STATUS_OK;
}

TEST(orders_with_wrong_updates_are_refused)
{
    uint32_t good = 0, bad = 0;
    for (uint32_t i = 0; i < 1500; i++) {
        Orders orders;
        if (i % 3 == 2)
            make_replicas(&orders);
        else
            make_orders(&orders, 1 + i % 3);
        assert_true(is_good(&orders));
        for (uint32_t times = below(4); times > 0; times--)
            mutate(&orders);
        uint32_t updates = 0; /* without a U the orders would be those of a synchronous step */
        for (uint32_t r = 0; r < RANKS; r++)
            for (uint32_t k = 0; k < orders.counts[r]; k++)
                updates += orders.cells[r][k].kind == 'U';
        assert_true(updates > 0);
        const bool expected = is_good(&orders);
        if (compiles(&orders) != expected)
            fail_msg("order %u: %s", i, expected ? "good, but refused" : "bad, but taken");
        good += expected;
        bad += !expected;
    }
    assert_true(good > 200 && bad > 500);
}

int main(void) { return test_program("versions", NULL, NULL); }
