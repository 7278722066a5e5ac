#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

/* A proven schedule, lowered: one instruction stream per rank, with its slot plan and source map. What the compiler
   writes, prog.bin carries and the interpreter runs. */

#include "runtime/base/arena.h"
#include "runtime/base/bytes.h"
#include "runtime/base/recipe.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum Opcode {
#define OPCODE(name, text, operands, what) OP_##name,
#include "runtime/program/opcodes.def"
    OPCODE_COUNT
} Opcode;

/* F, also that of a forward-only program and that of an F&B. */
static inline bool opcode_is_forward(uint8_t opcode)
{
    return opcode == OP_FORWARD || opcode == OP_FORWARD_ONLY || opcode == OP_OVERLAP;
}

static inline bool opcode_is_pass(uint8_t opcode)
{
    return opcode_is_forward(opcode) || opcode == OP_BACKWARD || opcode == OP_BACKWARD_INPUT ||
           opcode == OP_BACKWARD_WEIGHT;
}

/* Of a message. */
static inline bool opcode_is_post(uint8_t opcode)
{
    return opcode == OP_SEND_FORWARD || opcode == OP_RECEIVE_FORWARD || opcode == OP_SEND_BACKWARD ||
           opcode == OP_RECEIVE_BACKWARD;
}

/* What a schedule's order has: passes, messages and U. The rest of a stream is added to it. */
static inline bool opcode_is_ordered(uint8_t opcode)
{
    return opcode_is_pass(opcode) || opcode_is_post(opcode) || opcode == OP_RENEW;
}

/* WEIGHTS hold versions of weights, from step to step; the others hold what a step makes and uses up. */
typedef enum SlotClass { SLOT_MESSAGE, SLOT_CONTEXT, SLOT_STASH, SLOT_GRADIENT, SLOT_WEIGHTS, SLOT_CLASSES } SlotClass;

enum {
    SLOT_NONE = 0xffff,
    SLOT_OPERANDS = 7,
    /* Limits of the format; the compiler refuses more by name, the decoder too. */
    PROGRAM_RANKS_MAX = 4096,
    PROGRAM_STAGES_MAX = 65535,
    PROGRAM_PIPES_MAX = 64,
    PROGRAM_CHUNKS_MAX = 255,           /* chunks a rank */
    PROGRAM_MICROBATCHES_MAX = 1 << 20, /* all pipes together */
    PROGRAM_SLOTS_MAX = 65534,          /* a class and rank */
};

/* One instruction. An operand that its opcode does not have is 0, or SLOT_NONE if it is a slot. opcodes.def says which
   slots an opcode has and what it does to them. */
typedef struct Instruction {
    uint8_t opcode;
    uint8_t chunk;
    uint16_t peer;       /* or group */
    uint32_t microbatch; /* or count */
    union {
        struct {
            union {
                uint16_t x;       /* passes: the input activation */
                uint16_t message; /* SEND, RECEIVE, WAIT */
                uint16_t newest;  /* RENEW: the newest weights */
            };
            union {
                uint16_t y;    /* F: the output activation */
                uint16_t dx;   /* B, I: the gradient of x */
                uint16_t next; /* RENEW: the weights that it makes */
            };
            uint16_t context;  /* activations that F saves for the input gradient */
            uint16_t stash;    /* activations that F saves for the weight gradient */
            uint16_t dy;       /* the gradient of y */
            uint16_t gradient; /* what I leaves for the deferred weight gradient */
            uint16_t weights;  /* the version of the weights that F, B, I use */
        };
        uint16_t slot[SLOT_OPERANDS]; /* the same by Operand.slot, for code that walks the table */
    };
    uint32_t line; /* of the source, from 1; 0: none */
    /* OVERLAP: the B or I of the F&B, with its own operands and line; the F is the instruction itself. Else NULL */
    struct Instruction *second;
} Instruction;
_Static_assert(sizeof(Instruction) == 40, "the interpreter walks these: keep them small");

/* A flow of microbatches through one copy of all stages. Every pipe has Program.stages stages. A microbatch's number in
   the step, by which its data is drawn, is `first` + its number in the pipe; `first` is how many the pipes before it
   have. In an asynchronous program `versions` says which version of the weights a microbatch's passes use, on every
   stage. */
typedef struct Pipe {
    uint32_t microbatches;
    uint32_t first;
    uint32_t *versions; /* [microbatches]; NULL, in all pipes: whichever is a stage's newest when its F runs */
} Pipe;

/* A copy of a stage. A stage has one in every pipe, or several, each on a rank of its own: then every microbatch of the
   pipe passes one of them. Which is not written down: the microbatches of a chunk are those whose F it runs. */
typedef struct Chunk {
    uint16_t pipe;
    uint16_t stage;
} Chunk;

/* Where a copy of a stage lives. */
typedef struct Home {
    uint16_t rank;
    uint8_t chunk; /* of that rank */
} Home;

/* The copies of one stage, in the order of their pipes and, within a pipe, of their ranks; all on ranks of their own.
   Every stage with several copies has one group, in the order of the stages. The first member is the copy that counts
   where one speaks for all: in the norm and in what is saved. */
typedef struct Group {
    uint16_t stage;
    uint16_t member_count;
    Home *members;
} Group;

typedef struct RankProgram {
    uint32_t chunk_count;
    Chunk *chunks;
    uint32_t slots[SLOT_CLASSES]; /* how many of each class this rank uses: every one below is used. The weights of
                                     chunk c are in slot c of theirs when a step begins and ends; each further one
                                     belongs to one chunk */
    /* most microbatches of a stage held at once, from F to the end of B or W; forward only: 0 */
    uint32_t peak_activations;
    uint32_t instruction_count;
    Instruction *instructions; /* the last is END, and no other */
    uint32_t *numbers;         /* of the instructions in the file, after program_post_early; NULL: their places */
} RankProgram;

/* Of a reference (program_reference): the copies that a stage has in the program. Each keeps a gradient of its own,
   which its microbatches add to in its own order; NORM and U find their sum, in the order of the stage's group, as
   after a REDUCE. */
typedef struct StageCopies {
    uint32_t count; /* 0: only one */
    uint16_t *of;   /* [Program.microbatches]: which of them a microbatch passes, as a place in the group */
} StageCopies;

typedef struct Program {
    char *schedule; /* its name */
    char *source;   /* file name, without folders */
    bool forward_only;
    bool asynchronous; /* weights are updated within the step, by U: no NORM, UPDATE; a REDUCE right before each U of a
                          stage with several copies */
    uint32_t stages;
    uint32_t microbatches; /* of all pipes */
    uint32_t pipe_count;
    Pipe *pipes;
    Recipe *recipe; /* of every F&B (OVERLAP); NULL: it has no order of its own */
    uint32_t group_count;
    Group *groups;
    StageCopies *copies; /* [stages]; NULL: it is no reference. Never in the file */
    uint32_t rank_count;
    RankProgram *ranks;
} Program;

/* --- prog.bin (encode.c, decode.c). Magic "DPSPROG\n", version, then varints, then the CRC-32 of all before it. --- */

/* False when there is no memory. The same program gives the same bytes. */
bool program_encode(const Program *program, ByteWriter *writer);
/* Any bytes at all are either a well-formed program or STATUS_BAD_INPUT with the reason; never a crash, and no
   allocation that the input's size does not justify. What it says still has to be verified. */
Status program_decode(const uint8_t *bytes, size_t size, Arena *arena, Program **program, Error *error);

/* --- verify.c: runs the program on labels instead of tensors, every message a rendezvous without buffer --- STATUS_OK
   proves: operands in range; every stage in every pipe, and its copies in one group; every F and every B, or I and W,
   exactly once, all those of a microbatch by one copy of the stage; every pass finds exactly the contents it needs; no
   slot overwritten while it is live, every slot free again at END; messages pair up in the order of their channel;
   nobody waits for ever; gradients are complete before REDUCE, reduced before NORM, and updated once after it;
   peak_activations and slot counts are what happens. Of an asynchronous program: every F finds the version of the
   weights that its microbatch is to use and its backward the same one, no version is overwritten while a microbatch
   between the two needs it, every gradient is taken by one U, which all copies of the stage make of the same sum, one
   version after the other, and the newest version is in its place at END. 'Nobody waits for ever' is proven for ranks
   that stop at each SEND and RECEIVE until the other end is there, which is more than the runtime needs (it stops at
   WAIT): so a program also runs where messages are handled strictly in the order of the stream. STATUS_BAD_INPUT names
   rank, instruction (as the disassembler writes it) and source line; program_verify_deadlock (deadlock.h) also returns
   a deadlock as data. STATUS_RUN_FAILED: no memory. Linear in the instructions. */
Status program_verify(const Program *program, Error *error);

/* An instruction without operands. */
Instruction instruction_blank(Opcode opcode, uint32_t line);

/* --- disassemble.c: the one text of an instruction, in listings, traces, messages and golden tests --- */

/* Such as "F1 m3 x2 y- c0 t4"; see the head of disassemble.c. Returns what snprintf returns. */
int program_instruction_text(const Program *program, uint32_t rank, const Instruction *instruction, char *text,
                             size_t size);
void program_disassemble(const Program *program, FILE *stream);
/* describe.c: the format of prog.bin and every opcode. */
void program_describe_opcodes(FILE *stream);

/* --- derive.c: programs made from verified programs; they pass program_verify as well. STATUS_RUN_FAILED: no memory
   --- */

/* The same without I, B, W, the messages of gradients, and updates: each F becomes FORWARD_ONLY. Slots are planned
   anew, as far fewer are live at once. Nothing is asynchronous any more. A program that is forward-only already comes
   out equal in what it does. */
Status program_forward_only(const Program *program, Arena *arena, Program **derived, Error *error);
/* All stages on one rank, microbatch after microbatch in the order of the step: every F in stage order, then every I
   from the last stage back. The W of a stage run in the order in which the program runs them, so that each copy's
   gradient is the same sum (Program.copies): usually each right after its I, as a B. An asynchronous program's stages
   each keep their own order, on which the versions of the weights depend: every pass uses the same as there. So losses,
   norms and weights are those of the program, to the bit. Forward only where the program is. STATUS_BAD_INPUT when
   there are more stages, or buffers, than a rank can hold. */
Status program_reference(const Program *program, Arena *arena, Program **derived, Error *error);

/* --- post_early.c --- */

/* Rewrites a verified program for transports that do not block at a post: every SEND stands right behind what fills its
   slot, every RECEIVE right behind what frees it, past no other message of its channel. All else
   stays where it is, each WAIT too: what a rank waits for is posted no later than before on either end, so nobody waits
   longer. Where messages are handled strictly in the order of the stream the result may hang, and program_verify
   refuses it. Each rank has `numbers` then, the arena's. STATUS_RUN_FAILED: no memory. Linear. */
Status program_post_early(Program *program, Arena *arena, Error *error);

#endif
