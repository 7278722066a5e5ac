#pragma once

/* A proven schedule, lowered: one instruction stream per rank, with its slots and source lines. The compiler writes
   it, prog.bin stores it, and the executor runs it. */

#include "base/arena.h"
#include "base/bytes.h"
#include "program/recipes.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum Opcode {
#define OPCODE(name, text, operands, what) OP_##name,
#include "program/opcodes.def"
    OPCODE_COUNT
} Opcode;

/* An F&B or F&F. Only these instructions have a second half. */
static inline bool opcode_is_pair(uint8_t opcode) { return opcode == OP_OVERLAP || opcode == OP_OVERLAP_FORWARD; }

/* Whether the instruction is an F or begins with one: F, the F of a forward-only program (FORWARD_ONLY), an F&B or an
   F&F. */
static inline bool opcode_is_forward(uint8_t opcode)
{
    return opcode == OP_FORWARD || opcode == OP_FORWARD_ONLY || opcode_is_pair(opcode);
}

static inline bool opcode_is_pass(uint8_t opcode)
{
    return opcode_is_forward(opcode) || opcode == OP_BACKWARD || opcode == OP_BACKWARD_INPUT ||
           opcode == OP_BACKWARD_WEIGHT;
}

/* SEND or RECEIVE. */
static inline bool opcode_is_post(uint8_t opcode)
{
    return opcode == OP_SEND_FORWARD || opcode == OP_RECEIVE_FORWARD || opcode == OP_SEND_BACKWARD ||
           opcode == OP_RECEIVE_BACKWARD;
}

/* The opcodes that come from a schedule's order: passes, messages and U. All others are added when the stream is
   made. */
static inline bool opcode_is_ordered(uint8_t opcode)
{
    return opcode_is_pass(opcode) || opcode_is_post(opcode) || opcode == OP_ASYNC_UPDATE;
}

/* Slots of class WEIGHTS hold versions of weights from step to step. All other slots are empty when a step begins and
   ends. */
typedef enum SlotClass { SLOT_MESSAGE, SLOT_CONTEXT, SLOT_STASH, SLOT_GRADIENT, SLOT_WEIGHTS, SLOT_CLASSES } SlotClass;

enum {
    SLOT_NONE = 0xffff,
    SLOT_OPERANDS = 7,
    /* Limits of the format. The compiler refuses programs that exceed a limit, with a message that names the limit. The
       decoder refuses them as damaged. */
    PROGRAM_RANKS_MAX = 4096,
    PROGRAM_STAGES_MAX = 65535,
    PROGRAM_PIPES_MAX = 64,
    PROGRAM_CHUNKS_MAX = 255,           /* chunks per rank */
    PROGRAM_MICROBATCHES_MAX = 1 << 20, /* of a step, all pipes together */
    PROGRAM_SLOTS_MAX = 65534,          /* slots of a class on a rank */
};

/* One instruction. An operand that its opcode does not have is 0, or SLOT_NONE if it is a slot. opcodes.def lists
   the slots of an opcode and what it does to them. */
typedef struct Instruction {
    uint8_t opcode;
    uint8_t chunk;
    union {
        uint16_t peer;
        uint16_t put_off; /* I, W: bits 1 << ModelPart: the components whose weight gradients come after their F&B */
    };
    uint32_t microbatch; /* or count */
    union {
        struct {
            union {
                uint16_t x;       /* passes: the input activation */
                uint16_t message; /* SEND, RECEIVE, WAIT */
                uint16_t newest;  /* ASYNC_UPDATE: the newest version of the weights */
            };
            union {
                uint16_t y;    /* F: the output activation */
                uint16_t dx;   /* B, I: the gradient of x */
                uint16_t next; /* ASYNC_UPDATE: the next version of the weights */
            };
            uint16_t context;  /* saved activations for dgrad (written by F) */
            uint16_t stash;    /* saved activations for wgrad (written by F) */
            uint16_t dy;       /* the gradient of y */
            uint16_t gradient; /* what I saves for the deferred weight gradient */
            /* the version of the weights that F, B, I use; in a synchronous program the slot with the chunk's number */
            uint16_t weights;
        };
        uint16_t slot[SLOT_OPERANDS]; /* the slots above, indexed by Operand.slot, for code that walks operands */
    };
    uint32_t line; /* source line, from 1; 0: none */
    /* the second half of an F&B or F&F, with its own operands and line: in an F&B (OVERLAP) the B or I, in an F&F
       (OVERLAP_FORWARD) the second F, a FORWARD_ONLY. The first F is the instruction itself. NULL: neither */
    struct Instruction *second;
} Instruction;
_Static_assert(sizeof(Instruction) <= 40, "the interpreter walks these: keep them small");

/* A flow of microbatches through all stages. Every pipe has its own copies of the Program.stages stages. Microbatch m
   of the pipe is microbatch `first` + m of the step, which determines its data; `first` is the number of microbatches
   in the pipes before it. In an asynchronous program `versions` has the version of the weights that the passes of a
   microbatch use, on every stage. */
typedef struct Pipe {
    uint32_t microbatches;
    uint32_t first;
    /* [microbatches]; NULL in all pipes or in none. NULL: a microbatch uses the version that is newest on each stage
       when its F runs there */
    uint32_t *versions;
} Pipe;

/* A copy of a stage on a rank. A stage has one or more copies in every pipe, all on different ranks. If a pipe has
   several copies of the stage, each microbatch of the pipe uses one of them: the one that runs its F. */
typedef struct Chunk {
    uint16_t pipe;
    uint16_t stage;
} Chunk;

/* The rank and chunk of a copy of a stage. */
typedef struct Home {
    uint16_t rank;
    uint8_t chunk; /* number of the chunk on that rank */
} Home;

/* The copies of one stage, in the order of their pipes and, within a pipe, of their ranks; all on different ranks.
   Every stage with several copies has one group, in the order of the stages. The first member represents all copies
   in the norm and in saved weights. */
typedef struct Group {
    uint16_t stage;
    uint16_t member_count;
    Home *members;
} Group;

typedef struct RankProgram {
    uint32_t chunk_count;
    Chunk *chunks;
    /* number of slots of each class on this rank; the stream uses all of them. At the beginning and end of a step, slot
       c of class WEIGHTS holds the weights of chunk c. Each further slot of that class holds versions of one chunk
       only */
    uint32_t slots[SLOT_CLASSES];
    /* the most activations held at once: one per stage and microbatch, from the F to the end of the B or W.
       Forward-only: 0 */
    uint32_t peak_activations;
    uint32_t instruction_count;
    Instruction *instructions; /* only the last one is END */
    /* [instruction_count]: the index that each instruction has in the file, set by program_post_early; NULL: the order
       is that of the file */
    uint32_t *numbers;
} RankProgram;

/* For a stage of a program made by program_reference: the copies that the stage has in the original program. Each copy
   keeps a gradient of its own, to which its microbatches add in the copy's order. NORM, UPDATE and U use the sum of
   these gradients, added in the order of the stage's group, as after a WAIT_REDUCE. */
typedef struct StageCopies {
    uint32_t count; /* 0: only one */
    /* [Program.microbatches]: the copy that a microbatch uses, as an index in the stage's group; NULL: only one */
    uint16_t *of;
    /* [Program.microbatches]: like `of`, but for sharded parameters: several consecutive replicas together hold one
       copy of them (`shards` of program_reference). The microbatches of all these replicas use the copy of the first
       one */
    uint16_t *sharded_of;
} StageCopies;

typedef struct Program {
    char *schedule; /* its name */
    char *source;   /* file name, without folders */
    bool forward_only;
    bool asynchronous; /* weights are updated within the step, by U: there is no NORM and no UPDATE */
    uint32_t stages;
    uint32_t microbatches; /* of a step, all pipes together */
    uint32_t pipe_count;
    Pipe *pipes;
    Recipes recipes; /* all are recipes of F&Bs (OVERLAP), or all are recipes of F&Fs (OVERLAP_FORWARD) */
    uint32_t group_count;
    Group *groups;
    StageCopies *copies; /* [stages]; NULL: not a reference. Not stored in the file */
    uint32_t rank_count;
    RankProgram *ranks;
} Program;

/* The functions below that take an arena jump to its `exhausted` if there is no memory (base/arena.h). Of all
   functions only program_verify returns STATUS_NO_MEMORY. */

/* --- prog.bin (encode.c, decode.c). Magic "DPSPROG\n", version, then varints, then the CRC-32 of all before it. --- */

/* Writes prog.bin. Equal programs give equal bytes. False: out of memory. */
bool program_encode(const Program *program, ByteWriter *writer);
/* Decodes any bytes. STATUS_OK: *program is well-formed, and owned by the arena; it still has to be verified.
   STATUS_BAD_INPUT: the bytes are no program of this version. It never crashes, and allocates no more than in
   proportion to `size`. */
Status program_decode(const uint8_t *bytes, size_t size, Arena *arena, Program **program, Error *error);

/* --- verify*.c: run the program on labels instead of tensors, with every message an unbuffered rendezvous ---
   STATUS_OK proves:
     - operands are in range; every stage is in every pipe, and its copies are in one group;
     - every F, and every B or I and W, runs exactly once, all those of a microbatch on one copy of the stage;
     - every pass reads exactly the contents that it needs; no slot is overwritten while it is live, and every slot is
       free again at END; messages pair up in the order of their channel;
     - no rank waits forever;
     - gradients are complete before REDUCE, summed before NORM, and used by one update after it; no pass adds to a
       gradient between REDUCE and its use;
     - peak_activations and slot counts are those of the run.
   For an asynchronous program also: every F reads the version of the weights that its microbatch uses, and its backward
   the same one; no version is overwritten while a microbatch has had its F with this version, but not its B or I; every
   gradient is used by one U, which all copies of the stage make from the same sum, one version after the other; and the
   newest version is in its slot at END. "No rank waits forever" is proven for ranks that stop at each SEND and RECEIVE
   until the other end arrives, and at each REDUCE until all copies have posted, which is more than the runtime needs
   (it stops at WAIT and WAIT_REDUCE). So a program also runs where messages and sums are handled strictly in the order
   of the stream. STATUS_BAD_INPUT says what is wrong; of an instruction that is wrong it names rank, index, text (as
   the disassembler writes it) and source line. program_verify_deadlock (deadlock.h) also returns a deadlock as data.
   STATUS_NO_MEMORY: out of memory. Without a deadlock the time is linear in the number of instructions. */
Status program_verify(const Program *program, Error *error);

/* An instruction without operands. */
Instruction instruction_blank(Opcode opcode, uint32_t line);
/* The group of a stage's copies; NULL: the stage has one copy. */
const Group *program_group(const Program *program, uint32_t stage);

/* --- disassemble.c: the one text of an instruction, in listings, traces, messages and golden tests --- */

/* Writes the text of an instruction, such as "F1 m3 x2 y- c0 t4" (see the head of disassemble.c). Returns the result of
   snprintf. */
int program_instruction_text(const Program *program, uint32_t rank, const Instruction *instruction, char *text,
                             size_t size);
void program_disassemble(const Program *program, FILE *stream);
/* describe.c: prints a description of the format of prog.bin and of every opcode. */
void program_describe_opcodes(FILE *stream);

/* --- derive.c, reference.c: make programs from verified programs; the results pass program_verify too. The arena owns
   *derived --- */

/* The program without I, B, W, the messages of gradients, sums, NORM and updates: each F becomes a FORWARD_ONLY, also
   the F of an F&B. Slots are assigned anew, because far fewer are live at once. The result is not asynchronous, and has
   no recipes. An F&F of a forward-only program becomes two FORWARD_ONLY. */
Status program_forward_only(const Program *program, Arena *arena, Program **derived, Error *error);
/* All stages on one rank, microbatch after microbatch in the order of the step: every F in stage order, then every I
   from the last stage back. The W of a stage run in the order in which the program runs them, usually right after their
   I (as a B), so that the gradient of each copy is the same sum (Program.copies). The stages of an asynchronous program
   keep their own order, on which the versions of the weights depend: every pass uses the same version as in the
   program. So losses, norms and weights equal those of the program, to the bit. The result is forward-only if the
   program is. With `replicas` > 1 it runs the microbatches of that many replicas of the program, which sum their
   gradients replica after replica; `shards` consecutive replicas (1: no sharding) together hold one copy of sharded
   parameters. STATUS_BAD_INPUT: there are more stages or buffers than a rank can hold. */
Status program_reference(const Program *program, uint32_t replicas, uint32_t shards, Arena *arena, Program **derived,
                         Error *error);

/* --- post_early.c --- */

/* Rewrites a verified program for transports that do not block at a post. Every SEND moves to right after the
   instruction that fills its slot, every RECEIVE to right after the one that frees its slot (to the start of the stream
   if no earlier instruction uses the slot), but not past another message with the same sender and receiver. All other
   instructions, also each WAIT, keep their order. Both ends of a message are posted no later than before, so no rank
   waits longer. If messages are handled strictly in the order of the stream, the result may hang, and program_verify
   refuses it. Each rank then has `numbers`, owned by the arena. Linear time. */
void program_post_early(Program *program, Arena *arena);
/* program_post_early for one rank of a program of `ranks` ranks. Overwrites the rank's instructions. */
void rank_post_early(RankProgram *rank, uint32_t ranks, Arena *arena);
