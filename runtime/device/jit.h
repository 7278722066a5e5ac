#ifndef DEVICE_JIT_H
#define DEVICE_JIT_H

/* Kernels from their sources: NVRTC, opened at run time, and what it made before, kept on disk. */

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct _nvrtcProgram *NvrtcProgram;

/* What we use of NVRTC; each function returns 0 or the number of an error. */
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

/* Opens libnvrtc.so and fills in the table, once a process; STATUS_RUN_FAILED says which names were tried. It stays
   open. */
Status jit_open(const Nvrtc **nvrtc, Error *error);

typedef struct JitSource {
    const char *name, *text;
    int headers;
    const char *const *header_names, *const *header_texts; /* [headers], by the names that #include gives */
    const char *architecture;                              /* such as sm_90a */
    const char *macro;                                     /* defined as 1; NULL: none */
} JitSource;

typedef struct JitImage {
    void *code; /* the caller's to free */
    size_t bytes;
} JitImage;

/* The machine code of `count` sources: from `folder` if it was made there before from the same bytes by the same
   compiler, else made now, each on a thread of its own, and put there. Processes that start together do not all make
   the same: one does, the others wait and find it in the folder. What is damaged in the folder is made again; a folder
   that cannot be written only costs the time. STATUS_RUN_FAILED has the beginning of the compiler's log, and there are
   no images. */
Status jit_compile(const Nvrtc *nvrtc, const char *folder, size_t count, const JitSource *sources, JitImage *images,
                   Error *error);

/* $XDG_CACHE_HOME/dprun or ~/.cache/dprun; "" where there is neither. */
void jit_folder(char *path, size_t size);

/* The oldest files of the folder go until the rest has at most so many bytes. */
void jit_trim(const char *folder, size_t most_bytes);
enum { JIT_FOLDER_BYTES = 64 << 20 };

#endif
