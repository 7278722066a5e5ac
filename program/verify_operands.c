#include "program/verify.h"

#include "base/counted.h"

/* This file verifies slots, passes and versions of weights: which state of its rank an instruction needs, and what the
   instruction changes in that state. */

static Status refuse_slot(const Verifier *verifier, uint32_t rank, const Operand *operand, uint16_t slot, uint64_t word,
                          const char *needs)
{
    char holds[VERIFIER_TEXT];
    return verifier_refuse(verifier, rank, "slot %s%u holds %s, %s", operand_letters(operand), slot,
                           verifier_word_text(verifier, word, holds), needs);
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
                return verifier_refuse(verifier, rank, "stage %u of %u has no stage %s it to exchange messages with",
                                       chunk->stage, verifier->program->stages,
                                       content->neighbour > 0 ? "after" : "before");
            if (slot != SLOT_NONE)
                return verifier_refuse(verifier, rank, "slot %s%u is given for %s, but stage %u of %u needs none",
                                       letters, slot, content->what, chunk->stage, verifier->program->stages);
            return STATUS_OK;
        }
        label = verifier_label(chunk, instruction, operand);
    }
    state->labels[operand->slot] = label;
    if (slot >= state->program->slots[operand->class]) {
        if (slot == SLOT_NONE)
            return verifier_refuse(verifier, rank, "the instruction has no slot for its operand %s", letters);
        return verifier_refuse(verifier, rank, "slot %s%u does not exist; number of the rank's %s slots: %u", letters,
                               slot, slot_class_names[operand->class], state->program->slots[operand->class]);
    }
    const uint64_t word = state->slots[operand->class][slot];
    char needs[VERIFIER_TEXT + 32];
    switch ((OperandKind)operand->kind) {
    case OPERAND_READ:
    case OPERAND_TAKE:
    case OPERAND_POST_SEND:
        if (word != (SLOT_FULL | label)) {
            char label_text[VERIFIER_TEXT];
            snprintf(needs, sizeof needs, "but must hold %s", verifier_word_text(verifier, label, label_text));
            return refuse_slot(verifier, rank, operand, slot, word, needs);
        }
        break;
    case OPERAND_SETTLE:
        if ((word & SLOT_STATE) != SLOT_SENDING && (word & SLOT_STATE) != SLOT_RECEIVING)
            return refuse_slot(verifier, rank, operand, slot, word, "but must hold a message in flight");
        break;
    default: /* FILL, SCRATCH, POST_RECEIVE */
        if (word > SLOT_FREE)
            return refuse_slot(verifier, rank, operand, slot, word, "but must be free");
        break;
    }
    return STATUS_OK;
}

/* For each opcode of a pass: which of F, I and W it completes for its stage and microbatch, and which of these must
   have run before. */
static const struct {
    uint8_t does, needs;
} pass_table[OPCODE_COUNT] = {
    [OP_FORWARD] = {PASS_F, 0},
    [OP_FORWARD_ONLY] = {PASS_F, 0},
    [OP_OVERLAP] = {PASS_F, 0}, /* the first half of an F&B is an F */
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
        return verifier_refuse(verifier, rank, "the instruction has no slot for its operand w");
    if (slot >= state->program->slots[SLOT_WEIGHTS])
        return verifier_refuse(verifier, rank, "slot w%u does not exist: the rank has %s", slot,
                               counted(state->program->slots[SLOT_WEIGHTS], "weights slot").text);
    const WeightSlot *weights = &state->weights[slot];
    if (weights->chunk != instruction->chunk && (weights->chunk != CHUNK_NONE || operand->kind != OPERAND_NEXT)) {
        if (weights->chunk == CHUNK_NONE)
            return verifier_refuse(verifier, rank, "slot w%u is empty, but must hold weights of stage %u", slot,
                                   chunk->stage);
        return verifier_refuse(verifier, rank, "slot w%u holds weights of chunk %u, not of chunk %u", slot,
                               weights->chunk, instruction->chunk);
    }
    if (operand->kind == OPERAND_NEXT) {
        if (weights->readers)
            return verifier_refuse(verifier, rank, "slot w%u holds version %u, with which %s must still run backward",
                                   slot, weights->version, counted(weights->readers, "microbatch").text);
        return STATUS_OK;
    }
    uint32_t needed = chunk->newest;
    if (operand->kind == OPERAND_VERSION && pass_table[instruction->opcode].does != PASS_F && chunk->versions)
        needed = chunk->versions[instruction->microbatch];
    else if (operand->kind == OPERAND_VERSION && chunk->wanted)
        needed = chunk->wanted[instruction->microbatch];
    if (weights->version != needed)
        return verifier_refuse(verifier, rank,
                               "slot w%u holds version %u of the weights of stage %u, but must hold version %u", slot,
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
        return verifier_refuse(verifier, rank, "the %s of stage %u microbatch %u has run already",
                               twice & PASS_F   ? "F"
                               : twice & PASS_W ? "B or W"
                                                : "B or I",
                               chunk->stage, instruction->microbatch);
    if (missing)
        return verifier_refuse(verifier, rank, "the %s of stage %u microbatch %u has not run yet",
                               missing & PASS_F ? "F" : "I", chunk->stage, instruction->microbatch);
    if (chunk->posted && pass_table[instruction->opcode].does & PASS_W)
        return verifier_refuse(verifier, rank,
                               "the instruction adds to the gradient of chunk %u between its REDUCE and its U",
                               instruction->chunk);
    return STATUS_OK;
}

Status verifier_check_reduced(const Verifier *verifier, uint32_t rank, uint32_t chunk)
{
    const ChunkState *state = &verifier->ranks[rank].chunks[chunk];
    if (state->reduced)
        return STATUS_OK;
    return verifier_refuse(verifier, rank,
                           state->posted ? "no WAIT_REDUCE has waited for the sum of the gradients of chunk %u"
                                         : "the gradients of chunk %u have not been summed",
                           chunk);
}

Status verifier_check_operands(const Verifier *verifier, uint32_t rank, const Instruction *instruction)
{
    const Program *program = verifier->program;
    const RankState *state = &verifier->ranks[rank];
    const ChunkState *chunk = NULL;
    for (const Operand *operand = opcode_table[instruction->opcode].operands; operand->kind; operand++) {
        switch ((OperandKind)operand->kind) {
        case OPERAND_CHUNK:
            if (instruction->chunk >= state->program->chunk_count)
                return verifier_refuse(verifier, rank, "there is no chunk %u: the rank has %s", instruction->chunk,
                                       counted(state->program->chunk_count, "chunk").text);
            chunk = &state->chunks[instruction->chunk];
            break;
        case OPERAND_MICROBATCH:
            if (instruction->microbatch >= chunk->microbatches)
                return verifier_refuse(verifier, rank, "there is no microbatch %u: the pipe has %s",
                                       instruction->microbatch, counted(chunk->microbatches, "microbatch").text);
            if (chunk->homes && chunk->homes[instruction->microbatch] != rank)
                return verifier_refuse(verifier, rank,
                                       "microbatch %u goes through stage %u on rank %u, not on this one",
                                       instruction->microbatch, chunk->stage, chunk->homes[instruction->microbatch]);
            TRY(check_pass(verifier, rank, instruction, chunk));
            break;
        case OPERAND_PEER:
            if (instruction->peer >= program->rank_count || instruction->peer == rank)
                return verifier_refuse(verifier, rank, "its peer must be another rank of the program, not rank %u",
                                       instruction->peer);
            break;
        case OPERAND_COUNT:
            TRY(verifier_check_reduced(verifier, rank, instruction->chunk));
            if (instruction->microbatch != chunk->gathered || !chunk->gathered)
                return verifier_refuse(
                    verifier, rank,
                    "the instruction takes the gradients of %s; the sum has those of %u, and needs at least one",
                    counted(instruction->microbatch, "microbatch").text, chunk->gathered);
            break;
        case OPERAND_PUT_OFF: break; /* verifier_check_put_off checks it */
        case OPERAND_VERSION:
        case OPERAND_NEWEST:
        case OPERAND_NEXT: TRY(check_weights(verifier, rank, instruction, chunk, operand)); break;
        default: TRY(check_slot(verifier, rank, instruction, chunk, operand)); break;
        }
    }
    return STATUS_OK;
}

void verifier_apply_operands(RankState *state, const Instruction *instruction)
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

void verifier_record_pass(const Verifier *verifier, RankState *state, const Instruction *instruction)
{
    const uint8_t does = pass_table[instruction->opcode].does;
    const bool forward_only = verifier->program->forward_only;
    if (!does)
        return;
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

static bool puts_off(const Instruction *pass)
{
    return (pass->opcode == OP_BACKWARD_INPUT || pass->opcode == OP_BACKWARD_WEIGHT) && pass->put_off;
}

/* Checks which weight gradients the second half of an F&B puts off. An I that names no components leaves all weight
   gradients to a later W, so it fits any recipe. */
static Status check_pair_put_off(const Verifier *verifier, uint32_t rank, const Instruction *pair)
{
    const Instruction *second = pair->second;
    const uint16_t needed = recipes_pair_put_off(&verifier->program->recipes, pair->chunk, second->chunk);
    if (puts_off(second) && second->put_off != needed)
        return verifier_refuse(verifier, rank, "its I puts off other weight gradients than its recipe says");
    if (second->opcode == OP_BACKWARD && needed)
        return verifier_refuse(verifier, rank,
                               "the recipe of this F&B puts weight gradients off, so the second half must be an I");
    return STATUS_OK;
}

Status verifier_check_put_off(Verifier *verifier, uint32_t rank, const Instruction *instruction)
{
    RankState *state = &verifier->ranks[rank];
    const Instruction *before = state->put_off, *second = instruction->second;
    if (!opcode_is_pass(instruction->opcode))
        return STATUS_OK;
    const bool is_put_off = instruction->opcode == OP_BACKWARD_WEIGHT && puts_off(instruction);
    const bool fits = before && is_put_off && instruction->chunk == before->chunk &&
                      instruction->microbatch == before->microbatch && instruction->put_off == before->put_off;
    if (before && !fits)
        return verifier_refuse(verifier, rank,
                               "the F&B before this pass put weight gradients off, so their W must be the next pass");
    if (puts_off(instruction) && !fits)
        return verifier_refuse(verifier, rank,
                               "only an F&B puts weight gradients off, and their W must be the next pass");
    if (second && instruction->opcode == OP_OVERLAP)
        TRY(check_pair_put_off(verifier, rank, instruction));
    state->put_off = second && puts_off(second) ? second : NULL;
    return STATUS_OK;
}

/* The halves of an F&F run at the same time, so they need scratch slots of their own. */
static Status check_scratch(const Verifier *verifier, uint32_t rank, const Instruction *first)
{
    for (const Operand *operand = opcode_table[first->opcode].operands; operand->kind; operand++)
        if (operand->kind == OPERAND_SCRATCH && first->slot[operand->slot] == first->second->slot[operand->slot])
            return verifier_refuse(verifier, rank, "both halves use slot %s%u at once", operand_letters(operand),
                                   first->slot[operand->slot]);
    return STATUS_OK;
}

/* The halves run at the same time, so both are checked against the state before the instruction. Then the second half
   takes effect and the first is checked again, because a slot that the second half fills is not free for the first. The
   halves may not be of one microbatch of one pipe: a B needs every F of its microbatch, and of two F of a microbatch
   one needs the other. Passes of different microbatches share only slots and weights. */
Status verifier_run_second(const Verifier *verifier, uint32_t rank, const Instruction *first)
{
    RankState *state = &verifier->ranks[rank];
    const RankProgram *program = state->program;
    const Instruction *second = first->second;
    const bool both_forward = first->opcode == OP_OVERLAP_FORWARD;
    const bool fits = both_forward ? second->opcode == OP_FORWARD_ONLY
                                   : second->opcode == OP_BACKWARD || second->opcode == OP_BACKWARD_INPUT;
    if (second->second || !fits)
        return verifier_refuse(verifier, rank,
                               both_forward ? "the second half of an F&F must be an FO, the F of a forward-only program"
                                            : "the second half of an F&B must be a B or an I");
    const Recipes *recipes = &verifier->program->recipes;
    if (recipes_any(recipes) && recipes_are_forward(recipes) != both_forward)
        return verifier_refuse(verifier, rank, "the program has recipes for F&%ss, but this is an F&%s",
                               both_forward ? "B" : "F", both_forward ? "F" : "B");
    if (first->microbatch == second->microbatch && second->chunk < program->chunk_count &&
        program->chunks[first->chunk].pipe == program->chunks[second->chunk].pipe)
        return verifier_refuse(verifier, rank,
                               "both halves are of one microbatch: one needs the other, so they cannot overlap");
    TRY(verifier_check_operands(verifier, rank, second));
    TRY(check_scratch(verifier, rank, first));
    verifier_apply_operands(state, second);
    return verifier_check_operands(verifier, rank, first);
}
