#ifndef DEVICE_JIT_H
#define DEVICE_JIT_H

/* Compiles kernels from their sources with NVRTC, which is opened at run time, and caches the machine code on disk. */

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct _nvrtcProgram *NvrtcProgram;

/* The functions of NVRTC that are used. Each returns 0 or an error number. */
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

/* Opens libnvrtc.so once per process; *nvrtc becomes its table. It stays open. STATUS_RUN_FAILED: not found (the error
   lists the names that were tried), or too old. */
Status jit_open(const Nvrtc **nvrtc, Error *error);

typedef struct JitSource {
    const char *name, *text;
    int headers;
    /* [headers]; header_names are the names as the sources write them after #include */
    const char *const *header_names, *const *header_texts;
    const char *architecture; /* such as sm_90a */
    const char *macro;        /* defined as 1; NULL: none */
} JitSource;

typedef struct JitImage {
    void *code; /* the caller frees it */
    size_t bytes;
} JitImage;

/* Makes the machine code of `count` sources. On a cache hit in `folder` (same bytes, same compiler) it is loaded from
   there; otherwise it is compiled now, each source on its own thread, and stored there. If several processes start
   together, one compiles and the others wait for its files, but at most a minute. A damaged file is compiled again; a
   folder that cannot be written only costs time. `folder` may be "": there is no cache. STATUS_RUN_FAILED: there are no
   images; if a source does not compile, the error has the beginning of the compiler's log. */
Status jit_compile(const Nvrtc *nvrtc, const char *folder, size_t count, const JitSource *sources, JitImage *images,
                   Error *error);

/* $XDG_CACHE_HOME/dprun or ~/.cache/dprun; "" if neither is defined. */
void jit_folder(char *path, size_t size);

/* Deletes the .cubin files of the folder that have not been used for the longest time, until the rest of them has at
   most so many bytes. */
void jit_trim(const char *folder, size_t most_bytes);
enum { JIT_FOLDER_BYTES = 64 << 20 };

#endif
