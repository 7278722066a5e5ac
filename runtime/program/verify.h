#ifndef PROGRAM_VERIFY_H
#define PROGRAM_VERIFY_H

/* The state of a verification, shared by structure.c (the static part), verify.c (the run) and deadlock.c (what to say
   when it gets stuck). */

#include "runtime/program/deadlock.h"
#include "runtime/program/operands.h"

/* What a slot holds, in one word: its state, a LabelKind, pipe, stage and microbatch. */
enum {
    LABEL_STAGE_SHIFT = 20,
    LABEL_PIPE_SHIFT = LABEL_STAGE_SHIFT + 16,
    LABEL_KIND_SHIFT = LABEL_PIPE_SHIFT + 6,
    SLOT_STATE_SHIFT = LABEL_KIND_SHIFT + 3,
};
_Static_assert(PROGRAM_MICROBATCHES_MAX <= 1 << LABEL_STAGE_SHIFT, "a microbatch fits into a label");
_Static_assert(PROGRAM_STAGES_MAX <= 1 << 16, "a stage fits into a label");
_Static_assert(PROGRAM_PIPES_MAX <= 1 << 6, "a pipe fits into a label");

#define SLOT_UNUSED ((uint64_t)0) /* not yet touched: free */
#define SLOT_FREE ((uint64_t)1)
#define SLOT_FULL ((uint64_t)1 << SLOT_STATE_SHIFT)
#define SLOT_SENDING ((uint64_t)2 << SLOT_STATE_SHIFT)
#define SLOT_RECEIVING ((uint64_t)3 << SLOT_STATE_SHIFT)
#define SLOT_STATE ((uint64_t)3 << SLOT_STATE_SHIFT)

enum { PASS_F = 1, PASS_I = 2, PASS_W = 4 };
enum { GROUP_NONE = 0xffff, CHUNK_NONE = 0xffff };

typedef struct ChunkState {
    uint64_t label;  /* pipe and stage at their places in a label */
    uint8_t *passes; /* [microbatches], of PASS_; the copies of a stage in one pipe share it */
    /* [microbatches]: the rank whose copy of the stage a microbatch passes; NULL: there is one copy */
    const uint16_t *homes;
    uint32_t microbatches; /* of the pipe, */
    uint32_t own;          /* and those of them that pass this copy */
    uint32_t completed;    /* microbatches whose B or W has run (forward-only: whose F) */
    uint16_t pipe, stage;
    uint16_t group;
    bool reduced, updated;
    uint32_t reductions; /* how many REDUCE it has arrived at */
    /* of an asynchronous program */
    uint32_t newest;        /* version of its weights: how many U it has had */
    uint32_t gathered;      /* microbatches whose gradients no U has taken; once reduced, those of all copies */
    uint32_t *versions;     /* [microbatches]: that its F has used */
    const uint32_t *wanted; /* Pipe.versions */
} ChunkState;

/* A slot of the class WEIGHTS. */
typedef struct WeightSlot {
    uint32_t version;
    uint32_t readers; /* microbatches that have had their F on it and not their B or I */
    uint16_t chunk;   /* CHUNK_NONE: not yet anybody's */
} WeightSlot;

typedef struct RankState {
    const RankProgram *program;
    uint32_t next; /* the instruction that it is at */
    bool blocked, ended, normed;
    ChunkState *chunks;
    uint64_t *slots[SLOT_WEIGHTS];
    WeightSlot *weights;            /* [slots of their class] */
    uint32_t used[SLOT_CLASSES];    /* how many have been touched */
    uint32_t occupied;              /* slots that hold something or are in flight */
    uint32_t held, peak;            /* activations */
    uint64_t labels[SLOT_OPERANDS]; /* of the instruction that it is at, where it has such a slot */
} RankState;

/* Where one stage of one pipe is. */
typedef struct Place {
    uint16_t rank; /* of its first copy */
    uint8_t chunk;
    uint16_t copies;
    uint16_t *homes; /* as in ChunkState */
    uint8_t *passes;
} Place;

/* A message from one rank to another that is sent and not yet received. */
typedef struct Link {
    uint32_t to;
    uint64_t label; /* 0: there is none */
    struct Link *next;
} Link;

typedef struct Verifier {
    const Program *program;
    Error *error;
    Arena arena;
    Place *places; /* [pipe * stages + stage] */
    RankState *ranks;
    uint32_t *reduce_arrivals; /* [group] */
    Link **links; /* [sender]: a buffer for one message to each receiver; NULL: every message is a rendezvous */
    uint32_t norm_arrivals, ended;
    uint32_t *runnable; /* a stack of ranks */
    uint32_t runnable_count;
} Verifier;

/* Checks all that can be seen without running and makes the state of the start. */
Status verifier_prepare(Verifier *verifier);

/* Why nobody can go on, with the arena's memory and in words. STATUS_BAD_INPUT, or STATUS_RUN_FAILED without memory. */
Status verifier_explain_deadlock(Verifier *verifier, Arena *arena, Deadlock *deadlock);
/* Whether the program passes its verification where each rank's next message to another is buffered. */
bool verifier_runs_buffered(const Program *program);

/* What a slot operand of the instruction holds, which has a content: a slot's word without its state. */
uint64_t verifier_label(const ChunkState *chunk, const Instruction *instruction, const Operand *operand);

/* The slot operand of a SEND or RECEIVE; NULL for any other instruction. */
const Operand *verifier_message(const Instruction *instruction);

/* "rank 1, instruction 12 `F m3 x2 y- c1 t4` (dualpipe.dps:17)" of the instruction at `index`. Returns what snprintf
   returns. */
int verifier_place_text(const Program *program, uint32_t rank, uint32_t index, char *text, size_t size);

static inline const Place *verifier_place(const Verifier *verifier, uint32_t pipe, uint32_t stage)
{
    return &verifier->places[(size_t)pipe * verifier->program->stages + stage];
}

#endif
