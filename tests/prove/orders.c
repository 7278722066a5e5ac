/* Random placements with random legal orders: one pipe or several with different numbers of microbatches, stages on one
   rank or several, forward-only or not, with messages of their own or without. dpc accepts the orders and compiles them
   to verified programs. A .dps that spells out an order without messages gives the same order. Mutations are accepted
   or rejected exactly as an independent, naive check of the same rules says. */

#include "compiler/lower/lower.h"
#include "compiler/order/csv.h"
#include "compiler/order/expand.h"
#include "compiler/order/place.h"
#include "compiler/order/communicate.h"
#include "compiler/prove/prove.h"
#include "compiler/schedule/passes.h"
#include "compiler/tree/check.h"
#include "compiler/tree/parse.h"
#include "tests/program/same.h"
#include "tests/sanitized.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 5, PIPES = 3, STAGES = 8, MICROBATCHES = 5, CELLS = 400 };

enum { SEND_F = 'f', RECEIVE_F = 'g', SEND_B = 'b', RECEIVE_B = 'c' }; /* kinds of Cells that are messages */

typedef struct Cell {
    char kind; /* F B I W, or a message: f g b c */
    int pipe, stage, microbatch;
    bool overlap;
} Cell;

typedef struct Orders {
    int ranks, pipes, stages, microbatches[PIPES];
    bool messages; /* true: the orders have messages; false: dpc derives them */
    bool replicas; /* a stage may be on several ranks */
    bool forward_only;
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

enum { STAGE_LIMIT = STAGES + 1, MICROBATCH_LIMIT = MICROBATCHES + 3 };

/* Which passes have run (`forward`: F; `input`: B or I), and which results the next pass can use (`_here`): that of a
   message once it is received. `home`: the rank of each pass; -1: none yet. */
typedef struct Done {
    bool forward[PIPES][STAGE_LIMIT][MICROBATCH_LIMIT], input[PIPES][STAGE_LIMIT][MICROBATCH_LIMIT];
    bool forward_here[PIPES][STAGE_LIMIT][MICROBATCH_LIMIT], input_here[PIPES][STAGE_LIMIT][MICROBATCH_LIMIT];
    int home[PIPES][STAGE_LIMIT][MICROBATCH_LIMIT];
} Done;

static bool is_message(const Cell *cell) { return strchr("fgbc", cell->kind) != NULL; }

static int home_of(const Done *done, const Cell *cell) { return done->home[cell->pipe][cell->stage][cell->microbatch]; }

/* The other end of a message; its stage may not exist. */
static Cell other_end(const Cell *message)
{
    Cell other = *message;
    other.stage += message->kind == SEND_F || message->kind == RECEIVE_B ? 1 : -1;
    other.kind = message->kind == SEND_F      ? RECEIVE_F
                 : message->kind == RECEIVE_F ? SEND_F
                 : message->kind == SEND_B    ? RECEIVE_B
                                              : SEND_B;
    return other;
}

static bool ready(const Orders *orders, const Done *done, const Cell *cell)
{
    const int p = cell->pipe, s = cell->stage, m = cell->microbatch;
    switch (cell->kind) {
    case 'F': return s == 0 || done->forward_here[p][s - 1][m];
    case 'W':
    case SEND_B: return done->input[p][s][m];
    case SEND_F: return done->forward[p][s][m];
    default: return done->forward[p][s][m] && (s == orders->stages - 1 || done->input_here[p][s + 1][m]);
    }
}

static void finish(const Orders *orders, Done *done, const Cell *cell)
{
    const int p = cell->pipe, s = cell->stage, m = cell->microbatch;
    const bool derived = !orders->messages; /* if dpc derives messages, results are available to all ranks at once */
    if (cell->kind == 'F') {
        done->forward[p][s][m] = true;
        done->forward_here[p][s][m] |= derived || done->home[p][s][m] == done->home[p][s + 1][m];
    } else if (cell->kind == SEND_F) {
        done->forward_here[p][s][m] = true;
    } else if (cell->kind == SEND_B) {
        done->input_here[p][s][m] = true;
    } else if (cell->kind != 'W') {
        done->input[p][s][m] = true;
        done->input_here[p][s][m] |= derived || (s > 0 && done->home[p][s][m] == done->home[p][s - 1][m]);
    }
}

static bool same_cell(const Cell *a, const Cell *b)
{
    return a->kind == b->kind && a->pipe == b->pipe && a->stage == b->stage && a->microbatch == b->microbatch;
}

/* Runs the next pass, F&B or message of this rank, a message together with its peer. False: it cannot run now. */
static bool step(const Orders *orders, Done *done, int next[RANKS], int rank)
{
    if (next[rank] == orders->counts[rank])
        return false;
    const Cell *cell = &orders->cells[rank][next[rank]];
    if (cell->kind == RECEIVE_F || cell->kind == RECEIVE_B)
        return false; /* the message runs in the sender's turn */
    if (!ready(orders, done, cell) || (cell->overlap && !ready(orders, done, cell + 1)))
        return false;
    if (is_message(cell)) {
        const Cell other = other_end(cell);
        const int peer = home_of(done, &other);
        if (next[peer] == orders->counts[peer] || !same_cell(&orders->cells[peer][next[peer]], &other))
            return false;
        next[peer]++;
    }
    finish(orders, done, cell);
    if (cell->overlap)
        finish(orders, done, cell + 1);
    next[rank] += cell->overlap ? 2 : 1;
    return true;
}

static bool completes(const Orders *orders, Done *done)
{
    int next[RANKS] = {0};
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < orders->ranks; r++)
            moved |= step(orders, done, next, r);
    }
    return memcmp(next, orders->counts, sizeof next) == 0;
}

/* Whether every message goes between neighbouring stages on different ranks, is on the rank of its stage, and comes
   only once there. */
static bool messages_complete(const Orders *orders, const Done *done)
{
    for (int r = 0; r < orders->ranks; r++)
        for (int i = 0; i < orders->counts[r]; i++) {
            const Cell *cell = &orders->cells[r][i];
            if (!is_message(cell))
                continue;
            const Cell other = other_end(cell);
            if (other.stage < 0 || other.stage >= orders->stages || home_of(done, cell) != r ||
                home_of(done, &other) == r || home_of(done, &other) < 0)
                return false;
            for (int k = 0; k < i; k++)
                if (same_cell(&orders->cells[r][k], cell))
                    return false;
        }
    return true; /* a message that is missing stops a pass, or the rank at its other end */
}

static bool is_legal(const Orders *given)
{
    Orders orders = *given;
    Done done;
    int counts[4][PIPES][STAGE_LIMIT][MICROBATCH_LIMIT], stages[PIPES] = {0}, microbatches[PIPES] = {0};
    bool seen[PIPES][MICROBATCH_LIMIT];
    memset(&done, 0, sizeof done);
    memset(done.home, -1, sizeof done.home);
    memset(counts, 0, sizeof counts);
    memset(seen, 0, sizeof seen);
    orders.messages = false;
    orders.forward_only = true;
    while (orders.ranks && !orders.counts[orders.ranks - 1]) /* empty lines at the end are no ranks */
        orders.ranks--;
    if (!orders.ranks)
        return false;
    for (int r = 0; r < orders.ranks; r++)
        for (int i = 0; i < orders.counts[r]; i++)
            orders.forward_only &= is_message(&orders.cells[r][i]) || orders.cells[r][i].kind == 'F';
    for (int r = 0; r < orders.ranks; r++) {
        if (!orders.counts[r])
            return false;
        bool passes = false;
        for (int i = 0; i < orders.counts[r]; i++) {
            const Cell *cell = &orders.cells[r][i];
            const int p = cell->pipe;
            orders.messages |= is_message(cell);
            if (is_message(cell) && cell->overlap)
                return false;
            if (is_message(cell))
                continue;
            passes = true;
            if (home_of(&done, cell) >= 0 && home_of(&done, cell) != r)
                return false;
            done.home[p][cell->stage][cell->microbatch] = r;
            if (cell->stage >= stages[p])
                stages[p] = cell->stage + 1;
            microbatches[p] += !seen[p][cell->microbatch];
            seen[p][cell->microbatch] = true;
            counts[strchr("FBIW", cell->kind) - "FBIW"][p][cell->stage][cell->microbatch]++;
            if (cell->overlap) {
                const Cell *next = &orders.cells[r][i + 1];
                const char *const seconds = orders.forward_only ? "F" : "BI";
                if (i + 1 == orders.counts[r] || cell->kind != 'F' || !strchr(seconds, next->kind) || next->overlap ||
                    (next->pipe == p && next->microbatch == cell->microbatch))
                    return false;
            }
        }
        if (!passes)
            return false;
    }
    orders.stages = stages[0];
    for (int p = 0; p < orders.pipes; p++) {
        if (stages[p] != orders.stages)
            return false;
        for (int s = 0; s < orders.stages; s++) {
            for (int q = 0; q < p; q++)
                for (int pair = 0; pair < MICROBATCH_LIMIT * MICROBATCH_LIMIT; pair++)
                    if (done.home[p][s][pair / MICROBATCH_LIMIT] >= 0 &&
                        done.home[p][s][pair / MICROBATCH_LIMIT] == done.home[q][s][pair % MICROBATCH_LIMIT])
                        return false;
            for (int m = 0; m < MICROBATCH_LIMIT; m++) {
                const int f = counts[0][p][s][m], b = counts[1][p][s][m], i = counts[2][p][s][m],
                          w = counts[3][p][s][m];
                const bool whole = f == 1 && (orders.forward_only || (b == 1 && !i && !w) || (!b && i == 1 && w == 1));
                if (m < microbatches[p] ? !whole : f + b + i + w > 0)
                    return false;
            }
        }
    }
    return messages_complete(&orders, &done) && completes(&orders, &done);
}

/* --- dpc's result --- */

static const char *overlap_name(bool forward) { return forward ? ")OVERLAP_F_F" : ")OVERLAP_F_B"; }

static char *as_csv(const Orders *orders)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    for (int r = 0; r < orders->ranks; r++) {
        for (int i = 0; i < orders->counts[r]; i++) {
            static const char *const names[] = {['F'] = "F",         ['B'] = "B",           ['I'] = "I",
                                                ['W'] = "W",         [SEND_F] = "SEND_F",   [RECEIVE_F] = "RECV_F",
                                                [SEND_B] = "SEND_B", [RECEIVE_B] = "RECV_B"};
            const Cell *cell = &orders->cells[r][i];
            const bool second = i > 0 && cell[-1].overlap;
            fprintf(stream, "%s%s", i && !second ? "," : "", cell->overlap ? "(" : "");
            if (orders->pipes > 1)
                fprintf(stream, "p%d:", cell->pipe);
            fprintf(stream, "%d%s%d%s", cell->stage, names[(int)cell->kind], cell->microbatch,
                    cell->overlap ? ";"
                    : second      ? overlap_name(cell->kind == 'F')
                                  : "");
        }
        putc('\n', stream);
    }
    fclose(stream);
    return text;
}

static void check_derived(const Program *program, Arena *arena)
{
    Error error = {""};
    Program *forward, *reference;
    assert_int_equal(program_forward_only(program, arena, &forward, &error), STATUS_OK);
    assert_int_equal(program_verify(forward, &error), STATUS_OK);
    assert_int_equal(program_reference(program, 1, 1, arena, &reference, &error), STATUS_OK);
    assert_int_equal(program_verify(reference, &error), STATUS_OK);
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

/* Whether dpc accepts the text. If it does, the program must pass its verification. */
static bool accepts(const char *text)
{
    Arena arena = {0};
    Source source = {.path = "order.csv", .text = text, .size = strlen(text)};
    source_lines(&source, &arena);
    Diagnostics *diagnostics = diag_new(&arena, &source);
    Schedule schedule;
    PassTable table;
    Timeline timeline;
    bool good = csv_read(&source, &arena, diagnostics, &schedule);
    if (good)
        schedule.forward_only = schedule_runs_forward_only(&schedule);
    good = good && prove_passes(&schedule, &arena, diagnostics, &table);
    if (good)
        copies_find(&schedule, &table, &arena);
    good = good && prove_order(&schedule, &table, &arena, diagnostics, &timeline);
    const bool derived = good && !schedule.has_messages;
    if (derived)
        communicate(&schedule, &table, &arena);
    good = good && prove_messages(&schedule, &table, &arena, diagnostics) &&
           prove_channels(&schedule, &table, &arena, diagnostics);
    if (good) {
        Program *program = lower(&schedule, &source, &arena, diagnostics);
        assert_non_null(program);
        Error error = {""};
        good = prove_program(&schedule, &table, program, &arena, diagnostics, &error) == STATUS_OK;
        if (*error.text)
            fail_msg("%s\n%s", error.text, text);
        if (good) {
            check_round_trip(program, &arena);
            check_derived(program, &arena);
        }
    }
    assert_true(good || !derived);                     /* messages that dpc derives are never refused */
    assert_int_equal(good, !diag_failed(diagnostics)); /* a rejection has a diagnostic */
    arena_free(&arena);
    return good;
}

/* --- the orders as a .dps file --- */

/* The chunk of a cell's stage on its rank: chunks are numbered pipe after pipe, in the order of stages that have cells
   there. */
static int chunk_of(const Orders *orders, int rank, const Cell *of)
{
    bool here[PIPES * STAGE_LIMIT] = {false};
    int chunk = 0;
    for (int i = 0; i < orders->counts[rank]; i++)
        here[orders->cells[rank][i].pipe * STAGE_LIMIT + orders->cells[rank][i].stage] = true;
    for (int place = 0; place < of->pipe * STAGE_LIMIT + of->stage; place++)
        chunk += here[place];
    return chunk;
}

/* The orders as the text of a .dps file. It names the chunk and the microbatch of every pass, and the rank of every
   microbatch on every stage. The caller frees it. */
static char *as_dps(const Orders *orders, const Done *done)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    int microbatches = 0;
    for (int p = 0; p < orders->pipes; p++)
        microbatches += orders->microbatches[p];
    fprintf(stream, "schedule t;\nranks P = %d;\nmicrobatches M = %d;\n", orders->ranks, microbatches);
    for (int p = 0; p < orders->pipes; p++) {
        fprintf(stream, "pipe p%d: %d stages, stage s of m on ", p, orders->stages);
        for (int s = 0; s < orders->stages; s++)
            for (int m = 0; m < orders->microbatches[p]; m++)
                fprintf(stream, "s == %d && m == %d ? %d : ", s, m, done->home[p][s][m]);
        fprintf(stream, "-1, %d microbatches;\n", orders->microbatches[p]);
    }
    for (int r = 0; r < orders->ranks; r++) {
        fprintf(stream, "if r == %d {", r);
        for (int i = 0; i < orders->counts[r]; i++) {
            const Cell *cell = &orders->cells[r][i];
            fprintf(stream, " %c%d[%d]%s", cell->kind, chunk_of(orders, r, cell), cell->microbatch,
                    cell->overlap ? " &" : ";");
        }
        fputs(" }\n", stream);
    }
    fclose(stream);
    return text;
}

static void check_dps(const Orders *orders, const Done *done, const char *expected)
{
    Arena arena = {0};
    char *text = as_dps(orders, done), *order = NULL;
    size_t size;
    Source source = {.path = "order.dps", .text = text, .size = strlen(text)};
    source_lines(&source, &arena);
    Diagnostics *diagnostics = diag_new(&arena, &source);
    const Parameters parameters = {0};
    Schedule schedule;
    PassTable table;
    Ast *tree = parse(&source, &arena, diagnostics);
    const bool good = tree && check(tree, &arena, diagnostics) &&
                      place(tree, &parameters, &arena, diagnostics, &schedule) &&
                      expand(tree, &parameters, &arena, diagnostics, &schedule);
    schedule.forward_only = good && schedule_runs_forward_only(&schedule);
    if (!good || !prove_passes(&schedule, &arena, diagnostics, &table)) {
        diag_print(diagnostics, stderr);
        fail_msg("rejected:\n%s", text);
    }
    FILE *stream = open_memstream(&order, &size);
    for (uint32_t r = 0; r < schedule.ranks; r++) {
        for (uint32_t i = 0; i < schedule.orders[r].count; i++) {
            char cell[48];
            const Action *action = &schedule.orders[r].actions[i];
            const bool second = i && action[-1].overlap;
            action_text(&schedule, action, cell, sizeof cell);
            fprintf(stream, "%s%s%s%s", i && !second ? "," : "", action->overlap ? "(" : "", cell,
                    action->overlap ? ";"
                    : second        ? overlap_name(action->kind == ACTION_F)
                                    : "");
        }
        putc('\n', stream);
    }
    fclose(stream);
    assert_string_equal(order, expected);
    free(order);
    free(text);
    arena_free(&arena);
}

/* --- random orders --- */

/* Places the microbatches of a stage of a pipe at random on rank `first` (microbatch 0 always) and, if stages may have
   replicas, on ranks first + pipes, first + 2 * pipes, ..., where no other pipe has the stage. */
static void place_copies(const Orders *orders, int pipe, int first, int home[MICROBATCH_LIMIT])
{
    const int copies = orders->replicas ? 1 + below(orders->ranks / orders->pipes) : 1;
    for (int m = 0; m < orders->microbatches[pipe]; m++)
        home[m] = (first + (m && copies > 1 ? below(copies) : 0) * orders->pipes) % orders->ranks;
}

/* A random placement in which every rank has a stage and the copies of a stage are on different ranks. */
static void random_placement(const Orders *orders, Done *done)
{
    int first[STAGES];
    for (int s = 0; s < orders->stages; s++)
        first[s] = s < orders->ranks ? s : below(orders->ranks);
    for (int s = orders->stages - 1; s > 0; s--) {
        const int other = below(s + 1), kept = first[s];
        first[s] = first[other];
        first[other] = kept;
    }
    for (int s = 0; s < orders->stages; s++)
        for (int p = 0; p < orders->pipes; p++)
            place_copies(orders, p, first[s] + p, done->home[p][s]);
}

static void random_orders(Orders *orders, Done *done)
{
    static Cell todo[PIPES * STAGES * MICROBATCHES * 5];
    int left = 0;
    memset(orders, 0, sizeof *orders);
    memset(done, 0, sizeof *done);
    memset(done->home, -1, sizeof done->home);
    orders->ranks = 1 + below(RANKS);
    orders->pipes = 1 + below(orders->ranks < PIPES ? orders->ranks : PIPES);
    orders->stages = orders->ranks + below(STAGES - orders->ranks + 1);
    for (int p = 0; p < orders->pipes; p++)
        orders->microbatches[p] = 1 + below(MICROBATCHES);
    orders->forward_only = below(4) == 0;
    orders->messages = below(2);
    orders->replicas = below(2);
    random_placement(orders, done);
    for (int p = 0; p < orders->pipes; p++)
        for (int s = 0; s < orders->stages; s++)
            for (int m = 0; m < orders->microbatches[p]; m++) {
                const bool split = !orders->forward_only && below(2);
                todo[left++] = (Cell){'F', p, s, m, false};
                if (!orders->forward_only)
                    todo[left++] = (Cell){split ? 'I' : 'B', p, s, m, false};
                if (split)
                    todo[left++] = (Cell){'W', p, s, m, false};
                if (orders->messages && s + 1 < orders->stages && done->home[p][s][m] != done->home[p][s + 1][m])
                    todo[left++] = (Cell){SEND_F, p, s, m, false};
                if (orders->messages && !orders->forward_only && s > 0 &&
                    done->home[p][s][m] != done->home[p][s - 1][m])
                    todo[left++] = (Cell){SEND_B, p, s, m, false};
            }
    while (left) {
        const int pick = below(left);
        const Cell cell = todo[pick];
        if (!ready(orders, done, &cell))
            continue;
        const int rank = home_of(done, &cell);
        orders->cells[rank][orders->counts[rank]++] = cell;
        if (is_message(&cell)) {
            const Cell other = other_end(&cell);
            const int peer = home_of(done, &other);
            orders->cells[peer][orders->counts[peer]++] = other;
        }
        finish(orders, done, &cell);
        todo[pick] = todo[--left];
    }
}

/* Joins some F and the pass after it to an F&B or F&F, where this is legal. */
static void pair_up(Orders *orders)
{
    for (int r = 0; r < orders->ranks; r++)
        for (int i = 0; i + 1 < orders->counts[r]; i++) {
            Cell *cell = &orders->cells[r][i];
            if (cell->kind != 'F' || is_message(&cell[1]) || (i && cell[-1].overlap) || below(2))
                continue;
            cell->overlap = true;
            cell->overlap = is_legal(orders);
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

/* Moves all passes of a microbatch on a stage to a random rank, in their order. */
static void move_microbatch(Orders *orders, Cell of)
{
    const int target = below(orders->ranks);
    for (int r = 0; r < orders->ranks; r++)
        for (int i = 0, place = 0; r != target && i < orders->counts[r]; i++) {
            const Cell cell = orders->cells[r][i];
            if (is_message(&cell) || cell.pipe != of.pipe || cell.stage != of.stage || cell.microbatch != of.microbatch)
                continue;
            place += below(orders->counts[target] + 1 - place);
            insert_cell(orders, target, place++, cell);
            remove_cell(orders, r, i--);
        }
}

/* Removes, repeats, swaps, moves, renumbers or pairs one cell, changes its kind, or moves a whole microbatch. If the
   first half of an F&B moves, its bracket moves along: it then overlaps with whatever comes next, or with nothing. */
static void mutate(Orders *orders)
{
    const int rank = below(orders->ranks);
    const int place = below(orders->counts[rank]);
    Cell *cell = &orders->cells[rank][place];
    const Cell kept = *cell;
    switch (below(8)) {
    case 0: remove_cell(orders, rank, place); break;
    case 1: insert_cell(orders, rank, below(orders->counts[rank] + 1), kept); break;
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
            cell->microbatch = below(orders->microbatches[cell->pipe] + 2);
        else
            cell->kind = is_message(cell) ? "fgbc"[below(4)] : "FBIW"[below(4)];
        break;
    case 5:
        remove_cell(orders, rank, place);
        insert_cell(orders, (rank + 1) % orders->ranks, below(orders->counts[(rank + 1) % orders->ranks] + 1), kept);
        break;
    case 6: move_microbatch(orders, kept); break;
    default:
        if (place + 1 < orders->counts[rank] && (kept.kind == 'F' || cell[1].kind == 'B' || cell[1].kind == 'I'))
            cell->overlap = true;
        break;
    }
}

TEST(random_orders_and_mutations)
{
    uint32_t accepted[2][2][2] = {{{0}}}, rejected[2][2][2] = {{{0}}};
    for (uint32_t round = 0; round < cases(1000); round++) {
        Orders orders, mutant;
        Done done;
        random_state = (uint64_t)round;
        random_orders(&orders, &done);
        assert_true(is_legal(&orders));
        if (below(2))
            pair_up(&orders);
        bool pairs = false;
        for (int r = 0; r < orders.ranks; r++)
            for (int k = 0; k < orders.counts[r]; k++)
                pairs |= orders.cells[r][k].overlap;
        char *text = as_csv(&orders);
        if (!accepts(text))
            fail_msg("rejected:\n%s", text);
        if (!orders.messages)
            check_dps(&orders, &done, text);
        free(text);
        for (int i = 0; i < 10; i++) {
            mutant = orders;
            mutate(&mutant);
            text = as_csv(&mutant);
            const bool expected = is_legal(&mutant);
            if (accepts(text) != expected)
                fail_msg("%s:\n%s", expected ? "rejected, but legal" : "accepted, but illegal", text);
            accepted[orders.messages][orders.replicas][pairs] += expected;
            rejected[orders.messages][orders.replicas][pairs] += !expected;
            free(text);
        }
    }
    for (int kind = 0; kind < 8; kind++) /* each kind of orders has been accepted and rejected */
        assert_true(accepted[kind / 4][kind / 2 % 2][kind % 2] > cases(30) &&
                    rejected[kind / 4][kind / 2 % 2][kind % 2] > cases(300));
}

int main(void) { return test_program("orders", NULL, NULL); }
