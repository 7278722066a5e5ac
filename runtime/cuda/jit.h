#pragma once

/* Compiles kernels from their sources with NVRTC, which is opened at run time, and caches the machine code on disk. */

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct _nvrtcProgram *NvrtcProgram;

/* The functions of NVRTC that are used. Each but GetErrorString returns 0 or an error number. */
typedef struct Nvrtc {
    const char *(*GetErrorString)(int error);
    int (*Version)(int *major, int *minor);
    int (*CreateProgram)(NvrtcProgram *program, const char *source, const char *name, int headers,
                         const char *const *contents, const char *const *names);
    int (*DestroyProgram)(NvrtcProgram *program);
    int (*CompileProgram)(NvrtcProgram program, int options, const char *const *option);
    int (*GetCUBINSize)(NvrtcProgram program, size_t *bytes);
    int (*GetCUBIN)(NvrtcProgram program, char *image);
    int (*GetProgramLogSize)(NvrtcProgram program, size_t *bytes);
    int (*GetProgramLog)(NvrtcProgram program, char *log);
} Nvrtc;

/* Opens NVRTC's library once per process; *nvrtc becomes the table of its functions. The library stays open.
   STATUS_RUN_FAILED: it is not found (the error lists the names that were tried), or too old. */
Status jit_open(const Nvrtc **nvrtc, Error *error);

typedef struct JitSource {
    const char *name, *text;
    int headers;
    /* [headers]; header_names: as written after #include in the sources */
    const char *const *header_names, *const *header_texts;
    const char *architecture; /* such as sm_90a */
    const char *macro;        /* a macro to define as 1, such as ONLY_bf16; NULL: none */
} JitSource;

typedef struct JitImage {
    void *code; /* the caller frees it */
    size_t bytes;
} JitImage;

/* Makes the machine code of `count` sources. Machine code that is in the cache `folder` (same source, same compiler) is
   loaded from there; the other sources are compiled, each on its own thread, and stored there. If several processes
   start together, one compiles and the others wait for its files, but at most a minute. If a cache file is damaged, its
   source is compiled again; if the folder cannot be written, the only loss is time. `folder` "": there is no cache.
   STATUS_RUN_FAILED: `images` has nothing to free; if a source does not compile, the error has the beginning of the
   compiler's log. */
Status jit_compile(const Nvrtc *nvrtc, const char *folder, size_t count, const JitSource *sources, JitImage *images,
                   Error *error);

/* Writes the cache folder to `path`: $XDG_CACHE_HOME/dprun if that is an absolute path, otherwise $HOME/.cache/dprun,
   or "" if HOME is not set. */
void jit_folder(char *path, size_t size);

/* Deletes .cubin files in `folder`, the least recently used first, until those that are left have at most `most_bytes`
   bytes in all. */
void jit_trim(const char *folder, size_t most_bytes);
enum { JIT_FOLDER_BYTES = 64 << 20 };
