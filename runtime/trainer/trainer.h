#ifndef TRAINER_TRAINER_H
#define TRAINER_TRAINER_H

/* Trains a model by a proven program: data, weights, optimizer, evaluation on held-out data, and the files that a run
   reads and writes. It is a host of the executor (runtime/executor); with RunOptions.simulated the simulator is, and
   nothing is computed. */

#include "runtime/base/progress.h"
#include "runtime/executor/executor.h"
#include "runtime/model/model.h"
#include "runtime/program/costs.h"
#include "runtime/transport/transport.h"

#include <stdatomic.h>

/* --- what a run is to do --- */

typedef struct RunOptions {
    ModelConfig model;
    const char *model_name; /* NULL: the default, or that of the weights that are loaded */
    const char *data;       /* NULL: the default text */
    uint64_t steps;
    uint64_t held_out;    /* tokens, at most: the loss at the end is over the first of the held-out data */
    uint64_t trace_steps; /* the last of them that the trace shows; 0: the run chooses */
    double deadline;      /* seconds; 0: none */
    const char *device;   /* a name that device_choose knows, or auto */
    const Transport *transport;
    const int *rank_map; /* [rank_map_count], NULL: none */
    int rank_map_count;
    const char *load; /* a file of `save` to start from; NULL: seeded weights */
    /* > 0: the run ends after the step in which so many have passed; `steps` is then the most */
    double seconds;
    const char *trace, *save, *outputs, *profile; /* paths to write, NULL: not wanted */
    bool in_turn, overcommit;
    bool simulated; /* passes take the time that `costs` say and compute nothing */
    Costs costs;
} RunOptions;

/* --- what a run tells while it runs --- */

/* Known when every rank is ready. */
typedef struct RunFacts {
    const Program *program;
    const ModelConfig *model;
    const char *data;    /* its name; NULL: simulated */
    double byte_entropy; /* nats; 0: of no meaning */
    const char *device, *transport;
    uint64_t parameters;    /* of the whole model, one copy */
    uint64_t planned_bytes; /* all ranks: slots, weights, gradients, moments, data of a step, tables */
    uint64_t steps;
    uint32_t processors;  /* that may compute all ranks' passes; 0: not known, or others do */
    double ready_seconds; /* from session_run to every rank ready */
} RunFacts;

typedef struct StepReport {
    uint64_t step; /* from 1 */
    bool last;
    double loss;          /* mean over the step's microbatches */
    const double *losses; /* [Program.microbatches], by number */
    /* before clipping; 0 where nothing is learned; asynchronous: the largest of the step's updates */
    double gradient_norm;
    /* of a layer, the tokens of its busiest expert over the mean: the mean and the largest of all layers. 0: no
       experts */
    double expert_load, worst_expert_load;
    double balance_loss; /* what the sequence-wise balance losses of all layers add to a microbatch's loss */
    double seconds;
    double makespan;        /* seconds from the first start of a pass to the last end of one */
    double bubble_rate;     /* (ranks * cost - busy) / (ranks * cost), cost the longest start-to-end of a rank's
                                passes. NAN where ranks share processors: they wait for these, not for the schedule
                                alone */
    const double *busy;     /* [ranks] seconds in passes */
    double product_seconds; /* of these, all ranks together: in matrix products, */
    double operations;      /* and the floating-point operations of these */
    bool has_held_out;      /* on the last step of a model that has held-out data */
    double held_out_loss;   /* mean over held_out_tokens */
    uint64_t held_out_tokens;
} StepReport;

/* The gradient of one stage as its update finds it: after all backward passes and the reduction over its copies. Of an
   asynchronous program the sum over the microbatches of one U, not their mean. */
typedef struct GradientView {
    uint64_t step;
    int rank;
    uint32_t chunk, pipe, stage;
    const float *values;
    size_t count;
} GradientView;

typedef struct Observer {
    void *context;
    void (*ready)(void *context, const RunFacts *facts);       /* rank 0 */
    void (*step)(void *context, const StepReport *report);     /* rank 0 */
    void (*gradient)(void *context, const GradientView *view); /* every rank, in its own thread */
} Observer;

/* The pass functions, to be replaced in measurements and tests. */
typedef struct Passes {
    Status (*forward)(Stage *stage, const PassBuffers *buffers, Error *error);
    Status (*backward_input)(Stage *stage, const PassBuffers *buffers, Error *error);
    Status (*backward_weight)(Stage *stage, const PassBuffers *buffers, Error *error);
    Status (*overlap)(const StagePair *pair, const Recipe *recipe, Error *error); /* NULL: the halves run in turn */
    /* Called for every pass before the first step; NULL: nothing is bound. Where the device only enqueues, buffers
       never move, and what is bound runs by `run`. Elsewhere bind_overlap alone is called, and *bound is ignored. */
    Status (*bind)(const Stage *stage, RecipePass pass, const PassBuffers *buffers, BoundPass **bound, Error *error);
    Status (*bind_overlap)(const StagePair *pair, const Recipe *recipe, BoundPass **bound, Error *error);
    Status (*run)(BoundPass *bound, Error *error);
} Passes;

/* --- session.c --- */

typedef struct Session Session;

typedef struct SessionHooks {
    Observer observer;
    Progress *progress;      /* of a run with one rank in this process; NULL: the session has its own */
    const Passes *passes;    /* NULL: the model's */
    const atomic_bool *stop; /* when it becomes true the run ends after the step; NULL: never */
} SessionHooks;

/* Opens data, transport and outputs. What is given must outlive the session. */
Status session_open(const LoadedProgram *loaded, const RunOptions *options, const SessionHooks *hooks, Session **opened,
                    Error *error);
/* Runs all steps on all ranks of this process and writes what the options ask for. The first failure of any rank ends
   all ranks and is the one returned. */
Status session_run(Session *session, Error *error);
/* False when a rank never came back from a pass: its thread goes on using its memory, so nothing was freed, and the
   process should end by _exit. */
bool session_close(Session *session);

#endif
