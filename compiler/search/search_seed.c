#include "compiler/search/search_seed.h"

#include "compiler/schedule/slot_squeeze.h"

enum { PASSES = 3, PERIOD_MAX = PASSES * (UINT8_MAX + 1), BLOCKS_MAX = 64 };

/* A repeating pattern, the building block of Qi et al., Pipeline Parallelism with Controllable Memory (NeurIPS 2024).
   Between stages on different ranks, F starts `down` slots later on the next stage, and I starts `up` slots later on
   the stage before. Microbatches start 3 * chunks slots apart, one slot for each F, I and W of a rank, and no two F or
   I of a rank share a slot. W fill the free slots. squeeze_orders then moves passes to earlier slots. */
typedef struct Block {
    uint8_t down[2], up[2]; /* [0]: from a stage that is an even chunk of its rank, [1]: from an odd chunk */
    /* extra slots: `wait` between F and I of the last stage, `turn` between the I of two consecutive stages on one
       rank */
    uint8_t wait, turn;
} Block;

/* The slots of passes. Microbatches run in rounds of `round`; the rounds are `turn` slots apart, and the microbatches
   of a round are `step` slots apart. So a pass of microbatch m comes (m / round) * turn + (m % round) * step slots
   after the same pass of microbatch 0. */
typedef struct Slots {
    int64_t *forward, *input; /* [nodes]: slots of the F and the I of microbatch 0 */
    int64_t round, turn, step;
    bool weights_fill; /* each W takes the next free slot; false: it runs right after its I */
} Slots;

struct SeedMaker {
    const SearchProblem *problem;
    const Schedule *schedule;
    Arena *arena;
    /* [nodes], grouped by rank: the chunks of the rank in the order of their stages */
    uint8_t *by_stage;
    uint32_t microbatches; /* most microbatches of a pipe */
    uint32_t stages;
    uint32_t chunks; /* most chunks of a rank */
    /* the largest stages_behind of a rank: the number of stages that come after the rank's last stage */
    uint32_t farthest;
    Slots slots;
    Block blocks[BLOCKS_MAX];
    uint32_t block_count;
    /* the same problem, but all passes take one slot, each pipe has at least stages - 1 microbatches, and the memory of
       each rank holds `stages` F */
    SearchProblem full;
    SearchList *list; /* `list`, `policy` and `order` belong to `full` */
    SearchPolicy policy;
    SearchOrder order;
};

/* The order of a rank while it is being made. */
typedef struct Line {
    const SeedMaker *maker;
    const SearchRank *rank;
    SearchPass *passes;
    /* [chunk]: passes of each kind so far, including those left out because the microbatch does not exist */
    uint32_t (*done)[ACTION_W + 1];
    uint32_t count;
} Line;

static Line line_new(const SeedMaker *maker, uint32_t rank, const SearchOrder *order, Arena *scratch)
{
    Line line = {.maker = maker, .rank = &maker->problem->ranks[rank]};
    line.passes = order->passes + line.rank->first;
    line.done = arena_array(scratch, line.rank->node_count, sizeof *line.done);
    return line;
}

/* Appends the chunk's next pass of the kind, unless the pipe has no more microbatches. Counts it in `done` in both
   cases. */
static void append(Line *line, uint8_t kind, uint8_t chunk)
{
    if (line->done[chunk][kind]++ < line->maker->problem->nodes[line->rank->first_node + chunk].microbatches)
        line->passes[line->count++] = (SearchPass){kind, chunk};
}

static uint8_t chunk_by_stage(const SeedMaker *maker, const SearchRank *rank, uint32_t place)
{
    return maker->by_stage[rank->first_node + place];
}

static uint32_t stage_at(const SeedMaker *maker, const SearchRank *rank, uint32_t place)
{
    return maker->problem->nodes[rank->first_node + chunk_by_stage(maker, rank, place)].stage;
}

/* --- staggered --- */

/* A rank runs its F in rounds: some microbatches on its first chunk, the same ones on its second chunk, and so on. It
   runs its I likewise, from the last chunk to the first. For x = 0, 1, 2, ... it runs F number x, then I number x -
   `behind`, then W number x - `behind` - `later` (see make_staggered). `halves` and `late` choose the schedule: 1F1B,
   interleaved or not (Narayanan et al., SC 2021), or ZB-H1 and ZB-H2 (Qi et al., ICLR 2024). */
typedef struct Stagger {
    /* twice the number of F by which a rank runs ahead of its I for each stage after its last one */
    uint32_t halves;
    /* ranks with few stages after their last one defer W, so that all ranks begin with W at about the same x */
    bool late;
} Stagger;

static uint32_t stages_behind(const SeedMaker *maker, const SearchRank *rank)
{
    return maker->stages - 1 - stage_at(maker, rank, rank->node_count - 1);
}

static void append_number(Line *line, int64_t round, uint8_t kind, int64_t x)
{
    const uint32_t place = x < 0 ? 0 : (uint32_t)(x / round % line->rank->node_count);
    if (x >= 0)
        append(line, kind,
               chunk_by_stage(line->maker, line->rank, kind == ACTION_F ? place : line->rank->node_count - 1 - place));
}

static void make_staggered(const SeedMaker *maker, const Stagger *how, SearchOrder *order, Arena *scratch)
{
    const uint32_t ranks = maker->problem->rank_count;
    const uint32_t rounds = maker->microbatches > ranks ? maker->microbatches / ranks : 1;
    /* microbatches in a round: as in PyTorch, there are microbatches / ranks rounds, but at least one */
    const int64_t round = (maker->microbatches + rounds - 1) / rounds;
    for (uint32_t r = 0; r < ranks; r++) {
        Line line = line_new(maker, r, order, scratch);
        const uint32_t stages = stages_behind(maker, line.rank);
        const int64_t behind = how->halves * stages / 2 + (line.rank->node_count - 1) * round;
        const int64_t later = how->late ? how->halves * (maker->farthest - stages) / 2 : 0;
        for (int64_t x = 0; line.count < line.rank->passes; x++) {
            append_number(&line, round, ACTION_F, x);
            append_number(&line, round, ACTION_I, x - behind);
            append_number(&line, round, ACTION_W, x - behind - later);
        }
    }
}

/* --- slots --- */

static bool is_due(const Slots *slots, const Line *line, uint8_t kind, uint8_t chunk, int64_t slot)
{
    const uint32_t node = line->rank->first_node + chunk;
    const int64_t m = line->done[chunk][kind], first = kind == ACTION_F ? slots->forward[node] : slots->input[node];
    return m < line->maker->problem->nodes[node].microbatches &&
           slot == first + m / slots->round * slots->turn + m % slots->round * slots->step;
}

static void fill_slots(const Slots *slots, Line *line, Arena *scratch)
{
    uint8_t *weights = arena_array(scratch, line->rank->passes / PASSES, sizeof *weights);
    uint32_t waiting = 0, made = 0;
    for (int64_t slot = 0; line->count < line->rank->passes; slot++) {
        const uint32_t before = line->count;
        for (uint8_t c = 0; c < line->rank->node_count; c++) {
            if (is_due(slots, line, ACTION_F, c, slot))
                append(line, ACTION_F, c);
            if (is_due(slots, line, ACTION_I, c, slot)) {
                append(line, ACTION_I, c);
                weights[waiting++] = c;
            }
        }
        if (made < waiting && (line->count == before || !slots->weights_fill))
            append(line, ACTION_W, weights[made++]);
    }
}

/* Microbatches enter a pipe in rounds. A round has as many microbatches as there are ranks per pipe, one in every
   second slot. Each round starts 2 * stages slots after the round before it. On their placements this is Hanayo (Liu et
   al., SC 2023), and with two pipes Chimera (Li and Hoefler, SC 2021) and BitPipe (Wu et al., 2024). */
static void make_wave(SeedMaker *maker, SearchOrder *order, Arena *scratch)
{
    const SearchProblem *problem = maker->problem;
    Slots *slots = &maker->slots;
    slots->round = problem->rank_count > problem->pipe_count ? problem->rank_count / problem->pipe_count : 1;
    slots->turn = 2 * maker->stages;
    slots->step = 2;
    slots->weights_fill = false;
    for (uint32_t n = 0; n < problem->node_count; n++) {
        slots->forward[n] = problem->nodes[n].stage;
        slots->input[n] = 2 * maker->stages - 1 - problem->nodes[n].stage;
    }
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        Line line = line_new(maker, r, order, scratch);
        fill_slots(slots, &line, scratch);
    }
}

/* Slots from a pass of node `from` to the same pass of node `to`: `same` if both are on one rank or `to` is NO_NODE,
   else other[0] or other[1] if `from` is an even or odd chunk of its rank. */
static int64_t step_to(const SearchProblem *problem, uint32_t from, uint32_t to, const uint8_t other[2], int64_t same)
{
    const uint32_t rank = problem->nodes[from].rank;
    return to == NO_NODE || problem->nodes[to].rank == rank ? same
                                                            : other[(from - problem->ranks[rank].first_node) % 2];
}

static void lay_block(SeedMaker *maker, const Block *block)
{
    const SearchProblem *problem = maker->problem;
    Slots *slots = &maker->slots;
    slots->round = 1;
    slots->turn = PASSES * maker->chunks;
    slots->weights_fill = true;
    for (uint32_t entry = 0; entry < problem->node_count; entry++) {
        int64_t slot = 0;
        uint32_t last = entry;
        if (problem->nodes[entry].before != NO_NODE)
            continue;
        for (uint32_t n = entry; n != NO_NODE; last = n, n = problem->nodes[n].after) {
            slots->forward[n] = slot;
            slot += step_to(problem, n, problem->nodes[n].after, block->down, 1);
        }
        slot += block->wait;
        for (uint32_t n = last; n != NO_NODE; n = problem->nodes[n].before) {
            slots->input[n] = slot;
            slot += step_to(problem, n, problem->nodes[n].before, block->up, 1 + block->turn);
        }
    }
}

static bool leaves_slots_apart(const SeedMaker *maker)
{
    const SearchProblem *problem = maker->problem;
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        const SearchRank *rank = &problem->ranks[r];
        bool taken[PERIOD_MAX] = {false};
        for (uint32_t n = rank->first_node; n < rank->first_node + rank->node_count; n++) {
            bool *forward = &taken[maker->slots.forward[n] % maker->slots.turn];
            bool *input = &taken[maker->slots.input[n] % maker->slots.turn];
            if (*forward || *input || forward == input)
                return false;
            *forward = *input = true;
        }
    }
    return true;
}

/* Adds the variants of `block` in which no two F or I of a rank share a slot. They have its `down` and `up`, and the
   smallest sum of wait and turn that avoids shared slots. No variant is added if that sum is 3 * chunks or more. On a V
   the published blocks are among the variants. */
static void add_blocks(SeedMaker *maker, Block block)
{
    const uint32_t before = maker->block_count;
    for (uint32_t more = 0; more < PASSES * maker->chunks && maker->block_count == before; more++)
        for (uint32_t turn = 0; turn <= more && maker->block_count < BLOCKS_MAX; turn++) {
            block.turn = (uint8_t)turn;
            block.wait = (uint8_t)(more - turn);
            lay_block(maker, &block);
            if (leaves_slots_apart(maker))
                maker->blocks[maker->block_count++] = block;
        }
}

static bool make_block(SeedMaker *maker, const Block *block, SearchOrder *order, Arena *scratch)
{
    const SearchProblem *problem = maker->problem;
    Schedule schedule = *maker->schedule;
    PassTable table = pass_table_new(&schedule, scratch);
    Timeline times;
    schedule.orders = arena_array(scratch, schedule.ranks, sizeof *schedule.orders);
    lay_block(maker, block);
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        Line line = line_new(maker, r, order, scratch);
        fill_slots(&maker->slots, &line, scratch);
    }
    search_order_write(problem, order, (Span){0, 0}, scratch, &schedule);
    passes_index(&schedule, &table);
    if (!timeline_run(&schedule, &table, &costs_unit, scratch, &times) || !squeeze_has_room(&schedule, &times) ||
        !squeeze_orders(&schedule, &table, &times, scratch))
        return false;
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        Line line = line_new(maker, r, order, scratch);
        for (uint32_t i = 0; i < schedule.orders[r].count; i++)
            append(&line, schedule.orders[r].actions[i].kind, schedule.orders[r].actions[i].chunk);
    }
    return true;
}

/* --- greedy --- */

/* Appends the F and I of `passes`, with W between them. While F are left, each W follows its I. Then the rank defers
   some W to the end. It defers more of them if its earliest stage is later, because ranks with earlier stages wait for
   its I. */
static void append_with_weights(Line *line, const SearchPass *passes, uint32_t count)
{
    const uint32_t late = line->rank->node_count * stage_at(line->maker, line->rank, 0);
    uint32_t waiting = 0, forwards = 0;
    bool flows = true;
    for (uint32_t i = 0; i < count; i++) {
        const SearchPass pass = passes[i];
        if (pass.kind == ACTION_W)
            continue;
        append(line, pass.kind, pass.chunk);
        if (pass.kind == ACTION_F) {
            forwards++;
            flows = true;
        } else if (!flows && waiting < late) {
            waiting++;
        } else {
            append(line, ACTION_W, pass.chunk);
            flows = forwards < count / PASSES;
        }
    }
    for (uint32_t place = line->rank->node_count; place-- > 0;) {
        const uint8_t chunk = chunk_by_stage(line->maker, line->rank, place);
        while (line->done[chunk][ACTION_W] < line->done[chunk][ACTION_I])
            append(line, ACTION_W, chunk);
    }
}

/* In each slot a rank runs the F of the latest stage that it can if it has memory, else an I. On a V this
   is ZB-V (Qi et al., ICLR 2024, section 6). */
static bool make_greedy(SeedMaker *maker, SearchOrder *order, Arena *scratch)
{
    if (!search_list_run(maker->list, &maker->policy, NEVER, &maker->order))
        return false;
    for (uint32_t r = 0; r < maker->problem->rank_count; r++) {
        Line line = line_new(maker, r, order, scratch);
        append_with_weights(&line, maker->order.passes + maker->full.ranks[r].first, maker->full.ranks[r].passes);
    }
    return true;
}

static void open_greedy(SeedMaker *maker, const SearchTask *task)
{
    Schedule schedule = *maker->schedule;
    SearchTask full = *task;
    int64_t *memory = arena_array(maker->arena, schedule.ranks, sizeof *memory);
    for (uint32_t r = 0; r < schedule.ranks; r++)
        memory[r] = maker->stages * task->forward;
    full.costs = &costs_unit;
    full.memory = memory;
    schedule.pipes = arena_array(maker->arena, schedule.pipe_count, sizeof *schedule.pipes);
    for (uint32_t p = 0; p < schedule.pipe_count; p++) {
        schedule.pipes[p] = maker->schedule->pipes[p];
        if (schedule.pipes[p].microbatches + 1 < maker->stages)
            schedule.pipes[p].microbatches = maker->stages - 1;
    }
    search_problem_make(&schedule, &full, maker->arena, &maker->full);
    const PolicyMaker policies = policy_maker_new(&maker->full, maker->arena);
    maker->list = search_list_new(&maker->full, maker->arena);
    maker->policy = policy_new(&maker->full, maker->arena);
    policy_forward_first(&policies, &maker->policy);
    maker->order.passes = arena_array(maker->arena, maker->full.passes, sizeof(SearchPass));
}

/* --- all of them --- */

static void sort_by_stage(const SeedMaker *maker, const SearchRank *rank)
{
    uint8_t *chunks = maker->by_stage + rank->first_node;
    for (uint32_t c = 0; c < rank->node_count; c++) {
        uint32_t at = c;
        for (; at > 0 && stage_at(maker, rank, at - 1) > maker->problem->nodes[rank->first_node + c].stage; at--)
            chunks[at] = chunks[at - 1];
        chunks[at] = (uint8_t)c;
    }
}

SeedMaker *seed_maker_new(const SearchProblem *problem, const Schedule *schedule, const SearchTask *task, Arena *arena)
{
    /* V-Min, V-Half, V-Half of an inverted V, and V-Half with doubled steps */
    static const Block blocks[] = {
        {{1, 1}, {1, 1}, 0, 0}, {{2, 1}, {1, 2}, 0, 0}, {{1, 2}, {2, 1}, 0, 0}, {{4, 2}, {2, 4}, 0, 0}};
    SeedMaker *maker = arena_allocate(arena, sizeof *maker);
    *maker = (SeedMaker){.problem = problem, .schedule = schedule, .arena = arena};
    maker->by_stage = arena_array(arena, problem->node_count, sizeof *maker->by_stage);
    maker->slots.forward = arena_array(arena, problem->node_count, sizeof *maker->slots.forward);
    maker->slots.input = arena_array(arena, problem->node_count, sizeof *maker->slots.input);
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        const PlacedPipe *pipe = &schedule->pipes[p];
        maker->stages = pipe->stages > maker->stages ? pipe->stages : maker->stages;
        maker->microbatches = pipe->microbatches > maker->microbatches ? pipe->microbatches : maker->microbatches;
    }
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        const SearchRank *rank = &problem->ranks[r];
        sort_by_stage(maker, rank);
        const uint32_t behind = stages_behind(maker, rank);
        maker->farthest = behind > maker->farthest ? behind : maker->farthest;
        maker->chunks = rank->node_count > maker->chunks ? rank->node_count : maker->chunks;
    }
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        add_blocks(maker, blocks[i]);
    open_greedy(maker, task);
    return maker;
}

static bool fits(const SeedMaker *maker, const SearchRank *rank, const SearchOrder *order)
{
    int64_t held = 0;
    for (uint32_t i = 0; i < rank->passes; i++) {
        held += maker->problem->memory[order->passes[rank->first + i].kind];
        if (held > rank->limit)
            return false;
    }
    return true;
}

SeedResult seed_make(SeedMaker *maker, uint32_t number, SearchOrder *order)
{
    static const Stagger staggers[] = {{2, false}, {2, true}, {3, true}, {4, true}, {4, false}};
    enum { STAGGERS = sizeof staggers / sizeof *staggers };
    Arena *const scratch = arena_scratch(maker->arena);
    bool made = true;
    if (number < STAGGERS)
        make_staggered(maker, &staggers[number], order, scratch);
    else if (number == STAGGERS)
        made = make_greedy(maker, order, scratch);
    else if (number == STAGGERS + 1)
        make_wave(maker, order, scratch);
    else if (number - STAGGERS - 2 < maker->block_count)
        made = make_block(maker, &maker->blocks[number - STAGGERS - 2], order, scratch);
    else
        return SEED_NONE;
    for (uint32_t r = 0; made && r < maker->problem->rank_count; r++)
        made = fits(maker, &maker->problem->ranks[r], order);
    arena_free(scratch);
    return made ? SEED_MADE : SEED_UNFIT;
}
