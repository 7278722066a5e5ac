#pragma once

/* Shared by the files of libdps: the structs behind the handles of dps.h, and what every call needs. */

#include "library/dps.h"

#include "compiler/compile.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/exchange.h"
#include "runtime/executor/walk.h"

#include <locale.h>
#include <stdatomic.h>

struct dps {
    dps_host host;
    MemoryFunctions memory;
    FrontEnd front_end;
    locale_t c_locale;
    atomic_bool in_call;
    jmp_buf exhausted;
    Arena working; /* memory of the current call */
    Arena report;  /* error text and diagnostics of the last call */
    Error error;
    const char *words; /* dps_error */
    dps_diagnostic *diagnostics;
    size_t diagnostic_count;
    /* `program` to `streamed`: what the current call is making; the end of the call frees what is unfinished. NULL:
       nothing to free */
    dps_program *program;
    dps_prediction *prediction;
    dps_rank *rank;
    dps_threads *threads;
    ByteWriter encoded;
    FILE *stream;
    char *streamed;
    size_t streamed_length;
};

struct dps_program {
    MemoryFunctions memory; /* functions of the host, kept here because the program outlives the session */
    Arena arena;
    Source source;
    Parameters parameters;
    Costs costs; /* the costs given at compilation; of a loaded program and a forward half: costs_unit */
    Memory sizes;
    /* what the compiler made; of a loaded program and a forward half, rebuilt from the instructions */
    Compilation compilation;
};

struct dps_prediction {
    MemoryFunctions memory;
    Arena arena;
    const dps_program *program;
    Compilation compilation; /* a copy of the program's compilation, with the costs of the prediction */
    Timeline times;
    BubbleCauses causes;
    Gap gap;
};

typedef enum RankState {
    RANK_BETWEEN_STEPS,
    RANK_IN_STEP,
    RANK_BUSY,   /* dps_next has handed out an action that is not done */
    RANK_PUSHES, /* dps_step is running a step */
    RANK_FAILED  /* the rank can only be freed */
} RankState;

struct dps_rank {
    MemoryFunctions memory;
    Arena arena;
    RankProgram own; /* the rank's instructions in the program, or a copy in which messages are posted early */
    Walk walk;
    Progress progress;
    dps_instruction *actions; /* [own.instruction_count]: the instructions as the host sees them */
    /* as bits 1 << opcode. opcodes: of all instructions of the rank, without the sums of stages that have one copy;
       opcodes_in_pairs: of the halves of its F&Bs and F&Fs */
    uint32_t opcodes, opcodes_in_pairs;
    RankState state;
    dps_status failure; /* if RANK_FAILED: what the failed call returned */
    char reason[800];   /* the last text given to dps_reason */
    Error error;
    /* `threads`, `communicators` and `exchange` are used only if the rank has joined threads (dps_join) */
    dps_threads *threads; /* NULL: the rank has not joined threads */
    RankCommunicators communicators;
    Exchange exchange;
};

struct dps_threads {
    MemoryFunctions memory;
    const Program *program;
    _Atomic bool *joined; /* [ranks] */
    /* [stages]: number of elements of the stage's gradient and bytes of an element, packed into one number. The first
       copy of the stage that calls dps_join sets it; 1: its gradients are not summed; 0: no copy has called dps_join */
    _Atomic uint64_t *sums;
    World **members; /* [ranks] */
};

/* --- ranks that run (rank.c) --- */

void rank_begin(dps_rank *rank);
/* Whether the library, not the host, runs instructions with this opcode: those of messages and sums, after dps_join. */
static inline bool rank_carries(const dps_rank *rank, uint8_t opcode) { return rank->threads && exchange_has(opcode); }
/* Marks the rank as failed at its current instruction. If the rank has joined a dps_threads, makes the other ranks of
   it fail, too. rank->error has the reason; rank_fail adds rank, instruction and line to it. Returns `status`. */
dps_status rank_fail(dps_rank *rank, dps_status status);
/* For an instruction that the host could not run: writes the text given to dps_reason, or that none was given, to
   rank->error, and returns STATUS_RUN_FAILED. */
Status rank_host_failed(dps_rank *rank);
/* Sets the error text of a call that is not allowed in the present state. The state does not change. Returns
   DPS_BAD_USAGE. */
dps_status rank_refuse(dps_rank *rank, const char *text);

/* --- ranks that are threads (threads.c). For a rank without dps_join these two functions do nothing --- */

/* Makes the other ranks that joined the same threads fail, with rank->error as the reason. */
void threads_abort(dps_rank *rank);
void threads_leave(dps_rank *rank);

/* --- instructions (ask.c) --- */

/* Half 0 or 1 of an instruction as the host sees it. The caller sets `index` and `second`. */
dps_instruction instruction_half(const Program *program, uint32_t rank, const Instruction *whole, uint32_t half);

/* --- calls (call.c) --- */

/* The body of a call. It may jump to d->exhausted. */
typedef Status Body(dps *d, void *arguments);

/* A pointer that the caller of a function must give. */
typedef struct Argument {
    const char *name;
    const void *given;
    void *result; /* [size]: where the call stores its result, which becomes 0 first; NULL: this is no result */
    size_t size;
} Argument;
#define NEEDED(pointer)                      \
    {                                        \
        .name = #pointer, .given = (pointer) \
    }
#define RESULT(pointer)                                                                      \
    {                                                                                        \
        .name = #pointer, .given = (pointer), .result = (pointer), .size = sizeof *(pointer) \
    }

/* Runs a body in the C locale, with an empty d->working. Refuses pointers that are NULL: `needed` lists them, with an
   element without a name at its end. If the body fails and has set no d->words itself, dps_error gets the text of
   d->error. */
dps_status call(dps *d, const char *function, Body *body, void *arguments, const Argument *needed);
#define CALL(d, body, arguments, ...) \
    call(d, __func__, body, arguments, (const Argument[]){__VA_ARGS__, {.name = NULL}})

/* Allocates zeroed memory with the functions of the host. Jumps out of the call if there is no memory. */
void *host_new(dps *d, size_t size);
/* An empty arena in the host's memory. If the arena finds no memory later, it jumps out of the call. */
Arena host_arena(dps *d, const MemoryFunctions *memory);
void host_release(const MemoryFunctions *memory, void *block);

/* --- structs of any version (structs.c) --- */

/* Copies a caller's struct, which begins with its size, to the library's struct of `known_size` bytes. The sizes may
   differ. Members that the caller's struct does not have become 0. False: `given` is NULL, the size is not set, or the
   caller's struct has a member that the library's struct does not have and that is not 0. */
bool struct_in(void *known, size_t known_size, const void *given);
/* Copies the library's struct to the caller's, as many bytes as both have, except the member `size`. The rest of the
   caller's struct becomes 0. False: `size` of the caller's struct is not set. */
bool struct_out(void *given, const void *known, size_t known_size);

#define STRUCT_IN(known, given) struct_in(known, sizeof *(known), given)
#define STRUCT_OUT(given, known) struct_out(given, known, sizeof *(known))

/* A format for error_set; its argument is the name of the struct. */
#define STRUCT_REFUSED                                                                                                \
    "%s is NULL, its `size` is 0, or it sets a member that this libdps does not know: set `size` or install a newer " \
    "libdps"

/* --- programs (program.c) --- */

/* program_new makes an empty program. The caller stores it in d->program, which is freed if the call fails.
   program_take, called when the program is complete, returns d->program and sets it to NULL. */
dps_program *program_new(dps *d);
dps_program *program_take(dps *d);

/* --- error texts (report.c) --- */

/* Copies the diagnostics to d->report, as data and as text. */
void report_diagnostics(dps *d, const Diagnostics *diagnostics, const Source *source);

/* --- texts (text.c) --- */

/* Copies text to memory of the host, and adds a 0 byte. Jumps out of the call if there is no memory. */
char *host_text(dps *d, const char *text, size_t length);

/* Refuses a list of texts that is NULL, has a NULL in it, or is so long that the count must be a mistake. `name`: what
   dps.h calls the list. */
Status texts_check(const char *name, const char *const *texts, size_t count, Error *error);

/* Refuses a length that no memory can have. */
Status length_check(size_t length, Error *error);

/* The caller's path for functions that take "-" as standard input or output: "-" becomes "./-", because the library
   uses neither. */
const char *host_path(const char *path);

/* Adds costs given as texts to `costs`. The arena owns what is added. */
Status costs_take(Costs *costs, const char *const *texts, size_t count, Arena *arena, Error *error);

/* Takes the numbers of ranks and microbatches, parameters, costs, sizes of slots and the memory limit from options, as
   far as they are set. The caller has set the defaults of `costs`. */
Status options_take(const dps_options *options, Arena *arena, Parameters *parameters, Costs *costs, Memory *memory,
                    Error *error);

/* A stream for the text that a call returns, at most one per call. The text that was written lives until the end of the
   call. */
FILE *text_begin(dps *d);
const char *text_end(dps *d, size_t *length);
