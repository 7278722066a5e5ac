/* Random placements and random legal orders are accepted, all the way to a verified program; mutations of them are accepted
   or rejected as an independent, naive check of the same rules says. */

#include "compiler/communicate.h"
#include "compiler/csv.h"
#include "compiler/lower.h"
#include "compiler/passes.h"
#include "compiler/prove.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 5, STAGES = 8, MICROBATCHES = 5, CELLS = 200 };

typedef struct Cell {
    char kind; /* F B I W */
    int stage, microbatch;
    bool overlap;
} Cell;

typedef struct Orders {
    int ranks, stages, microbatches;
    int counts[RANKS];
    Cell cells[RANKS][CELLS];
} Orders;

static uint64_t random_state;

static int below(int limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)limit);
}

/* --- the independent check --- */

typedef struct Done {
    bool forward[STAGES + 1][MICROBATCHES + 3], input[STAGES + 1][MICROBATCHES + 3];
} Done;

static bool ready(const Orders *orders, const Done *done, const Cell *cell)
{
    if (cell->kind == 'F')
        return cell->stage == 0 || done->forward[cell->stage - 1][cell->microbatch];
    if (cell->kind == 'W')
        return done->input[cell->stage][cell->microbatch];
    return done->forward[cell->stage][cell->microbatch] &&
           (cell->stage == orders->stages - 1 || done->input[cell->stage + 1][cell->microbatch]);
}

static void finish(Done *done, const Cell *cell)
{
    if (cell->kind == 'F')
        done->forward[cell->stage][cell->microbatch] = true;
    else if (cell->kind != 'W')
        done->input[cell->stage][cell->microbatch] = true;
}

static bool is_legal(const Orders *given)
{
    Orders orders = *given;
    int home[STAGES + 1], counts[4][STAGES + 1][MICROBATCHES + 3];
    bool microbatch_seen[MICROBATCHES + 3] = {false};
    memset(home, -1, sizeof home);
    memset(counts, 0, sizeof counts);
    orders.stages = orders.microbatches = 0;
    for (int r = 0; r < orders.ranks; r++) {
        if (!orders.counts[r])
            return false;
        for (int i = 0; i < orders.counts[r]; i++) {
            const Cell *cell = &orders.cells[r][i];
            if (home[cell->stage] >= 0 && home[cell->stage] != r)
                return false;
            home[cell->stage] = r;
            if (cell->stage >= orders.stages)
                orders.stages = cell->stage + 1;
            orders.microbatches += !microbatch_seen[cell->microbatch];
            microbatch_seen[cell->microbatch] = true;
            counts[strchr("FBIW", cell->kind) - "FBIW"][cell->stage][cell->microbatch]++;
            if (cell->overlap) {
                const Cell *next = &orders.cells[r][i + 1];
                if (i + 1 == orders.counts[r] || cell->kind != 'F' || (next->kind != 'B' && next->kind != 'I') ||
                    next->microbatch == cell->microbatch)
                    return false;
            }
        }
    }
    for (int s = 0; s < orders.stages; s++)
        for (int m = 0; m < MICROBATCHES + 3; m++) {
            const int f = counts[0][s][m], b = counts[1][s][m], i = counts[2][s][m], w = counts[3][s][m];
            const bool whole = f == 1 && ((b == 1 && !i && !w) || (!b && i == 1 && w == 1));
            if (m < orders.microbatches ? !whole : f + b + i + w > 0)
                return false;
        }
    Done done = {0};
    int next[RANKS] = {0};
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < orders.ranks; r++) {
            if (next[r] == orders.counts[r])
                continue;
            const Cell *cell = &orders.cells[r][next[r]];
            if (!ready(&orders, &done, cell) || (cell->overlap && !ready(&orders, &done, cell + 1)))
                continue;
            finish(&done, cell);
            if (cell->overlap)
                finish(&done, cell + 1);
            next[r] += cell->overlap ? 2 : 1;
            moved = true;
        }
    }
    for (int r = 0; r < orders.ranks; r++)
        if (next[r] != orders.counts[r])
            return false;
    return true;
}

/* --- what dpc says --- */

static char *as_csv(const Orders *orders)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    for (int r = 0; r < orders->ranks; r++) {
        for (int i = 0; i < orders->counts[r]; i++) {
            const Cell *cell = &orders->cells[r][i];
            const bool second = i > 0 && cell[-1].overlap;
            fprintf(stream, "%s%s%d%c%d%s", i && !second ? "," : "", cell->overlap ? "(" : "", cell->stage, cell->kind, cell->microbatch,
                    cell->overlap ? ";" : second ? ")OVERLAP_F_B" : "");
        }
        putc('\n', stream);
    }
    fclose(stream);
    return text;
}

static bool same_instruction(const Instruction *a, const Instruction *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void check_round_trip(const Program *program, Arena *arena)
{
    ByteWriter writer = {0};
    Program *read = NULL;
    Error error = {""};
    assert_true(program_encode(program, &writer));
    assert_int_equal(program_decode(writer.bytes, writer.size, arena, &read, &error), STATUS_OK);
    for (uint32_t r = 0; r < program->rank_count; r++)
        for (uint32_t i = 0; i < program->ranks[r].instruction_count; i++)
            assert_true(same_instruction(&program->ranks[r].instructions[i], &read->ranks[r].instructions[i]));
    bytes_free(&writer);
}

/* Whether dpc accepts the text; what it accepts must be a program that passes its verification. */
static bool accepts(const char *text)
{
    Arena arena = {0};
    Source source = {.path = "order.csv", .text = text, .size = strlen(text)};
    source_lines(&source, &arena);
    Diagnostics *diagnostics = diag_new(&arena, &source);
    Schedule schedule;
    PassTable table;
    Timeline timeline;
    bool good = csv_read(&source, &arena, diagnostics, &schedule) && legal(&schedule, &arena, diagnostics, &table);
    if (good && !timeline_run(&schedule, &table, &costs_unit, &arena, &timeline)) {
        prove_report_circle(&schedule, &table, &timeline, &arena, diagnostics);
        good = false;
    }
    if (good) {
        communicate(&schedule, &table, &timeline, &arena);
        assert_true(prove_messages(&schedule, &table, &arena, diagnostics)); /* what we derive ourselves always passes */
        RankPlan plans[RANKS];
        for (uint32_t r = 0; r < schedule.ranks; r++)
            assert_true(plan_rank(&schedule, r, &arena, diagnostics, &plans[r]));
        Program *program = lower(&schedule, plans, &source, &arena);
        Error error = {""};
        if (program_verify(program, &error) != STATUS_OK)
            fail_msg("%s\n%s", error.text, text);
        check_round_trip(program, &arena);
    }
    assert_int_equal(good, !diag_failed(diagnostics)); /* a rejection has its reason */
    arena_free(&arena);
    return good;
}

/* --- random orders --- */

static void random_orders(Orders *orders)
{
    memset(orders, 0, sizeof *orders);
    orders->ranks = 1 + below(RANKS);
    orders->stages = orders->ranks + below(STAGES - orders->ranks + 1);
    orders->microbatches = 1 + below(MICROBATCHES);
    int home[STAGES], next = 0;
    for (int s = 0; s < orders->stages; s++)
        home[s] = s < orders->ranks ? s : below(orders->ranks);
    for (int s = orders->stages - 1; s > 0; s--) { /* shuffled: any placement */
        const int other = below(s + 1), kept = home[s];
        home[s] = home[other];
        home[other] = kept;
    }
    Cell todo[STAGES * MICROBATCHES * 3];
    for (int s = 0; s < orders->stages; s++)
        for (int m = 0; m < orders->microbatches; m++) {
            const bool split = below(2);
            todo[next++] = (Cell){'F', s, m, false};
            todo[next++] = (Cell){split ? 'I' : 'B', s, m, false};
            if (split)
                todo[next++] = (Cell){'W', s, m, false};
        }
    Done done = {0};
    while (next) {
        const int pick = below(next);
        if (!ready(orders, &done, &todo[pick]))
            continue;
        const int rank = home[todo[pick].stage];
        orders->cells[rank][orders->counts[rank]++] = todo[pick];
        finish(&done, &todo[pick]);
        todo[pick] = todo[--next];
    }
}

static void remove_cell(Orders *orders, int rank, int place)
{
    Cell *cells = orders->cells[rank];
    memmove(&cells[place], &cells[place + 1], (size_t)(--orders->counts[rank] - place) * sizeof *cells);
}

static void insert_cell(Orders *orders, int rank, int place, Cell cell)
{
    Cell *cells = orders->cells[rank];
    memmove(&cells[place + 1], &cells[place], (size_t)(orders->counts[rank]++ - place) * sizeof *cells);
    cells[place] = cell;
}

/* Drops, doubles, swaps, moves, renumbers or pairs one cell. Only pairs overlap, and only in orders without other pairs, so
   that the text form can say every mutation. */
static void mutate(Orders *orders)
{
    const int rank = below(orders->ranks);
    const int place = below(orders->counts[rank]);
    Cell *cell = &orders->cells[rank][place];
    const Cell kept = *cell;
    switch (below(6)) {
    case 0:
        remove_cell(orders, rank, place);
        break;
    case 1:
        insert_cell(orders, rank, below(orders->counts[rank] + 1), kept);
        break;
    case 2: {
        Cell *other = &orders->cells[rank][below(orders->counts[rank])];
        *cell = *other;
        *other = kept;
        break;
    }
    case 3:
        remove_cell(orders, rank, place);
        insert_cell(orders, rank, below(orders->counts[rank] + 1), kept);
        break;
    case 4:
        if (below(2))
            cell->microbatch = below(orders->microbatches + 2);
        else
            cell->kind = "FBIW"[below(4)];
        break;
    default:
        if (place + 1 < orders->counts[rank] && (kept.kind == 'F' || cell[1].kind == 'B' || cell[1].kind == 'I'))
            cell->overlap = true;
        break;
    }
}

static void random_orders_and_mutations(void **state)
{
    (void)state;
    int accepted = 0, rejected = 0;
    for (int round = 0; round < 300; round++) {
        Orders orders, mutant;
        random_state = (uint64_t)round;
        random_orders(&orders);
        assert_true(is_legal(&orders));
        char *text = as_csv(&orders);
        if (!accepts(text))
            fail_msg("rejected:\n%s", text);
        free(text);
        for (int i = 0; i < 10; i++) {
            mutant = orders;
            mutate(&mutant);
            text = as_csv(&mutant);
            const bool expected = is_legal(&mutant);
            if (accepts(text) != expected)
                fail_msg("%s:\n%s", expected ? "rejected, but legal" : "accepted, but illegal", text);
            accepted += expected;
            rejected += !expected;
            free(text);
        }
    }
    assert_true(accepted > 300 && rejected > 1000); /* both happen */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_orders_and_mutations)};
    return cmocka_run_group_tests_name("orders", tests, NULL, NULL);
}
