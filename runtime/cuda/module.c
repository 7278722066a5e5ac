/* Loads the kernels for the present GPU. A kernel whose machine code for this GPU is embedded in the program is loaded
   from there; jit.c gets the code of the others, from its cache or by NVRTC. */

#include "runtime/cuda/cuda.h"
#include "runtime/cuda/jit.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS_MAX = 32, HEADERS_MAX = 32 };

/* A compilation unit: a source, compiled for one type of elements if it has kernels for both. */
typedef struct Unit {
    char name[32]; /* product.bf16, hopper */
    const char *file, *macro;
    JitImage made; /* machine code from jit_compile that is not loaded yet; made.code NULL: there is none */
    CudaLibrary *library;
} Unit;

static struct {
    pthread_mutex_t lock;
    unsigned users;
    int major, minor;              /* compute capability of the GPUs */
    bool complete[CUDA_TYPES];     /* [device's type]: all kernels that such devices use are loaded */
    uint64_t prepared[CUDA_TYPES]; /* [device's type], bit i: their kernels may use all shared memory of GPU i */
    CudaModule module;
    Unit units[UNITS_MAX];
    size_t unit_count;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *image_of(const char *file, const char *architecture)
{
    for (const CudaImage *image = cuda_images; image->file; image++)
        if (strcmp(image->file, file) == 0 &&
            (architecture ? image->architecture && strcmp(image->architecture, architecture) == 0
                          : !image->architecture))
            return image->begin;
    return NULL;
}

/* The architecture that kernels are compiled for. On a GPU of compute capability 9.0 it is sm_90a: such code has TMA
   and wgmma. */
static void architecture_of(const CudaProperties *gpu, char *name, size_t size)
{
    snprintf(name, size, gpu->major == 9 ? "sm_%d%da" : "sm_%d%d", gpu->major, gpu->minor);
}

static const char *ready_made(const char *file, const CudaProperties *gpu)
{
    char name[16];
    architecture_of(gpu, name, sizeof name);
    return image_of(file, name);
}

/* --- units --- */

static const char *const suffixes[CUDA_TYPES] = {[CUDA_F32] = "f32", [CUDA_BF16] = "bf16"};
static const char *const macros[CUDA_TYPES] = {[CUDA_F32] = "ONLY_f32", [CUDA_BF16] = "ONLY_bf16"};

/* How often a kernel is compiled, and in which unit. OF_COMPUTE_TYPES: once for each type of elements; OF_FLOATS: once,
   in the f32 unit of its source; OF_HOPPER: once, in the unit for sm_90a. */
typedef enum Form { OF_COMPUTE_TYPES, OF_FLOATS, OF_HOPPER } Form;

/* clang-format off */
static const struct Row {
    const char *file, *name;
    Form form;
} rows[CUDA_KERNELS] = {
#define ROW(file, name, form) [CUDA_##name] = {#file, #name, form},
#define COMPUTE_TYPES_ROW(file, name, parameters) ROW(file, name, OF_COMPUTE_TYPES)
#define FLOATS_ROW(file, name, parameters) ROW(file, name, OF_FLOATS)
#define HOPPER_ROW(file, name, parameters) ROW(file, name, OF_HOPPER)
    KERNELS_OF_COMPUTE_TYPES(COMPUTE_TYPES_ROW)
    KERNELS_OF_FLOATS(FLOATS_ROW)
    KERNELS_OF_HOPPER(HOPPER_ROW)
    KERNELS_OF_HOPPER_TABLES(HOPPER_ROW)
    KERNELS_OF_TABLES(COMPUTE_TYPES_ROW)
};
/* clang-format on */

/* Whether a device of `type` on this GPU has the kernels of sm_90a. */
static bool on_hopper(CudaType type, const CudaProperties *gpu)
{
    return type == CUDA_BF16 && gpu->major == 9 && (ready_made("hopper", gpu) || image_of("hopper", NULL));
}

/* Whether a device of `type` on this GPU uses the kernel of `row` that is compiled for elements of `form_type`. */
static bool uses(const struct Row *row, CudaType form_type, CudaType type, const CudaProperties *gpu)
{
    switch (row->form) {
    case OF_COMPUTE_TYPES:
        if (row == &rows[CUDA_fused] && on_hopper(type, gpu))
            return false; /* fused_hopper replaces it */
        /* a bfloat16 device also uses the f32 kernels of training.cu, because the optimizer's weights are FP32 */
        return form_type == type || (form_type == CUDA_F32 && strcmp(row->file, "training") == 0);
    case OF_FLOATS: return form_type == CUDA_F32;
    case OF_HOPPER: return form_type == CUDA_F32 && on_hopper(type, gpu);
    }
    return false;
}

/* The unit that contains a kernel; adds it to the units to load if it is new. NULL: too many units. */
static Unit *unit_of(const struct Row *row, CudaType form_type)
{
    char name[sizeof loaded.units->name];
    const bool one = row->form == OF_HOPPER;
    snprintf(name, sizeof name, "%s%s%s", row->file, one ? "" : ".", one ? "" : suffixes[form_type]);
    for (Unit *unit = loaded.units; unit < loaded.units + loaded.unit_count; unit++)
        if (strcmp(unit->name, name) == 0)
            return unit;
    if (loaded.unit_count == UNITS_MAX)
        return NULL;
    Unit *unit = &loaded.units[loaded.unit_count++];
    *unit = (Unit){.file = row->file, .macro = one ? NULL : macros[form_type]};
    memcpy(unit->name, name, sizeof name);
    return unit;
}

/* --- machine code --- */

/* Gets, in one call of jit_compile, the machine code of all units that are neither loaded nor embedded in the program
   for this GPU. */
static Status compile_rest(const CudaProperties *gpu, Error *error)
{
    char architecture[16], folder[PATH_MAX], names[UNITS_MAX][32];
    const char *header_names[HEADERS_MAX], *header_texts[HEADERS_MAX];
    JitSource sources[UNITS_MAX];
    JitImage images[UNITS_MAX];
    Unit *units[UNITS_MAX];
    size_t count = 0;
    int headers = 0;
    architecture_of(gpu, architecture, sizeof architecture);
    for (const CudaImage *header = cuda_images; header->file && headers < HEADERS_MAX; header++)
        if (!header->architecture && strchr(header->file, '.')) {
            header_names[headers] = header->file;
            header_texts[headers++] = header->begin;
        }
    for (Unit *unit = loaded.units; unit < loaded.units + loaded.unit_count; unit++)
        if (!unit->library && !ready_made(unit->name, gpu)) {
            snprintf(names[count], sizeof names[count], "%s.cu", unit->file);
            units[count] = unit;
            sources[count] = (JitSource){
                .name = names[count],
                .text = image_of(unit->file, NULL),
                .headers = headers,
                .header_names = header_names,
                .header_texts = header_texts,
                .architecture = architecture,
                .macro = unit->macro,
            };
            count++;
        }
    if (count == 0)
        return STATUS_OK;
    const Nvrtc *nvrtc;
    const Status status = jit_open(&nvrtc, error);
    if (status != STATUS_OK) {
        error_prefix(error, "this dprun has no compiled kernels for %s (%s), and cannot compile them: ", gpu->name,
                     architecture);
        return status;
    }
    jit_folder(folder, sizeof folder);
    TRY(jit_compile(nvrtc, folder, count, sources, images, error));
    for (size_t i = 0; i < count; i++)
        units[i]->made = images[i];
    return STATUS_OK;
}

static Status load_unit(Unit *unit, const CudaProperties *gpu, Error *error)
{
    const void *image = unit->made.code ? unit->made.code : ready_made(unit->name, gpu);
    const Status status =
        cuda_status(cuda_runtime->LibraryLoadData(&unit->library, image), "cudaLibraryLoadData", error);
    if (status != STATUS_OK)
        error_prefix(error, "kernels of %s: ", unit->name);
    free(unit->made.code);
    unit->made.code = NULL;
    return status;
}

static Status load_kernel(int number, CudaType form_type, Error *error)
{
    const struct Row *row = &rows[number];
    CudaModule *module = &loaded.module;
    CudaKernel **kernel = &module->kernels[number][form_type];
    char *name = module->names[number][form_type];
    if (*kernel)
        return STATUS_OK;
    const bool one = row->form != OF_COMPUTE_TYPES;
    snprintf(name, sizeof module->names[number][form_type], "%s%s%s", row->name, one ? "" : "_",
             one ? "" : suffixes[form_type]);
    const Status status = cuda_status(cuda_runtime->LibraryGetKernel(kernel, unit_of(row, form_type)->library, name),
                                      "cudaLibraryGetKernel", error);
    if (status != STATUS_OK)
        error_prefix(error, "%s: ", name);
    return status;
}

/* Loops over every kernel that a device of `type` uses. */
#define FOR_KERNELS(number, form_type, type, gpu)                                \
    for (int number = 0; number < CUDA_KERNELS; number++)                        \
        for (CudaType form_type = CUDA_F32; form_type < CUDA_TYPES; form_type++) \
            if (uses(&rows[number], form_type, type, gpu))

static Status load_all(const CudaProperties *gpu, CudaType type, Error *error)
{
    FOR_KERNELS(number, form_type, type, gpu)
    if (!unit_of(&rows[number], form_type))
        return error_set(error, STATUS_RUN_FAILED, "internal error, the kernels have more than %d compilation units",
                         UNITS_MAX);
    TRY(compile_rest(gpu, error));
    for (size_t i = 0; i < loaded.unit_count; i++)
        if (!loaded.units[i].library)
            TRY(load_unit(&loaded.units[i], gpu, error));
    FOR_KERNELS(number, form_type, type, gpu)
    TRY(load_kernel(number, form_type, error));
    loaded.complete[type] = true;
    return STATUS_OK;
}

static Status prepare(const CudaProperties *gpu, int index, CudaType type, Error *error)
{
    if (index >= 64)
        return error_set(error, STATUS_RUN_FAILED, "%s is GPU %d of this machine; dprun uses the first 64 only",
                         gpu->name, index);
    if (loaded.prepared[type] >> index & 1)
        return STATUS_OK;
    FOR_KERNELS(number, form_type, type, gpu)
    CUDA_TRY(KernelSetAttributeForDevice, loaded.module.kernels[number][form_type], gpu->shared_bytes, index);
    loaded.prepared[type] |= UINT64_C(1) << index;
    return STATUS_OK;
}

static void unload(void)
{
    for (Unit *unit = loaded.units; unit < loaded.units + loaded.unit_count; unit++) {
        if (unit->library)
            cuda_runtime->LibraryUnload(unit->library);
        free(unit->made.code);
    }
    loaded.unit_count = 0;
    memset(loaded.complete, 0, sizeof loaded.complete);
    memset(loaded.prepared, 0, sizeof loaded.prepared);
    memset(&loaded.module, 0, sizeof loaded.module);
}

static Status take(const CudaProperties *gpu, int index, CudaType type, Error *error)
{
    if (loaded.users == 0) {
        loaded.major = gpu->major;
        loaded.minor = gpu->minor;
    } else if (gpu->major != loaded.major || gpu->minor != loaded.minor) {
        return error_set(error, STATUS_RUN_FAILED,
                         "%s, GPU %d, has another compute capability than the GPUs in use: use GPUs of one kind",
                         gpu->name, index);
    }
    if (!loaded.complete[type])
        TRY(load_all(gpu, type, error));
    return prepare(gpu, index, type, error);
}

Status cuda_module_take(const CudaProperties *gpu, int index, CudaType type, const CudaModule **module, Error *error)
{
    pthread_mutex_lock(&loaded.lock);
    const Status status = take(gpu, index, type, error);
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
