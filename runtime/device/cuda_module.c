/* The kernels of the GPU that is there: ready-made machine code of the program where it has some, else NVRTC's. */

#include "runtime/device/cuda.h"
#include "runtime/device/jit.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 32 };

static struct {
    pthread_mutex_t lock;
    unsigned users;
    int major, minor; /* of the GPUs */
    uint64_t prepared; /* a bit for each GPU whose kernels may take all shared memory */
    CudaModule module;
    CudaLibrary *libraries[FILES_MAX];
    const char *files[FILES_MAX];
    size_t file_count;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *image_of(const char *file, const char *architecture)
{
    for (const CudaImage *image = cuda_images; image->file; image++)
        if (strcmp(image->file, file) == 0 &&
            (architecture ? image->architecture && strcmp(image->architecture, architecture) == 0 : !image->architecture))
            return image->begin;
    return NULL;
}

/* What kernels are compiled for. Code of sm_90a has TMA and wgmma and runs on 9.0 alone; other code runs on what has the same
   major number and at least its minor one. */
static void architecture_of(const CudaProperties *gpu, char *name, size_t size)
{
    snprintf(name, size, gpu->major == 9 ? "sm_%d%da" : "sm_%d%d", gpu->major, gpu->minor);
}

static const char *ready_made(const char *file, const CudaProperties *gpu)
{
    char name[16];
    architecture_of(gpu, name, sizeof name);
    const char *image = image_of(file, name);
    for (int minor = gpu->minor; !image && gpu->major != 9 && minor >= 0; minor--) {
        snprintf(name, sizeof name, "sm_%d%d", gpu->major, minor);
        image = image_of(file, name);
    }
    return image;
}

static Status compile(const char *file, const CudaProperties *gpu, void **image, Error *error)
{
    const Nvrtc *nvrtc;
    char name[32], architecture[16], folder[PATH_MAX];
    size_t bytes;
    snprintf(name, sizeof name, "%s.cu", file);
    architecture_of(gpu, architecture, sizeof architecture);
    const char *header_names[FILES_MAX], *header_texts[FILES_MAX];
    JitSource source = {
        .name = name, .text = image_of(file, NULL), .header_names = header_names, .header_texts = header_texts,
        .architecture = architecture,
    };
    for (const CudaImage *header = cuda_images; header->file && source.headers < FILES_MAX; header++)
        if (!header->architecture && strchr(header->file, '.')) {
            header_names[source.headers] = header->file;
            header_texts[source.headers++] = header->begin;
        }
    const Status status = jit_open(&nvrtc, error);
    if (status != STATUS_OK) {
        error_prefix(error, "this program has no ready-made kernels for %s (%s), and to make some: ", gpu->name, architecture);
        return status;
    }
    jit_folder(folder, sizeof folder);
    return jit_compile(nvrtc, folder, &source, image, &bytes, error);
}

static Status load_file(const char *file, const CudaProperties *gpu, CudaLibrary **library, Error *error)
{
    for (size_t i = 0; i < loaded.file_count; i++)
        if (strcmp(loaded.files[i], file) == 0) {
            *library = loaded.libraries[i];
            return STATUS_OK;
        }
    const char *image = ready_made(file, gpu);
    void *made = NULL;
    if (!image)
        TRY(compile(file, gpu, &made, error));
    const Status status =
        cuda_status(cuda_runtime->LibraryLoadData(library, image ? image : made), "cudaLibraryLoadData", error);
    free(made);
    if (status != STATUS_OK) {
        error_prefix(error, "kernels of %s.cu: ", file);
        return status;
    }
    loaded.files[loaded.file_count] = file;
    loaded.libraries[loaded.file_count++] = *library;
    return STATUS_OK;
}

static Status load_kernel(const char *file, const char *name, const char *suffix, int number, CudaType type,
                          const CudaProperties *gpu, Error *error)
{
    CudaLibrary *library = NULL;
    CudaModule *module = &loaded.module;
    char *full = module->names[number][type];
    snprintf(full, sizeof module->names[number][type], "%s%s", name, suffix);
    TRY(load_file(file, gpu, &library, error));
    CudaKernel **kernel = &module->kernels[number][type];
    const Status status = cuda_status(cuda_runtime->LibraryGetKernel(kernel, library, full), "cudaLibraryGetKernel", error);
    if (status != STATUS_OK)
        error_prefix(error, "%s: ", full);
    return status;
}

static Status load_all(const CudaProperties *gpu, Error *error)
{
#define BOTH(file, name, parameters)                                                            \
    TRY(load_kernel(#file, #name, "_f32", CUDA_##name, CUDA_F32, gpu, error));           \
    TRY(load_kernel(#file, #name, "_bf16", CUDA_##name, CUDA_BF16, gpu, error));
#define ONE(file, name, parameters) TRY(load_kernel(#file, #name, "", CUDA_##name, CUDA_F32, gpu, error));
    KERNELS_OF_ELEMENTS(BOTH)
    KERNELS_OF_FLOATS(ONE)
    KERNELS_OF_TABLES(BOTH)
    if (gpu->major == 9 && (ready_made("hopper", gpu) || image_of("hopper", NULL))) {
        KERNELS_OF_HOPPER(ONE)
    }
    loaded.major = gpu->major;
    loaded.minor = gpu->minor;
    return STATUS_OK;
}

static Status prepare(const CudaProperties *gpu, int index, Error *error)
{
    if (gpu->major != loaded.major || gpu->minor != loaded.minor || index >= 64)
        return error_set(error, STATUS_RUN_FAILED, "%s, GPU %d, is of another kind than those before it", gpu->name, index);
    if (loaded.prepared >> index & 1)
        return STATUS_OK;
    for (int k = 0; k < CUDA_KERNELS; k++)
        for (int type = 0; type < CUDA_TYPES; type++)
            if (loaded.module.kernels[k][type])
                CUDA_TRY(KernelSetAttributeForDevice, loaded.module.kernels[k][type], gpu->shared_bytes, index);
    loaded.prepared |= UINT64_C(1) << index;
    return STATUS_OK;
}

static void unload(void)
{
    for (size_t i = 0; i < loaded.file_count; i++)
        cuda_runtime->LibraryUnload(loaded.libraries[i]);
    loaded.file_count = 0;
    loaded.prepared = 0;
    memset(&loaded.module, 0, sizeof loaded.module);
}

Status cuda_module_take(const CudaProperties *properties, int index, const CudaModule **module, Error *error)
{
    Status status = STATUS_OK;
    pthread_mutex_lock(&loaded.lock);
    if (loaded.users == 0)
        status = load_all(properties, error);
    if (status == STATUS_OK)
        status = prepare(properties, index, error);
    if (status == STATUS_OK) {
        loaded.users++;
        *module = &loaded.module;
    } else if (loaded.users == 0) {
        unload();
    }
    pthread_mutex_unlock(&loaded.lock);
    return status;
}

void cuda_module_release(void)
{
    pthread_mutex_lock(&loaded.lock);
    if (--loaded.users == 0)
        unload();
    pthread_mutex_unlock(&loaded.lock);
}
