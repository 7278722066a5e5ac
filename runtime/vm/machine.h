#ifndef VM_MACHINE_H
#define VM_MACHINE_H

/* What a running program is made of: shared by session, bind, run, train, collect, trace and save. */

#include "runtime/launcher/watchdog.h"
#include "runtime/vm/vm.h"

#include <math.h>
#include <stdio.h>

/* One stage that a rank holds, with all that is its own. */
typedef struct BoundChunk {
    Stage *stage;
    const StageSizes *sizes;
    uint16_t pipe, number;     /* number: which stage */
    uint32_t first;            /* number in the step of the pipe's first microbatch */
    uint32_t microbatches;     /* that pass this chunk */
    uint32_t *places;          /* first and last stage: [the pipe's microbatches] which of those it is, or PLACE_NONE */
    double *losses;            /* last stage: [microbatches], in the device's memory */
    double *host_losses;       /* the same, in Rank.record */
    bool is_first, is_last;    /* of the pipe */
    bool counts;               /* the copy of the stage that the norm and the saved weights take */
    const StageCopies *copies; /* of a reference, of a stage that stands for several copies; else NULL */
    Communicator *sums;        /* of the ranks with a copy of the stage; NULL: there is only this one */
    size_t gradient_bytes;     /* from one copy's gradient to the next, the first being weights.gradients */
    /* forward only: without gradients and moments, and masters are the parameters, those between steps */
    StageWeights weights;
    uint64_t updates;       /* of an asynchronous program: how many U it has had */
    char *inputs, *targets; /* [microbatches], first and last stage */
    char *outputs;          /* [microbatches], last stage; NULL: not wanted */
} BoundChunk;

enum { PLACE_NONE = UINT32_MAX };

/* What a rank tells all others when a step has ended. Only values; padded by losses to one size for all ranks. */
typedef struct RankRecord {
    int64_t begun, ended; /* first start and last end of a pass, ns on rank 0's clock */
    int64_t busy;         /* ns in passes */
    int64_t products;     /* ns in matrix products, */
    double operations;    /* and the floating-point operations of these */
    uint64_t parameters;  /* of the stages whose copy counts here; the two are told once, when the rank is ready */
    uint64_t planned_bytes;
    uint32_t stop; /* asked to end after this step */
    uint32_t reserved;
    double norm;     /* the largest of its updates: of an asynchronous program */
    double losses[]; /* of the microbatches that end here: chunk after chunk, each in their order */
} RankRecord;

/* How far a rank's clock was ahead of rank 0's when it said `at`; ns. */
typedef struct ClockSample {
    int64_t at, ahead;
} ClockSample;

/* Where a microbatch ends. */
typedef struct End {
    Home home;
    uint32_t place; /* among the chunk's own microbatches, */
    uint32_t loss;  /* and of its loss in the rank's record */
} End;

typedef struct Rank Rank;
typedef struct Profile Profile;
typedef Status Execute(Rank *rank, const Instruction *instruction, Error *error);

/* A rank: one thread's. */
struct Rank {
    Session *session;
    int number;
    World *world;
    Communicator *pipeline; /* of all ranks of the program, for messages */
    Progress *progress;
    Execute *const *execute; /* [OPCODE_COUNT] */
    const Passes *passes;
    /* [instructions][2] of the program and of its forward half: of a B its I and its W, of others one or none; NULL
       where nothing is bound */
    BoundPass **bound, **forward_bound;
    BoundChunk *chunks;
    uint32_t chunk_count;
    uint32_t slots[SLOT_CLASSES];
    void **blocks;     /* [message slots]; the communicator may exchange them */
    Message *messages; /* [message slots] */
    char *contexts, *stashes, *gradients, *workspace;
    char **weights;                                                   /* [weights slots] */
    size_t message_bytes, context_bytes, stash_bytes, gradient_bytes; /* from one slot to the next */
    double *squares;                                                  /* [ranks][most_chunks]: what NORM gathers */
    double *own_squares; /* [chunks], in the device's memory; on the host [most_chunks] */
    double *host_squares;
    double norm, clip; /* by the last NORM; asynchronous: norm is the largest of the step's U */
    bool diverged;     /* a gradient, a loss or a weight is not finite: the run ends after this step */
    uint64_t step;     /* from 1 */
    /* [kept_steps + 1][clocks_of_step]: the beginning, the end of every instruction and, from 1 + longest_stream on,
       the middle of every F&B: when its F ended. Where the CPU merged the halves that is the F&B's begin plus the time
       of the F's operations. 0: both halves ran at once */
    int64_t *clocks;
    int64_t *clock;          /* the row of the stream that runs; the last row is for held-out data */
    int64_t *middle;         /* of the next F&B, in this row */
    ClockSample compared[2]; /* at the beginning and, for a trace, at the end of the run */
    uint32_t processors;     /* that may compute all ranks' passes; 0: not known, or others do */
    RankRecord *record;      /* this rank's */
    char *records;           /* everybody's: [ranks] of Session.record_bytes */
    double *losses;          /* [microbatches] by number, of everybody */
    double *busy;            /* [ranks] seconds */
    char *data;              /* the data of a microbatch on its way to the device */
    uint32_t checksum;       /* of what collect has written */
    char *piece, *pieces;    /* save.c: [piece_bytes], [ranks][piece_bytes]; NULL when nothing is to be collected */
    Profile *profile;        /* NULL: not wanted */
    Device *device;
    void *memory; /* of the device; the slots, weights and data lie in it */
    size_t memory_bytes;
    Arena tables; /* everything else */
    size_t table_bytes;
};

struct Session {
    const LoadedProgram *loaded;
    const RunOptions *options;
    SessionHooks hooks;
    ModelConfig model; /* checked */
    World **members;   /* [ranks]; NULL: not in this process */
    Dataset *dataset;
    uint64_t held_out;      /* windows that the loss on held-out data is the mean of */
    const char *device;     /* its name */
    Rank *ranks;            /* [ranks]; those of this process are used */
    Progress *own_progress; /* [ranks]; unless hooks.progress */
    WatchedRank *watched;   /* [ranks] those of this process, as threads */
    uint32_t longest_stream;
    size_t clocks_of_step; /* of a rank: 1 + longest_stream + the most F&Bs of a rank */
    uint32_t most_chunks;  /* of a rank */
    Home *counting;        /* [stages] the copy of each stage that counts: the first of its group */
    End *ends;             /* [microbatches] by number */
    size_t record_bytes;
    size_t piece_bytes;
    int64_t saved_begin;       /* of the weights in the file of --load, */
    uint64_t saved_parameters; /* and how many there are */
    uint32_t kept_steps;       /* whose clocks the trace shows */
    int64_t begun;             /* ns, session_run */
    bool stuck;                /* a rank never came back */
    Error divergence;          /* what is not finite, where, and what was written: by rank 0; elsewhere empty */
    Arena tables;
};

/* The larger of two norms. One that is no number counts as the largest. */
static inline double larger_norm(double one, double other) { return isnan(one) || one >= other ? one : other; }

static inline const RankRecord *rank_record(const Rank *rank, uint32_t other)
{
    return (const RankRecord *)(const void *)(rank->records + other * rank->session->record_bytes);
}

/* --- bind.c: a rank's stages and memory, by the slot plan. After it nothing is allocated any more --- */

Status rank_bind(Rank *rank, Error *error);
/* The recipe by which the rank runs its F&Bs; NULL: their halves run in turn. */
const Recipe *rank_recipe(const Rank *rank);
void rank_release(Rank *rank);
/* Draws the data of a step, or of round `step` over the held-out data. */
Status rank_fill(Rank *rank, uint64_t step, bool held_out, Error *error);
/* The losses of the stream that ran, from the device's memory into the record. */
Status rank_read_losses(Rank *rank, Error *error);

/* --- run.c: the interpreter --- */

/* What an instruction does: on a device, and simulated (simulate.c). */
extern Execute *const execute_computing[OPCODE_COUNT], *const execute_simulated[OPCODE_COUNT];

/* Lets the stages bind the passes of a stream to where their buffers are: bound[instructions][2]. NULL: buffers move,
   and only the lists of F&Bs are made. */
Status rank_bind_passes(const Rank *rank, const Program *program, BoundPass **bound, Error *error);
/* Runs a stream of this rank, of the program or of its forward half, from its first instruction to END. */
Status rank_execute(Rank *rank, const Program *program, Error *error);
/* Until the device has done all that was enqueued, or the deadline has passed. */
Status rank_settle(Rank *rank, Error *error);

/* The sum of the squares of all gradients, or of all weights (the optimizer's), one copy of each stage; the stages' own
   are then in rank->squares. A meeting of all ranks, which get the same numbers. */
Status rank_sum_squares(Rank *rank, bool of_weights, double *sum, Error *error);
/* The sum of squares of one stage that the last rank_sum_squares computed. */
double stage_squares(const Rank *rank, uint32_t stage);

/* What REDUCE does with a buffer of `elements` masters on each member of its group. */
Status rank_reduce(Rank *rank, const Instruction *reduce, void *buffer, size_t elements, Error *error);

/* --- simulate.c --- */

/* How many bytes of a message are simulated. */
extern const size_t simulated_message_bytes;
/* The costs that the program's times depend on, as bits 1 << StageCost. */
uint32_t simulated_costs_used(const Program *program);
/* Once in the thread of a simulated rank: sleeps end when they should. */
void simulate_begin(void);

/* --- clocks.c --- */

/* A meeting of all ranks, in which they also count their processors. */
Status clocks_compare(Rank *rank, ClockSample *sample, Error *error);
/* A rank's time as rank 0's clock has it, by the comparisons before and behind it; the second may be missing. */
int64_t clock_common(const ClockSample compared[2], int64_t own);

/* --- train.c --- */

/* All of one Rank: bind, the steps, the files at the end. */
Status rank_train(void *rank, Error *error);

/* --- diverged.c: a run whose numbers are no longer finite --- */

/* All ranks find the same, set rank->diverged, and go on to the end of the run together; rank 0 keeps the words. After
   a step: its losses and gradients. */
void diverged_in_step(Rank *rank, const StepReport *report);
/* After the last step: the loss of held-out data. */
void diverged_on_held_out(Rank *rank, double loss);
/* Before the weights are saved. A meeting of all ranks. */
Status diverged_in_weights(Rank *rank, Error *error);
/* On rank 0: the name under which a diverged run writes what was asked for as `path`, which the words then mention. The
   caller frees it. NULL: there is none, as `path` is standard output, a pipe or a device. */
Status diverged_path(Rank *rank, const char *path, char **other, Error *error);

/* --- start.c --- */

/* Takes the model's sizes from the file of --load and checks all of it: its checksum, and that every weight is finite.
   One message lists every setting that contradicts it. */
Status weights_check(Session *session, Error *error);
/* Its weights in place of the ones that a bound rank begins with. A meeting of all ranks. */
Status load_weights(Rank *rank, Error *error);

/* --- save.c, trace.c: meetings of all ranks that write what belongs to all to `stream` on rank 0. Whether all of the
   writing went well is found out there when the file is finished; on the other ranks `stream` is NULL --- */

/* The `bytes` bytes at `mine` on rank `owner`; what the others say counts for nothing. Rank 0 adds them to
   rank->checksum. */
Status collect(Rank *rank, int owner, const void *mine, size_t bytes, FILE *stream, Error *error);
/* The weights, one copy of each stage; the head of the file says how they lie in it. */
Status save_weights(Rank *rank, FILE *stream, Error *error);
/* The last stages' outputs of the step that ran, by microbatch number. */
Status save_outputs(Rank *rank, FILE *stream, Error *error);
/* The last kept_steps steps up to rank->step as Chrome trace events. */
Status trace_steps(Rank *rank, FILE *stream, Error *error);

/* --- profile.c: for --profile --- */

/* From now on the rank's stages note what their parts take. */
Status profile_begin(Rank *rank, Error *error);
/* A step has ended whose makespan was so many seconds. */
void profile_step(Rank *rank, double makespan);
/* Whether the profile has had its seconds; false where there is none, or where the number of steps was given. */
bool profile_is_long_enough(const Rank *rank);
/* Measures messages and writes the costs to `stream` on rank 0. A meeting of all ranks. */
Status write_profile(Rank *rank, FILE *stream, Error *error);

#endif
