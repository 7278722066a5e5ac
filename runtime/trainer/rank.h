#pragma once

/* The internal structures and functions of the trainer. */

#include "runtime/device/device.h"
#include "runtime/executor/clocks.h"
#include "runtime/launcher/watchdog.h"
#include "runtime/simulator/simulator.h"
#include "runtime/trainer/trainer.h"

#include <math.h>
#include <stdio.h>

/* A stage that a rank holds, with its data. */
typedef struct BoundChunk {
    Stage *stage;
    const StageSizes *sizes;
    uint16_t pipe, number; /* number: the stage */
    /* the number of the pipe's first microbatch among the step's microbatches of all replicas */
    uint32_t first;
    uint32_t microbatches; /* of the first and the last stage: number of microbatches that this chunk runs; else 0 */
    /* [microbatches of the pipe]: the position of a microbatch in the list of those that this chunk runs; PLACE_NONE if
       another copy of the stage runs it. Only for the first and the last stage; NULL for others */
    uint32_t *places;
    double *losses;         /* last stage: [microbatches] losses of this chunk's microbatches, in the device's memory */
    double *host_losses;    /* last stage: where these losses are stored in the rank's record, in host memory */
    bool is_first, is_last; /* first or last stage of the pipe */
    bool counts; /* true on one of all copies of the stage, in replica 0: norms and saved weights use this copy */
    /* like `counts`, for the parameters of experts: true on one copy for each shard of the experts */
    bool counts_experts;
    const StageCopies *copies; /* a reference run's chunk that represents several copies of a stage; else NULL */
    /* with `copies`: bytes from the gradient of one copy of the stage to that of the next; weights.gradients is the
       first */
    size_t gradient_bytes;
    /* `parameters` are the weights between steps. A forward-only run has no gradients or moments, and its
       `master_weights` are `parameters` */
    StageWeights weights;
    uint64_t updates; /* asynchronous program: number of U of this chunk in the run so far */
    /* [microbatches] in the device's memory; inputs: NULL if not the first stage; targets: NULL if not the last */
    char *inputs, *targets;
    char *outputs; /* last stage: [microbatches] outputs, in the device's memory; NULL if not wanted */
} BoundChunk;

enum { PLACE_NONE = UINT32_MAX };

/* What a rank reports after a step about physical experts that are placed by load (rebalance.c); all 0 if there are
   none. */
typedef struct PlacingRecord {
    /* the imbalance of a layer is the number of rows of the busiest rank of the group divided by the mean over the
       group. loads: the sum over the layers; worst_load: the largest */
    double loads, worst_load;
    /* layers: how many layers `loads` sums over; moved: how many experts moved after the step, reported by one member
       of each group */
    uint32_t layers, moved;
    bool placed; /* experts were placed anew after the step */
} PlacingRecord;

/* What a rank sends to all others when it is ready, at the end of a step (also of a round on held-out data), and at the
   end of the run. It contains no pointers. `losses` has the same length on all ranks. */
typedef struct RankRecord {
    int64_t begun, ended; /* first start and last end of a pass or U, in ns on rank 0's clock */
    int64_t busy;         /* ns in passes and U */
    int64_t products;     /* ns in matrix products */
    double operations;    /* number of floating-point operations in matrix products */
    /* `parameters` and `planned_bytes` do not change after rank_open. parameters: the number of parameters in those
       chunks of the rank that have BoundChunk.counts */
    uint64_t parameters;
    uint64_t planned_bytes;
    /* 1: the run is to end after this step: this rank was asked to stop, or its profile is long enough; else 0 */
    uint32_t stop;
    uint32_t reserved;
    /* norm of all gradients; 0 if forward-only; asynchronous program: the largest norm of the rank's U in this step */
    double norm;
    StageTallies tallies;
    PlacingRecord placing;
    /* of all all-to-alls of the step on this rank; time in which several are in flight counts once */
    FlightTimes all_to_alls;
    /* losses of the microbatches whose last stage is on this rank: chunk after chunk, those of a chunk in the order of
       the microbatches */
    double losses[];
} RankRecord;

/* Where the last stage of a microbatch runs. */
typedef struct End {
    int member;     /* the member of the mesh that holds the stage */
    uint8_t chunk;  /* index of the chunk on the rank */
    uint32_t place; /* index of the microbatch among the chunk's microbatches */
    uint32_t loss;  /* index of its loss in RankRecord.losses */
} End;

/* Sums of squares of the gradients or weights of stages (norm.c). Each stage has square_sums numbers: one for all
   parameters that are not of experts, then one for the experts of each shard. */
typedef struct Squares {
    double *all;  /* [members][most_chunks][square_sums]: gathered from all members */
    double *own;  /* [chunks][square_sums] of this rank, in the device's memory */
    double *host; /* [most_chunks][square_sums] */
    /* of the last NORM: the norm, and the factor that clips gradients. In an asynchronous program `norm` is the largest
       norm of this rank's U in the step, and `clip` is 1. Forward-only: 0 and 1 */
    double norm, clip;
} Squares;

/* Recorded times. */
typedef struct Times {
    int64_t *rows;   /* [kept_steps][executor_clocks]: the executor's clock, in ns, for the trace; NULL if not wanted */
    Flight *flights; /* [kept_steps][Rank.flights.room], for the trace; NULL if not wanted */
    PartSpan *components; /* [kept_steps][Rank.components.room], for the trace; NULL if not wanted */
    /* [kept_steps]: how many entries of `flights` and of `components` a step has */
    size_t *flight_counts, *component_counts;
    ClockSample compared[2]; /* clock comparisons at the beginning and, for a trace, at the end of the run */
    /* processors that compute all ranks' passes; 0: unknown, or they are not computed by processors */
    uint32_t processors;
} Times;

/* What the ranks exchange after a step. */
typedef struct Records {
    RankRecord *own;
    char *all;      /* [members], Session.record_bytes each */
    double *losses; /* [Session.microbatches] */
    double *busy;   /* [members] seconds */
} Records;

/* Buffers to collect data of all ranks into one file (save.c). */
typedef struct Collection {
    /* [piece_bytes] of this member; [members][piece_bytes] of all; NULL if nothing is to be collected */
    char *piece, *pieces;
    uint32_t checksum; /* in a file of weights: CRC-32 of its head and of everything that collect() has written to it */
} Collection;

typedef struct Profile Profile;

typedef struct PlacedLayer PlacedLayer; /* rebalance.c */

/* The state of counting the rows of physical experts and of placing them by load (rebalance.c), for all layers of a
   rank that have such experts. */
typedef struct Placing {
    PlacedLayer *layers;
    uint32_t layer_count; /* number of layers of this rank's chunks that have experts placed by load */
    uint32_t physical;    /* physical experts of a layer */
    uint32_t moves;       /* the most physical experts of a layer that one placement may move */
    size_t expert_bytes;  /* bytes of the weights of one expert */
    size_t *begins;       /* [2][members + 1] offsets of an all-to-all in bytes: to send, to receive */
    uint32_t *placement;  /* [physical] scratch: the new placement of one layer */
    /* [members][layers][physical] numbers of rows of each physical expert. sent: this member's numbers, repeated for
       each member; received: the numbers of every member */
    uint32_t *sent, *received;
    char *outgoing, *incoming; /* weights of the experts that leave and that reach this member; NULL if none move */
} Placing;

/* One rank of one replica, which is one member of the mesh. One thread uses it. */
typedef struct Rank {
    Session *session;
    int member;          /* number in the world */
    int number, replica; /* the member's coordinates: the rank in the program, and the replica */
    World *world;
    Progress *progress;
    Device *device;
    Executor *executor;
    RankCommunicators communicators;
    Placing placing;
    ExpertGroup experts; /* its all-to-alls use communicators.shards */
    Flights flights;     /* the all-to-alls of a step */
    /* the components of a step; room 0: they are not wanted, or their times are unknown */
    PartSpans components;
    ModelConfig model; /* Session.model with RunOptions.expert_rows and, if there is one, the expert group */
    StageTable stages; /* the functions that the executor calls: the model's or the simulator's */
    Simulator simulator;
    BoundChunk *chunks; /* NULL if the run is simulated */
    uint32_t chunk_count;
    char **weights; /* [weights slots] */
    char *workspace;
    char *data;    /* host buffer for one microbatch's data before its upload */
    uint64_t step; /* from 1 */
    bool diverged; /* a gradient, a loss or a weight is not finite: the run ends after this step */
    Squares squares;
    Times times;
    Records records;
    Collection collection;
    Profile *profile; /* NULL: not wanted */
    void *memory;     /* device memory with the slots, weights and data */
    size_t memory_bytes;
    Arena tables; /* all other memory */
    size_t table_bytes;
} Rank;

/* What all ranks of this process share. */
struct Session {
    const LoadedProgram *loaded;
    const RunOptions *options;
    SessionHooks hooks;
    ModelConfig model; /* checked */
    Mesh mesh;
    uint32_t microbatches; /* microbatches of a step, all replicas together */
    World **members;       /* [members of the mesh]; NULL: the member is in another process */
    Dataset *dataset;
    /* over how many windows the held-out loss is averaged; 0: simulated, or a model without held-out data */
    uint64_t held_out;
    const char *device; /* the device's name */
    Rank *ranks;        /* [members]; only the entries of this process's ranks are used */
    /* [members]: progress of each member, for the watchdog; not used if hooks.progress is given */
    Progress *own_progress;
    WatchedRank *watched;                 /* [members]: the rank threads of this process, for the watchdog */
    uint32_t longest_stream, most_chunks; /* instructions of the longest stream, and most chunks, of any rank */
    /* [stages]: the copy of each stage that norms and saved weights use: in pipe 0, on the lowest rank, in replica 0.
       In replica 0 the number of a rank is also the number of its member */
    Home *counting;
    End *ends; /* [microbatches of all replicas]: where the last stage of each microbatch runs */
    size_t record_bytes;
    size_t piece_bytes;
    int64_t saved_begin;       /* offset of the weights in the file of --load */
    uint64_t saved_parameters; /* number of weights in the file of --load */
    uint32_t saved_checksum;   /* CRC-32 of the head and the weights in the file of --load */
    uint32_t kept_steps;       /* how many steps the trace shows at most: the last steps */
    int64_t begun;             /* start of session_run, ns */
    bool stuck;                /* a rank's thread did not return, so it still uses its memory */
    /* what is not finite, where, and what was written. Only rank 0 writes it, so it is empty in processes without rank
       0 */
    Error divergence;
    Arena tables;
};

/* The larger of two norms; NaN counts as the largest. */
static inline double larger_norm(double one, double other) { return isnan(one) || one >= other ? one : other; }

static inline const RankRecord *rank_record(const Rank *rank, int member)
{
    return (const RankRecord *)(const void *)(rank->records.all + (size_t)member * rank->session->record_bytes);
}

/* The number of members that together hold the experts of a stage. 1 for a reference, which holds all experts
   itself. */
static inline int expert_members(const Session *session)
{
    return session->mesh.replicas > 1 ? (int)session->loaded->shards : 1;
}

static inline size_t square_sums(const Session *session) { return 1 + session->loaded->shards; }

static inline int member_count(const Rank *rank) { return mesh_size(rank->session->mesh); }

/* The rank's name in messages. */
static inline MemberName rank_name(const Rank *rank) { return mesh_name(rank->session->mesh, rank->member); }

/* Every rank of every replica passes `bytes` bytes. `all` gets the bytes of all ranks, in the order of the members. */
static inline Status rank_gather(Rank *rank, const void *mine, size_t bytes, void *all, Error *error)
{
    return rank->world->run->gather(rank->world, mine, bytes, all, error);
}

/* Allocates zeroed memory in the rank's tables, and adds its bytes to table_bytes, which the plan includes. NULL if
   there is no memory; see rank_no_tables. */
static inline void *rank_table(Rank *rank, size_t count, size_t bytes)
{
    rank->table_bytes += count * bytes;
    return arena_array(&rank->tables, count, bytes);
}

static inline Status rank_no_tables(const Rank *rank, Error *error)
{
    return error_set(error, STATUS_RUN_FAILED, "%s: no memory for its tables of %zu MiB", rank_name(rank).text,
                     rank->table_bytes >> 20);
}

/* --- open.c: opens a rank: its executor, and its memory by the slot plan. Afterwards steps allocate nothing, except in
   placing_step and for gradients that an observer is shown --- */

Status rank_open(Rank *rank, Error *error);
void rank_close(Rank *rank);

/* --- stages.c: a rank's stages, their weights and data --- */

/* Divides a block of memory into consecutive parts. With `base` NULL it only measures how large the block must be. */
typedef struct Layout {
    char *base;
    size_t used;
} Layout;

Status stages_open(Rank *rank, Error *error);
/* Assigns memory to weights, their further versions, gradients, moments, workspace, Squares.own, and the data of a
   step. Does nothing in a simulated run. */
void stages_place(Rank *rank, Layout *layout);
ChunkPlan stages_plan(const Rank *rank, uint32_t chunk);
/* Writes the initial weights. */
Status stages_initialize(Rank *rank, Error *error);
void stages_close(Rank *rank);
/* Writes the inputs and targets of training step `step`; if `held_out`, of round `step` of the evaluation on held-out
   data. */
Status stages_fill(Rank *rank, uint64_t step, bool held_out, Error *error);
/* Copies the losses of the instruction stream that has just run from the device's memory to the rank's record. */
Status stages_read_losses(Rank *rank, Error *error);

/* --- rebalance.c --- */

/* Makes the tables and buffers for physical experts that are placed by load, if there are any. */
Status placing_open(Rank *rank, Error *error);
/* After the passes of a step: adds up the rows of experts; after every N-th step (--rebalance N) but the last also
   moves experts. A collective of the group. Nothing is allocated but the working memory of the search for a
   placement. */
Status placing_step(Rank *rank, Error *error);

/* --- passes.c: the functions that the executor calls --- */

/* The stage functions of the model on this rank. */
StageTable rank_stages(const Rank *rank);
/* The gradient of copy `copy` of the chunk's stage. A chunk without BoundChunk.copies has only copy 0. */
void *gradient_of(const BoundChunk *chunk, uint32_t copy);

/* --- norm.c --- */

/* Computes the sum of squares of all gradients, or if `of_weights` of all master weights; of each stage one copy
   counts. stage_squares then gives the part of each stage. A collective of all ranks; all get the same numbers. */
Status sum_squares(Rank *rank, bool of_weights, double *sum, Error *error);
/* The sum of squares of one stage, from the last sum_squares. */
double stage_squares(const Rank *rank, uint32_t stage);
/* Functions of the executor's stage table: they run a NORM, an UPDATE, and a U of an asynchronous program. */
Status norm_of_gradients(void *rank, Error *error);
Status update_weights(void *rank, uint32_t chunk, Error *error);
Status update_weights_async(void *rank, uint32_t chunk, uint32_t microbatches, uint16_t newest, uint16_t next,
                            Error *error);

/* --- flights.c --- */

/* Makes room for the times of all all-to-alls of a step, and for the times of all components if the run notes them for
   a trace. */
Status rank_open_flights(Rank *rank, Error *error);

/* --- train.c --- */

/* Compares this rank's clock with rank 0's; fills in times.compared[which] and times.processors. A collective of all
   ranks. */
Status compare_clocks(Rank *rank, int which, Error *error);
/* The work of one Rank: opens it, runs the steps, and writes the files at the end. */
Status rank_train(void *rank, Error *error);

/* --- diverged.c: a run whose numbers are no longer finite --- */

/* Checks the losses and gradients after a step. All ranks reach the same result and set rank->diverged, so they end the
   run together. Rank 0 keeps the message. */
void diverged_in_step(Rank *rank, const StepReport *report);
/* If the held-out loss is not finite, sets rank->diverged; rank 0 adds to the message. */
void diverged_on_held_out(Rank *rank, double loss);
/* Checks the master weights before they are saved: if one is not finite, sets rank->diverged; rank 0 adds to the
   message. A collective of all ranks. */
Status diverged_in_weights(Rank *rank, Error *error);
/* On rank 0: the name under which a diverged run writes the file that was to be `path`; adds it to the message. The
   caller frees it. NULL: `path` is standard output, a pipe or a device, and nothing is written. */
Status diverged_path(Rank *rank, const char *path, char **other, Error *error);

/* --- agree.c --- */

/* Checks that all processes run the same program with the same data and settings. STATUS_BAD_USAGE, on all processes:
   they do not; the error names a process that differs, and what differs. All members of the world call this. */
Status session_agree(const Session *session, World *world, Error *error);
/* Checks that the replicas of each rank have the same lists of operations. STATUS_RUN_FAILED: they do not. All ranks of
   all replicas call this, before the first step. */
Status lists_agree(Rank *rank, Error *error);

/* --- load_weights.c --- */

/* Takes the model's settings from the file of --load and checks all of the file: its size, its checksum if it has one
   (since version 2), and that every weight is finite. One message lists all settings that contradict the file. */
Status weights_check(Session *session, Error *error);
/* Replaces the rank's initial weights by the weights of the file. A collective of all ranks. */
Status load_weights(Rank *rank, Error *error);

/* --- save.c, trace.c: collectives of all ranks that write the data of all ranks to `stream` on rank 0. On other ranks
   `stream` is NULL; if it is NULL on rank 0, nothing is written. Errors of writing that `collect` does not report are
   found when the file is finished --- */

/* Member 0 writes the `bytes` bytes that member `owner` passes as `mine`, and adds them to the checksum. `mine` and
   `bytes` of other members are ignored. */
Status collect(Rank *rank, int owner, const void *mine, size_t bytes, FILE *stream, Error *error);
/* Writes the weights of one copy of each stage. The head of the file describes their layout. */
Status save_weights(Rank *rank, FILE *stream, Error *error);
/* Writes the outputs of the last stages in the step that has just run, in the order of the microbatches. */
Status save_outputs(Rank *rank, FILE *stream, Error *error);
/* Makes room for the clocks, all-to-alls and components of the steps that a trace shows. Does nothing if no trace is
   wanted. */
Status trace_open(Rank *rank, Error *error);
/* If a trace is wanted, keeps the clocks, all-to-alls and components of the step that has just run. */
void trace_keep(const Rank *rank);
/* Writes the last kept_steps steps up to rank->step as Chrome trace events. */
Status trace_steps(Rank *rank, FILE *stream, Error *error);

/* --- profile.c: for --profile --- */

/* From now on the rank's stages measure the times of the model's parts. STATUS_BAD_USAGE if the device only enqueues:
   the host does not see when its passes end. */
Status profile_begin(Rank *rank, Error *error);
/* Ends a step of the profile. `makespan`: its makespan in seconds. */
void profile_step(Rank *rank, double makespan);
/* Whether the profile has measured for long enough. Always false if there is no profile, or if the number of steps was
   given. */
bool profile_is_long_enough(const Rank *rank);
/* Measures transfers and writes the costs to `stream` on rank 0. A collective of all ranks. */
Status write_profile(Rank *rank, FILE *stream, Error *error);
