#include "compiler/schedule/slot_squeeze.h"

#include "program/program.h"

enum { NOTHING = UINT32_MAX };

/* The time slots of a rank. F and I are in slots. A W is in none until write_order puts it into a free one. */
typedef struct Row {
    const Order *order;
    uint32_t *at;   /* [slots]: position, in the order, of the F or I in this slot; NOTHING: the slot is free */
    uint32_t *slot; /* [position] */
    /* [slots]: at the end of the slot, the number of activations that the rank holds, and the number of W that wait. In
       a free slot, a waiting W runs if there is one */
    uint32_t *held, *waiting;
    /* [chunk][0: F, 1: I]: the first slot that the chunk's next F or I can take, which is after its previous one */
    uint32_t next[PROGRAM_CHUNKS_MAX][2];
} Row;

typedef struct Squeeze {
    const Schedule *schedule;
    const PassTable *table;
    Row *rows;
    uint32_t slots, limit;
} Squeeze;

static bool is_forward(const Row *row, uint32_t position) { return row->order->actions[position].kind == ACTION_F; }

static void open_rows(Squeeze *s, const Timeline *times, Arena *arena)
{
    s->slots = (uint32_t)times->makespan;
    s->rows = arena_array(arena, s->schedule->ranks, sizeof *s->rows);
    for (uint32_t r = 0; r < s->schedule->ranks; r++) {
        const Order *order = &s->schedule->orders[r];
        Row *row = &s->rows[r];
        *row = (Row){.order = order,
                     .at = arena_array(arena, s->slots, sizeof *row->at),
                     .slot = arena_array(arena, order->count, sizeof *row->slot),
                     .held = arena_array(arena, s->slots, sizeof *row->held),
                     .waiting = arena_array(arena, s->slots, sizeof *row->waiting)};
        for (uint32_t t = 0; t < s->slots; t++)
            row->at[t] = NOTHING;
        for (uint32_t i = 0; i < order->count; i++) {
            row->slot[i] = (uint32_t)times->start[r][i];
            if (order->actions[i].kind != ACTION_W)
                row->at[row->slot[i]] = i;
        }
    }
}

/* Advances `held` (number of activations of the rank) and `waiting` (number of W that wait) from the start of a slot to
   its end. */
static void pass_slot(const Row *row, uint32_t slot, uint32_t *held, uint32_t *waiting)
{
    if (row->at[slot] == NOTHING) {
        *held -= *waiting > 0;
        *waiting -= *waiting > 0;
    } else if (is_forward(row, row->at[slot])) {
        ++*held;
    } else {
        ++*waiting;
    }
}

/* Counts the activations and waiting W of each slot again after a pass has moved from slot `last` to slot `first`. From
   `last` on, it stops at the first slot whose counts are unchanged. keep: stores them in row->held and row->waiting.
   False: the rank would hold more than s->limit activations. */
static bool fill(const Squeeze *s, Row *row, uint32_t first, uint32_t last, bool keep)
{
    uint32_t held = first ? row->held[first - 1] : 0, waiting = first ? row->waiting[first - 1] : 0;
    for (uint32_t slot = first; slot < s->slots; slot++) {
        pass_slot(row, slot, &held, &waiting);
        if (held > s->limit)
            return false;
        if (slot >= last && held == row->held[slot] && waiting == row->waiting[slot])
            break;
        if (keep) {
            row->held[slot] = held;
            row->waiting[slot] = waiting;
        }
    }
    return true;
}

static void measure(Squeeze *s)
{
    s->limit = UINT32_MAX;
    for (uint32_t r = 0; r < s->schedule->ranks; r++)
        fill(s, &s->rows[r], 0, s->slots, true);
    s->limit = 0;
    for (uint32_t r = 0; r < s->schedule->ranks; r++)
        for (uint32_t slot = 0; slot < s->slots; slot++)
            s->limit = s->rows[r].held[slot] > s->limit ? s->rows[r].held[slot] : s->limit;
}

/* The first slot in which the pass may run: its inputs have arrived, and the previous pass of its kind and chunk has
   run. These passes have already moved, because they ran earlier in the old order. */
static uint32_t earliest(const Squeeze *s, const Row *row, uint32_t position)
{
    const Action *pass = &row->order->actions[position];
    uint32_t slot = row->next[pass->chunk][pass->kind == ACTION_I];
    Dependence needed;
    if (pass->kind == ACTION_I) {
        const PlacedPipe *pipe = &s->schedule->pipes[pass->pipe];
        const uint32_t forward =
            row->slot[s->table->forward[pass->pipe][pass_index(pipe, pass->stage, pass->microbatch)]];
        slot = forward + 1 > slot ? forward + 1 : slot;
    }
    if (pass_dependence(s->schedule, s->table, pass, &needed)) {
        const uint32_t there = s->rows[needed.rank].slot[needed.position];
        slot = there + 1 > slot ? there + 1 : slot;
    }
    return slot;
}

static void move(const Squeeze *s, Row *row, uint32_t from)
{
    const uint32_t position = row->at[from];
    const Action *pass = &row->order->actions[position];
    row->at[from] = NOTHING;
    for (uint32_t to = earliest(s, row, position); to < from; to++) {
        if (row->at[to] != NOTHING)
            continue;
        row->at[to] = position;
        if (fill(s, row, to, from, false)) {
            fill(s, row, to, from, true);
            row->slot[position] = to;
            break;
        }
        row->at[to] = NOTHING;
    }
    row->at[row->slot[position]] = position;
    row->next[pass->chunk][pass->kind == ACTION_I] = row->slot[position] + 1;
}

/* Writes the passes of a rank in the order of their slots. The W that wait, oldest first, take the free slots; those
   that are left come last. */
static void write_order(const Squeeze *s, const Row *row, Order *order, Arena *arena)
{
    Action *actions = arena_array(arena, order->count, sizeof *actions);
    uint32_t *weights = arena_array(arena, order->count, sizeof *weights), waiting = 0, next = 0, count = 0;
    for (uint32_t slot = 0; slot < s->slots; slot++)
        if (row->at[slot] != NOTHING) {
            const Action *pass = &order->actions[row->at[slot]];
            const PlacedPipe *pipe = &s->schedule->pipes[pass->pipe];
            actions[count++] = *pass;
            if (pass->kind == ACTION_I)
                weights[waiting++] = s->table->weight[pass->pipe][pass_index(pipe, pass->stage, pass->microbatch)];
        } else if (next < waiting) {
            actions[count++] = order->actions[weights[next++]];
        }
    while (next < waiting)
        actions[count++] = order->actions[weights[next++]];
    order->actions = actions;
    order->capacity = order->count;
}

bool squeeze_has_room(const Schedule *schedule, const Timeline *times)
{
    return times->makespan * schedule->ranks <= SQUEEZE_SLOTS_MAX;
}

bool squeeze_orders(Schedule *schedule, PassTable *table, Timeline *times, Arena *arena)
{
    Squeeze s = {.schedule = schedule, .table = table};
    open_rows(&s, times, arena);
    measure(&s);
    for (uint32_t slot = 0; slot < s.slots; slot++)
        for (uint32_t r = 0; r < schedule->ranks; r++)
            if (s.rows[r].at[slot] != NOTHING && s.rows[r].slot[s.rows[r].at[slot]] == slot)
                move(&s, &s.rows[r], slot);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        write_order(&s, &s.rows[r], &schedule->orders[r], arena);
    passes_index(schedule, table);
    return timeline_run(schedule, table, &costs_unit, arena, times);
}
