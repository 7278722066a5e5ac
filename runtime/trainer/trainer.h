#pragma once

/* Trains a model with a proven program: data, weights, optimizer, evaluation on held-out data, and the files that a run
   reads and writes. It is a host of the executor (runtime/executor). With RunOptions.simulated the simulator takes the
   model's place, and nothing is computed. */

#include "base/progress.h"
#include "runtime/executor/executor.h"
#include "runtime/model/model.h"
#include "program/times/costs.h"
#include "runtime/transport/transport.h"

#include <stdatomic.h>

/* --- options of a run --- */

typedef struct RunOptions {
    ModelConfig model;
    const char *model_name; /* NULL: the default, or the model of the loaded weights */
    const char *data;       /* NULL: the default text */
    uint64_t steps;
    /* the loss on held-out data is computed over at most this many tokens, from the beginning of these data, but over
       at least one sequence */
    uint64_t held_out;
    uint64_t trace_steps; /* how many steps the trace shows: the last steps; 0: chosen automatically */
    double deadline;      /* seconds; 0: none */
    const char *device;   /* a name for device_choose */
    const Transport *transport;
    const int *rank_map; /* [rank_map_count]; NULL: none */
    int rank_map_count;
    const char *load; /* a file written by `save` to start from; NULL: seeded weights */
    /* > 0, only with `profile`: the run ends after the step in which this time has passed, but makes at least four
       steps; `steps` is then the maximum */
    double seconds;
    const char *trace, *save, *outputs, *profile; /* paths to write; NULL: not wanted */
    bool in_turn, overcommit;
    LinkModel link; /* the network that transfers imitate */
    /* memory of experts is planned for this many times the rows of an equal load; 0: for the worst case */
    double expert_rows;
    /* expert_replicas: how many physical experts a layer has beyond one for each expert. rebalance: experts are placed
       anew after every `rebalance` steps; 0: never. moves: how many physical experts of a layer may change at a time;
       0: any number. All three only for a forward-only program with `shards` of 2 or more */
    uint32_t expert_replicas, rebalance, moves;
    bool simulated; /* passes take the time that `costs` gives, and compute nothing */
    Costs costs;
} RunOptions;

/* --- reports of a run --- */

/* What the run reports when every rank is ready. */
typedef struct RunFacts {
    const Program *program;
    uint32_t replicas; /* number of data-parallel replicas */
    uint32_t shards;   /* how many consecutive replicas together hold the experts of a layer */
    Mesh reference;    /* LoadedProgram.reference */
    const ModelConfig *model;
    const char *data;    /* name of the data; NULL: simulated */
    double byte_entropy; /* entropy of single bytes of the training data, in nats; 0: not applicable */
    const char *device, *transport;
    /* number of parameters of the whole model: each stage counts once, however many copies it has. Includes the zeros
       that fill up each matrix and vector to a multiple of 16 elements, as in saved files */
    uint64_t parameters;
    /* bytes that are planned for slots, weights, gradients, moments, data of a step, tables and bound lists, summed
       over all ranks of all replicas */
    uint64_t planned_bytes;
    uint64_t steps;
    /* processors that compute all ranks' passes; 0: unknown, or they are not computed by processors */
    uint32_t processors;
    double ready_seconds; /* seconds from the call of session_run until every rank is ready */
} RunFacts;

typedef struct StepReport {
    uint64_t step; /* from 1 */
    bool last;
    double loss;          /* mean loss over the microbatches of all replicas */
    const double *losses; /* [replicas * Program.microbatches], by number: replica after replica */
    /* norm of all gradients before clipping; 0 in a forward-only run; asynchronous: the largest norm of the step's
       updates */
    double gradient_norm;
    /* the imbalance of a layer is the number of tokens of its busiest expert divided by the mean over its experts. The
       mean and the largest imbalance of all layers; 0: no experts */
    double expert_load, worst_expert_load;
    /* how much the sequence-wise balance losses of all layers add to the loss of a microbatch, on average */
    double balance_loss;
    /* the imbalance of a layer in an expert group is the number of rows of the group's busiest rank divided by the mean
       over its ranks. The mean and the largest imbalance of all groups and all layers whose experts have copies or
       move; 0: there is no such layer */
    double rank_load, worst_rank_load;
    uint64_t moved; /* physical experts that got the weights of another expert after this step */
    bool placed;    /* experts were placed anew after this step */
    double seconds;
    /* seconds from the start of the first pass or U of all ranks to the end of the last one */
    double makespan;
    /* (ranks * cost - busy) / (ranks * cost), over the ranks of all replicas; busy is the time that all ranks together
       spend in passes and U. Each rank takes some time from the start of its first pass or U to the end of its last
       one; cost is the longest of these times. NAN if ranks share processors: part of their waiting is then for
       processors and not due to the schedule */
    double bubble_rate;
    const double *busy;     /* [replicas * ranks] seconds in passes, in an asynchronous program also in U */
    double product_seconds; /* seconds in matrix products, summed over all ranks; 0 on a GPU, or if simulated */
    double operations;      /* floating-point operations in these products */
    /* seconds in which all-to-alls of a rank's layers were in flight, and the part of this time in which the rank
       waited for them; each summed over all ranks. 0: there are no all-to-alls */
    double all_to_all_seconds, all_to_all_waited;
    /* true on the last step of a training that has held-out data; false if a step has diverged, and in a run that is
       forward-only, is simulated, or makes a profile */
    bool has_held_out;
    double held_out_loss; /* mean over held_out_tokens; not finite: the run has diverged on the held-out data */
    uint64_t held_out_tokens;
} StepReport;

/* The gradient of one stage that its update uses: after all backward passes and the sum over its copies, before it is
   clipped. In an asynchronous program it is the sum over the microbatches of one U, not their mean. */
typedef struct GradientView {
    uint64_t step;
    int rank; /* the rank's number in the program. The ranks with this number in all replicas make the call */
    uint32_t chunk, pipe, stage;
    const float *values; /* [count], valid only during the call */
    size_t count;
} GradientView;

typedef struct Observer {
    void *context;
    void (*ready)(void *context, const RunFacts *facts);       /* rank 0 */
    void (*step)(void *context, const StepReport *report);     /* rank 0 */
    void (*gradient)(void *context, const GradientView *view); /* called on every rank, in the thread of the rank */
} Observer;

/* The pass functions. Measurements and tests replace them. */
typedef struct Passes {
    Status (*forward)(Stage *stage, const PassBuffers *buffers, Error *error);
    Status (*backward_input)(Stage *stage, const PassBuffers *buffers, Error *error);
    Status (*backward_weight)(Stage *stage, const PassBuffers *buffers, Error *error);
    /* NULL: the halves run one after the other */
    Status (*overlap)(const StagePair *pair, const Recipe *recipe, Error *error);
    /* Called before the first step; NULL: nothing is bound. On a device that only enqueues, buffers never move: every
       pass that puts no weight gradients off is bound to its buffers once, and `run` runs it. On other devices only
       bind_overlap is called: it makes the merged lists before the first step, and *bound is ignored. */
    Status (*bind)(const Stage *stage, RecipePass pass, const PassBuffers *buffers, BoundPass **bound, Error *error);
    Status (*bind_overlap)(const StagePair *pair, const Recipe *recipe, BoundPass **bound, Error *error);
    Status (*run)(BoundPass *bound, Error *error);
} Passes;

/* --- session.c --- */

typedef struct Session Session;

typedef struct SessionHooks {
    Observer observer;
    /* where a run with one rank in this process reports its position; NULL: the session uses a Progress of its own */
    Progress *progress;
    const Passes *passes;    /* NULL: the model's */
    const atomic_bool *stop; /* when it becomes true the run ends after the current step; NULL: never */
} SessionHooks;

/* Opens the data and the transport; the process of rank 0 also checks the paths of outputs. What `loaded` and `options`
   point to, and what is in `hooks`, must outlive the session. */
Status session_open(const LoadedProgram *loaded, const RunOptions *options, const SessionHooks *hooks, Session **opened,
                    Error *error);
/* Runs all steps on all ranks of this process and writes the files that the options ask for. The first failure of any
   rank ends all ranks and is returned. If the run has diverged, the process of rank 0 returns STATUS_RUN_FAILED, after
   it has written the files under other names. */
Status session_run(Session *session, Error *error);
/* False: a rank's thread did not return from a pass. It still uses its memory, so nothing was freed, and the process
   should end by _exit. */
bool session_close(Session *session);
