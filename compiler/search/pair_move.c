#include "compiler/search/pair_move.h"

#include <string.h>

/* What a change does at an index of the old line: INSERT puts a pass before the pass at this index. */
typedef enum EditKind { REPLACE, REMOVE, INSERT /* before the index */ } EditKind;

typedef struct Edit {
    EditKind kind;
    uint32_t at;
    PairPass pass;
} Edit;

static bool apply(const PairLine *from, const Edit *edits, uint32_t edit_count, PairLine *to)
{
    uint32_t first = UINT32_MAX, last = 0;
    for (uint32_t e = 0; e < edit_count; e++) {
        first = edits[e].at < first ? edits[e].at : first;
        last = edits[e].at > last ? edits[e].at : last;
    }
    memcpy(to->passes, from->passes, first * sizeof *to->passes);
    to->count = first;
    for (uint32_t i = first; i <= last; i++) {
        bool kept = i < from->count;
        for (uint32_t e = 0; e < edit_count; e++) {
            if (edits[e].at != i)
                continue;
            kept = kept && edits[e].kind == INSERT;
            if (edits[e].kind != REMOVE)
                to->passes[to->count++] = edits[e].pass;
        }
        if (kept)
            to->passes[to->count++] = from->passes[i];
    }
    if (last < from->count) {
        memcpy(&to->passes[to->count], &from->passes[last + 1], (from->count - last - 1) * sizeof *to->passes);
        to->count += from->count - last - 1;
    }
    return true;
}

static bool has_forward(const PairPass *pass) { return pass->kind == ACTION_F || pass->kind == ACTION_B; }
static bool has_backward(const PairPass *pass) { return pass->kind == ACTION_I || pass->kind == ACTION_B; }
static bool is_pair(const PairPass *pass) { return pass->kind == ACTION_B; }
static bool is_forward(const PairPass *pass) { return pass->kind == ACTION_F; }
static bool is_input(const PairPass *pass) { return pass->kind == ACTION_I; }

static uint8_t backward_of(const PairPass *pass) { return pass->kind == ACTION_B ? pass->backward : pass->chunk; }

static PairPass with_backward(PairPass pass, uint8_t chunk)
{
    if (pass.kind == ACTION_B)
        pass.backward = chunk;
    else
        pass.chunk = chunk;
    return pass;
}

/* A random distance: usually small, sometimes anything from 1 to `limit`. */
static uint32_t distance(uint64_t *random, uint32_t limit)
{
    uint32_t steps = 1;
    if (!random_of(random, 8))
        return 1 + random_of(random, limit);
    while (steps < limit && random_of(random, 4))
        steps++;
    return steps;
}

/* Searches from index `at` in a random direction for a pass for which `is` holds, but skips a third of such passes at
   random. UINT32_MAX: none was found. */
static uint32_t find_near(const PairLine *line, uint32_t at, bool (*is)(const PairPass *), uint64_t *random)
{
    const uint32_t step = random_of(random, 2) ? 1 : UINT32_MAX;
    for (uint32_t i = at + step; i < line->count; i += step)
        if (is(&line->passes[i]) && random_of(random, 3))
            return i;
    return UINT32_MAX;
}

/* The first pass for which `is` holds, searched cyclically from a random index. UINT32_MAX: there is none. */
static uint32_t find_any(const PairLine *line, bool (*is)(const PairPass *), uint64_t *random)
{
    const uint32_t first = random_of(random, line->count);
    for (uint32_t i = 0; i < line->count; i++)
        if (is(&line->passes[(first + i) % line->count]))
            return (first + i) % line->count;
    return UINT32_MAX;
}

/* Draws a pass for which `is` holds and, near it, one for which `is_other` holds. False: two such passes were not
   found. */
static bool find_two(const PairLine *line, bool (*is)(const PairPass *), bool (*is_other)(const PairPass *),
                     uint64_t *random, uint32_t *i, uint32_t *j)
{
    *i = find_any(line, is, random);
    *j = *i == UINT32_MAX ? *i : find_near(line, *i, is_other, random);
    return *j != UINT32_MAX;
}

static uint32_t find_weight(const PairLine *line, uint32_t after, uint8_t chunk, uint64_t *random)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t i = after + 1; i < line->count; i++)
        if (line->passes[i].kind == ACTION_W && line->passes[i].chunk == chunk) {
            found = i;
            if (random_of(random, 3))
                break;
        }
    return found;
}

static bool shift(const PairLine *from, uint64_t *random, PairLine *to)
{
    const uint32_t i = random_of(random, from->count), steps = distance(random, from->count);
    const bool later = random_of(random, 2);
    if (later ? i + steps >= from->count : steps > i)
        return false;
    const Edit edits[] = {{REMOVE, i, {0, 0, {0}}}, {INSERT, later ? i + steps + 1 : i - steps, from->passes[i]}};
    return apply(from, edits, 2, to);
}

/* Replaces an F and a near I, in either order, and a later W of the I's chunk by one F&B, in the place of the F or of
   the I. */
static bool join(const PairLine *from, uint64_t *random, PairLine *to)
{
    uint32_t i, j;
    if (!find_two(from, is_forward, is_input, random, &i, &j))
        return false;
    const uint8_t chunk = from->passes[j].chunk;
    const uint32_t w = find_weight(from, j, chunk, random);
    const bool at_forward = random_of(random, 2);
    if (w == UINT32_MAX)
        return false;
    const PairPass pair = {ACTION_B, from->passes[i].chunk, {chunk}};
    const Edit edits[] = {{REPLACE, at_forward ? i : j, pair}, {REMOVE, at_forward ? j : i, pair}, {REMOVE, w, pair}};
    return apply(from, edits, 3, to);
}

/* Splits an F&B into an F, an I and a W. The W comes directly after them or later. */
static bool split(const PairLine *from, uint64_t *random, PairLine *to)
{
    const uint32_t i = find_any(from, is_pair, random);
    if (i == UINT32_MAX)
        return false;
    const PairPass forward = {ACTION_F, from->passes[i].chunk, {0}}, input = {ACTION_I, from->passes[i].backward, {0}};
    const bool forward_first = random_of(random, 2);
    const uint32_t steps = distance(random, from->count - i), later = steps < from->count - i ? steps : from->count - i;
    const Edit edits[] = {{REPLACE, i, forward_first ? forward : input},
                          {INSERT, i + 1, forward_first ? input : forward},
                          {INSERT, i + later, {ACTION_W, input.chunk, {0}}}};
    return apply(from, edits, 3, to);
}

static bool swap_forwards(const PairLine *from, uint64_t *random, PairLine *to)
{
    uint32_t i, j;
    if (!find_two(from, has_forward, has_forward, random, &i, &j) || from->passes[i].chunk == from->passes[j].chunk)
        return false;
    Edit edits[] = {{REPLACE, i, from->passes[i]}, {REPLACE, j, from->passes[j]}};
    edits[0].pass.chunk = from->passes[j].chunk;
    edits[1].pass.chunk = from->passes[i].chunk;
    return apply(from, edits, 2, to);
}

static bool swap_backwards(const PairLine *from, uint64_t *random, PairLine *to)
{
    uint32_t i, j;
    if (!find_two(from, has_backward, has_backward, random, &i, &j))
        return false;
    const uint8_t first = backward_of(&from->passes[i]), second = backward_of(&from->passes[j]);
    if (first == second)
        return false;
    Edit edits[3] = {{REPLACE, i, with_backward(from->passes[i], second)},
                     {REPLACE, j, with_backward(from->passes[j], first)}};
    if (from->passes[i].kind == from->passes[j].kind)
        return apply(from, edits, 2, to);
    /* if only one of the two passes is an I, it gets another chunk, so a W after both must get that chunk too */
    const bool input_first = is_input(&from->passes[i]);
    const uint32_t w = find_weight(from, i > j ? i : j, input_first ? first : second, random);
    if (w == UINT32_MAX)
        return false;
    edits[2] = (Edit){REPLACE, w, {ACTION_W, input_first ? second : first, {0}}};
    return apply(from, edits, 3, to);
}

/* Moves the F of an F&B to another I: the F&B becomes an I, and the other I becomes an F&B. The new F&B includes a W,
   so a later W of its chunk is replaced by the W of the new I. */
static bool give_forward(const PairLine *from, uint64_t *random, PairLine *to)
{
    uint32_t i, j;
    if (!find_two(from, is_pair, is_input, random, &i, &j))
        return false;
    const PairPass pair = from->passes[i];
    const uint8_t chunk = from->passes[j].chunk;
    const uint32_t w = find_weight(from, i > j ? i : j, chunk, random);
    if (w == UINT32_MAX)
        return false;
    const Edit edits[] = {{REPLACE, i, {ACTION_I, pair.backward, {0}}},
                          {REPLACE, j, {ACTION_B, pair.chunk, {chunk}}},
                          {REPLACE, w, {ACTION_W, pair.backward, {0}}}};
    return apply(from, edits, 3, to);
}

/* Moves the B of an F&B to another F: the F&B becomes an F, and the other F becomes an F&B. */
static bool give_backward(const PairLine *from, uint64_t *random, PairLine *to)
{
    uint32_t i, j;
    if (!find_two(from, is_pair, is_forward, random, &i, &j))
        return false;
    const PairPass pair = from->passes[i];
    const Edit edits[] = {{REPLACE, i, {ACTION_F, pair.chunk, {0}}},
                          {REPLACE, j, {ACTION_B, from->passes[j].chunk, {pair.backward}}}};
    return apply(from, edits, 2, to);
}

/* Flips the mark `full` of an I: the I and the W after it become one B, or a B becomes an I and a W. */
static bool join_weight(const PairLine *from, uint64_t *random, PairLine *to)
{
    const uint32_t i = find_any(from, is_input, random);
    if (i == UINT32_MAX)
        return false;
    Edit edit = {REPLACE, i, from->passes[i]};
    edit.pass.full = !edit.pass.full;
    return apply(from, &edit, 1, to);
}

bool pair_move(const PairLine *from, bool full, uint64_t *random, PairLine *to)
{
    if (from->count < 2)
        return false;
    static bool (*const moves[])(const PairLine *, uint64_t *, PairLine *) = {
        shift,         shift,          shift,        shift,         join,       join, split,
        swap_forwards, swap_backwards, give_forward, give_backward, join_weight /* the last one: only with `full` */};
    const uint32_t count = sizeof moves / sizeof *moves;
    return moves[random_of(random, full ? count : count - 1)](from, random, to);
}
