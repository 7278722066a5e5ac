#ifndef TESTS_PROGRAM_REPLAY_H
#define TESTS_PROGRAM_REPLAY_H

/* Runs a program on numbers, as a runtime would that never checks anything, and says whether the step came out right. It shares
   nothing with the verifier: passes are hashes of what their slots happen to hold, what is not there is garbage, messages are
   matched by order alone and move as late as they can. What the verifier accepts must come out right here. */

#include "tests/program/generator.h"

typedef struct ReplayMessage {
    uint64_t *slot;
    struct ReplayMessage *other; /* NULL until both are posted */
    bool sends, moved;
} ReplayMessage;

typedef struct ReplayRank {
    const RankProgram *program;
    uint32_t next;
    uint64_t *slots[SLOT_CLASSES];
    ReplayMessage **in_flight;  /* [message slot] */
    ReplayMessage **posted;     /* [peer]: the messages of the channel to it and from it that have no other end yet, */
    uint32_t *first, *last;     /* [2 * peer + sends]: posted[...][first..last) */
    uint64_t *gradients, *reduced; /* [chunk] */
    uint32_t *updates;
    uint32_t meeting;           /* how many meetings it has been through */
    bool at_meeting, ended;
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

/* What a correct step computes for one microbatch, stage by stage. */
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
    if (instruction->peer >= replay->program->rank_count || instruction->slot[0] >= rank->program->slots[SLOT_MESSAGE] ||
        rank->in_flight[instruction->slot[0]]) {
        replay->wrong = true;
        return;
    }
    ReplayRank *peer = &replay->ranks[instruction->peer];
    const uint32_t me = (uint32_t)(rank - replay->ranks);
    ReplayMessage *message = arena_allocate(replay->arena, sizeof *message);
    *message = (ReplayMessage){.slot = &rank->slots[SLOT_MESSAGE][instruction->slot[0]], .sends = sends};
    rank->in_flight[instruction->slot[0]] = message;
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
        *message->slot = replay->garbage++; /* the block may have been exchanged for another */
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
    const bool forward = instruction->opcode == OP_FORWARD || instruction->opcode == OP_FORWARD_ONLY;
    const bool weight = instruction->opcode == OP_BACKWARD_WEIGHT;
    uint64_t *x = replay_slot(replay, rank, SLOT_MESSAGE, instruction->slot[0]);
    const uint64_t input = s ? *x : 0;
    uint64_t *made = replay_slot(replay, rank, SLOT_MESSAGE, weight ? SLOT_NONE : instruction->slot[1]);
    uint64_t *context = replay_slot(replay, rank, SLOT_CONTEXT, weight ? SLOT_NONE : instruction->slot[2]);
    uint64_t *stash = replay_slot(replay, rank, SLOT_STASH, instruction->slot[3]);
    uint64_t *dy = replay_slot(replay, rank, SLOT_MESSAGE, forward ? SLOT_NONE : instruction->slot[4]);
    uint64_t *gradient = replay_slot(replay, rank, SLOT_GRADIENT, forward ? SLOT_NONE : instruction->slot[5]);
    const uint64_t derivative = s + 1 < program->stages ? *dy : 0;
    if (forward) {
        const uint64_t y = pass_value(1, s, data, input, 0);
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
        *made = pass_value(5, s, data, *context, derivative);
        *context = replay->garbage++;
    }
    if (instruction->opcode != OP_BACKWARD_INPUT) {
        rank->gradients[instruction->chunk] += mix(mix(input, *stash), mix(derivative, *gradient));
        *x = *stash = *gradient = replay->garbage++;
        if (s + 1 < program->stages)
            *dy = replay->garbage++;
    }
}

/* One instruction; false: it has to wait. */
static inline bool replay_step(Replay *replay, ReplayRank *rank)
{
    const Instruction *instruction = &rank->program->instructions[rank->next];
    switch ((Opcode)instruction->opcode) {
    case OP_SEND_FORWARD:
    case OP_SEND_BACKWARD: replay_post(replay, rank, instruction, true); return true;
    case OP_RECEIVE_FORWARD:
    case OP_RECEIVE_BACKWARD: replay_post(replay, rank, instruction, false); return true;
    case OP_WAIT: return replay_wait(replay, rank, instruction->slot[0]);
    case OP_OVERLAP: return true;
    case OP_REDUCE:
        if (instruction->peer >= replay->program->group_count || instruction->chunk >= rank->program->chunk_count)
            replay->wrong = true;
        else
            for (uint32_t r = 0; r < replay->program->rank_count; r++) /* wherever they are: now is the sum made */
                for (uint32_t c = 0; c < replay->ranks[r].program->chunk_count; c++)
                    if (replay->ranks[r].program->chunks[c].stage == rank->program->chunks[instruction->chunk].stage)
                        replay->ranks[r].reduced[c] += rank->gradients[instruction->chunk];
        return true;
    case OP_NORM: return true;
    case OP_UPDATE:
        if (instruction->chunk >= rank->program->chunk_count)
            replay->wrong = true;
        else
            rank->updates[instruction->chunk]++;
        return true;
    case OP_END: return rank->ended = true;
    default: replay_pass(replay, rank, instruction); return true;
    }
}

/* Whether the program ends and every loss and every gradient is what it has to be. Ranks take turns as `seed` says. */
static inline bool replay(const Program *program, uint64_t seed)
{
    Arena arena = {0};
    Replay run = {.program = program, .arena = &arena, .garbage = 1};
    run.ranks = arena_array(&arena, program->rank_count, sizeof *run.ranks);
    run.losses = arena_array(&arena, program->microbatches, sizeof *run.losses);
    for (uint32_t r = 0; r < program->rank_count; r++) {
        ReplayRank *rank = &run.ranks[r];
        rank->program = &program->ranks[r];
        for (int class = 0; class < SLOT_CLASSES; class++)
            rank->slots[class] = arena_array(&arena, rank->program->slots[class], sizeof(uint64_t));
        rank->in_flight = arena_array(&arena, rank->program->slots[SLOT_MESSAGE], sizeof *rank->in_flight);
        const size_t channels = 2 * (size_t)program->rank_count;
        rank->posted = arena_array(&arena, channels * rank->program->instruction_count, sizeof *rank->posted);
        rank->first = arena_array(&arena, channels, sizeof *rank->first);
        rank->last = arena_array(&arena, channels, sizeof *rank->last);
        rank->gradients = arena_array(&arena, rank->program->chunk_count, sizeof *rank->gradients);
        rank->reduced = arena_array(&arena, rank->program->chunk_count, sizeof *rank->reduced);
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
    for (uint32_t r = 0; r < program->rank_count && good; r++) {
        for (uint32_t c = 0; c < run.ranks[r].program->chunk_count; c++) {
            const Chunk chunk = run.ranks[r].program->chunks[c];
            uint64_t own = 0, all = 0, loss;
            for (uint32_t p = 0; p < program->pipe_count; p++)
                for (uint32_t m = 0; m < program->pipes[p].microbatches; m++) {
                    const uint64_t gradient = expected_gradient(program, chunk.stage, program->pipes[p].first + m, &loss);
                    own += p == chunk.pipe ? gradient : 0;
                    all += gradient;
                    good &= run.losses[program->pipes[p].first + m] == loss;
                }
            if (program->forward_only)
                continue;
            good &= run.ranks[r].gradients[c] == own && run.ranks[r].updates[c] == 1;
            good &= program->pipe_count == 1 || run.ranks[r].reduced[c] == all;
        }
    }
    arena_free(&arena);
    return good;
}

#endif
