#include "base/clock.h"
#include "runtime/device/cpu.h"

#include <dlfcn.h>

/* Limits oneDNN to the calling thread: a rank is one thread and computes on one core, but oneDNN's OpenMP would start a
   team of threads for every rank. The setting is per thread, so each thread makes it before its first call.
   omp_set_num_threads is looked up at run time, because builds of oneDNN without OpenMP do not have it. */
static void compute_on_this_thread_alone(void)
{
    static _Thread_local bool done;
    if (done)
        return;
    union {
        void *address;
        void (*call)(int);
    } set_threads = {.address = dlsym(RTLD_DEFAULT, "omp_set_num_threads")};
    if (set_threads.address)
        set_threads.call(1);
    done = true;
}

static Status library_failed(const char *what, dnnl_status_t status, Error *error)
{
    return error_set(error, STATUS_RUN_FAILED, "oneDNN: %s: %s (status %d)", what,
                     status == dnnl_out_of_memory ? "out of memory" : "failed", (int)status);
}

#define TRY_LIBRARY(what, call)                                  \
    do {                                                         \
        const dnnl_status_t library_status_ = (call);            \
        if (library_status_ != dnnl_success)                     \
            return library_failed(what, library_status_, error); \
    } while (0)

static Status add_argument(CpuDevice *cpu, Primitive *primitive, int name, const_dnnl_memory_desc_t form, Error *error)
{
    dnnl_exec_arg_t *argument = &primitive->arguments[primitive->argument_count];
    TRY_LIBRARY("memory object", dnnl_memory_create(&argument->memory, form, cpu->engine, DNNL_MEMORY_NONE));
    argument->arg = name;
    primitive->argument_count++;
    return STATUS_OK;
}

/* Makes a primitive from a descriptor. names: oneDNN's numbers of its arguments, terminated by 0. */
static Status make_primitive(CpuDevice *cpu, const_dnnl_primitive_desc_t descriptor, const char *what, const int *names,
                             Primitive *primitive, Error *error)
{
    TRY_LIBRARY(what, dnnl_primitive_create(&primitive->primitive, descriptor));
    for (const int *name = names; *name; name++)
        TRY(add_argument(cpu, primitive, *name, dnnl_primitive_desc_query_md(descriptor, dnnl_query_exec_arg_md, *name),
                         error));
    primitive->data_count = primitive->argument_count;
    const_dnnl_memory_desc_t scratchpad =
        dnnl_primitive_desc_query_md(descriptor, dnnl_query_exec_arg_md, DNNL_ARG_SCRATCHPAD);
    const size_t bytes = scratchpad ? dnnl_memory_desc_get_size(scratchpad) : 0;
    if (bytes == 0)
        return STATUS_OK;
    TRY(cpu_reserve(&cpu->scratchpad, bytes, error));
    return add_argument(cpu, primitive, DNNL_ARG_SCRATCHPAD, scratchpad, error);
}

/* Objects that are needed only while the primitives of an operation are made. */
typedef struct Making {
    dnnl_memory_desc_t data; /* shape and type of the arguments: all have the same */
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_desc_t forward, backward;
} Making;

static Status begin_making(Making *making, int axes, const dnnl_dims_t sizes, dnnl_format_tag_t tag, Error *error)
{
    compute_on_this_thread_alone();
    TRY_LIBRARY("memory descriptor", dnnl_memory_desc_create_with_tag(&making->data, axes, sizes, dnnl_f32, tag));
    TRY_LIBRARY("attributes", dnnl_primitive_attr_create(&making->attributes));
    TRY_LIBRARY("attributes", dnnl_primitive_attr_set_scratchpad_mode(making->attributes, dnnl_scratchpad_mode_user));
    return STATUS_OK;
}

static void end_making(Making *making)
{
    if (making->backward)
        dnnl_primitive_desc_destroy(making->backward);
    if (making->forward)
        dnnl_primitive_desc_destroy(making->forward);
    if (making->attributes)
        dnnl_primitive_attr_destroy(making->attributes);
    dnnl_memory_desc_destroy(making->data);
}

static Status make_gelu(CpuDevice *cpu, size_t count, Making *making, Primitive *forward, Primitive *backward,
                        Error *error)
{
    static const int forward_names[] = {DNNL_ARG_SRC, DNNL_ARG_DST, 0};
    static const int backward_names[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, 0};
    const dnnl_alg_kind_t gelu = dnnl_eltwise_gelu_erf;
    TRY(begin_making(making, 1, (dnnl_dims_t){(dnnl_dim_t)count}, dnnl_a, error));
    TRY_LIBRARY("GELU",
                dnnl_eltwise_forward_primitive_desc_create(&making->forward, cpu->engine, dnnl_forward_training, gelu,
                                                           making->data, making->data, 0, 0, making->attributes));
    TRY(make_primitive(cpu, making->forward, "GELU", forward_names, forward, error));
    TRY_LIBRARY("GELU", dnnl_eltwise_backward_primitive_desc_create(&making->backward, cpu->engine, gelu, making->data,
                                                                    making->data, making->data, 0, 0, making->forward,
                                                                    making->attributes));
    return make_primitive(cpu, making->backward, "GELU", backward_names, backward, error);
}

Status cpu_gelu_primitives(CpuDevice *cpu, size_t count, Primitive *forward, Primitive *backward, Error *error)
{
    Making making = {0};
    const Status status = make_gelu(cpu, count, &making, forward, backward, error);
    end_making(&making);
    return status;
}

static Status make_softmax(CpuDevice *cpu, size_t rows, size_t columns, Making *making, Primitive *forward,
                           Error *error)
{
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_DST, 0};
    TRY(begin_making(making, 2, (dnnl_dims_t){(dnnl_dim_t)rows, (dnnl_dim_t)columns}, dnnl_ab, error));
    TRY_LIBRARY("softmax", dnnl_softmax_forward_primitive_desc_create(
                               &making->forward, cpu->engine, dnnl_forward_inference, dnnl_softmax_accurate,
                               making->data, making->data, 1, making->attributes));
    return make_primitive(cpu, making->forward, "softmax", names, forward, error);
}

Status cpu_softmax_primitive(CpuDevice *cpu, size_t rows, size_t columns, Primitive *forward, Error *error)
{
    Making making = {0};
    const Status status = make_softmax(cpu, rows, columns, &making, forward, error);
    end_making(&making);
    return status;
}

Status cpu_run(CpuDevice *cpu, const Primitive *primitive, const void *const *data, Error *error)
{
    compute_on_this_thread_alone();
    for (int i = 0; i < primitive->argument_count; i++) {
        const void *address = i < primitive->data_count ? data[i] : cpu->scratchpad.memory;
        TRY_LIBRARY("memory object", dnnl_memory_set_data_handle(primitive->arguments[i].memory, (void *)address));
    }
    TRY_LIBRARY("execution", dnnl_primitive_execute(primitive->primitive, cpu->stream, primitive->argument_count,
                                                    primitive->arguments));
    return STATUS_OK;
}

void cpu_free_primitive(Primitive *primitive)
{
    for (int i = 0; i < primitive->argument_count; i++)
        dnnl_memory_destroy(primitive->arguments[i].memory);
    if (primitive->primitive)
        dnnl_primitive_destroy(primitive->primitive);
}

/* How many rows of b one call of dnnl_sgemm gets. If a has few rows, oneDNN is faster when the part of b that a call
   reads fits in the second-level cache (docs/decisions/onednn.md). */
static size_t step_of(const Product *p)
{
    enum { FEW_ROWS = 128, CACHED_ELEMENTS = 65536, LEAST_STEP = 32 };
    if (p->transpose_a || p->transpose_b || p->m > FEW_ROWS || p->k * p->n <= CACHED_ELEMENTS)
        return p->k;
    const size_t step = CACHED_ELEMENTS / p->n;
    return step > LEAST_STEP ? step : LEAST_STEP;
}

static dnnl_status_t multiply(const Product *p, const float *a, const float *b, float *c)
{
    const dnnl_dim_t m = (dnnl_dim_t)p->m, n = (dnnl_dim_t)p->n, pitch = (dnnl_dim_t)p->k;
    const size_t step = step_of(p);
    dnnl_status_t status = dnnl_success;
    for (size_t first = 0; first < p->k && status == dnnl_success; first += step) {
        const dnnl_dim_t k = (dnnl_dim_t)(p->k - first < step ? p->k - first : step);
        status = dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', m, n, k, p->alpha, a + first,
                            p->transpose_a ? m : pitch, b + first * p->n, p->transpose_b ? pitch : n,
                            first ? 1 : p->beta, c, n);
    }
    return status;
}

Status cpu_product(CpuDevice *cpu, const Product *p, const float *a, const float *b, float *c, Error *error)
{
    compute_on_this_thread_alone();
    ProductClock *clock = &cpu->device.products;
    const int64_t start = clock->on ? clock_nanoseconds() : 0;
    TRY_LIBRARY("matrix product", multiply(p, a, b, c));
    if (clock->on) {
        clock->nanoseconds += clock_nanoseconds() - start;
        clock->calls++;
        clock->operations += 2.0 * (double)p->m * (double)p->n * (double)p->k;
    }
    return STATUS_OK;
}
