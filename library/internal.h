#ifndef LIBRARY_INTERNAL_H
#define LIBRARY_INTERNAL_H

/* What the files of libdps share: the insides of the handles, and how a call begins and ends. */

#include "library/dps.h"

#include "compiler/compile.h"

#include <locale.h>

struct dps {
    dps_host host;
    MemoryFunctions memory;
    locale_t c_locale;
    jmp_buf exhausted;
    Arena working; /* of one call */
    Arena report;  /* of the last call's words and diagnostics */
    Error error;
    const char *words; /* dps_error */
    dps_diagnostic *diagnostics;
    size_t diagnostic_count;
    /* what a jump out of a call leaves behind; NULL: nothing */
    dps_program *program;
    dps_prediction *prediction;
    ByteWriter encoded;
    FILE *stream;
    char *streamed;
    size_t streamed_length;
};

struct dps_program {
    MemoryFunctions memory; /* of the host: the program outlives the session */
    Arena arena;
    Source source;
    Parameters parameters;
    Costs costs; /* as they were given */
    Memory sizes;
    Compilation compilation; /* its program is always there; its schedule, unless the program is forward-only */
};

struct dps_prediction {
    MemoryFunctions memory;
    Arena arena;
    const dps_program *program;
    Compilation compilation; /* the program's, with these costs */
    Timeline times;
    BubbleCauses causes;
    Gap gap;
};

/* --- calls (call.c) --- */

/* What a call does. It may jump to d->exhausted. */
typedef Status Body(dps *d, void *arguments);

/* Runs a body: in the C locale, with an empty d->working, and with words for how it ended. */
dps_status call(dps *d, Body *body, void *arguments);

/* Memory of the host, zeroed; jumps where there is none. */
void *host_new(dps *d, size_t size);
/* NULL where the host gave no functions. */
const MemoryFunctions *host_functions(const MemoryFunctions *memory);
/* An empty arena in the host's memory, which jumps out of the call. */
Arena host_arena(dps *d, const MemoryFunctions *memory);
void host_release(const MemoryFunctions *memory, void *block);

/* --- structs of any version (structs.c) --- */

/* Copies the `size` bytes at `given`, of the caller's version, to the library's struct of `known` bytes: what the
   caller does not know is 0. False: no size is set, or a member that the library does not know is not 0. */
bool struct_in(void *known, size_t known_size, const void *given);
/* Copies the library's struct to the caller's, as much as that has room for; the rest of it becomes 0. False: no size
   is set. */
bool struct_out(void *given, const void *known, size_t known_size);

#define STRUCT_IN(known, given) struct_in(known, sizeof *(known), given)
#define STRUCT_OUT(given, known) struct_out(given, known, sizeof *(known))

/* Of error_set, with the name of the struct. */
#define STRUCT_REFUSED \
    "%s has no size, or a member of a newer dps.h that this library does not know: set it to 0 or install a newer one"

/* --- programs (program.c) --- */

/* An empty one, and the one under construction, d->program, which is finished. */
dps_program *program_new(dps *d);
dps_program *program_take(dps *d);

/* --- words (report.c) --- */

/* Copies the diagnostics to d->report, as data and as text. */
void report_diagnostics(dps *d, const Diagnostics *diagnostics, const Source *source);

/* --- texts (text.c) --- */

/* A copy in memory of the host, with a 0 byte after it. */
char *host_text(dps *d, const char *text, size_t length);

/* Of a caller: "-" is a file of this name, as a library has no standard input and output. */
const char *host_path(const char *path);

/* Adds the texts to costs, whose memory is the arena's. */
Status costs_take(Costs *costs, const char *const *texts, size_t count, Arena *arena, Error *error);

/* The sizes, parameters, costs and memory of options; `costs` has the defaults before. */
Status options_take(const dps_options *options, Arena *arena, Parameters *parameters, Costs *costs, Memory *memory,
                    Error *error);

/* A stream to write a text to, one a call, and what was written, which lives to the end of the call. */
FILE *text_begin(dps *d);
const char *text_end(dps *d, size_t *length);

#endif
