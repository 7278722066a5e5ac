#include "program/slots.h"

#include "program/operands.h"

enum { SEND_SLACK = 2, CHUNK_ELSEWHERE = -1 };

typedef struct FreeSlots {
    /* a stack, so that the slot freed last is reused first: its memory is most likely still in the cache */
    uint16_t *slots;
    uint32_t count;
} FreeSlots;

typedef struct Sent {
    uint16_t slot;
    uint32_t passes; /* how many passes of the rank had run when this send was posted */
} Sent;

/* The versions of a chunk's weights. Their slots belong to the chunk, because the sizes of stages differ. */
typedef struct Versions {
    uint32_t *used;  /* [microbatches]: the version that each microbatch uses */
    uint32_t *uses;  /* [last + 1]: for each version, how many Bs and Is that use it are still to run */
    uint16_t *slots; /* [last + 1] */
    uint32_t newest, last;
    FreeSlots free;
} Versions;

typedef struct ChunkSlots {
    uint16_t (*held)[CONTENTS]; /* [microbatches]: the slot that holds each content of the microbatch */
    /* the chunks of this rank that hold the previous and the next stage of the same pipe; CHUNK_ELSEWHERE: that stage
       is on another rank */
    int previous, next;
    Versions versions; /* only in an asynchronous program */
} ChunkSlots;

typedef struct Allocator {
    const Program *program;
    RankProgram *rank;
    ChunkSlots *chunks;
    FreeSlots free[SLOT_WEIGHTS];
    Sent *sent; /* a queue of sends whose WAIT has not been added yet */
    uint32_t first_sent, sent_count;
    bool *receiving;          /* [message slot] */
    uint32_t passes;          /* number of passes that have run */
    Instruction *next_second; /* memory for the second halves of F&Bs and F&Fs */
} Allocator;

static uint16_t pop(FreeSlots *free) { return free->slots[--free->count]; }

static void push(FreeSlots *free, uint16_t slot) { free->slots[free->count++] = slot; }

static void put(Allocator *allocator, const Instruction *instruction)
{
    allocator->rank->instructions[allocator->rank->instruction_count++] = *instruction;
}

static void put_wait(Allocator *allocator, uint16_t slot, uint32_t line)
{
    Instruction wait = instruction_blank(OP_WAIT, line);
    wait.message = slot;
    put(allocator, &wait);
}

static uint16_t new_slot(Allocator *allocator, SlotClass class)
{
    const uint32_t slot = allocator->rank->slots[class]++;
    return slot < PROGRAM_SLOTS_MAX ? (uint16_t)slot : 0;
}

static uint16_t take(Allocator *allocator, SlotClass class, uint32_t line)
{
    if (allocator->free[class].count)
        return pop(&allocator->free[class]);
    const Sent *oldest = &allocator->sent[allocator->first_sent];
    if (class != SLOT_MESSAGE || allocator->first_sent == allocator->sent_count ||
        allocator->passes - oldest->passes < SEND_SLACK)
        return new_slot(allocator, class);
    allocator->first_sent++;
    put_wait(allocator, oldest->slot, line);
    return oldest->slot;
}

/* Chooses the slot of the next version of the weights: that of the newest version, if no backward needs the newest
   version any more; otherwise a free slot of the chunk, or a new one. The last version of a step goes to the slot with
   the number of the chunk, where the next step begins; no microbatch is in flight then. */
static uint16_t update_async(Allocator *allocator, const Instruction *instruction)
{
    Versions *versions = &allocator->chunks[instruction->chunk].versions;
    const uint32_t before = versions->newest++;
    uint16_t slot = versions->slots[before];
    if (versions->newest == versions->last)
        slot = instruction->chunk;
    else if (versions->uses[before])
        slot = versions->free.count ? pop(&versions->free) : new_slot(allocator, SLOT_WEIGHTS);
    return versions->slots[versions->newest] = slot;
}

static uint16_t *held(const Allocator *allocator, const Instruction *instruction, const Operand *operand)
{
    return &allocator->chunks[instruction->chunk].held[instruction->microbatch][operand->content];
}

/* Records that a content is in `slot`. If this rank also holds the neighbouring stage that reads the content, records
   it for that stage, too. */
static void hold(const Allocator *allocator, const Instruction *instruction, const Operand *operand, uint16_t slot)
{
    const ChunkSlots *chunk = &allocator->chunks[instruction->chunk];
    *held(allocator, instruction, operand) = slot;
    if (operand->content == CONTENT_OUTPUT && chunk->next != CHUNK_ELSEWHERE)
        allocator->chunks[chunk->next].held[instruction->microbatch][CONTENT_INPUT] = slot;
    if (operand->content == CONTENT_DINPUT && chunk->previous != CHUNK_ELSEWHERE)
        allocator->chunks[chunk->previous].held[instruction->microbatch][CONTENT_DOUTPUT] = slot;
}

static bool exists(const Allocator *allocator, const Instruction *instruction, const Operand *operand)
{
    const int neighbour = content_table[operand->content].neighbour;
    const uint32_t stage = allocator->rank->chunks[instruction->chunk].stage;
    return !neighbour || stage + (uint32_t)neighbour < allocator->program->stages; /* -1 wraps round */
}

/* --- an instruction gets the slots that it reads, fills those that it writes, and frees those that nothing needs
   after it --- */

static void find(Allocator *allocator, Instruction *instruction)
{
    for (const Operand *operand = opcode_table[instruction->opcode].operands; operand->kind; operand++) {
        uint16_t *slot = &instruction->slot[operand->slot];
        const Versions *versions = &allocator->chunks[instruction->chunk].versions;
        switch ((OperandKind)operand->kind) {
        case OPERAND_READ:
        case OPERAND_TAKE:
            *slot = *held(allocator, instruction, operand);
            if (operand->class == SLOT_MESSAGE && *slot != SLOT_NONE && allocator->receiving[*slot]) {
                allocator->receiving[*slot] = false;
                put_wait(allocator, *slot, instruction->line);
            }
            break;
        case OPERAND_POST_SEND:
            *slot = *held(allocator, instruction, operand);
            allocator->sent[allocator->sent_count++] = (Sent){*slot, allocator->passes};
            break;
        case OPERAND_VERSION:
            *slot = versions->slots ? versions->slots[versions->used[instruction->microbatch]] : instruction->chunk;
            break;
        case OPERAND_NEWEST: *slot = versions->slots[versions->newest]; break;
        default: break;
        }
    }
}

static void fill(Allocator *allocator, Instruction *instruction)
{
    for (const Operand *operand = opcode_table[instruction->opcode].operands; operand->kind; operand++) {
        uint16_t *slot = &instruction->slot[operand->slot];
        switch ((OperandKind)operand->kind) {
        case OPERAND_FILL:
        case OPERAND_POST_RECEIVE:
            if (!exists(allocator, instruction, operand))
                break;
            *slot = take(allocator, operand->class, instruction->line);
            hold(allocator, instruction, operand, *slot);
            if (operand->kind == OPERAND_POST_RECEIVE)
                allocator->receiving[*slot] = true;
            break;
        case OPERAND_SCRATCH: *slot = take(allocator, operand->class, instruction->line); break;
        case OPERAND_NEXT: *slot = update_async(allocator, instruction); break;
        default: break;
        }
    }
}

static void release_version(Versions *versions, const Instruction *pass)
{
    if (!versions->slots || opcode_is_forward(pass->opcode))
        return;
    const uint32_t version = versions->used[pass->microbatch];
    if (--versions->uses[version] == 0 && version != versions->newest)
        push(&versions->free, versions->slots[version]);
}

static void release(Allocator *allocator, const Instruction *instruction)
{
    for (const Operand *operand = opcode_table[instruction->opcode].operands; operand->kind; operand++) {
        const uint16_t slot = instruction->slot[operand->slot];
        if (operand->kind == OPERAND_VERSION)
            release_version(&allocator->chunks[instruction->chunk].versions, instruction);
        else if ((operand->kind == OPERAND_TAKE || operand->kind == OPERAND_SCRATCH) && slot != SLOT_NONE)
            push(&allocator->free[operand->class], slot);
    }
    allocator->passes += opcode_is_pass(instruction->opcode);
}

/* --- the state at the start --- */

static int chunk_of_stage(const RankProgram *rank, uint32_t pipe, uint32_t stage)
{
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        if (rank->chunks[c].pipe == pipe && rank->chunks[c].stage == stage)
            return (int)c;
    return CHUNK_ELSEWHERE;
}

static void open_chunks(Allocator *allocator, Arena *scratch)
{
    const RankProgram *rank = allocator->rank;
    allocator->chunks = arena_array(scratch, rank->chunk_count, sizeof *allocator->chunks);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        ChunkSlots *chunk = &allocator->chunks[c];
        const Chunk *at = &rank->chunks[c];
        const uint32_t microbatches = allocator->program->pipes[at->pipe].microbatches;
        chunk->previous = chunk_of_stage(rank, at->pipe, at->stage - 1u);
        chunk->next = chunk_of_stage(rank, at->pipe, at->stage + 1u);
        chunk->held = arena_array(scratch, microbatches, sizeof *chunk->held);
        for (uint32_t m = 0; m < microbatches; m++)
            /* no message is there yet; the first stage never has an INPUT, the last stage never a DOUTPUT */
            chunk->held[m][CONTENT_INPUT] = chunk->held[m][CONTENT_DOUTPUT] = SLOT_NONE;
    }
}

/* Counts the uses of each version. A microbatch uses the version that its pipe names; if the pipe names none, the
   newest version when its F runs. */
static void count_uses(Allocator *allocator, const Instruction *instructions, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const Instruction *instruction = &instructions[i];
        Versions *versions = &allocator->chunks[instruction->chunk].versions;
        const uint32_t *wanted = allocator->program->pipes[allocator->rank->chunks[instruction->chunk].pipe].versions;
        if (opcode_is_forward(instruction->opcode)) {
            const uint32_t version = wanted ? wanted[instruction->microbatch] : versions->newest;
            versions->used[instruction->microbatch] = version;
            versions->uses[version]++;
        }
        versions->newest += instruction->opcode == OP_ASYNC_UPDATE;
    }
    for (uint32_t c = 0; c < allocator->rank->chunk_count; c++)
        allocator->chunks[c].versions.newest = 0;
}

static void open_versions(Allocator *allocator, const Instruction *instructions, uint32_t count, Arena *scratch)
{
    for (uint32_t i = 0; i < count; i++)
        allocator->chunks[instructions[i].chunk].versions.last += instructions[i].opcode == OP_ASYNC_UPDATE;
    for (uint32_t c = 0; c < allocator->rank->chunk_count; c++) {
        Versions *versions = &allocator->chunks[c].versions;
        const uint32_t microbatches = allocator->program->pipes[allocator->rank->chunks[c].pipe].microbatches;
        versions->used = arena_array(scratch, microbatches, sizeof *versions->used);
        versions->uses = arena_array(scratch, versions->last + 1, sizeof *versions->uses);
        versions->slots = arena_array(scratch, versions->last + 1, sizeof *versions->slots);
        versions->free.slots = arena_array(scratch, versions->last + 1, sizeof *versions->free.slots);
        versions->slots[0] = (uint16_t)c;
    }
    count_uses(allocator, instructions, count);
}

static void open_allocator(Allocator *allocator, const Instruction *instructions, uint32_t count, Arena *arena,
                           Arena *scratch)
{
    RankProgram *rank = allocator->rank;
    uint32_t messages = 0, seconds = 0;
    for (uint32_t i = 0; i < count; i++) {
        messages += opcode_is_post(instructions[i].opcode);
        seconds += instructions[i].second != NULL;
    }
    rank->instructions = arena_array(arena, (size_t)count + messages, sizeof *rank->instructions);
    allocator->next_second = arena_array(arena, seconds, sizeof *allocator->next_second);
    allocator->sent = arena_array(scratch, messages, sizeof *allocator->sent);
    allocator->receiving = arena_array(scratch, (size_t)count + seconds, sizeof *allocator->receiving);
    /* each instruction takes at most one slot of a class, an F&B or F&F two */
    for (int class = 0; class < SLOT_WEIGHTS; class ++)
        allocator->free[class].slots = arena_array(scratch, (size_t)count + seconds, sizeof(uint16_t));
    open_chunks(allocator, scratch);
    if (allocator->program->asynchronous)
        open_versions(allocator, instructions, count, scratch);
}

/* --- the run --- */

/* Assigns slots to an instruction and appends it. The halves of an F&B or F&F run at once, so slots are freed only
   after both halves have got theirs. */
static void assign(Allocator *allocator, Instruction instruction)
{
    find(allocator, &instruction);
    fill(allocator, &instruction);
    if (instruction.second) {
        Instruction *second = allocator->next_second++;
        *second = *instruction.second;
        find(allocator, second);
        fill(allocator, second);
        instruction.second = second;
    }
    put(allocator, &instruction);
    for (const Instruction *half = &instruction; half; half = half->second)
        release(allocator, half);
}

/* The index of the first closing instruction: from there on, all are WAIT_REDUCE, NORM, UPDATE or END. */
static uint32_t closing(const Instruction *instructions, uint32_t count)
{
    while (count && !opcode_is_ordered(instructions[count - 1].opcode) && instructions[count - 1].opcode != OP_REDUCE)
        count--;
    return count;
}

static void assign_all(Allocator *allocator, const Instruction *instructions, uint32_t count)
{
    const uint32_t end = closing(instructions, count);
    uint32_t line = 0; /* the source line of the last pass, message or U */
    for (uint32_t i = 0; i < end; i++) {
        assign(allocator, instructions[i]);
        line = opcode_is_ordered(instructions[i].opcode) ? instructions[i].line : line;
    }
    while (allocator->first_sent < allocator->sent_count)
        put_wait(allocator, allocator->sent[allocator->first_sent++].slot, line);
    for (uint32_t i = end; i < count; i++)
        put(allocator, &instructions[i]);
}

void slots_assign(const Program *program, RankProgram *rank, const Instruction *instructions, uint32_t count,
                  Arena *arena)
{
    Arena *const scratch = arena_scratch(arena);
    Allocator allocator = {.program = program, .rank = rank};
    open_allocator(&allocator, instructions, count, arena, scratch);
    rank->slots[SLOT_WEIGHTS] = rank->chunk_count;
    assign_all(&allocator, instructions, count);
    /* each held activation has one stash slot, from its F to the end of its B or W */
    rank->peak_activations = program->forward_only ? 0 : rank->slots[SLOT_STASH];
    arena_free(scratch);
}

SlotClass slots_exceeded(const RankProgram *rank)
{
    int class = 0;
    while (class < SLOT_CLASSES && rank->slots[class] <= PROGRAM_SLOTS_MAX)
        class ++;
    return (SlotClass) class;
}
