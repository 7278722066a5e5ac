#ifndef TRAINER_RANK_H
#define TRAINER_RANK_H

/* What a training is made of, for the files of this folder. */

#include "runtime/device/device.h"
#include "runtime/executor/clocks.h"
#include "runtime/launcher/watchdog.h"
#include "runtime/simulator/simulator.h"
#include "runtime/trainer/trainer.h"

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
    double *host_losses;       /* the same, in the rank's record */
    bool is_first, is_last;    /* of the pipe */
    bool counts;               /* the copy of the stage that the norm and the saved weights take */
    const StageCopies *copies; /* of a reference, of a stage that stands for several copies; else NULL */
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
    double norm; /* the largest of its updates: of an asynchronous program */
    StageTallies tallies;
    double losses[]; /* of the microbatches that end here: chunk after chunk, each in their order */
} RankRecord;

/* Where a microbatch ends. */
typedef struct End {
    Home home;
    uint32_t place; /* among the chunk's own microbatches, */
    uint32_t loss;  /* and of its loss in the rank's record */
} End;

/* The squares of the gradients or weights of stages (norm.c). */
typedef struct Squares {
    double *all;       /* [ranks][most_chunks]: what all ranks have told */
    double *own;       /* [chunks], in the device's memory; */
    double *host;      /* [most_chunks] */
    double norm, clip; /* by the last NORM; asynchronous: norm is the largest of the step's U */
} Squares;

/* When things happened. */
typedef struct Times {
    int64_t *rows;           /* [kept_steps][executor_clocks], for the trace; NULL: none is wanted */
    ClockSample compared[2]; /* at the beginning and, for a trace, at the end of the run */
    uint32_t processors;     /* that may compute all ranks' passes; 0: not known, or others do */
} Times;

/* What the ranks tell each other after a step. */
typedef struct Records {
    RankRecord *own;
    char *all;      /* [ranks] of Session.record_bytes */
    double *losses; /* [microbatches] by number, of all ranks */
    double *busy;   /* [ranks] seconds */
} Records;

/* What goes from all ranks into one file (save.c). */
typedef struct Collection {
    char *piece, *pieces; /* [piece_bytes], [ranks][piece_bytes]; NULL when nothing is to be collected */
    uint32_t checksum;    /* of what collect has written */
} Collection;

typedef struct Profile Profile;

/* A rank: one thread's. */
typedef struct Rank {
    Session *session;
    int number;
    World *world;
    Progress *progress;
    Device *device;
    Executor *executor;
    RankCommunicators communicators;
    StageTable stages;    /* what the executor calls, of the model or of the simulator */
    const Recipe *recipe; /* of F&Bs whose halves are merged; NULL: they run in turn */
    Simulator simulator;
    BoundChunk *chunks; /* none where the run is simulated */
    uint32_t chunk_count;
    char **weights; /* [weights slots] */
    char *workspace;
    char *data;    /* the data of a microbatch on its way to the device */
    uint64_t step; /* from 1 */
    bool diverged; /* a gradient, a loss or a weight is not finite: the run ends after this step */
    Squares squares;
    Times times;
    Records records;
    Collection collection;
    Profile *profile; /* NULL: not wanted */
    void *memory;     /* of the device; the slots, weights and data lie in it */
    size_t memory_bytes;
    Arena tables; /* everything else */
    size_t table_bytes;
} Rank;

/* What all ranks of this process share. */
struct Session {
    const LoadedProgram *loaded;
    const RunOptions *options;
    SessionHooks hooks;
    ModelConfig model; /* checked */
    World **members;   /* [ranks]; NULL: not in this process */
    Dataset *dataset;
    uint64_t held_out;                    /* windows that the loss on held-out data is the mean of */
    const char *device;                   /* its name */
    Rank *ranks;                          /* [ranks]; those of this process are used */
    Progress *own_progress;               /* [ranks]; unless hooks.progress */
    WatchedRank *watched;                 /* [ranks] those of this process, as threads */
    uint32_t longest_stream, most_chunks; /* of a rank */
    Home *counting;                       /* [stages] the copy of each stage that counts: the first of its group */
    End *ends;                            /* [microbatches] by number */
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
    return (const RankRecord *)(const void *)(rank->records.all + other * rank->session->record_bytes);
}

/* Every rank gives `bytes` bytes and gets those of all ranks. */
static inline Status rank_gather(Rank *rank, const void *mine, size_t bytes, void *all, Error *error)
{
    return rank->world->run->gather(rank->world, mine, bytes, all, error);
}

/* Zeroed memory of the rank's tables, which the plan counts. NULL: there is none, see rank_no_tables. */
static inline void *rank_table(Rank *rank, size_t count, size_t bytes)
{
    rank->table_bytes += count * bytes;
    return arena_array(&rank->tables, count, bytes);
}

static inline Status rank_no_tables(const Rank *rank, Error *error)
{
    return error_set(error, STATUS_RUN_FAILED, "rank %d: no memory for its tables, %zu MiB", rank->number,
                     rank->table_bytes >> 20);
}

/* --- open.c: a rank's executor and memory, by the slot plan. After it nothing is allocated any more --- */

Status rank_open(Rank *rank, Error *error);
void rank_close(Rank *rank);

/* --- stages.c: a rank's stages, their weights and data --- */

/* Hands out one block of memory from its beginning on; with `base` NULL it only measures. */
typedef struct Layout {
    char *base;
    size_t used;
} Layout;

Status stages_open(Rank *rank, Error *error);
/* Places weights, workspace and the data of a step. */
void stages_place(Rank *rank, Layout *layout);
ChunkPlan stages_plan(const Rank *rank, uint32_t chunk);
/* Starting weights. */
Status stages_initialize(Rank *rank, Error *error);
void stages_close(Rank *rank);
/* Draws the data of a step, or of round `step` over the held-out data. */
Status stages_fill(Rank *rank, uint64_t step, bool held_out, Error *error);
/* The losses of the stream that ran, from the device's memory into the record. */
Status stages_read_losses(Rank *rank, Error *error);

/* --- passes.c: what the executor calls --- */

/* The stage functions of the model on this rank. */
StageTable rank_stages(const Rank *rank);
/* The recipe by which the rank runs its F&Bs; NULL: their halves run in turn. */
const Recipe *rank_recipe(const Rank *rank);
/* The gradient of one of the copies that a chunk stands for. */
void *gradient_of(const BoundChunk *chunk, uint32_t copy);

/* --- norm.c --- */

/* The sum of the squares of all gradients, or of all weights (the optimizer's), one copy of each stage; those of each
   stage are then known to stage_squares. A collective of all ranks, which get the same numbers. */
Status sum_squares(Rank *rank, bool of_weights, double *sum, Error *error);
/* The sum of squares of one stage that the last sum_squares computed. */
double stage_squares(const Rank *rank, uint32_t stage);
/* Stage functions of the executor. */
Status norm_of_gradients(void *rank, Error *error);
Status update_weights(void *rank, uint32_t chunk, Error *error);
Status renew_weights(void *rank, uint32_t chunk, uint32_t microbatches, uint16_t newest, uint16_t next, Error *error);

/* --- train.c --- */

/* Compares this rank's clock with rank 0's: times.compared[which]. A collective of all ranks. */
Status compare_clocks(Rank *rank, int which, Error *error);
/* All of one Rank: it opens, runs the steps, and writes the files at the end. */
Status rank_train(void *rank, Error *error);

/* --- diverged.c: a run whose numbers are no longer finite --- */

/* All ranks find the same, set rank->diverged, and go on to the end of the run together; rank 0 keeps the words. After
   a step: its losses and gradients. */
void diverged_in_step(Rank *rank, const StepReport *report);
/* After the last step: the loss of held-out data. */
void diverged_on_held_out(Rank *rank, double loss);
/* Before the weights are saved. A collective of all ranks. */
Status diverged_in_weights(Rank *rank, Error *error);
/* On rank 0: the name under which a diverged run writes what was asked for as `path`, which the words then mention. The
   caller frees it. NULL: there is none, as `path` is standard output, a pipe or a device. */
Status diverged_path(Rank *rank, const char *path, char **other, Error *error);

/* --- load_weights.c --- */

/* Takes the model's sizes from the file of --load and checks all of it: its checksum, and that every weight is finite.
   One message lists every setting that contradicts it. */
Status weights_check(Session *session, Error *error);
/* Its weights in place of those that a rank has opened with. A collective of all ranks. */
Status load_weights(Rank *rank, Error *error);

/* --- save.c, trace.c: collectives of all ranks that write what belongs to all to `stream` on rank 0. Whether all of
   the writing went well is found out there when the file is finished; on the other ranks `stream` is NULL --- */

/* The `bytes` bytes at `mine` on rank `owner`; what the other ranks pass is ignored. Rank 0 adds them to the
   checksum. */
Status collect(Rank *rank, int owner, const void *mine, size_t bytes, FILE *stream, Error *error);
/* The weights, one copy of each stage; the head of the file says how they lie in it. */
Status save_weights(Rank *rank, FILE *stream, Error *error);
/* The last stages' outputs of the step that ran, by microbatch number. */
Status save_outputs(Rank *rank, FILE *stream, Error *error);
/* Keeps the clocks of the step that ran, if a trace is wanted. */
void trace_keep(const Rank *rank);
/* The last kept_steps steps up to rank->step as Chrome trace events. */
Status trace_steps(Rank *rank, FILE *stream, Error *error);

/* --- profile.c: for --profile --- */

/* From now on the rank's stages note what their parts take. */
Status profile_begin(Rank *rank, Error *error);
/* A step has ended whose makespan was so many seconds. */
void profile_step(Rank *rank, double makespan);
/* Whether the profile has had its seconds; false where there is none, or where the number of steps was given. */
bool profile_is_long_enough(const Rank *rank);
/* Measures messages and writes the costs to `stream` on rank 0. A collective of all ranks. */
Status write_profile(Rank *rank, FILE *stream, Error *error);

#endif
