#include "compiler/search/pair_seed.h"

/* Writes the passes of a rank, one after another. The rules are written for a least number of microbatches. If a pipe
   has fewer, the passes of the missing ones are left out. */
typedef struct Writer {
    /* the chunks of the rank in the order of their stages */
    const SearchNode *nodes[UINT8_MAX + 1];
    uint8_t chunks[UINT8_MAX + 1];
    PairLine *line;
    uint32_t forwards[UINT8_MAX + 1], backwards[UINT8_MAX + 1];
    /* a queue of the I whose W are not written yet, in order. exists: whether the microbatch of the I exists; weights:
       the index of its chunk in `nodes`; first: the I whose W comes next; count: number of I so far */
    bool *exists;
    uint8_t *weights;
    uint32_t first, count;
} Writer;

static bool next_exists(const Writer *w, uint32_t *done, int which)
{
    return done[which]++ < w->nodes[which]->microbatches;
}

static void put(Writer *w, uint8_t kind, int which)
{
    w->line->passes[w->line->count++] = (PairPass){kind, w->chunks[which], {0}};
}

static void put_forward(Writer *w, int which)
{
    if (next_exists(w, w->forwards, which))
        put(w, ACTION_F, which);
}

static void put_input(Writer *w, int which)
{
    w->exists[w->count] = next_exists(w, w->backwards, which);
    w->weights[w->count] = (uint8_t)which;
    if (w->exists[w->count++])
        put(w, ACTION_I, which);
}

/* Writes the oldest deferred W. */
static void put_weight(Writer *w)
{
    if (w->first == w->count)
        return;
    if (w->exists[w->first])
        put(w, ACTION_W, w->weights[w->first]);
    w->first++;
}

/* Writes a B alone, or an I and a W if these take no longer. */
static void put_full(Writer *w, int which)
{
    put(w, ACTION_I, which);
    w->line->passes[w->line->count - 1].full = search_full_is_shorter(w->nodes[which]);
    put(w, ACTION_W, which);
}

static void put_backward(Writer *w, int which)
{
    if (next_exists(w, w->backwards, which))
        put_full(w, which);
}

static void put_pair(Writer *w, int forward, int backward)
{
    const bool has_forward = next_exists(w, w->forwards, forward);
    const bool has_backward = next_exists(w, w->backwards, backward);
    if (has_forward && has_backward)
        w->line->passes[w->line->count++] = (PairPass){ACTION_B, w->chunks[forward], {w->chunks[backward]}};
    else if (has_forward)
        put(w, ACTION_F, forward);
    else if (has_backward)
        put_full(w, backward);
}

/* A variant of DualPipe's order: how its last phase runs, and the first B of the rank with the two middle stages. */
typedef struct End {
    /* the rank with the two middle stages runs its first B together with an F as an F&B; false: the F, then the B */
    bool first;
    /* DualPipe's own last phase, or that of ebb-v (schedules/ebb-v.dps); `keep` and `lag` have no effect */
    bool original, ebb;
    uint32_t keep; /* 0..4: how many quarters of the F&Bs of the last phase remain F&Bs */
    /* how long the last phase puts W off, in quarters of h: its first W comes after about 2 * (lag * h / 4) I, but at
       the latest when the I of both chunks have run in turns (write_end); h is the depth of the rank (write_start) */
    uint32_t lag;
} End;

/* Writes the passes before DualPipe's last phase. h is the depth of the rank: depth 0 has the first and the last stage,
   depth `depths` - 1 the two middle stages. n: microbatches per chunk, at least 2 * depths. */
static void write_start(Writer *w, uint32_t depths, uint32_t h, uint32_t n, bool first)
{
    for (uint32_t i = 0; i < 2 * (depths - h - 1); i++)
        put_forward(w, 0);
    for (uint32_t i = 0; i <= h; i++) {
        put_forward(w, 0);
        put_forward(w, 1);
    }
    for (uint32_t i = 0; i + h + 1 < depths; i++) {
        put_input(w, 1);
        put_weight(w);
        put_forward(w, 1);
    }
    for (uint32_t i = 0; i < n - 2 * depths + h + 1; i++) {
        if (i == 0 && h == depths - 1 && !first) {
            put_forward(w, 0);
            put_backward(w, 1);
        } else {
            put_pair(w, 0, 1);
        }
        put_pair(w, 1, 0);
    }
}

static void write_original_end(Writer *w, uint32_t depths, uint32_t h)
{
    const uint32_t split = 2 * ((h + 1) / 2) + (h + 1) % 2;
    for (uint32_t i = 0; i + h + 1 < depths; i++) {
        put_backward(w, 1);
        put_pair(w, 1, 0);
    }
    for (uint32_t i = 0; i < 2 * (h + 1); i++) {
        if (i < split)
            put_backward(w, !(i % 2));
        else
            put_input(w, !(i % 2));
    }
    for (uint32_t i = 0; i + h + 1 < depths; i++) {
        put_weight(w);
        put_input(w, 0);
    }
}

/* Writes a variant of the last phase: some of the last F are not in F&Bs and W are deferred longer, so that I and F
   reach the next rank sooner. */
static void write_end(Writer *w, uint32_t depths, uint32_t h, const End *end)
{
    const uint32_t kept = (depths - 1 - h) * end->keep / 4, apart = depths - 1 - h - kept;
    const uint32_t waits = 2 * (end->lag * h / 4);
    for (uint32_t i = 0; i < kept; i++) {
        put_backward(w, 1);
        put_pair(w, 1, 0);
    }
    for (uint32_t i = 0; i < apart; i++) {
        put_input(w, 1);
        if (i % 2 == 0 && i >= waits)
            put_weight(w);
        put_forward(w, 1);
    }
    for (uint32_t i = 0; i < h + 1; i++) {
        const uint32_t inputs = apart + 2 * i;
        put_input(w, 1);
        if (inputs % 2 == 0 && inputs >= waits)
            put_weight(w);
        put_input(w, 0);
        if (inputs % 2 == 1 && inputs + 1 >= waits)
            put_weight(w);
    }
    for (uint32_t i = 0; i < 2 * (depths - h - 1) - kept; i++) {
        put_input(w, 0);
        put_weight(w);
    }
}

/* Whether one of `count` slots, the first of them `first` and each two later than the one before, is `slot`. */
static bool is_slot(uint32_t slot, uint32_t first, uint32_t count)
{
    return slot >= first && (slot - first) % 2 == 0 && (slot - first) / 2 < count;
}

/* Writes ebb-v's last phase: half of the F&Bs, then the other passes in the order of their slots. */
static void write_ebb(Writer *w, uint32_t depths, uint32_t h)
{
    const uint32_t above = depths - 1 - h, kept = above / 2, inputs = depths + above - kept, end = 7 * depths;
    for (uint32_t i = 0; i < kept; i++) {
        put_backward(w, 1);
        put_pair(w, 1, 0);
    }
    for (uint32_t slot = 0; slot < end; slot++) {
        if (is_slot(slot, 2, above - kept))
            put_forward(w, 1);
        if (is_slot(slot, 0, depths - kept)) {
            put_input(w, 1);
            put_weight(w);
        }
        if (is_slot(slot, above + 1 + 3 * h, inputs))
            put_weight(w);
        if (is_slot(slot, above, inputs))
            put_input(w, 0);
    }
}

static bool is_nested(const SearchProblem *base, uint32_t rank)
{
    const SearchNode *nodes = base->nodes + base->ranks[rank].first_node;
    return base->ranks[rank].node_count == 2 && nodes[0].stage + nodes[1].stage == base->stages - 1 &&
           nodes[0].stage != nodes[1].stage && nodes[0].microbatches == nodes[1].microbatches;
}

static void write_rank(const SearchProblem *base, uint32_t rank, const End *end, PairLine *line, Arena *scratch)
{
    const SearchNode *nodes = base->nodes + base->ranks[rank].first_node;
    const int later = nodes[1].stage > nodes[0].stage;
    const uint32_t depths = base->stages / 2, h = nodes[!later].stage, microbatches = nodes[0].microbatches;
    const uint32_t n = microbatches > 2 * depths ? microbatches : 2 * depths;
    Writer w = {.nodes = {&nodes[!later], &nodes[later]}, .chunks = {(uint8_t)!later, (uint8_t)later}, .line = line};
    w.exists = arena_array(scratch, 2 * (size_t)n, sizeof *w.exists);
    w.weights = arena_array(scratch, 2 * (size_t)n, sizeof *w.weights);
    line->count = 0;
    write_start(&w, depths, h, n, end->first);
    if (end->original)
        write_original_end(&w, depths, h);
    else if (end->ebb)
        write_ebb(&w, depths, h);
    else
        write_end(&w, depths, h, end);
    while (w.first < w.count)
        put_weight(&w);
}

static bool seed_nested(const SearchProblem *base, uint32_t number, PairOrder *order, Arena *scratch)
{
    enum { KEEPS = 5, LAGS = 5, RULES = 2, ENDS = RULES + KEEPS * LAGS };
    const uint32_t which = number / 2, variant = which < RULES ? 0 : which - RULES;
    if (which >= ENDS || base->stages % 2)
        return false;
    const End end = {.first = number % 2,
                     .original = which == 0,
                     .ebb = which == 1,
                     .keep = variant / LAGS,
                     .lag = 2 * (variant % LAGS)};
    for (uint32_t r = 0; r < base->rank_count; r++) {
        if (!is_nested(base, r))
            return false;
        write_rank(base, r, &end, &order->lines[r], scratch);
    }
    return true;
}

/* --- loops --- */

bool pair_is_loop(const SearchProblem *base)
{
    for (uint32_t n = 0; n < base->node_count; n++) {
        const SearchNode *node = &base->nodes[n];
        if (node->stage != (n - base->ranks[node->rank].first_node) * base->rank_count + node->rank)
            return false;
    }
    return base->pipe_count == 1;
}

/* Groups of microbatches run through the chunks of a rank one after another; the last group may be smaller. */
typedef struct Groups {
    uint32_t size, last, chunks;
    uint32_t before; /* F of a rank before the last group */
    uint32_t count;  /* F of a rank */
} Groups;

/* A last group of fewer microbatches than ranks runs in the order for a full one. */
static Groups groups_of(const SearchProblem *base, uint32_t chunks, uint32_t size)
{
    const uint32_t microbatches = base->nodes[0].microbatches, rest = microbatches % size;
    const uint32_t last = rest >= base->rank_count ? rest : size, before = chunks * ((microbatches - 1) / size) * size;
    return (Groups){size, last, chunks, before, before + chunks * last};
}

static int chunk_of(const Groups *groups, uint32_t x)
{
    return (int)(x < groups->before ? x / groups->size % groups->chunks : (x - groups->before) / groups->last);
}

/* Megatron's order: interleaved 1F1B with one F more in the warm-up, and then F&Bs. If `waits`, the last backwards are
   I, and `waits` * rank of their W wait until more I have run, so that I reach the earlier ranks sooner. */
static void write_loop(const SearchProblem *base, uint32_t rank, const Groups *groups, uint32_t waits, PairLine *line,
                       Arena *scratch)
{
    const uint32_t last = groups->chunks - 1, ahead = 2 * (base->rank_count - 1 - rank) + last * groups->size + 1;
    const uint32_t warm = ahead < groups->count ? ahead : groups->count;
    Writer w = {.line = line};
    w.exists = arena_array(scratch, warm, sizeof *w.exists);
    w.weights = arena_array(scratch, warm, sizeof *w.weights);
    for (uint32_t c = 0; c <= last; c++) {
        w.nodes[c] = &base->nodes[base->ranks[rank].first_node + c];
        w.chunks[c] = (uint8_t)c;
    }
    line->count = 0;
    for (uint32_t x = 0; x < groups->count + warm; x++) {
        const int forward = x < groups->count ? chunk_of(groups, x) : -1;
        const int backward = x < warm ? -1 : (int)last - chunk_of(groups, x - warm);
        if (backward < 0)
            put_forward(&w, forward);
        else if (forward >= 0)
            put_pair(&w, forward, backward);
        else if (waits)
            put_input(&w, backward);
        else
            put_backward(&w, backward);
        if (w.count > w.first + waits * rank)
            put_weight(&w);
    }
    while (w.first < w.count)
        put_weight(&w);
}

/* Groups of P to 2P microbatches, and one of all of them. */
static bool seed_loop(const SearchProblem *base, uint32_t number, PairOrder *order, Arena *scratch)
{
    enum { WAITS = 3 };
    const uint32_t ranks = base->rank_count, microbatches = base->nodes[0].microbatches, which = number / WAITS;
    const uint32_t size = which ? ranks + which - 1 : microbatches;
    if ((which && size >= microbatches) || which > ranks + 1 || !pair_is_loop(base))
        return false;
    for (uint32_t r = 0; r < ranks; r++) {
        const Groups groups = groups_of(base, base->ranks[r].node_count, size);
        write_loop(base, r, &groups, number % WAITS, &order->lines[r], scratch);
    }
    return true;
}

bool pair_seed(const SearchProblem *base, uint32_t number, PairOrder *order, Arena *scratch)
{
    return seed_nested(base, number, order, scratch) || seed_loop(base, number, order, scratch);
}
