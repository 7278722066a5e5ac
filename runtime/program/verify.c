#include "runtime/program/verify.h"

#include "runtime/base/counted.h"

#include <stdarg.h>
#include <string.h>

/* Runs all ranks symbolically: slots hold labels instead of data. A rank runs until it blocks: at a SEND or RECEIVE
   until the other end arrives, at a REDUCE until all copies of the stage arrive, at a NORM until all ranks arrive. So a
   program that passes needs no buffered messages. The last rank to arrive does the work for all and makes the others
   runnable, so every instruction is checked once. The result does not depend on the order in which ranks run, as each
   message has one position at both ends. */

enum { TEXT_SIZE = 160 };

int verifier_place_text(const Program *program, uint32_t rank, uint32_t index, char *text, size_t size)
{
    const Instruction *instruction = &program->ranks[rank].instructions[index];
    char words[TEXT_SIZE], line[16] = "";
    program_instruction_text(program, rank, instruction, words, sizeof words);
    if (instruction->line)
        snprintf(line, sizeof line, ":%u", instruction->line);
    return snprintf(text, size, "rank %u, instruction %u `%s` (%.200s%s)", rank, index, words, program->source, line);
}

static Status refuse(const Verifier *verifier, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static Status refuse(const Verifier *verifier, uint32_t rank, const char *format, ...)
{
    char place[2 * TEXT_SIZE + 200], words[sizeof verifier->error->text];
    verifier_place_text(verifier->program, rank, verifier->ranks[rank].next, place, sizeof place);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return error_set(verifier->error, STATUS_BAD_INPUT, "%s: %.600s", place, words);
}

/* "the activation made by stage 2 for microbatch 5", or what else the slot's word says. */
static const char *word_text(const Verifier *verifier, uint64_t word, char text[static TEXT_SIZE])
{
    static const char *const kinds[] = {[LABEL_ACTIVATION] = "the activation made by",
                                        [LABEL_DERIVATIVE] = "the gradient made by",
                                        [LABEL_CONTEXT] = "the context of",
                                        [LABEL_STASH] = "the stash of",
                                        [LABEL_GRADIENT] = "what W needs of the I of"};
    if (word <= SLOT_FREE)
        return strcpy(text, "nothing");
    const uint64_t state = word & SLOT_STATE;
    const uint32_t pipe = word >> LABEL_PIPE_SHIFT & 0x3f;
    char of_pipe[16] = "";
    if (verifier->program->pipe_count > 1)
        snprintf(of_pipe, sizeof of_pipe, "pipe %u ", pipe);
    snprintf(text, TEXT_SIZE, "%s%s %sstage %u microbatch %u",
             state == SLOT_SENDING     ? "in flight "
             : state == SLOT_RECEIVING ? "not yet received "
                                       : "",
             kinds[word >> LABEL_KIND_SHIFT & 7], of_pipe, (unsigned)(word >> LABEL_STAGE_SHIFT & 0xffff),
             (unsigned)(word & ((1 << LABEL_STAGE_SHIFT) - 1)));
    return text;
}

static Status refuse_slot(const Verifier *verifier, uint32_t rank, const Operand *operand, uint16_t slot, uint64_t word,
                          const char *needs)
{
    char holds[TEXT_SIZE];
    return refuse(verifier, rank, "slot %s%u holds %s, %s", operand_letters(operand), slot,
                  word_text(verifier, word, holds), needs);
}

uint64_t verifier_label(const ChunkState *chunk, const Instruction *instruction, const Operand *operand)
{
    const ContentInfo *content = &content_table[operand->content];
    return (chunk->label | instruction->microbatch | (uint64_t)content->label << LABEL_KIND_SHIFT) +
           (uint64_t)((int64_t)content->maker * (1 << LABEL_STAGE_SHIFT));
}

static Status check_slot(const Verifier *verifier, uint32_t rank, const Instruction *instruction,
                         const ChunkState *chunk, const Operand *operand)
{
    RankState *state = &verifier->ranks[rank];
    const uint16_t slot = instruction->slot[operand->slot];
    const char *letters = operand_letters(operand);
    uint64_t label = 0;
    if (operand->content != CONTENT_NONE) {
        const ContentInfo *content = &content_table[operand->content];
        const uint32_t neighbour = chunk->stage + (uint32_t)content->neighbour;
        if (content->neighbour && neighbour >= verifier->program->stages) { /* -1 wraps around */
            if (operand->kind == OPERAND_POST_SEND || operand->kind == OPERAND_POST_RECEIVE)
                return refuse(verifier, rank, "stage %u of %u has no stage %s it to exchange messages with",
                              chunk->stage, verifier->program->stages, content->neighbour > 0 ? "after" : "before");
            if (slot != SLOT_NONE)
                return refuse(verifier, rank, "slot %s%u is given, but stage %u of %u has none (%s)", letters, slot,
                              chunk->stage, verifier->program->stages, content->what);
            return STATUS_OK;
        }
        label = verifier_label(chunk, instruction, operand);
    }
    state->labels[operand->slot] = label;
    if (slot >= state->program->slots[operand->class]) {
        if (slot == SLOT_NONE)
            return refuse(verifier, rank, "slot %s is missing", letters);
        return refuse(verifier, rank, "slot %s%u does not exist: the rank has %u %s slots", letters, slot,
                      state->program->slots[operand->class], slot_class_names[operand->class]);
    }
    const uint64_t word = state->slots[operand->class][slot];
    char needs[TEXT_SIZE + 32];
    switch ((OperandKind)operand->kind) {
    case OPERAND_READ:
    case OPERAND_TAKE:
    case OPERAND_POST_SEND:
        if (word != (SLOT_FULL | label)) {
            char label_text[TEXT_SIZE];
            snprintf(needs, sizeof needs, "needs %s", word_text(verifier, label, label_text));
            return refuse_slot(verifier, rank, operand, slot, word, needs);
        }
        break;
    case OPERAND_SETTLE:
        if ((word & SLOT_STATE) != SLOT_SENDING && (word & SLOT_STATE) != SLOT_RECEIVING)
            return refuse_slot(verifier, rank, operand, slot, word, "no message in flight");
        break;
    default: /* FILL, SCRATCH, POST_RECEIVE */
        if (word > SLOT_FREE)
            return refuse_slot(verifier, rank, operand, slot, word, "must be free");
        break;
    }
    return STATUS_OK;
}

/* --- passes --- */

/* What each pass does for its stage and microbatch, and which passes must come before it. */
static const struct {
    uint8_t does, needs;
} pass_table[OPCODE_COUNT] = {
    [OP_FORWARD] = {PASS_F, 0},
    [OP_FORWARD_ONLY] = {PASS_F, 0},
    [OP_OVERLAP] = {PASS_F, 0}, /* the first half of a pair is an F */
    [OP_OVERLAP_FORWARD] = {PASS_F, 0},
    [OP_BACKWARD] = {PASS_I | PASS_W, PASS_F},
    [OP_BACKWARD_INPUT] = {PASS_I, PASS_F},
    [OP_BACKWARD_WEIGHT] = {PASS_W, PASS_I},
};

/* Checks a weights slot: F and its backward need the right version of this chunk's weights, and U may overwrite only a
   version that no microbatch needs any more. */
static Status check_weights(const Verifier *verifier, uint32_t rank, const Instruction *instruction,
                            const ChunkState *chunk, const Operand *operand)
{
    const RankState *state = &verifier->ranks[rank];
    const uint16_t slot = instruction->slot[operand->slot];
    if (slot == SLOT_NONE)
        return refuse(verifier, rank, "slot w is missing");
    if (slot >= state->program->slots[SLOT_WEIGHTS])
        return refuse(verifier, rank, "slot w%u does not exist: the rank has %u weights slots", slot,
                      state->program->slots[SLOT_WEIGHTS]);
    const WeightSlot *weights = &state->weights[slot];
    if (weights->chunk != instruction->chunk && (weights->chunk != CHUNK_NONE || operand->kind != OPERAND_NEXT)) {
        if (weights->chunk == CHUNK_NONE)
            return refuse(verifier, rank, "slot w%u holds nothing, needs weights of stage %u", slot, chunk->stage);
        return refuse(verifier, rank, "slot w%u is for the weights of chunk %u", slot, weights->chunk);
    }
    if (operand->kind == OPERAND_NEXT) {
        if (weights->readers)
            return refuse(verifier, rank, "slot w%u holds version %u, with which %s must still run backward", slot,
                          weights->version, counted(weights->readers, "microbatch").text);
        return STATUS_OK;
    }
    uint32_t needed = chunk->newest;
    if (operand->kind == OPERAND_VERSION && pass_table[instruction->opcode].does != PASS_F && chunk->versions)
        needed = chunk->versions[instruction->microbatch];
    else if (operand->kind == OPERAND_VERSION && chunk->wanted)
        needed = chunk->wanted[instruction->microbatch];
    if (weights->version != needed)
        return refuse(verifier, rank, "slot w%u holds version %u of the weights of stage %u, needs version %u", slot,
                      weights->version, chunk->stage, needed);
    return STATUS_OK;
}

static Status check_pass(const Verifier *verifier, uint32_t rank, const Instruction *instruction,
                         const ChunkState *chunk)
{
    const uint8_t passes = chunk->passes[instruction->microbatch];
    const uint8_t twice = passes & pass_table[instruction->opcode].does;
    const uint8_t missing = pass_table[instruction->opcode].needs & (uint8_t)~passes;
    if (twice)
        return refuse(verifier, rank, "stage %u microbatch %u has had its %s", chunk->stage, instruction->microbatch,
                      twice & PASS_F   ? "F"
                      : twice & PASS_W ? "B or W"
                                       : "I");
    if (missing)
        return refuse(verifier, rank, "stage %u microbatch %u has not had its %s", chunk->stage,
                      instruction->microbatch, missing & PASS_F ? "F" : "I");
    if (chunk->posted && pass_table[instruction->opcode].does & PASS_W)
        return refuse(verifier, rank, "adds to the gradient of chunk %u, whose sum has been posted and not yet used",
                      instruction->chunk);
    return STATUS_OK;
}

static Status check_reduced(const Verifier *verifier, uint32_t rank, uint32_t chunk)
{
    const ChunkState *state = &verifier->ranks[rank].chunks[chunk];
    if (state->reduced)
        return STATUS_OK;
    return refuse(verifier, rank,
                  state->posted ? "nothing has waited for the sum of the gradients of chunk %u"
                                : "the gradients of chunk %u have not been summed",
                  chunk);
}

/* Checks all operands against the state before the instruction. So no slot that it takes or reads is one that it
   fills. */
static Status check_operands(const Verifier *verifier, uint32_t rank, const Instruction *instruction)
{
    const Program *program = verifier->program;
    const RankState *state = &verifier->ranks[rank];
    const ChunkState *chunk = NULL;
    for (const Operand *operand = opcode_table[instruction->opcode].operands; operand->kind; operand++) {
        switch ((OperandKind)operand->kind) {
        case OPERAND_CHUNK:
            if (instruction->chunk >= state->program->chunk_count)
                return refuse(verifier, rank, "the rank has no chunk %u, only %u", instruction->chunk,
                              state->program->chunk_count);
            chunk = &state->chunks[instruction->chunk];
            break;
        case OPERAND_MICROBATCH:
            if (instruction->microbatch >= chunk->microbatches)
                return refuse(verifier, rank, "there is no microbatch %u: the pipe has %u", instruction->microbatch,
                              chunk->microbatches);
            if (chunk->homes && chunk->homes[instruction->microbatch] != rank)
                return refuse(verifier, rank, "microbatch %u passes stage %u on rank %u", instruction->microbatch,
                              chunk->stage, chunk->homes[instruction->microbatch]);
            TRY(check_pass(verifier, rank, instruction, chunk));
            break;
        case OPERAND_PEER:
            if (instruction->peer >= program->rank_count || instruction->peer == rank)
                return refuse(verifier, rank, "rank %u is not another rank of %u", instruction->peer,
                              program->rank_count);
            break;
        case OPERAND_COUNT:
            TRY(check_reduced(verifier, rank, instruction->chunk));
            if (instruction->microbatch != chunk->gathered || !chunk->gathered)
                return refuse(verifier, rank, "takes the gradients of %s; what is there is of %u",
                              counted(instruction->microbatch, "microbatch").text, chunk->gathered);
            break;
        case OPERAND_VERSION:
        case OPERAND_NEWEST:
        case OPERAND_NEXT: TRY(check_weights(verifier, rank, instruction, chunk, operand)); break;
        default: TRY(check_slot(verifier, rank, instruction, chunk, operand)); break;
        }
    }
    return STATUS_OK;
}

/* Applies the effects of an instruction on its slots. check_operands has accepted it. */
static void apply_operands(RankState *state, const Instruction *instruction)
{
    for (const Operand *operand = opcode_table[instruction->opcode].operands; operand->kind; operand++) {
        if (!operand_is_slot(operand) || operand->class == SLOT_WEIGHTS ||
            instruction->slot[operand->slot] == SLOT_NONE)
            continue;
        uint64_t *word = &state->slots[operand->class][instruction->slot[operand->slot]];
        const uint64_t label = state->labels[operand->slot];
        state->used[operand->class] += *word == SLOT_UNUSED;
        switch ((OperandKind)operand->kind) {
        case OPERAND_FILL:
            *word = SLOT_FULL | label;
            state->occupied++;
            break;
        case OPERAND_TAKE:
            *word = SLOT_FREE;
            state->occupied--;
            break;
        case OPERAND_SCRATCH: *word = SLOT_FREE; break;
        case OPERAND_POST_SEND: *word = SLOT_SENDING | label; break;
        case OPERAND_POST_RECEIVE:
            *word = SLOT_RECEIVING | label;
            state->occupied++;
            break;
        case OPERAND_SETTLE:
            if ((*word & SLOT_STATE) == SLOT_SENDING) {
                *word = SLOT_FREE;
                state->occupied--;
            } else {
                *word = (*word & ~SLOT_STATE) | SLOT_FULL;
            }
            break;
        default: break;
        }
    }
}

static void resume(Verifier *verifier, uint32_t rank)
{
    RankState *state = &verifier->ranks[rank];
    state->blocked = false;
    state->next++;
    verifier->runnable[verifier->runnable_count++] = rank;
}

static void record_pass(const Verifier *verifier, RankState *state, const Instruction *instruction)
{
    const uint8_t does = pass_table[instruction->opcode].does;
    const bool forward_only = verifier->program->forward_only;
    ChunkState *chunk = &state->chunks[instruction->chunk];
    chunk->passes[instruction->microbatch] |= does;
    if (chunk->versions && does & (PASS_F | PASS_I)) {
        WeightSlot *weights = &state->weights[instruction->weights];
        chunk->versions[instruction->microbatch] = weights->version;
        if (does & PASS_F)
            weights->readers++;
        else
            weights->readers--;
    }
    if (does & (forward_only ? PASS_F : PASS_W))
        chunk->completed++;
    if (does & PASS_W) {
        chunk->gathered++;
        state->held--;
    } else if (does == PASS_F && !forward_only && ++state->held > state->peak)
        state->peak = state->held;
}

/* The halves of an F&F run at the same time, so they need scratch slots of their own. */
static Status check_scratch(const Verifier *verifier, uint32_t rank, const Instruction *first)
{
    for (const Operand *operand = opcode_table[first->opcode].operands; operand->kind; operand++)
        if (operand->kind == OPERAND_SCRATCH && first->slot[operand->slot] == first->second->slot[operand->slot])
            return refuse(verifier, rank, "both halves use slot %s%u at once", operand_letters(operand),
                          first->slot[operand->slot]);
    return STATUS_OK;
}

/* Runs the second half of an F&B or F&F, after check_operands has accepted the first half. The halves run at the same
   time, so both are checked against the state before the instruction. Then the second half takes effect and the first
   is checked again, because a slot that the second fills is not free for the first. The halves may not be of one
   microbatch of one pipe: a B needs every F of its microbatch, and of two F one needs the other. Passes of different
   microbatches share only slots and weights. */
static Status run_second(const Verifier *verifier, uint32_t rank, const Instruction *first)
{
    RankState *state = &verifier->ranks[rank];
    const RankProgram *program = state->program;
    const Instruction *second = first->second;
    const bool both_forward = first->opcode == OP_OVERLAP_FORWARD;
    const bool fits = both_forward ? second->opcode == OP_FORWARD_ONLY
                                   : second->opcode == OP_BACKWARD || second->opcode == OP_BACKWARD_INPUT;
    if (second->second || !fits)
        return refuse(verifier, rank,
                      both_forward ? "an F&F is an FO and then another" : "an F&B is an F and then a B or I");
    const Recipe *recipe = verifier->program->recipe;
    if (recipe && recipe_is_forward(recipe) != both_forward)
        return refuse(verifier, rank, "the program's recipe is that of an F&%s", both_forward ? "B" : "F");
    if (first->microbatch == second->microbatch && second->chunk < program->chunk_count &&
        program->chunks[first->chunk].pipe == program->chunks[second->chunk].pipe)
        return refuse(verifier, rank,
                      both_forward ? "both F are of one microbatch: one needs the other, they cannot overlap"
                                   : "the F and the B are of one microbatch: the B needs the F, they cannot overlap");
    TRY(check_operands(verifier, rank, second));
    TRY(check_scratch(verifier, rank, first));
    apply_operands(state, second);
    return check_operands(verifier, rank, first);
}

/* --- collectives --- */

static Status check_complete(const Verifier *verifier, uint32_t rank, const ChunkState *chunk)
{
    if (chunk->completed == chunk->own)
        return STATUS_OK;
    const bool forward_only = verifier->program->forward_only;
    const uint8_t last = forward_only ? PASS_F : PASS_W;
    uint32_t missing = 0;
    while (chunk->passes[missing] & last || (chunk->homes && chunk->homes[missing] != rank))
        missing++;
    const uint8_t passes = chunk->passes[missing];
    return refuse(verifier, rank, "the %s of stage %u microbatch %u is missing",
                  !(passes & PASS_F) ? "F"
                  : passes & PASS_I  ? "W"
                                     : "B (or I and W)",
                  chunk->stage, missing);
}

/* Checks that the gradients of all chunks are final: from every microbatch and every copy. */
static Status check_gradients(const Verifier *verifier, uint32_t rank)
{
    const RankState *state = &verifier->ranks[rank];
    for (uint32_t c = 0; c < state->program->chunk_count; c++) {
        TRY(check_complete(verifier, rank, &state->chunks[c]));
        TRY(check_reduced(verifier, rank, c));
    }
    return STATUS_OK;
}

static ChunkState *member_chunk(const Verifier *verifier, const Home *member)
{
    return &verifier->ranks[member->rank].chunks[member->chunk];
}

/* A rank arrives at a REDUCE. In an asynchronous program the next U uses the gradients that all copies have
   gathered. */
static Status arrive_at_reduce(Verifier *verifier, uint32_t rank, const Instruction *instruction)
{
    RankState *state = &verifier->ranks[rank];
    ChunkState *chunk = &state->chunks[instruction->chunk];
    if (chunk->posted)
        return refuse(verifier, rank, "the sum of the gradients of chunk %u has been posted before",
                      instruction->chunk);
    if (!verifier->program->asynchronous)
        TRY(check_complete(verifier, rank, chunk));
    chunk->posted = true;
    chunk->reductions++;
    state->blocked = true;
    if (chunk->group == GROUP_NONE) {
        resume(verifier, rank);
        return STATUS_OK;
    }
    const Group *group = &verifier->program->groups[chunk->group];
    if (++verifier->reduce_arrivals[chunk->group] < group->member_count)
        return STATUS_OK;
    verifier->reduce_arrivals[chunk->group] = 0;
    uint32_t gathered = 0;
    for (uint32_t m = 0; m < group->member_count; m++)
        gathered += member_chunk(verifier, &group->members[m])->gathered;
    for (uint32_t m = 0; m < group->member_count; m++) {
        member_chunk(verifier, &group->members[m])->gathered = gathered;
        resume(verifier, group->members[m].rank);
    }
    return STATUS_OK;
}

static Status wait_for_sum(const Verifier *verifier, uint32_t rank, const Instruction *instruction)
{
    ChunkState *chunk = &verifier->ranks[rank].chunks[instruction->chunk];
    if (!chunk->posted || chunk->reduced)
        return refuse(verifier, rank, "no sum of the gradients of chunk %u is under way", instruction->chunk);
    chunk->reduced = true;
    return STATUS_OK;
}

static Status arrive_at_norm(Verifier *verifier, uint32_t rank)
{
    RankState *state = &verifier->ranks[rank];
    if (state->normed)
        return refuse(verifier, rank, "a second NORM");
    TRY(check_gradients(verifier, rank));
    state->normed = true;
    state->blocked = true;
    if (++verifier->norm_arrivals == verifier->program->rank_count)
        for (uint32_t r = 0; r < verifier->program->rank_count; r++)
            resume(verifier, r);
    return STATUS_OK;
}

static Status update(const Verifier *verifier, uint32_t rank, ChunkState *chunk)
{
    if (!verifier->ranks[rank].normed || chunk->updated)
        return refuse(verifier, rank, chunk->updated ? "the chunk has been updated before" : "NORM must come first");
    chunk->updated = true;
    return STATUS_OK;
}

static void update_async(RankState *state, const Instruction *instruction)
{
    ChunkState *chunk = &state->chunks[instruction->chunk];
    WeightSlot *weights = &state->weights[instruction->next];
    state->used[SLOT_WEIGHTS] += weights->chunk == CHUNK_NONE;
    weights->chunk = instruction->chunk;
    weights->version = ++chunk->newest;
    chunk->gathered = 0;
    chunk->posted = chunk->reduced = false;
}

/* Checks that every gradient is in some version, and that the next step will find the newest one. */
static Status check_updated(const Verifier *verifier, uint32_t rank)
{
    const RankState *state = &verifier->ranks[rank];
    for (uint32_t c = 0; c < state->program->chunk_count; c++) {
        const ChunkState *chunk = &state->chunks[c];
        TRY(check_complete(verifier, rank, chunk));
        if (chunk->gathered || chunk->posted)
            return refuse(verifier, rank, "no U takes the gradients of the last %s of stage %u",
                          counted(chunk->gathered, "microbatch").text, chunk->stage);
        if (state->weights[c].version != chunk->newest)
            return refuse(verifier, rank,
                          "slot w%u holds version %u of the weights of stage %u, the newest is version %u", c,
                          state->weights[c].version, chunk->stage, chunk->newest);
    }
    return STATUS_OK;
}

static Status arrive_at_end(Verifier *verifier, uint32_t rank)
{
    RankState *state = &verifier->ranks[rank];
    const RankProgram *program = state->program;
    if (state->next != program->instruction_count - 1)
        return refuse(verifier, rank, "instructions follow END");
    if (verifier->program->forward_only) {
        for (uint32_t c = 0; c < program->chunk_count; c++)
            TRY(check_complete(verifier, rank, &state->chunks[c]));
    } else if (verifier->program->asynchronous) {
        TRY(check_updated(verifier, rank));
    } else {
        TRY(check_gradients(verifier, rank));
        if (!state->normed)
            return refuse(verifier, rank, "the rank has had no NORM");
        for (uint32_t c = 0; c < program->chunk_count; c++)
            if (!state->chunks[c].updated)
                return refuse(verifier, rank, "chunk %u has not been updated", c);
    }
    for (int class = 0; class < SLOT_CLASSES; class ++) {
        for (uint32_t slot = 0; state->occupied && class < SLOT_WEIGHTS && slot < program->slots[class]; slot++) {
            char holds[TEXT_SIZE];
            if (state->slots[class][slot] > SLOT_FREE)
                return refuse(verifier, rank, "%s slot %u still holds %s", slot_class_names[class], slot,
                              word_text(verifier, state->slots[class][slot], holds));
        }
        if (state->used[class] != program->slots[class])
            return refuse(verifier, rank, "the rank has %u %s slots and uses %u", program->slots[class],
                          slot_class_names[class], state->used[class]);
    }
    if (state->peak != program->peak_activations)
        return refuse(verifier, rank, "the rank holds up to %s, recorded are %u",
                      counted(state->peak, "activation").text, program->peak_activations);
    state->ended = true;
    verifier->ended++;
    return STATUS_OK;
}

/* --- messages --- */

const Operand *verifier_message(const Instruction *instruction)
{
    for (const Operand *operand = opcode_table[instruction->opcode].operands; operand->kind; operand++)
        if (operand->kind == OPERAND_POST_SEND || operand->kind == OPERAND_POST_RECEIVE)
            return operand;
    return NULL;
}

static Status refuse_message(const Verifier *verifier, uint32_t rank, bool sends, uint64_t mine, uint64_t theirs,
                             const char *where)
{
    char my_text[TEXT_SIZE], their_text[TEXT_SIZE];
    return refuse(verifier, rank, "%s %s, but the other end %s %s: %s", sends ? "sends" : "expects",
                  word_text(verifier, mine, my_text), sends ? "expects" : "sends",
                  word_text(verifier, theirs, their_text), where);
}

static Link *link_between(Verifier *verifier, uint32_t from, uint32_t to)
{
    Link **place = &verifier->links[from];
    while (*place && (*place)->to != to)
        place = &(*place)->next;
    if (!*place && (*place = arena_allocate(&verifier->arena, sizeof **place)))
        **place = (Link){.to = to};
    return *place;
}

/* Puts a message into its link's buffer, or takes it out. If that is not possible the rank blocks, and tries again when
   the other end has used the buffer. */
static Status use_buffer(Verifier *verifier, uint32_t rank, const Instruction *instruction, const Operand *operand)
{
    RankState *state = &verifier->ranks[rank], *other = &verifier->ranks[instruction->peer];
    const bool sends = operand->kind == OPERAND_POST_SEND;
    const uint32_t peer = instruction->peer;
    Link *link = sends ? link_between(verifier, rank, peer) : link_between(verifier, peer, rank);
    if (!link)
        return error_set(verifier->error, STATUS_RUN_FAILED, "no memory for a message");
    const uint64_t mine = state->labels[operand->slot];
    if (sends != !link->label)
        return STATUS_OK;
    if (!sends && link->label != mine)
        return refuse_message(verifier, rank, sends, mine, link->label, "buffered");
    link->label = sends ? mine : 0;
    apply_operands(state, instruction);
    resume(verifier, rank);
    const Instruction *theirs = &other->program->instructions[other->next];
    if (other->blocked && verifier_message(theirs) && theirs->peer == rank) {
        other->blocked = false;
        verifier->runnable[verifier->runnable_count++] = peer;
    }
    return STATUS_OK;
}

static Status arrive_at_message(Verifier *verifier, uint32_t rank, const Instruction *instruction)
{
    RankState *state = &verifier->ranks[rank];
    const Operand *operand = verifier_message(instruction);
    const ChunkState *chunk = &state->chunks[instruction->chunk];
    const uint32_t neighbour = chunk->stage + (uint32_t)content_table[operand->content].neighbour;
    const Place *there = verifier_place(verifier, chunk->pipe, neighbour);
    const uint32_t owner = there->homes ? there->homes[instruction->microbatch] : there->rank;
    if (owner != instruction->peer)
        return refuse(verifier, rank, "stage %u%s is on rank %u", neighbour, there->homes ? " of this microbatch" : "",
                      owner);
    state->blocked = true;
    if (verifier->links)
        return use_buffer(verifier, rank, instruction, operand);
    const uint32_t peer = instruction->peer;
    RankState *other = &verifier->ranks[peer];
    if (!other->blocked)
        return STATUS_OK;
    const Instruction *theirs = &other->program->instructions[other->next];
    const Operand *their_operand = verifier_message(theirs);
    if (!their_operand || theirs->peer != rank || their_operand->kind == operand->kind)
        return STATUS_OK; /* the peer is at another instruction and may wait there forever */
    const uint64_t mine = state->labels[operand->slot], their = other->labels[their_operand->slot];
    if (mine != their) {
        char place[2 * TEXT_SIZE + 200];
        verifier_place_text(verifier->program, peer, other->next, place, sizeof place);
        return refuse_message(verifier, rank, operand->kind == OPERAND_POST_SEND, mine, their, place);
    }
    apply_operands(state, instruction);
    apply_operands(other, theirs);
    resume(verifier, rank);
    resume(verifier, peer);
    return STATUS_OK;
}

/* --- the run --- */

static bool is_misplaced(const Program *program, uint8_t opcode)
{
    const bool is_forward_only = opcode == OP_FORWARD_ONLY || opcode == OP_OVERLAP_FORWARD;
    if (program->forward_only)
        return !opcode_is_forward_only(opcode);
    if (program->asynchronous)
        return is_forward_only || opcode == OP_NORM || opcode == OP_UPDATE;
    return is_forward_only || opcode == OP_ASYNC_UPDATE;
}

/* Runs a rank until it arrives at an instruction where it may wait. Whoever wakes it puts it back on the stack. */
static Status run_rank(Verifier *verifier, uint32_t rank)
{
    RankState *state = &verifier->ranks[rank];
    const bool forward_only = verifier->program->forward_only, asynchronous = verifier->program->asynchronous;
    for (;; state->next++) {
        const Instruction *instruction = &state->program->instructions[state->next];
        if (instruction->opcode >= OPCODE_COUNT)
            return refuse(verifier, rank, "there is no such opcode");
        if (opcode_is_pair(instruction->opcode) != (instruction->second != NULL))
            return refuse(verifier, rank, "an F&B or F&F has two halves, and nothing else has");
        if (is_misplaced(verifier->program, instruction->opcode))
            return refuse(verifier, rank, "has no place in %s program",
                          forward_only   ? "a forward-only"
                          : asynchronous ? "an asynchronous"
                                         : "a full");
        TRY(check_operands(verifier, rank, instruction));
        switch ((Opcode)instruction->opcode) {
        case OP_SEND_FORWARD:
        case OP_RECEIVE_FORWARD:
        case OP_SEND_BACKWARD:
        case OP_RECEIVE_BACKWARD: return arrive_at_message(verifier, rank, instruction);
        case OP_REDUCE: return arrive_at_reduce(verifier, rank, instruction);
        case OP_WAIT_REDUCE: TRY(wait_for_sum(verifier, rank, instruction)); break;
        case OP_NORM: return arrive_at_norm(verifier, rank);
        case OP_END: return arrive_at_end(verifier, rank);
        case OP_OVERLAP:
        case OP_OVERLAP_FORWARD: TRY(run_second(verifier, rank, instruction)); break;
        case OP_ASYNC_UPDATE: update_async(state, instruction); break;
        case OP_UPDATE: TRY(update(verifier, rank, &state->chunks[instruction->chunk])); break;
        default: break;
        }
        apply_operands(state, instruction);
        for (const Instruction *half = instruction; half; half = half->second)
            if (pass_table[half->opcode].does)
                record_pass(verifier, state, half);
    }
}

static Status run(Verifier *verifier)
{
    for (uint32_t r = verifier->program->rank_count; r-- > 0;)
        verifier->runnable[verifier->runnable_count++] = r;
    while (verifier->runnable_count)
        TRY(run_rank(verifier, verifier->runnable[--verifier->runnable_count]));
    return STATUS_OK;
}

static Status verify(Verifier *verifier, Arena *arena, Deadlock *deadlock)
{
    TRY(verifier_prepare(verifier));
    TRY(run(verifier));
    const bool complete = verifier->ended == verifier->program->rank_count;
    return complete ? STATUS_OK : verifier_explain_deadlock(verifier, arena, deadlock);
}

Status program_verify_deadlock(const Program *program, Arena *arena, Deadlock *deadlock, Error *error)
{
    Verifier verifier = {.program = program, .error = error, .arena = {.functions = arena->functions}};
    *deadlock = (Deadlock){0};
    const Status status = verify(&verifier, arena, deadlock);
    arena_free(&verifier.arena);
    return status;
}

Status program_verify(const Program *program, Error *error)
{
    Arena arena = {0};
    Deadlock deadlock;
    const Status status = program_verify_deadlock(program, &arena, &deadlock, error);
    arena_free(&arena);
    return status;
}

bool verifier_runs_buffered(const Program *program)
{
    Error ignored;
    Verifier verifier = {.program = program, .error = &ignored};
    bool good = verifier_prepare(&verifier) == STATUS_OK;
    verifier.links = good ? arena_array(&verifier.arena, program->rank_count, sizeof *verifier.links) : NULL;
    good = verifier.links && run(&verifier) == STATUS_OK && verifier.ended == program->rank_count;
    arena_free(&verifier.arena);
    return good;
}
