/* The verdicts of compiler/prove/channels.h against a naive simulation of the same models, on random orders whose
   messages are right, swapped, late or early. On small orders, all interleavings are tried. */

#include "compiler/order/csv.h"
#include "compiler/prove/channels.h"
#include "compiler/prove/prove.h"
#include "tests/sanitized.h"
#include "tests/test.h"

enum { RANKS = 4, STAGES = 6, MICROBATCHES = 4, CELLS = 200, QUEUES = 1 + 4 * RANKS };

/* kind: F or B, or a message: f and b are sent, g and c received. `stage` is that of the pass on this rank. */
typedef struct Cell {
    char kind;
    int stage, microbatch;
    bool overlap; /* an F&B with the cell after it */
} Cell;

typedef struct Orders {
    int ranks, stages, microbatches, home[STAGES], counts[RANKS];
    Cell cells[RANKS][CELLS];
} Orders;

static uint64_t random_state;

static int below(int limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)limit);
}

static bool is_message(const Cell *cell) { return strchr("fgbc", cell->kind) != NULL; }
static bool sends(const Cell *cell) { return strchr("fb", cell->kind) != NULL; }
static int other_stage(const Cell *cell) { return cell->stage + (strchr("fc", cell->kind) ? 1 : -1); }
static int peer_of(const Orders *orders, const Cell *cell) { return orders->home[other_stage(cell)]; }

static Cell other_end(const Cell *cell)
{
    const char kind = cell->kind == 'f' ? 'g' : cell->kind == 'g' ? 'f' : cell->kind == 'b' ? 'c' : 'b';
    return (Cell){kind, other_stage(cell), cell->microbatch, false};
}

static bool same(const Cell *a, const Cell *b)
{
    return a->kind == b->kind && a->stage == b->stage && a->microbatch == b->microbatch;
}

static int position_of(const Orders *orders, int rank, Cell cell)
{
    int i = 0;
    while (i < orders->counts[rank] && !same(&orders->cells[rank][i], &cell))
        i++;
    return i;
}

/* --- random orders --- */

static bool crosses(const Orders *orders, int stage)
{
    return stage >= 0 && stage + 1 < orders->stages && orders->home[stage] != orders->home[stage + 1];
}

static void append(Orders *orders, int rank, Cell cell) { orders->cells[rank][orders->counts[rank]++] = cell; }

/* One sequence of events, in which each message is one event of its two ranks: no rank can wait forever. */
static void random_orders(Orders *orders, int ranks, int stages, int microbatches)
{
    bool forward[STAGES + 1][MICROBATCHES] = {{false}}, backward[STAGES + 1][MICROBATCHES] = {{false}};
    bool arrived[2][STAGES][MICROBATCHES] = {{{false}}};
    *orders = (Orders){.ranks = ranks, .stages = stages, .microbatches = microbatches};
    for (int s = 0; s < stages; s++)
        orders->home[s] = s < ranks ? s : below(ranks);
    for (int left = 2 * stages * microbatches; left;) {
        const int s = below(stages), m = below(microbatches), r = orders->home[s];
        const bool back = below(2);
        const Cell pass = {back ? 'B' : 'F', s, m, false}, send = {back ? 'b' : 'f', s, m, false};
        bool *const done = back ? backward[s] : forward[s];
        const bool *const input = back ? backward[s + 1] : s > 0 ? forward[s - 1] : NULL;
        const bool crossed = back ? crosses(orders, s) : crosses(orders, s - 1);
        if (done[m] && crosses(orders, back ? s - 1 : s) && !arrived[back][s][m]) {
            const Cell end = other_end(&send);
            append(orders, r, send);
            append(orders, peer_of(orders, &send), end);
            arrived[back][s][m] = true;
        }
        if (done[m] || (back && !forward[s][m]) || (input && (back ? s + 1 < stages : true) && !input[m]) ||
            (crossed && !arrived[back][back ? s + 1 : s - 1][m]))
            continue;
        append(orders, r, pass);
        done[m] = true;
        left--;
    }
    for (int s = 0; s < stages; s++) /* messages that the passes above did not need to send */
        for (int m = 0; m < microbatches; m++)
            for (int back = 0; back < 2; back++) {
                const Cell send = {back ? 'b' : 'f', s, m, false};
                if (!crosses(orders, back ? s - 1 : s) || arrived[back][s][m])
                    continue;
                append(orders, orders->home[s], send);
                append(orders, peer_of(orders, &send), other_end(&send));
            }
}

/* Moves a SEND later or a RECV earlier, or exchanges two messages; only where a SEND stays after its pass and a RECV
   before its pass. */
static void disturb(Orders *orders)
{
    const int rank = below(orders->ranks), count = orders->counts[rank], from = below(count), to = below(count);
    const Orders kept = *orders;
    Cell *cells = orders->cells[rank], moved = cells[from];
    if (!is_message(&moved))
        return;
    if (below(2) && is_message(&cells[to])) {
        cells[from] = cells[to];
        cells[to] = moved;
    } else {
        memmove(&cells[from], &cells[from + 1], (size_t)(count - 1 - from) * sizeof *cells);
        memmove(&cells[to + 1], &cells[to], (size_t)(count - 1 - to) * sizeof *cells);
        cells[to] = moved;
    }
    for (int i = 0; i < count; i++) {
        const Cell pass = {strchr("fg", cells[i].kind) ? 'F' : 'B', cells[i].stage, cells[i].microbatch, false};
        if (is_message(&cells[i]) && sends(&cells[i]) != (position_of(orders, rank, pass) < i))
            *orders = kept;
    }
}

/* Makes an F&B of an F and the B after it, which are of different microbatches. Which ones is random. False: none. */
static bool pair_up(Orders *orders)
{
    Cell *cell = &orders->cells[below(orders->ranks)][0];
    for (; cell[1].kind; cell++)
        if (cell->kind == 'F' && cell[1].kind == 'B' && cell->microbatch != cell[1].microbatch && below(2))
            return cell->overlap = true;
    return false;
}

/* --- the naive simulation --- */

typedef struct State {
    int next[RANKS][QUEUES]; /* how many actions of each queue have run */
    bool sent_wrong;
} State;

/* The queue of an action; 0: that of the passes. */
static int queue_of(const Orders *orders, Channels model, const Cell *cell)
{
    if (!is_message(cell) || model == CHANNELS_RENDEZVOUS)
        return 0;
    const int peer = 4 * peer_of(orders, cell);
    return model == CHANNELS_RANK   ? 1
           : model == CHANNELS_PAIR ? 1 + peer
                                    : 1 + peer + 2 * sends(cell) + (model == CHANNELS_KIND && strchr("bc", cell->kind));
}

/* The position of the first action of the queue that has not run; -1: all have. */
static int head(const Orders *orders, Channels model, const State *state, int rank, int queue)
{
    int skipped = state->next[rank][queue];
    for (int i = 0; i < orders->counts[rank]; i++)
        if (queue_of(orders, model, &orders->cells[rank][i]) == queue && skipped-- == 0)
            return i;
    return -1;
}

/* Whether the action at a position has run. */
static bool has_run(const Orders *orders, Channels model, const State *state, int rank, int position)
{
    const int queue = queue_of(orders, model, &orders->cells[rank][position]);
    const int first = head(orders, model, state, rank, queue);
    return first < 0 || first > position;
}

static bool passes_before(const Orders *orders, Channels model, const State *state, int rank, int position)
{
    for (int i = 0; i < position; i++)
        if (!is_message(&orders->cells[rank][i]) && !has_run(orders, model, state, rank, i))
            return false;
    return true;
}

/* Runs what is first in a queue of a rank: a pass whose messages have come, or a send with whatever the receiver
   receives from this rank next. */
static bool act(const Orders *orders, Channels model, State *state, int rank, int queue)
{
    const int position = head(orders, model, state, rank, queue);
    if (position < 0)
        return false;
    const Cell *cell = &orders->cells[rank][position];
    if (!is_message(cell)) {
        for (const Cell *half = cell; half <= cell + cell->overlap; half++) {
            const Cell receive = {half->kind == 'F' ? 'g' : 'c', half->stage, half->microbatch, false};
            const int at = position_of(orders, rank, receive);
            if (at < orders->counts[rank] && !has_run(orders, model, state, rank, at))
                return false;
        }
        state->next[rank][queue]++;
        return true;
    }
    if (!sends(cell) || !passes_before(orders, model, state, rank, position))
        return false;
    const int peer = peer_of(orders, cell);
    for (int q = 0; q < QUEUES; q++) {
        const int there = head(orders, model, state, peer, q);
        const Cell *receive = there < 0 ? NULL : &orders->cells[peer][there];
        if (!receive || !is_message(receive) || sends(receive) || peer_of(orders, receive) != rank ||
            (model == CHANNELS_KIND && (receive->kind == 'g') != (cell->kind == 'f')))
            continue;
        const Cell expected = other_end(cell);
        state->sent_wrong |= !same(receive, &expected);
        state->next[rank][queue]++;
        state->next[peer][q]++;
        return true;
    }
    return false;
}

static bool has_ended(const Orders *orders, const State *state)
{
    int left = 0;
    for (int r = 0; r < orders->ranks; r++) {
        left += orders->counts[r];
        for (int q = 0; q < QUEUES; q++)
            left -= state->next[r][q];
    }
    return left == 0;
}

/* Whether the receives of a channel come in the order of its sends. */
static bool swaps(const Orders *orders, Channels model)
{
    for (int a = 0; a < orders->ranks; a++)
        for (int b = 0; b < orders->ranks; b++)
            for (int kinds = 0; kinds < (model == CHANNELS_KIND ? 2 : 1); kinds++)
                for (int i = 0, k = 0; i < orders->counts[a]; i++) {
                    const Cell *sent = &orders->cells[a][i];
                    const char *const of = model != CHANNELS_KIND ? "fgbc" : kinds ? "bc" : "fg";
                    if (!is_message(sent) || !sends(sent) || peer_of(orders, sent) != b || !strchr(of, sent->kind))
                        continue;
                    for (;; k++) {
                        const Cell *received = &orders->cells[b][k];
                        if (is_message(received) && !sends(received) && peer_of(orders, received) == a &&
                            strchr(of, received->kind))
                            break;
                    }
                    const Cell expected = other_end(sent);
                    if (!same(&orders->cells[b][k++], &expected))
                        return true;
                }
    return false;
}

static Safety simulate(const Orders *orders, Channels model, State *state)
{
    *state = (State){.sent_wrong = false};
    if (swaps(orders, model))
        return SWAPS;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < orders->ranks * QUEUES; i++)
            moved |= act(orders, model, state, i % orders->ranks, i / orders->ranks);
    }
    assert_false(state->sent_wrong);
    return has_ended(orders, state) ? SAFE : DEADLOCKS;
}

/* Tries all interleavings. Counts the ends that are complete and those that are not; false: too many states. */
typedef struct Search {
    State seen[2000];
    int count, ends[2];
} Search;

static bool search(const Orders *orders, Channels model, const State *state, Search *found)
{
    bool moved = false;
    for (int i = 0; i < found->count; i++)
        if (!memcmp(found->seen[i].next, state->next, sizeof state->next))
            return true;
    if (found->count == 2000)
        return false;
    found->seen[found->count++] = *state;
    for (int r = 0; r < orders->ranks; r++)
        for (int q = 0; q < QUEUES; q++) {
            State after = *state;
            if (!act(orders, model, &after, r, q))
                continue;
            moved = true;
            if (!search(orders, model, &after, found))
                return false;
        }
    if (!moved)
        found->ends[has_ended(orders, state)]++;
    return true;
}

/* --- dpc's verdicts --- */

static char *as_csv(const Orders *orders)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    for (int r = 0; r < orders->ranks; r++)
        for (int i = 0; i < orders->counts[r]; i++) {
            const Cell *cell = &orders->cells[r][i];
            const char *const name = cell->kind == 'f'   ? "SEND_F"
                                     : cell->kind == 'g' ? "RECV_F"
                                     : cell->kind == 'b' ? "SEND_B"
                                     : cell->kind == 'c' ? "RECV_B"
                                     : cell->kind == 'F' ? "F"
                                                         : "B";
            const bool second = i && cell[-1].overlap;
            fprintf(out, "%s%d%s%d%s", cell->overlap ? "(" : "", cell->stage, name, cell->microbatch,
                    cell->overlap               ? ";"
                    : i + 1 < orders->counts[r] ? (second ? ")OVERLAP_F_B," : ",")
                                                : (second ? ")OVERLAP_F_B\n" : "\n"));
        }
    fclose(out);
    return text;
}

/* Each rank of the cycle waits at an action that the simulation has not run, for a later one of the next rank. */
static void check_cycle(const Orders *orders, Channels model, const State *state, const Deadlock *deadlock,
                        const char *text)
{
    assert_true(deadlock->cycle > 0);
    for (uint32_t i = 0; i < deadlock->cycle; i++) {
        const Wait *wait = &deadlock->waits[i], *then = &deadlock->waits[(i + 1) % deadlock->cycle];
        const int rank = (int)wait->rank, at = (int)wait->at;
        if (wait->on != then->rank || wait->until < then->at ||
            head(orders, model, state, rank, queue_of(orders, model, &orders->cells[rank][at])) != at ||
            has_run(orders, model, state, (int)wait->on, (int)wait->until))
            fail_msg("wait %u of the cycle under %s is wrong:\n%s", i, channel_names[model], text);
    }
}

/* paired: the orders have an F&B, with which the passes of the ranks may wait for each other. */
static void check_orders(const Orders *orders, bool paired, bool all_interleavings, int seen[CHANNEL_MODELS][3])
{
    Arena arena = {0};
    PassTable table;
    Timeline times;
    Schedule schedule;
    ChannelVerdict verdicts[CHANNEL_MODELS];
    char *const text = as_csv(orders);
    Source source = {.path = "order.csv", .text = text, .size = strlen(text)};
    source_lines(&source, &arena);
    Diagnostics *diagnostics = diag_new(&arena, &source);
    bool good =
        csv_read(&source, &arena, diagnostics, &schedule) && prove_passes(&schedule, &arena, diagnostics, &table);
    if (good)
        copies_find(&schedule, &table, &arena);
    if (good && paired && !prove_order(&schedule, &table, &arena, diagnostics, &times)) {
        free(text);
        arena_free(&arena);
        return;
    }
    if (!good || !prove_messages(&schedule, &table, &arena, diagnostics))
        fail_msg("refused:\n%s%s", text, diag_text(diagnostics, &arena));
    const Channels weakest = channels_judge_all(&schedule, &table, &arena, verdicts);
    for (Channels model = 0; model < CHANNEL_MODELS; model++) {
        State state;
        const Safety expected = simulate(orders, model, &state);
        if (verdicts[model].safety != expected || (expected == SAFE) != (model >= weakest))
            fail_msg("%s under %s, but %s:\n%s", safety_names[verdicts[model].safety], channel_names[model],
                     safety_names[expected], text);
        if (channels_judge(&schedule, &table, model, &arena).safety != expected)
            fail_msg("not %s if only %s is asked:\n%s", safety_names[expected], channel_names[model], text);
        seen[model][expected]++;
        if (expected == DEADLOCKS)
            check_cycle(orders, model, &state, &verdicts[model].deadlock, text);
        Search *const all = all_interleavings ? calloc(1, sizeof *all) : NULL;
        const State start = {.sent_wrong = false};
        if (all && expected != SWAPS && search(orders, model, &start, all) &&
            (all->ends[expected != SAFE] || !all->ends[expected == SAFE]))
            fail_msg("another interleaving under %s ends otherwise:\n%s", channel_names[model], text);
        free(all);
    }
    free(text);
    arena_free(&arena);
}

static void check_random(int rounds, int ranks, int stages, int microbatches, bool all)
{
    int seen[CHANNEL_MODELS][3] = {{0}};
    for (int round = 0; round < rounds; round++) {
        Orders orders;
        random_state = (uint64_t)round;
        const int used = 2 + below(ranks - 1);
        random_orders(&orders, used, used + below(stages - used + 1), 1 + below(microbatches));
        for (int moves = below(8); moves > 0; moves--)
            disturb(&orders);
        check_orders(&orders, below(2) && pair_up(&orders), all, seen);
    }
    for (Channels model = 0; model < CHANNEL_MODELS; model++)
        for (int safety = 0; safety < 3; safety++)
            if (seen[model][safety] < rounds / 100)
                fail_msg("only %d of the orders %s under %s", seen[model][safety], safety_names[safety],
                         channel_names[model]);
}

TEST(verdicts_are_those_of_a_simulation) { check_random((int)cases(2000), RANKS, STAGES, MICROBATCHES, false); }

TEST(verdicts_hold_for_all_interleavings) { check_random(150, 3, 4, 2, true); }

int main(void) { return test_program("channels", NULL, NULL); }
