#pragma once

/* Runs a program on numbers, as a runtime without any checks would, and tells whether the step is right. It shares no
   code with the verifier: a pass computes a hash of what its slots contain, empty slots contain garbage, messages are
   matched by their order alone, and are transferred as late as possible. Every program that the verifier accepts must
   give the right result here. */

#include "tests/program/generator.h"

typedef struct ReplayMessage {
    uint64_t *slot;
    struct ReplayMessage *other; /* NULL until both ends are posted */
    bool sends, moved;
} ReplayMessage;

typedef struct ReplayRank {
    const RankProgram *program;
    uint32_t next;
    uint64_t *slots[SLOT_CLASSES];
    ReplayMessage **in_flight; /* [message slot] */
    ReplayMessage **posted;    /* [2 * peer + sends][instruction]: messages whose other end is not posted yet */
    uint32_t *first, *last;    /* [2 * peer + sends]: posted[...][first..last) have no other end yet */
    /* [chunk]: the gradient now; the gradient when REDUCE posted it; the sum over all copies */
    uint64_t *gradients, *posted_gradients, *sums;
    /* [chunk]: how many updates this copy has run; how many REDUCEs it has posted; how many sums all copies have
       completed */
    uint32_t *updates, *posts, *completed;
    bool ended;
} ReplayRank;

typedef struct Replay {
    const Program *program;
    Arena *arena;
    ReplayRank *ranks;
    uint64_t *losses; /* [pipe][microbatch] */
    uint64_t garbage;
    bool wrong;
} Replay;

static inline uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t state = a * 0x100000001b3u ^ b;
    return random_next(&state);
}

static inline uint64_t pass_value(uint32_t kind, uint32_t stage, uint32_t data, uint64_t input, uint64_t other)
{
    return mix(mix(mix(kind, stage), data), mix(input, other));
}

/* The gradient of a stage that a correct step computes for one microbatch if all weights are 0. `loss` gets the loss of
   this microbatch. */
static inline uint64_t expected_gradient(const Program *program, uint32_t stage, uint32_t data, uint64_t *loss)
{
    uint64_t *activation = calloc(program->stages + 1, sizeof *activation), result = 0;
    for (uint32_t s = 0; s < program->stages; s++)
        activation[s + 1] = pass_value(1, s, data, activation[s], 0);
    *loss = activation[program->stages];
    uint64_t derivative = 0;
    for (uint32_t s = program->stages; s-- > stage;) {
        const uint64_t stash = pass_value(3, s, data, activation[s], 0);
        const uint64_t gradient = pass_value(4, s, data, activation[s], derivative);
        result = mix(mix(activation[s], stash), mix(derivative, gradient));
        derivative = pass_value(5, s, data, pass_value(2, s, data, activation[s], 0), derivative);
    }
    free(activation);
    return result;
}

static inline uint64_t next_weights(uint64_t weights, uint32_t count, uint64_t gradient)
{
    return mix(mix(weights, count), gradient);
}

/* The expected results of an asynchronous program depend on the version of the weights that each pass uses, and so on
   the position of each U among the passes of its stage. To find them, the instructions run in the program's order on
   tables by stage and microbatch, without slots. The U of all copies of a stage count as one event. */
typedef struct Spot {
    uint64_t y, context, stash, weights, gradient, dx; /* weights: those that the F used */
    bool f, i;                                         /* whether the F, and the B or I, have run */
} Spot;

typedef struct Recurrence {
    Spot *spots;        /* [stage][microbatch of the step]: results of the passes of this microbatch on this stage */
    uint64_t *versions; /* [stage][microbatches + 1]: element v is version v of the stage's weights */
    uint32_t *newest;   /* [stage]: the newest version made */
    /* [stage]: the number of gradients since the last U, and their sum */
    uint32_t *count;
    uint64_t *sum;
    /* [stage]: the number of copies; how often a copy has reached a U, over all copies and versions */
    uint32_t *copies, *arrivals;
    uint32_t *own; /* [rank][stage]: the newest version that this copy has */
    bool *waiting; /* [rank][stage]: the copy waits at its U for other copies */
} Recurrence;

/* Runs a U. False: not all copies have reached it. */
static inline bool recur_update(const Program *program, Recurrence *tables, uint32_t rank, uint32_t s)
{
    uint64_t *versions = tables->versions + (size_t)s * (program->microbatches + 1);
    const size_t copy = (size_t)rank * program->stages + s;
    tables->arrivals[s] += !tables->waiting[copy];
    tables->waiting[copy] = true;
    if (tables->arrivals[s] < tables->copies[s] * (tables->own[copy] + 1))
        return false;
    tables->waiting[copy] = false;
    if (tables->newest[s] == tables->own[copy]++) {
        versions[tables->newest[s] + 1] = next_weights(versions[tables->newest[s]], tables->count[s], tables->sum[s]);
        tables->newest[s]++;
        tables->count[s] = 0;
        tables->sum[s] = 0;
    }
    return true;
}

/* Runs a pass (or a half of an F&B) or a U; does nothing for other instructions. False: it has to wait. */
static inline bool recur_half(const Program *program, Recurrence *tables, uint32_t rank, const Instruction *instruction)
{
    const Chunk chunk = program->ranks[rank].chunks[instruction->chunk];
    const Pipe *pipe = &program->pipes[chunk.pipe];
    const uint32_t s = chunk.stage, m = pipe->first + instruction->microbatch, all = program->microbatches;
    if (instruction->opcode == OP_ASYNC_UPDATE)
        return recur_update(program, tables, rank, s);
    const bool forward = opcode_is_forward(instruction->opcode), weight = instruction->opcode == OP_BACKWARD_WEIGHT;
    if (!forward && !weight && instruction->opcode != OP_BACKWARD && instruction->opcode != OP_BACKWARD_INPUT)
        return true;
    Spot *spot = &tables->spots[(size_t)s * all + m];
    const uint64_t input = s ? spot[-(ptrdiff_t)all].y : 0;
    if (forward) {
        const uint32_t newest = tables->own[(size_t)rank * program->stages + s];
        const uint32_t version = pipe->versions ? pipe->versions[instruction->microbatch] : newest;
        if ((s && !spot[-(ptrdiff_t)all].f) || version > newest)
            return false;
        spot->weights = tables->versions[(size_t)s * (all + 1) + version];
        spot->y = pass_value(1, s, m, input, spot->weights);
        spot->context = pass_value(2, s, m, input, 0);
        spot->stash = pass_value(3, s, m, input, 0);
        return spot->f = true;
    }
    if (s + 1 < program->stages && !spot[all].i)
        return false;
    const uint64_t derivative = s + 1 < program->stages ? spot[all].dx : 0;
    if (!weight) {
        spot->gradient = pass_value(4, s, m, input, derivative);
        spot->dx = pass_value(5, s, m, spot->context, derivative + 3 * spot->weights);
        spot->i = true;
    }
    if (instruction->opcode != OP_BACKWARD_INPUT) {
        tables->sum[s] += mix(mix(input, spot->stash), mix(derivative, spot->gradient));
        tables->count[s]++;
    }
    return true;
}

/* Runs an instruction; false: it has to wait. If the second half of an F&B or F&F has to wait, the first half runs
   again later, with the same result. */
static inline bool recur(const Program *program, Recurrence *tables, uint32_t rank, const Instruction *instruction)
{
    for (const Instruction *half = instruction; half; half = half->second)
        if (!recur_half(program, tables, rank, half))
            return false;
    return true;
}

static inline Recurrence recurrence(const Program *program, Arena *arena)
{
    const uint32_t stages = program->stages, all = program->microbatches;
    const size_t copies = (size_t)program->rank_count * stages;
    Recurrence tables = {.spots = arena_array(arena, (size_t)stages * all, sizeof *tables.spots),
                         .versions = arena_array(arena, (size_t)stages * (all + 1), sizeof *tables.versions),
                         .newest = arena_array(arena, stages, sizeof *tables.newest),
                         .count = arena_array(arena, stages, sizeof *tables.count),
                         .sum = arena_array(arena, stages, sizeof *tables.sum),
                         .copies = arena_array(arena, stages, sizeof *tables.copies),
                         .arrivals = arena_array(arena, stages, sizeof *tables.arrivals),
                         .own = arena_array(arena, copies, sizeof *tables.own),
                         .waiting = arena_array(arena, copies, sizeof *tables.waiting)};
    uint32_t *next = arena_array(arena, program->rank_count, sizeof *next);
    for (uint32_t r = 0; r < program->rank_count; r++)
        for (uint32_t c = 0; c < program->ranks[r].chunk_count; c++)
            tables.copies[program->ranks[r].chunks[c].stage]++;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t r = 0; r < program->rank_count; r++) {
            const RankProgram *rank = &program->ranks[r];
            for (; next[r] + 1 < rank->instruction_count && recur(program, &tables, r, &rank->instructions[next[r]]);
                 moved = true)
                next[r]++;
        }
    }
    return tables;
}

static inline uint64_t *replay_slot(Replay *replay, ReplayRank *rank, SlotClass class, uint16_t slot)
{
    static uint64_t nowhere;
    if (slot == SLOT_NONE)
        return nowhere = 0, &nowhere;
    if (slot >= rank->program->slots[class] || (class == SLOT_MESSAGE && rank->in_flight[slot]))
        return replay->wrong = true, &nowhere;
    return &rank->slots[class][slot];
}

static inline void move_message(ReplayMessage *message)
{
    if (message->moved)
        return;
    message->moved = message->other->moved = true;
    *(message->sends ? message->other->slot : message->slot) = *(message->sends ? message->slot : message->other->slot);
}

static inline void replay_post(Replay *replay, ReplayRank *rank, const Instruction *instruction, bool sends)
{
    if (instruction->peer >= replay->program->rank_count ||
        instruction->message >= rank->program->slots[SLOT_MESSAGE] || rank->in_flight[instruction->message]) {
        replay->wrong = true;
        return;
    }
    ReplayRank *peer = &replay->ranks[instruction->peer];
    const uint32_t me = (uint32_t)(rank - replay->ranks);
    ReplayMessage *message = arena_allocate(replay->arena, sizeof *message);
    *message = (ReplayMessage){.slot = &rank->slots[SLOT_MESSAGE][instruction->message], .sends = sends};
    rank->in_flight[instruction->message] = message;
    if (!sends)
        *message->slot = replay->garbage++;
    const uint32_t theirs = 2 * me + !sends, mine = 2u * instruction->peer + sends;
    if (peer->first[theirs] < peer->last[theirs]) {
        message->other = peer->posted[theirs * peer->program->instruction_count + peer->first[theirs]++];
        message->other->other = message;
    } else {
        rank->posted[mine * rank->program->instruction_count + rank->last[mine]++] = message;
    }
}

static inline bool replay_wait(Replay *replay, ReplayRank *rank, uint16_t slot)
{
    if (slot >= rank->program->slots[SLOT_MESSAGE] || !rank->in_flight[slot])
        return replay->wrong = true, true;
    ReplayMessage *message = rank->in_flight[slot];
    if (!message->other)
        return false;
    move_message(message);
    rank->in_flight[slot] = NULL;
    if (message->sends)
        /* garbage, because the transport may have exchanged the block for another one */
        *message->slot = replay->garbage++;
    return true;
}

static inline void replay_pass(Replay *replay, ReplayRank *rank, const Instruction *instruction)
{
    const Program *program = replay->program;
    if (instruction->chunk >= rank->program->chunk_count) {
        replay->wrong = true;
        return;
    }
    const Chunk chunk = rank->program->chunks[instruction->chunk];
    const uint32_t s = chunk.stage, data = program->pipes[chunk.pipe].first + instruction->microbatch;
    if (instruction->microbatch >= program->pipes[chunk.pipe].microbatches) {
        replay->wrong = true;
        return;
    }
    const bool forward = opcode_is_forward(instruction->opcode);
    const bool weight = instruction->opcode == OP_BACKWARD_WEIGHT;
    uint64_t *x = replay_slot(replay, rank, SLOT_MESSAGE, instruction->x);
    const uint64_t input = s ? *x : 0;
    uint64_t *made = replay_slot(replay, rank, SLOT_MESSAGE, weight ? SLOT_NONE : instruction->y);
    uint64_t *context = replay_slot(replay, rank, SLOT_CONTEXT, weight ? SLOT_NONE : instruction->context);
    uint64_t *stash = replay_slot(replay, rank, SLOT_STASH, instruction->stash);
    uint64_t *dy = replay_slot(replay, rank, SLOT_MESSAGE, forward ? SLOT_NONE : instruction->dy);
    uint64_t *gradient = replay_slot(replay, rank, SLOT_GRADIENT, forward ? SLOT_NONE : instruction->gradient);
    const uint64_t weights = *replay_slot(replay, rank, SLOT_WEIGHTS, weight ? SLOT_NONE : instruction->weights);
    const uint64_t derivative = s + 1 < program->stages ? *dy : 0;
    if (forward) {
        const uint64_t y = pass_value(1, s, data, input, weights);
        if (s + 1 == program->stages)
            replay->losses[data] += y;
        else
            *made = y;
        *context = pass_value(2, s, data, input, 0);
        *stash = pass_value(3, s, data, input, 0);
        if (instruction->opcode == OP_FORWARD_ONLY)
            *context = *stash = *x = replay->garbage++;
        return;
    }
    if (!weight) {
        *gradient = pass_value(4, s, data, input, derivative);
        *made = pass_value(5, s, data, *context, derivative + 3 * weights);
        *context = replay->garbage++;
    }
    if (instruction->opcode != OP_BACKWARD_INPUT) {
        rank->gradients[instruction->chunk] += mix(mix(input, *stash), mix(derivative, *gradient));
        *x = *stash = *gradient = replay->garbage++;
        if (s + 1 < program->stages)
            *dy = replay->garbage++;
    }
}

/* Runs a REDUCE. The last copy of the stage to post computes the sum for all copies. */
static inline void replay_reduce(Replay *replay, uint32_t rank, uint32_t chunk)
{
    const Program *program = replay->program;
    const Group *group = program_group(program, program->ranks[rank].chunks[chunk].stage);
    const Home alone = {(uint16_t)rank, (uint8_t)chunk}, *members = group ? group->members : &alone;
    const uint32_t count = group ? group->member_count : 1, posts = ++replay->ranks[rank].posts[chunk];
    uint64_t sum = 0;
    replay->ranks[rank].posted_gradients[chunk] = replay->ranks[rank].gradients[chunk];
    for (uint32_t m = 0; m < count; m++) {
        const ReplayRank *member = &replay->ranks[members[m].rank];
        if (member->posts[members[m].chunk] != posts)
            return;
        sum += member->posted_gradients[members[m].chunk];
    }
    for (uint32_t m = 0; m < count; m++) {
        ReplayRank *member = &replay->ranks[members[m].rank];
        member->sums[members[m].chunk] = sum;
        member->completed[members[m].chunk] = posts;
    }
}

/* Runs a WAIT_REDUCE. False: not all copies have posted. Checks that no pass has changed the gradient since its
   REDUCE. */
static inline bool replay_wait_reduce(Replay *replay, ReplayRank *rank, uint32_t chunk)
{
    if (rank->completed[chunk] < rank->posts[chunk])
        return false;
    if (rank->gradients[chunk] != rank->posted_gradients[chunk])
        replay->wrong = true;
    rank->gradients[chunk] = rank->sums[chunk];
    return true;
}

/* Runs one instruction; false: it has to wait. */
static inline bool replay_step(Replay *replay, ReplayRank *rank)
{
    const Instruction *instruction = &rank->program->instructions[rank->next];
    switch ((Opcode)instruction->opcode) {
    case OP_SEND_FORWARD:
    case OP_SEND_BACKWARD: replay_post(replay, rank, instruction, true); return true;
    case OP_RECEIVE_FORWARD:
    case OP_RECEIVE_BACKWARD: replay_post(replay, rank, instruction, false); return true;
    case OP_WAIT: return replay_wait(replay, rank, instruction->message);
    case OP_OVERLAP:
        replay_pass(replay, rank, instruction);
        if (instruction->second)
            replay_pass(replay, rank, instruction->second);
        return true;
    case OP_REDUCE:
    case OP_WAIT_REDUCE:
        if (instruction->chunk >= rank->program->chunk_count) {
            replay->wrong = true;
            return true;
        }
        if (instruction->opcode == OP_WAIT_REDUCE)
            return replay_wait_reduce(replay, rank, instruction->chunk);
        replay_reduce(replay, (uint32_t)(rank - replay->ranks), instruction->chunk);
        return true;
    case OP_NORM: return true;
    case OP_UPDATE:
        if (instruction->chunk >= rank->program->chunk_count)
            replay->wrong = true;
        else
            rank->updates[instruction->chunk]++;
        return true;
    case OP_ASYNC_UPDATE:
        if (instruction->chunk >= rank->program->chunk_count) {
            replay->wrong = true;
        } else {
            const uint64_t newest = *replay_slot(replay, rank, SLOT_WEIGHTS, instruction->newest);
            *replay_slot(replay, rank, SLOT_WEIGHTS, instruction->next) =
                next_weights(newest, instruction->microbatch, rank->gradients[instruction->chunk]);
            rank->gradients[instruction->chunk] = 0;
        }
        return true;
    case OP_END: return rank->ended = true;
    default: replay_pass(replay, rank, instruction); return true;
    }
}

/* Whether the program ends with the right losses and gradients; for an asynchronous one, losses and weights. `seed`
   determines in which order the ranks take turns. */
static inline bool replay(const Program *program, uint64_t seed)
{
    Arena arena = {0};
    Replay run = {.program = program, .arena = &arena, .garbage = 1};
    run.ranks = arena_array(&arena, program->rank_count, sizeof *run.ranks);
    run.losses = arena_array(&arena, program->microbatches, sizeof *run.losses);
    for (uint32_t r = 0; r < program->rank_count; r++) {
        ReplayRank *rank = &run.ranks[r];
        rank->program = &program->ranks[r];
        for (int class = 0; class < SLOT_CLASSES; class ++)
            rank->slots[class] = arena_array(&arena, rank->program->slots[class], sizeof(uint64_t));
        rank->in_flight = arena_array(&arena, rank->program->slots[SLOT_MESSAGE], sizeof *rank->in_flight);
        const size_t channels = 2 * (size_t)program->rank_count;
        rank->posted = arena_array(&arena, channels * rank->program->instruction_count, sizeof *rank->posted);
        rank->first = arena_array(&arena, channels, sizeof *rank->first);
        rank->last = arena_array(&arena, channels, sizeof *rank->last);
        rank->gradients = arena_array(&arena, rank->program->chunk_count, sizeof *rank->gradients);
        rank->posted_gradients = arena_array(&arena, rank->program->chunk_count, sizeof *rank->posted_gradients);
        rank->sums = arena_array(&arena, rank->program->chunk_count, sizeof *rank->sums);
        rank->posts = arena_array(&arena, rank->program->chunk_count, sizeof *rank->posts);
        rank->completed = arena_array(&arena, rank->program->chunk_count, sizeof *rank->completed);
        rank->updates = arena_array(&arena, rank->program->chunk_count, sizeof *rank->updates);
    }
    uint32_t ended = 0;
    for (uint32_t idle = 0; idle < 64 * program->rank_count && !run.wrong && ended < program->rank_count; idle++) {
        ReplayRank *rank = &run.ranks[random_below(&seed, program->rank_count)];
        for (uint32_t burst = random_below(&seed, 4); !rank->ended && !run.wrong && replay_step(&run, rank); burst--) {
            idle = 0;
            if (rank->ended)
                ended++;
            else
                rank->next++;
            if (burst == 0)
                break;
        }
    }
    bool good = !run.wrong && ended == program->rank_count;
    for (uint32_t r = 0; r < program->rank_count && good && program->asynchronous; r++) {
        const Recurrence tables = recurrence(program, &arena);
        for (uint32_t c = 0; c < run.ranks[r].program->chunk_count; c++) {
            const uint32_t s = run.ranks[r].program->chunks[c].stage;
            good &= run.ranks[r].slots[SLOT_WEIGHTS][c] ==
                    tables.versions[(size_t)s * (program->microbatches + 1) + tables.newest[s]];
        }
        for (uint32_t m = 0; m < program->microbatches; m++)
            good &= run.losses[m] == tables.spots[(size_t)(program->stages - 1) * program->microbatches + m].y;
    }
    for (uint32_t r = 0; r < program->rank_count && good && !program->asynchronous; r++) {
        for (uint32_t c = 0; c < run.ranks[r].program->chunk_count; c++) {
            const Chunk chunk = run.ranks[r].program->chunks[c];
            uint64_t all = 0, loss;
            for (uint32_t p = 0; p < program->pipe_count; p++)
                for (uint32_t m = 0; m < program->pipes[p].microbatches; m++) {
                    const uint64_t gradient =
                        expected_gradient(program, chunk.stage, program->pipes[p].first + m, &loss);
                    all += gradient;
                    good &= run.losses[program->pipes[p].first + m] == loss;
                }
            if (program->forward_only)
                continue;
            good &= run.ranks[r].gradients[c] == all && run.ranks[r].updates[c] == 1;
        }
    }
    arena_free(&arena);
    return good;
}
