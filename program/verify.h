#pragma once

/* The state of a verification, and the functions by which its files use each other. structure.c makes the static
   checks; verify.c runs the ranks, with verify_operands.c, verify_messages.c and verify_sums.c; deadlock.c explains a
   deadlock. A function that returns a Status returns STATUS_BAD_INPUT, with the place and the reason in
   verifier->error, if it refuses the program. */

#include "program/deadlock.h"
#include "program/operands.h"

/* A slot as one 64-bit word: its state, and the label of its content (LabelKind, pipe, stage and microbatch). */
enum {
    LABEL_STAGE_SHIFT = 20,
    LABEL_PIPE_SHIFT = LABEL_STAGE_SHIFT + 16,
    LABEL_KIND_SHIFT = LABEL_PIPE_SHIFT + 6,
    SLOT_STATE_SHIFT = LABEL_KIND_SHIFT + 3,
};
_Static_assert(PROGRAM_MICROBATCHES_MAX <= 1 << LABEL_STAGE_SHIFT, "a microbatch fits into a label");
_Static_assert(PROGRAM_STAGES_MAX <= 1 << 16, "a stage fits into a label");
_Static_assert(PROGRAM_PIPES_MAX <= 1 << 6, "a pipe fits into a label");

#define SLOT_UNUSED ((uint64_t)0) /* free, and not used so far */
#define SLOT_FREE ((uint64_t)1)
#define SLOT_FULL ((uint64_t)1 << SLOT_STATE_SHIFT)
#define SLOT_SENDING ((uint64_t)2 << SLOT_STATE_SHIFT)
#define SLOT_RECEIVING ((uint64_t)3 << SLOT_STATE_SHIFT)
#define SLOT_STATE ((uint64_t)3 << SLOT_STATE_SHIFT)

enum { PASS_F = 1, PASS_I = 2, PASS_W = 4 };
enum { GROUP_NONE = 0xffff, CHUNK_NONE = 0xffff };

typedef struct ChunkState {
    uint64_t label; /* pipe and stage, shifted as in the label of a slot's content */
    /* [microbatches]: bits PASS_F, ...: which passes of each microbatch have run on this stage. The copies of the stage
       in one pipe share this array */
    uint8_t *passes;
    /* [microbatches]: the rank of the copy that a microbatch uses; NULL: the pipe has one copy of the stage */
    const uint16_t *homes;
    uint32_t microbatches; /* number of microbatches of the pipe */
    uint32_t own;          /* number of microbatches that use this copy of the stage */
    uint32_t completed;    /* number of microbatches whose B or W has run on this copy (forward-only: whose F) */
    uint16_t pipe, stage;
    uint16_t group;
    /* since the last U, or if there was none, since the step began: posted: a REDUCE has run; reduced: a WAIT_REDUCE
       has run */
    bool posted, reduced;
    bool updated;
    uint32_t reductions; /* how many REDUCEs this copy has reached */
    /* of an asynchronous program */
    uint32_t newest; /* the newest version of the chunk's weights: the number of U in the step so far */
    /* number of microbatches whose gradients no U has used yet: those of this copy of the stage; from its REDUCE on,
       those of all copies */
    uint32_t gathered;
    uint32_t *versions;     /* [microbatches]: the version that the F used; NULL: the program is not asynchronous */
    const uint32_t *wanted; /* Pipe.versions */
} ChunkState;

/* A slot of the class WEIGHTS. */
typedef struct WeightSlot {
    uint32_t version;
    uint32_t readers; /* number of microbatches whose F has used this version and whose B or I has not run */
    uint16_t chunk;   /* the chunk whose weights the slot holds; CHUNK_NONE: none so far */
} WeightSlot;

typedef struct RankState {
    const RankProgram *program;
    uint32_t next; /* index of the current instruction */
    bool blocked, ended, normed;
    ChunkState *chunks;
    uint64_t *slots[SLOT_WEIGHTS];
    WeightSlot *weights;         /* [slots of class WEIGHTS] */
    uint32_t used[SLOT_CLASSES]; /* how many different slots of each class have been used so far */
    uint32_t occupied;           /* how many slots of all classes but WEIGHTS are not free */
    uint32_t held, peak;         /* activations */
    /* the I of the F&B that was the rank's last pass, if it has put weight gradients off: the W of these gradients must
       be the rank's next pass. NULL: the last pass has put nothing off */
    const Instruction *put_off;
    /* [Operand.slot]: the label of the content that this slot operand of the current instruction names */
    uint64_t labels[SLOT_OPERANDS];
} RankState;

/* The copies of one stage in one pipe. */
typedef struct Place {
    uint16_t rank; /* of the first copy */
    uint8_t chunk; /* number of the first copy's chunk on `rank` */
    uint16_t copies;
    uint16_t *homes; /* [microbatches]: the rank of the copy that a microbatch uses; NULL: there is one copy */
    /* ChunkState.passes of all copies; NULL: there is one copy, and only its ChunkState has the array */
    uint8_t *passes;
} Place;

typedef struct Verifier {
    const Program *program;
    Error *error;
    Arena arena;
    Place *places; /* [pipe * stages + stage] */
    RankState *ranks;
    uint32_t *reduce_arrivals; /* [group] */
    uint32_t norm_arrivals, ended;
    uint32_t *runnable; /* a stack of ranks */
    uint32_t runnable_count;
} Verifier;

/* Checks everything that can be checked without running, and makes the initial state. */
Status verifier_prepare(Verifier *verifier);

/* Explains why no rank can continue; the arena owns the result. STATUS_BAD_INPUT, or STATUS_NO_MEMORY if out of
   memory. */
Status verifier_explain_deadlock(Verifier *verifier, Arena *arena, Deadlock *deadlock);
/* The label of the content that a slot operand of the instruction names. It is a slot's word without its state. */
uint64_t verifier_label(const ChunkState *chunk, const Instruction *instruction, const Operand *operand);

/* The slot operand of a SEND or RECEIVE; NULL for any other instruction. */
const Operand *verifier_message(const Instruction *instruction);

/* --- verify_text.c --- */

enum { VERIFIER_TEXT = 160 };

/* "rank 1, instruction 12 `F m3 x2 y- c1 t4` (dualpipe.dps:17)" for the instruction at `index`. Returns the result
   of snprintf. */
int verifier_place_text(const Program *program, uint32_t rank, uint32_t index, char *text, size_t size);
/* Refuses the program because of the current instruction of the rank. */
Status verifier_refuse(const Verifier *verifier, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "the activation made by stage 2 microbatch 5", or what else the slot's word says. */
const char *verifier_word_text(const Verifier *verifier, uint64_t word, char text[static VERIFIER_TEXT]);

/* --- verify_operands.c --- */

/* Checks all operands against the state before the instruction. So it also checks that an instruction fills no slot
   that it takes or reads. */
Status verifier_check_operands(const Verifier *verifier, uint32_t rank, const Instruction *instruction);
/* Applies the effects of an instruction on its slots, except those of class WEIGHTS. verifier_check_operands has
   accepted the instruction. */
void verifier_apply_operands(RankState *state, const Instruction *instruction);
/* Checks the second half of an F&B or F&F and applies its effects on slots, after verifier_check_operands has accepted
   the first half. Then checks the first half again; the caller applies the effects of the first half. */
Status verifier_run_second(const Verifier *verifier, uint32_t rank, const Instruction *first);
/* Checks which weight gradients are put off. The I of an F&B may name components; they must be those that its recipe
   puts off, and the next pass of the rank must be the W of these components. No other I or W may name components. If
   the recipe puts weight gradients off, the second half of the F&B may not be a B. Call it for each instruction of the
   rank, before its operands are checked. */
Status verifier_check_put_off(Verifier *verifier, uint32_t rank, const Instruction *instruction);
/* Records the pass of an instruction or of one half of an F&B or F&F; other instructions change nothing. */
void verifier_record_pass(const Verifier *verifier, RankState *state, const Instruction *instruction);
/* Refuses the program if no WAIT_REDUCE of the chunk has run since its last U, or if there was none, in the step. */
Status verifier_check_reduced(const Verifier *verifier, uint32_t rank, uint32_t chunk);

/* --- verify_sums.c: the rank has arrived at `instruction` --- */

Status verifier_arrive_at_reduce(Verifier *verifier, uint32_t rank, const Instruction *instruction);
Status verifier_wait_for_sum(const Verifier *verifier, uint32_t rank, const Instruction *instruction);
Status verifier_arrive_at_norm(Verifier *verifier, uint32_t rank);
Status verifier_update(const Verifier *verifier, uint32_t rank, ChunkState *chunk);
void verifier_update_async(RankState *state, const Instruction *instruction);
Status verifier_arrive_at_end(Verifier *verifier, uint32_t rank);

/* --- verify_messages.c --- */

/* Blocks the rank at its SEND or RECEIVE. If the other end has arrived, exchanges the message, and both ranks become
   runnable. Refuses the program if the peer is not the rank that holds the other stage, or if the two ends name
   different contents. */
Status verifier_arrive_at_message(Verifier *verifier, uint32_t rank, const Instruction *instruction);

/* --- verify.c --- */

/* Ends the wait of a rank: moves it to its next instruction, and puts it on the stack of runnable ranks. */
void verifier_resume(Verifier *verifier, uint32_t rank);

static inline const Place *verifier_place(const Verifier *verifier, uint32_t pipe, uint32_t stage)
{
    return &verifier->places[(size_t)pipe * verifier->program->stages + stage];
}
