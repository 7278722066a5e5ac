#include "program/verify.h"

/* This file verifies messages. Each message is a rendezvous. */

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
    char my_text[VERIFIER_TEXT], their_text[VERIFIER_TEXT];
    return verifier_refuse(verifier, rank, "the instruction %s %s, but its peer %s %s: %s", sends ? "sends" : "expects",
                           verifier_word_text(verifier, mine, my_text), sends ? "expects" : "sends",
                           verifier_word_text(verifier, theirs, their_text), where);
}

Status verifier_arrive_at_message(Verifier *verifier, uint32_t rank, const Instruction *instruction)
{
    RankState *state = &verifier->ranks[rank];
    const Operand *operand = verifier_message(instruction);
    const ChunkState *chunk = &state->chunks[instruction->chunk];
    const uint32_t neighbour = chunk->stage + (uint32_t)content_table[operand->content].neighbour;
    const Place *there = verifier_place(verifier, chunk->pipe, neighbour);
    const uint32_t owner = there->homes ? there->homes[instruction->microbatch] : there->rank;
    if (owner != instruction->peer)
        return verifier_refuse(verifier, rank, "its peer must be rank %u, which runs stage %u%s", owner, neighbour,
                               there->homes ? " for this microbatch" : "");
    state->blocked = true;
    const uint32_t peer = instruction->peer;
    RankState *other = &verifier->ranks[peer];
    if (!other->blocked)
        return STATUS_OK;
    const Instruction *theirs = &other->program->instructions[other->next];
    const Operand *their_operand = verifier_message(theirs);
    if (!their_operand || theirs->peer != rank || their_operand->kind == operand->kind)
        /* the peer is at another instruction, so this rank stays blocked; if the peer never gets to this message, that
           is a deadlock */
        return STATUS_OK;
    const uint64_t mine = state->labels[operand->slot], their = other->labels[their_operand->slot];
    if (mine != their) {
        char place[2 * VERIFIER_TEXT + 200];
        verifier_place_text(verifier->program, peer, other->next, place, sizeof place);
        return refuse_message(verifier, rank, operand->kind == OPERAND_POST_SEND, mine, their, place);
    }
    verifier_apply_operands(state, instruction);
    verifier_apply_operands(other, theirs);
    verifier_resume(verifier, rank);
    verifier_resume(verifier, peer);
    return STATUS_OK;
}
