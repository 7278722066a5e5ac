#include "program/verify.h"

/* This file verifies messages. Each message is a rendezvous; but if Verifier.links is set, each link from one rank to
   another buffers one message. */

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

static Link *link_between(Verifier *verifier, uint32_t from, uint32_t to)
{
    Link **place = &verifier->links[from];
    while (*place && (*place)->to != to)
        place = &(*place)->next;
    if (!*place && (*place = arena_allocate(&verifier->arena, sizeof **place)))
        **place = (Link){.to = to};
    return *place;
}

/* Puts a message into its link's buffer (SEND), or takes it out (RECEIVE). If the buffer is full (SEND) or empty
   (RECEIVE), the rank blocks, and tries again when the other end has used the buffer. */
static Status use_buffer(Verifier *verifier, uint32_t rank, const Instruction *instruction, const Operand *operand)
{
    RankState *state = &verifier->ranks[rank], *other = &verifier->ranks[instruction->peer];
    const bool sends = operand->kind == OPERAND_POST_SEND;
    const uint32_t peer = instruction->peer;
    Link *link = sends ? link_between(verifier, rank, peer) : link_between(verifier, peer, rank);
    if (!link)
        return error_set(verifier->error, STATUS_NO_MEMORY, "no memory to verify the program's messages");
    const uint64_t mine = state->labels[operand->slot];
    if (sends != !link->label)
        return STATUS_OK;
    if (!sends && link->label != mine)
        return refuse_message(verifier, rank, sends, mine, link->label, "buffered");
    link->label = sends ? mine : 0;
    verifier_apply_operands(state, instruction);
    verifier_resume(verifier, rank);
    const Instruction *theirs = &other->program->instructions[other->next];
    if (other->blocked && verifier_message(theirs) && theirs->peer == rank) {
        other->blocked = false;
        verifier->runnable[verifier->runnable_count++] = peer;
    }
    return STATUS_OK;
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
    if (verifier->links)
        return use_buffer(verifier, rank, instruction, operand);
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
