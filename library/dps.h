/* libdps: pipeline-parallel training schedules, compiled, proven and run by your own program.

   A schedule says in which order the ranks of a pipeline run the forward and backward passes of their stages. libdps
   compiles one from its source (the language is described in LANGUAGE.md), proves that it is complete, that it cannot
   deadlock and how much memory it needs, and gives you the result: one list of instructions for every rank, with every
   send, receive and buffer in it. It runs a rank under your own model, predicts how long a step takes, and draws it.

       #include <dps.h>
       #include <stdio.h>

       int main(void)
       {
           dps *d = dps_new(NULL);
           dps_program *program;
           dps_options options = {.size = sizeof options, .ranks = 8, .microbatches = 20};
           if (dps_compile_file(d, "dualpipe.dps", &options, &program) != DPS_OK) {
               fprintf(stderr, "%s\n", dps_error(d));
               dps_free(d);
               return 1;
           }
           dps_instruction i = {.size = sizeof i};
           for (uint32_t n = 0; dps_get_instruction(program, 0, n, 0, &i) == DPS_OK; n++)
               printf("line %d: opcode %d, stage %d, microbatch %d\n", i.line, i.opcode, i.stage, i.microbatch);
           dps_program_free(program);
           dps_free(d);
           return 0;
       }

       cc example.c $(pkg-config --cflags --libs dps)

   Handles. `dps` is a session: it holds your allocator and the text of the last error. `dps_program` is a proven
   program, `dps_prediction` the times of one, `dps_rank` a rank that runs, `dps_threads` the threads that run ranks
   together. You free what you were given: dps_free, dps_program_free, dps_prediction_free, dps_rank_free,
   dps_threads_free, and dps_release for text and bytes.

   Errors. Most functions take a `dps` and return a dps_status; dps_error then says what is wrong, where, and what to
   do. The functions that run a rank take a `dps_rank` instead, and dps_rank_error has their text. A function that fails
   gives nothing to be freed. The functions dps_get_* only read and set no error text: they fail when an index is out of
   range or a `size` is not set. A NULL where a function needs a pointer is DPS_BAD_USAGE. Lack of memory is always
   DPS_NO_MEMORY, and changes no result: dps_advise does not leave a schedule out for it.

   Threads. Different threads may use different sessions at the same time. Only one call at a time may use a session: a
   call within another one, from a function of yours or another thread, is DPS_BAD_USAGE and sets no error text.
   Programs and predictions never change: any number of threads may read them. They do not need the session that made
   them any more. The library has no global state, installs no signal handlers, reads no environment variables, prints
   nothing and never ends the process. A call with a session gives its thread the C locale, so that numbers have a
   decimal point, and gives back the thread's own locale when it returns.

   Versions. Every struct except dps_parameter begins with its size: set it to sizeof before the call. Then programs and
   libraries of different versions work together: a member that the library does not know must be 0, one that the caller
   does not know is taken as 0. In dps_options, dps_rank_options and dps_host 0 means the default, so `= {.size = sizeof
   options}` is complete.

   Numbers. Ranks, stages, chunks, microbatches, instructions and slots count from 0, source lines and columns from 1. A
   rank holds one or more chunks, each of them one stage of the model. A schedule has one or more pipes: flows of
   microbatches through all stages (DualPipe has two, in opposite directions). */

#ifndef DPS_H
#define DPS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DPS_VERSION_MAJOR 0
#define DPS_VERSION_MINOR 1
#define DPS_VERSION_PATCH 0

typedef struct dps dps;
typedef struct dps_program dps_program;
typedef struct dps_prediction dps_prediction;

typedef enum dps_status {
    DPS_OK = 0,
    /* a schedule, a program, a file of costs, or loads or a placement of experts is wrong, or a file cannot be read */
    DPS_BAD_INPUT = 1,
    DPS_BAD_USAGE = 2, /* an argument of the call is wrong, or the call is not allowed at this moment */
    DPS_FAILED = 3,    /* the system, a transfer or a function of yours failed */
    DPS_NO_MEMORY = 4,
} dps_status;

/* The version of the library that runs, such as "0.1.0"; DPS_VERSION_* are that of this header. */
const char *dps_version(void);

/* --- sessions --- */

/* Functions that your program provides. */
typedef struct dps_host {
    size_t size;
    void *user; /* passed to each of these functions and to dps_options.progress */
    /* `allocate` returns memory aligned for any type, or NULL: the call then fails with DPS_NO_MEMORY. Set both
       functions or neither; if neither is set, the library uses malloc and free. Handles, text and working memory of
       compilations come from `allocate`; memory of the C library's streams, and the buffer in which dps_encode and
       dps_save build their bytes, do not. The library calls both functions in the thread that called it, and dps_advise
       also in threads of its own. */
    void *(*allocate)(void *user, size_t size);
    void (*release)(void *user, void *memory);
    /* not 0: messages name what is set as the arguments of the Python package, not as the members of this header */
    int32_t for_python;
} dps_host;

/* Opens a session. `host` may be NULL; it is copied. Returns NULL if there is no memory, if host->size is not set, if
   only one of `allocate` and `release` is set, or if a member that this library does not know is not 0. */
dps *dps_new(const dps_host *host);
/* Closes the session. NULL is harmless here and in the other functions that free. */
void dps_free(dps *d);
/* Frees text or bytes that a function with this session, or with a session of the same host, gave you to free. Not the
   text of dps_error. */
void dps_release(dps *d, void *memory);

/* --- errors --- */

/* The error text of the last call with this session, with all diagnostics, as `dpc` prints it, without a line break at
   its end. "" if the call succeeded. Valid until the next call with this session. Never NULL. */
const char *dps_error(const dps *d);

typedef enum dps_severity {
    DPS_ERROR = 0, /* the text says what is wrong */
    DPS_NOTE = 1,  /* explains the error before it; a note without a position says how many more errors there are */
} dps_severity;

typedef struct dps_diagnostic {
    size_t size;
    int32_t severity; /* dps_severity */
    /* where the mistake begins in the source; line 0: it has no position. Columns count UTF-8 characters */
    uint32_t line, column;
    uint32_t end_line, end_column; /* directly after its end */
    const char *text;              /* what is wrong, or what explains it */
    const char *help;              /* what to do about the error, one suggestion per line; NULL: none */
} dps_diagnostic;

/* The number of diagnostics of the last call: the errors that it found in a source, in source order, each followed by
   its notes. 0 if the call succeeded, if its error has no position in a source, and always after dps_load, dps_compare,
   dps_advise and dps_check; then only dps_error describes the error. The texts live as long as that of dps_error. */
size_t dps_diagnostic_count(const dps *d);
dps_status dps_get_diagnostic(const dps *d, size_t index, dps_diagnostic *diagnostic);

/* --- programs --- */

typedef struct dps_parameter {
    const char *name; /* name of a `param` of the schedule */
    int64_t value;
} dps_parameter;

/* The progress of the search of an `order auto`. */
typedef struct dps_progress {
    size_t size;
    uint32_t tried, planned; /* number of orders tried so far, and of those to be tried */
    /* of the best order so far, in the unit of the costs: the largest (end - start) of a rank; with `overlap`, the
       makespan of the order */
    double cost;
    double bound; /* lower bound: no order has a smaller cost */
} dps_progress;

typedef struct dps_options {
    size_t size;
    uint32_t ranks, microbatches; /* 0: as in the schedule */
    uint32_t parameter_count, cost_count;
    const dps_parameter *parameters; /* if a name is given twice, the last one counts */
    /* Costs of passes and messages: each text is what follows `dpc --cost`, such as "F=1,I=1,W=0.8,comm=0.1", or
       "@FILE" for a file of costs. Later ones override earlier ones. None: F, I and W take 1, messages nothing. */
    const char *const *costs;
    /* sizes of buffers, as for `dpc --slot-bytes`: "message=8M,context=64M,..."; NULL: not known. A memory_limit in
       bytes needs all sizes of the program, and the message names those that are missing */
    const char *slot_bytes;
    const char *memory_limit; /* as for `dpc --memory-limit`: "40G", or "activations=8"; NULL: none */
    /* Called repeatedly during the search of an `order auto`. Return a nonzero value to end the search with the best
       order so far. dps_compare and dps_advise do not call it. NULL: not called */
    int (*progress)(void *user, const dps_progress *progress);
    /* For dps_compare and dps_advise: number of replicas of the pipeline over which gradients are summed. Then `costs`
       must have gradients=N, the bytes of a stage's gradient. 0: sums are not counted. For other functions it must be
       0 */
    uint32_t replicas;
} dps_options;

/* Compiles and proves a schedule. If the path ends in .csv, the file is an order in the text form of
   torch.distributed.pipelining (one row per rank), and ranks, microbatches and parameters must not be set. `options`
   may be NULL. DPS_BAD_INPUT: the schedule or a file of costs is wrong, the program exceeds options->memory_limit, or a
   file cannot be read. */
dps_status dps_compile_file(dps *d, const char *path, const dps_options *options, dps_program **program);
/* Compiles `length` bytes of text, like dps_compile_file. Messages call the text `name`; if `name` ends in .csv, the
   text is an order. name NULL: the text is a schedule, and messages call it <text>. */
dps_status dps_compile_text(dps *d, const char *text, size_t length, const char *name, const dps_options *options,
                            dps_program **program);

/* Reads a program that dps_encode, dps_save or `dpc -o` wrote, and proves it again. DPS_BAD_INPUT: the file cannot be
   read, or the bytes are not a valid program. The program has no source text; its errors and pictures give only the
   numbers of source lines. */
dps_status dps_load(dps *d, const void *bytes, size_t length, dps_program **program);
dps_status dps_load_file(dps *d, const char *path, dps_program **program);

/* Encodes the program as bytes, which `dprun` runs. The same program always gives the same bytes. Free them with
   dps_release. */
dps_status dps_encode(dps *d, const dps_program *program, void **bytes, size_t *length);
/* Writes the bytes of dps_encode to a file. If it fails, there is no partial file. */
dps_status dps_save(dps *d, const dps_program *program, const char *path);

void dps_program_free(dps_program *program);

/* --- what is in a program --- */

typedef struct dps_program_info {
    size_t size;
    const char *schedule; /* name of the schedule; valid until dps_program_free of this program */
    const char *source;   /* name of the source file, without folders */
    uint32_t ranks, stages, pipes;
    uint32_t microbatches;   /* number of microbatches in a step, of all pipes together */
    int32_t is_forward_only; /* not 0: there are no backward passes */
    int32_t is_asynchronous; /* not 0: weights are updated within the step, by DPS_ASYNC_UPDATE */
} dps_program_info;

dps_status dps_get_program_info(const dps_program *program, dps_program_info *info);

/* Buffers are numbered slots of several classes. The library says which slots a pass reads and fills; you decide what
   they contain. */
typedef enum dps_slot_class {
    DPS_SLOT_MESSAGE = 0,  /* one activation or gradient between two stages */
    DPS_SLOT_CONTEXT = 1,  /* what a forward saves only for the input half of its backward: I takes it */
    DPS_SLOT_STASH = 2,    /* what a forward saves for both halves of its backward: I reads it, W takes it */
    DPS_SLOT_GRADIENT = 3, /* what a DPS_BACKWARD_INPUT saves for its DPS_BACKWARD_WEIGHT */
    /* a version of a chunk's weights. At the beginning and end of a step, slot c has the weights of chunk c. Only
       asynchronous programs have more slots than chunks */
    DPS_SLOT_WEIGHTS = 4,
    DPS_SLOT_CLASSES = 5,
} dps_slot_class;

typedef struct dps_rank_info {
    size_t size;
    uint32_t chunks;
    uint32_t instructions;
    uint32_t slots[DPS_SLOT_CLASSES]; /* number of slots of each class that the rank needs */
    /* most activations that the rank holds at once, one per microbatch and stage, from the start of the F to the end of
       the B or W. 0 if the program is forward-only */
    uint32_t peak_activations;
    uint32_t messages_sent, messages_received; /* per step */
} dps_rank_info;

dps_status dps_get_rank_info(const dps_program *program, uint32_t rank, dps_rank_info *info);

typedef struct dps_pipe_info {
    size_t size;
    uint32_t microbatches;
    uint32_t first; /* microbatch m of this pipe is number first + m of the step */
} dps_pipe_info;

dps_status dps_get_pipe_info(const dps_program *program, uint32_t pipe, dps_pipe_info *info);

typedef struct dps_chunk_info {
    size_t size;
    uint32_t stage, pipe;
    /* index of the group that the copies of this stage form; they sum their weight gradients. -1: the stage has one
       copy */
    int32_t group;
} dps_chunk_info;

dps_status dps_get_chunk_info(const dps_program *program, uint32_t rank, uint32_t chunk, dps_chunk_info *info);

/* A member of a group: where one copy of the stage lives. Gradients are summed in the order of the members. */
typedef struct dps_group_member {
    size_t size;
    uint32_t rank, chunk;
} dps_group_member;

/* Fills in `info`. DPS_BAD_USAGE: there is no such group or member, which ends a loop over the members. */
dps_status dps_get_group_member(const dps_program *program, uint32_t group, uint32_t member, dps_group_member *info);

/* What an instruction does. `x` is the input of its stage, `y` the output; `dx` and `dy` are their gradients. "Fills" a
   slot: it was free and now holds a tensor. "Takes" a slot: reads it, and it is free afterwards. "Scratch": the slot is
   free before and after the instruction, which may use it for itself. */
typedef enum dps_opcode {
    DPS_FORWARD = 0,      /* F: reads x; fills y, context, stash */
    DPS_FORWARD_ONLY = 1, /* F of a forward-only program: takes x; fills y; context, stash are scratch */
    DPS_BACKWARD = 2,     /* B, a full backward: takes x, context, stash, dy; fills dx; gradient is scratch */
    /* I, the input half of a backward: reads x, stash, dy; takes context; fills dx, gradient */
    DPS_BACKWARD_INPUT = 3,
    /* W, the weight half of a backward: takes x, stash, dy, gradient; adds to the chunk's gradient */
    DPS_BACKWARD_WEIGHT = 4,
    /* F&B: the F, half 0, and the B or I, half 1, may run at the same time. If the recipe of the F&B puts off some
       weight gradients (its list `after`), half 1 is an I, and the next pass of the rank is the W of the same
       microbatch. Your W then computes all weight gradients, also those that are not in the list */
    DPS_OVERLAP = 5,
    DPS_SEND_FORWARD = 6,    /* starts to send the activation in slot `message` to rank `peer` */
    DPS_RECEIVE_FORWARD = 7, /* starts to receive an activation into slot `message` from rank `peer` */
    DPS_SEND_BACKWARD = 8,   /* starts to send the gradient in slot `message` to rank `peer` */
    DPS_RECEIVE_BACKWARD = 9,
    /* waits until the message in slot `message` has been received, or until it has been sent, which frees the slot */
    DPS_WAIT = 10,
    /* starts to sum the chunk's weight gradient over the members of its group; `group` -1: the stage has one copy, so
       there is nothing to sum */
    DPS_REDUCE = 11,
    /* waits until the sum that DPS_REDUCE started is complete. Between the two no pass adds to the gradient */
    DPS_WAIT_REDUCE = 12,
    /* computes the norm of the gradients of all stages, each stage counted once; all ranks take part */
    DPS_NORM = 13,
    DPS_UPDATE = 14, /* one step of the optimizer on the chunk's weights; sets its gradient to zero */
    /* asynchronous: one optimizer step from `weights` to `next_weights`, with the gradient of `count` microbatches */
    DPS_ASYNC_UPDATE = 15,
    DPS_END = 16,             /* end of the step; the last instruction */
    DPS_OVERLAP_FORWARD = 17, /* F&F: two F, each as DPS_FORWARD_ONLY, may run at the same time */
} dps_opcode;

/* One instruction, or one half of an F&B or F&F. A member that the instruction does not have is -1; so is a slot for a
   tensor that does not exist, such as x at the first stage and y at the last one. context, stash, gradient, weights and
   next_weights are slots of the classes of these names; the other slots are of class DPS_SLOT_MESSAGE. */
typedef struct dps_instruction {
    size_t size;
    int32_t opcode; /* dps_opcode; half 1 of an F&B is DPS_BACKWARD or DPS_BACKWARD_INPUT, of an F&F
                       DPS_FORWARD_ONLY */
    int32_t halves; /* 2: an F&B, whose backward is half 1, or an F&F, whose second F is half 1; else 1 */
    int32_t line;   /* line of the source */
    int32_t chunk, stage, pipe;
    int32_t microbatch; /* index of the microbatch in its pipe */
    int32_t peer;       /* rank at the other end of a message */
    int32_t group;      /* of DPS_REDUCE and DPS_WAIT_REDUCE: group of the stage; -1: the stage has one copy */
    int32_t count;      /* of DPS_ASYNC_UPDATE: number of microbatches whose gradients it uses */
    int32_t message;
    int32_t x, y, dx, dy;
    int32_t context, stash, gradient;
    int32_t weights, next_weights;
    int32_t number; /* index of the microbatch in the step, counted over all pipes: it selects the data */
    int32_t index;  /* index of the instruction on its rank, as in dps_get_instruction */
    /* half 1 of an F&B or F&F, in instructions from dps_next and dps_step; otherwise NULL */
    const struct dps_instruction *second;
} dps_instruction;

/* Instruction `index` of a rank, in the order of the rank. `half` is 0, or 1 for the second half of an F&B or F&F. */
dps_status dps_get_instruction(const dps_program *program, uint32_t rank, uint32_t index, uint32_t half,
                               dps_instruction *instruction);
/* What an F&B or F&F runs, as one component of a layer in one pass. */
typedef struct dps_component {
    size_t size;
    const char *name;     /* as in the recipe, such as "attention"; it lives as long as the library */
    int32_t pass;         /* 'F'; 'B', the input half of a backward; 'W', its weight half. In an F&F 'F' */
    int32_t half;         /* 0 or 1: that of the instruction */
    int32_t layer;        /* of the stage of this half, in the order of the pass: in a backward 0 is the last layer */
    int32_t communicates; /* not 0: the component only communicates, and may run beside the computing ones */
} dps_component;

/* Component `at` of what an F&B or F&F runs, in the order in which its recipe lets one thread issue them: each after
   those that it needs, and communication as early as it can. The stages of the two halves have `first_layers` and
   `second_layers` layers. W that the recipe puts off (`after`) are not among them. DPS_BAD_USAGE: there is no such
   component, which ends a loop over them, or the instruction follows no recipe. */
dps_status dps_get_component(const dps_program *program, uint32_t rank, uint32_t index, uint32_t first_layers,
                             uint32_t second_layers, uint32_t at, dps_component *component);
/* The instruction as text, such as "F1 m3 x2 y- c0 t4", as `dpc --emit=asm` writes it. Returns the length of the whole
   text, as snprintf does; -1: there is no such instruction. */
int dps_instruction_text(const dps_program *program, uint32_t rank, uint32_t index, char *text, size_t size);

/* --- running a rank --- */

/* One rank of a program, which runs under your own model. You have the tensors, the stages and the transport; the
   library has the order and the slots. A process or thread may open any number of ranks, of one program or of several.
   One thread at a time may use a rank. */
typedef struct dps_rank dps_rank;

typedef struct dps_rank_options {
    size_t size;
    /* number of ranks that you run. The call fails if the program has another number of ranks; 0: not checked */
    uint32_t ranks;
    /* Not 0: the instructions are reordered. Each send comes right after the pass that fills its slot, and each receive
       right after the instruction that frees its slot. Messages with the same sender and receiver keep their order.
       Transports that do not block at a post (MPI_Isend, threads) then hide more of a message's time. 0: sends and
       receives stay in the order of the program. Transports that handle messages strictly in the order of their posts
       (NCCL, blocking calls) need 0: with early receives they may deadlock. */
    int32_t post_early;
} dps_rank_options;

/* Opens rank number `rank` of the program. `options` may be NULL. The rank refers to the program: free the rank before
   the program. The rank does not need the session any more. */
dps_status dps_rank_open(dps *d, const dps_program *program, uint32_t rank, const dps_rank_options *options,
                         dps_rank **opened);
void dps_rank_free(dps_rank *rank);

/* The text of this rank's last error: rank, instruction, source line and reason, such as "rank 1, instruction 5 (F1 m0
   ..., dualpipe.dps:30): out of memory". The text has no instruction and no line after dps_join, after dps_gather and
   after a call that was not allowed (DPS_BAD_USAGE). "" if there was no error. Valid until the next call with this
   rank. */
const char *dps_rank_error(const dps_rank *rank);

/* Makes the forward half of a program, for evaluation or inference: a forward-only program with slots of its own. It
   has at most as many slots of each class as the program, so a host that alternates between the two can use the same
   memory for both. Free it with dps_program_free; it does not need the other program. */
dps_status dps_forward_half(dps *d, const dps_program *program, dps_program **forward);

/* Pull: you drive the loop.

       const dps_instruction *action;
       while (!(status = dps_next(rank, &action)) && action->opcode != DPS_END)
           dps_done(rank, action, do_it(action));

   dps_next returns the rank's next instruction, the first one if no step has begun. DPS_END ends the step, and needs no
   dps_done; the next call begins another step. An F&B (DPS_OVERLAP) and an F&F (DPS_OVERLAP_FORWARD) have their half 1
   in `second`; you may run the halves one after the other. The action lives as long as the rank: you may keep pointers
   to it. A library that is newer than your dps.h returns longer structs, an older one shorter ones: action->size tells.
   DPS_BAD_USAGE: the previous action is not done, or dps_step is running this rank. After a failure dps_next returns
   the status of that failure. */
dps_status dps_next(dps_rank *rank, const dps_instruction **action);
/* Reports that the action which dps_next returned has run, or is enqueued on a device that keeps the order. A `status`
   other than DPS_OK says that it failed: dps_done returns it, dps_rank_error says at which instruction, and the rank
   can only be freed. DPS_BAD_USAGE: this is not the action that dps_next returned last, or it is done already. */
dps_status dps_done(dps_rank *rank, const dps_instruction *action, dps_status status);
/* Says why an action fails. Call it before you report the failure; dps_rank_error then contains the text. The library
   copies at most 799 bytes. */
void dps_reason(dps_rank *rank, const char *text);

/* Push: the library drives the loop and calls your functions. */

/* Your function that runs an instruction, with the slots that the instruction names. Return 0, or any other number for
   a failure, which ends the step. The function may call dps_reason and dps_gather with its rank, and no other function
   of the rank. */
typedef int (*dps_function)(void *user, const dps_instruction *instruction);

/* A function may be NULL if the rank does not need it. For example, a rank without DPS_BACKWARD_INPUT does not need
   backward_input if `backward` is given. */
typedef struct dps_functions {
    size_t size;
    void *user;                   /* passed to each of these functions */
    dps_function forward;         /* DPS_FORWARD, DPS_FORWARD_ONLY, and each half of DPS_OVERLAP_FORWARD */
    dps_function backward_input;  /* DPS_BACKWARD_INPUT */
    dps_function backward_weight; /* DPS_BACKWARD_WEIGHT */
    /* DPS_BACKWARD. NULL: backward_input and then backward_weight are called with the same instruction */
    dps_function backward;
    /* DPS_OVERLAP. NULL: forward is called with half 0, then the functions of the backward with half 1 */
    dps_function overlap;
    /* For DPS_SEND_*, DPS_RECEIVE_* and DPS_WAIT. The opcode of a send or receive tells whether the message is an
       activation or a gradient. These functions are not called if the rank has joined threads. */
    dps_function send, receive, wait;
    /* For DPS_REDUCE and DPS_WAIT_REDUCE of every chunk, even if its stage has one copy (group -1). The gradient of
       such a chunk is complete, and a host with replicas of the pipeline may sum it over the replicas. The functions
       may be NULL if no stage on this rank has several copies. They are not called if the rank has joined threads. */
    dps_function reduce, wait_reduce;
    /* DPS_NORM, DPS_UPDATE. NULL: the instruction does nothing; the host can update weights after dps_step */
    dps_function norm, update;
    dps_function update_async; /* DPS_ASYNC_UPDATE, of asynchronous programs */
} dps_functions;

/* Runs a step of the rank. This thread calls every function, in the order of the instructions. DPS_FAILED: a
   function or a transfer failed; dps_rank_error says at which instruction, and the rank can only be freed.
   DPS_BAD_USAGE: a function that the rank needs is NULL, or a step of the rank has begun and not ended. */
dps_status dps_step(dps_rank *rank, const dps_functions *functions);

/* --- ranks that are threads --- */

/* The threads of one process that run the ranks of a program. The library carries the messages and sums between them:
   dps_step does not call your functions for messages and sums, and dps_next does not return their instructions. */
typedef struct dps_threads dps_threads;

/* `deadline`: seconds after which a rank that waits for another one fails, at least 0; 0: it waits forever. All ranks
   of the program must join. The channels between the threads come from malloc, not from your allocator. The threads
   refer to the program: free the threads before the program. */
dps_status dps_threads_new(dps *d, const dps_program *program, double deadline, dps_threads **made);
/* Before this call, free all ranks that have joined these threads. */
void dps_threads_free(dps_threads *threads);

/* Memory of yours, whose messages the library moves and whose gradients it sums. It must outlive all ranks that have
   joined the same threads. */
typedef struct dps_buffers {
    size_t size;
    /* [message slots]: messages[i] points to the block of slot i. All blocks of all ranks must have the same size: the
       library does not copy a message, it exchanges the pointers of sender and receiver. So read messages[i] anew in
       each pass, and keep a list of your own to free the blocks. */
    void **messages;
    /* [chunks]: the weight gradient of each chunk, which the library sums over the copies of the stage with all that is
       in it: clear it before each step. If `gradients` is NULL, the library sums nothing */
    void *const *gradients;
    const size_t *elements; /* [chunks]: number of elements of a gradient, the same for all copies of a stage */
    size_t element_bytes;   /* 4: float; 8: double */
} dps_buffers;

/* Joins the threads; call it before the rank's first step. The library copies `buffers` with its arrays `gradients` and
   `elements`; it uses your array `messages`, your blocks and your gradients themselves. When a rank fails, all others
   fail at their next wait, and their error text contains the error of the rank that failed. */
dps_status dps_join(dps_rank *rank, dps_threads *threads, const dps_buffers *buffers);

/* An all-gather: each rank passes the same number of bytes, `bytes` bytes at `mine` (otherwise the call fails on all
   ranks), and gets those of all ranks at `all`, in the order of the ranks. All ranks must call it after dps_join, for
   instance in their function for DPS_NORM. */
dps_status dps_gather(dps_rank *rank, const void *mine, size_t bytes, void *all);

/* --- how long it takes --- */

/* Predicts times: every pass takes the time of the costs, and starts as soon as its rank is free and its inputs have
   arrived. An output is sent as soon as it is computed; if the program was compiled, not loaded, from an order with
   messages, it is sent at its SEND. `costs` are as in dps_options; none: those given at compilation or, for a loaded
   program and a forward half, those of a schedule without costs. These costs do not change the order of the program: if
   the schedule uses cost() or `order auto`, compile it with the same costs. The prediction refers to the program: free
   the prediction before the program. */
dps_status dps_predict(dps *d, const dps_program *program, const char *const *costs, size_t cost_count,
                       dps_prediction **prediction);
void dps_prediction_free(dps_prediction *prediction);

/* Times are in the unit of the costs. */
typedef struct dps_prediction_info {
    size_t size;
    double makespan; /* time of a step, from the first start to the last end */
    /* a lower bound of the makespan of all orders of this placement that keep the memory limits. Without limits: of
       those that hold no more activations on each rank than this order does. 0: not known */
    double bound;
    double seconds;     /* seconds per unit of time; 0: the costs do not say */
    double cost;        /* largest time of a rank from its first start to its last end */
    double work;        /* mean of the times that ranks are busy */
    double bubble_rate; /* (cost - work) / cost: share of the time that ranks are idle */
    /* The bubble rate of the same order, if messages took no time, is imbalance + order_bubble. imbalance: the part
       that comes from ranks with less work than others */
    double imbalance;
    /* the part of the bubble rate, if messages took no time, that comes from waits of the busiest rank */
    double order_bubble;
    double messages_time; /* time that messages add to the makespan */
} dps_prediction_info;

dps_status dps_get_prediction_info(const dps_prediction *prediction, dps_prediction_info *info);

typedef struct dps_rank_prediction {
    size_t size;
    double start, end; /* start of its first pass, end of its last pass */
    double busy, idle; /* busy: time in passes; idle: time without one, between start and end */
    double bytes_sent; /* bytes of the messages that the rank sends; 0: the costs do not say how large a message is */
    /* in bytes: slots and weights if dps_options.slot_bytes was given, else saved activations by the sizes in the costs
       (memory_I, memory_W); 0: neither is given, or dps_options.slot_bytes lacks a size that the program needs */
    double peak_memory;
} dps_rank_prediction;

dps_status dps_get_rank_prediction(const dps_prediction *prediction, uint32_t rank, dps_rank_prediction *info);

/* --- pictures and other text --- */

typedef enum dps_format {
    DPS_CSV = 0,   /* the order, in the text form of torch.distributed.pipelining */
    DPS_COMMS = 1, /* like DPS_CSV, with sends and receives */
    DPS_ASM = 2,   /* all instructions */
    DPS_STATS = 3, /* figures and the critical path, one JSON object */
    DPS_SVG = 4,   /* the timeline as a picture */
    DPS_HTML = 5,  /* the timeline as a self-contained page to zoom in */
    DPS_TEXT = 6,  /* the timeline in characters */
    DPS_TRACE = 7, /* the timeline as Chrome trace events (JSON) */
    /* how often each rank runs each step of the source, and the longest wait of each step */
    DPS_EXPLAIN = 8,
    DPS_OVERLAP_TEXT = 9, /* the inside of an F&B or F&F, under the costs of components */
    /* for other runtimes; all but DPS_MEGATRON are DPS_BAD_INPUT for a schedule that the runtime cannot run */
    DPS_TORCHTITAN = 10, /* like DPS_CSV */
    DPS_MEGATRON = 11,   /* flags, or that Megatron-Core has no such order */
    DPS_JAXPP = 12,      /* a Python module */
    DPS_SHARDY = 13,     /* a Python module */
} dps_format;

/* Writes what `dpc --emit` writes. A 0 byte ends the text; `length` does not count it and may be NULL. `width`: for
   DPS_SVG in pixels, 0 for as many as the numbers need; for DPS_TEXT in columns, 0 for 160. Free the text with
   dps_release. */
dps_status dps_render(dps *d, const dps_prediction *prediction, dps_format format, uint32_t width, char **text,
                      size_t *length);

/* --- several schedules --- */

/* Returns what `dpc compare --json` prints: `count` schedules with the same numbers of ranks and microbatches, the
   shortest step first. Times and sizes in the costs are for 1/ranks of the model, unless the costs are given for
   another number of stages (stages=N). A schedule with more stages has smaller stages. With `replicas`, makespans
   include the sums of gradients as far as passes do not hide them. Each schedule takes those parameters of `options`
   that it has; `progress` is not called. If a schedule cannot have these numbers of ranks and microbatches, its row
   says why. DPS_BAD_INPUT: a file is wrong. Free the text with dps_release. */
dps_status dps_compare(dps *d, const char *const *paths, size_t count, const dps_options *options, char **json,
                       size_t *length);

/* Returns what `dpc check --json` prints: for each order (a .csv, or in the form of Primus) or schedule the verdict
   under each model of channels, with the reason beside it, and the strictest model that is safe. The result is DPS_OK
   also if an order is not safe, or wrong in itself; then it has "refused". DPS_BAD_INPUT: a file cannot be read. Free
   the text with dps_release. */
dps_status dps_check(dps *d, const char *const *paths, size_t count, const dps_options *options, char **json,
                     size_t *length);

enum { DPS_ADVISE_SECONDS = 60, DPS_ALLOW_ASYNC = 1, DPS_ALLOW_NAIVE = 2 };

/* Returns what `dpc advise --json` prints: each schedule with the best values of its parameters for the ranks and
   microbatches of `options`, the shortest step first, and the reasons why others are left out. Tries the schedules on
   all cores for at most `seconds` (0: DPS_ADVISE_SECONDS). Its threads call the host's memory functions, and end before
   it returns. `allow`: DPS_ALLOW_ASYNC also tries schedules that update weights within the step, DPS_ALLOW_NAIVE also
   those in which one rank works at a time. DPS_BAD_INPUT: a file is wrong, or no schedule is left. */
dps_status dps_advise(dps *d, const char *const *paths, size_t count, const dps_options *options, uint32_t seconds,
                      uint32_t allow, char **json, size_t *length);

/* --- experts --- */

/* Experts of each layer, whose replicas are to be placed on GPUs. In each layer the GPUs together have room for
   `replicas` physical experts: replicas / gpus on each, and one more on the first replicas % gpus. The replicas of an
   expert share its load evenly. The balance of a layer is the mean load of a GPU divided by the largest: 1 is
   perfect. */
typedef struct dps_experts {
    size_t size;
    uint32_t layers, experts, replicas, gpus;
    /* Numbers of groups of neighbouring experts, and of nodes of neighbouring GPUs. If the number of groups is a
       multiple of the number of nodes, all replicas of an expert are placed on one node. 0 means 1 */
    uint32_t groups, nodes;
    const double *loads; /* [layers][experts], each at least 0 */
    /* [layers][replicas]: the current placement, from which moves are counted; NULL: none */
    const uint32_t *current;
    /* with `current` and limit_moves: most moves per layer. A move is a physical expert on a GPU that does not hold
       this expert in `current` */
    uint32_t most_moves;
    int32_t limit_moves; /* not 0: a layer has at most most_moves moves; 0: any number */
    /* from 0 to 1, with `current`: a layer whose balance would rise by less than this, or not at all, keeps its
       placement, unless `distinct` forbids this placement */
    double threshold;
    int32_t distinct; /* not 0: no expert twice on a GPU */
    /* not 0: exactly the algorithm of DeepSeek's EPLB (github.com/deepseek-ai/EPLB); then `current` must be NULL and
       `distinct` 0 */
    int32_t eplb;
} dps_experts;

/* The result, in arrays of yours; NULL: not needed. */
typedef struct dps_placement {
    size_t size;
    uint32_t *placement; /* [layers][replicas]: the expert of each physical expert, GPU after GPU */
    /* [layers]: the balance of each layer. before: the balance of `current`; if `current` is NULL, the balance of a
       placement of experts 0, 1, 2, ... repeatedly, GPU after GPU (on each node the experts of its groups, if `groups`
       is a multiple of `nodes`). after: the balance of `placement` */
    double *before, *after;
    double *bound; /* [layers]: no placement of this layer has a larger balance */
    /* [layers]: the number of physical experts on a GPU that does not hold their expert in the placement of `before` */
    uint32_t *moves;
} dps_placement;

dps_status dps_balance(dps *d, const dps_experts *experts, const dps_placement *placement);

#ifdef __cplusplus
}
#endif

#endif
