#include "runtime/base/clock.h"
#include "runtime/device/cpu.h"

#include <dlfcn.h>

/* A rank is one thread and computes on one core. oneDNN's OpenMP would start a team for every rank; the setting belongs to the
   calling thread, so each thread makes it before its first call. Looked up at run time: builds of oneDNN without OpenMP have
   no such function, and need none. */
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

static Status add_argument(CpuDevice *cpu, Primitive *primitive, int name, const dnnl_memory_desc_t *form, Error *error)
{
    dnnl_exec_arg_t *argument = &primitive->arguments[primitive->argument_count];
    TRY_LIBRARY("memory object", dnnl_memory_create(&argument->memory, form, cpu->engine, DNNL_MEMORY_NONE));
    argument->arg = name;
    primitive->argument_count++;
    return STATUS_OK;
}

/* The descriptor into a primitive. `names` of its arguments end with 0. */
static Status finish_primitive(CpuDevice *cpu, const_dnnl_primitive_desc_t descriptor, const char *what, const int *names,
                               Primitive *primitive, Error *error)
{
    TRY_LIBRARY(what, dnnl_primitive_create(&primitive->primitive, descriptor));
    for (const int *name = names; *name; name++)
        TRY(add_argument(cpu, primitive, *name,
                         dnnl_primitive_desc_query_md(descriptor, dnnl_query_exec_arg_md, *name), error));
    primitive->data_count = primitive->argument_count;
    const dnnl_memory_desc_t *scratchpad =
        dnnl_primitive_desc_query_md(descriptor, dnnl_query_exec_arg_md, DNNL_ARG_SCRATCHPAD);
    const size_t bytes = scratchpad ? dnnl_memory_desc_get_size(scratchpad) : 0;
    if (bytes == 0)
        return STATUS_OK;
    TRY(cpu_reserve(&cpu->scratchpad, bytes, error));
    return add_argument(cpu, primitive, DNNL_ARG_SCRATCHPAD, scratchpad, error);
}

/* `descriptor`, unless NULL, receives what the backward operation needs as a hint; the caller destroys it. */
static Status make_primitive(CpuDevice *cpu, const_dnnl_op_desc_t operation, const_dnnl_primitive_desc_t hint,
                             const char *what, const int *names, dnnl_primitive_desc_t *descriptor, Primitive *primitive,
                             Error *error)
{
    compute_on_this_thread_alone();
    dnnl_primitive_attr_t attributes;
    TRY_LIBRARY("attributes", dnnl_primitive_attr_create(&attributes));
    dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    dnnl_primitive_desc_t described;
    const dnnl_status_t found = dnnl_primitive_desc_create(&described, operation, attributes, cpu->engine, hint);
    dnnl_primitive_attr_destroy(attributes);
    TRY_LIBRARY(what, found);
    const Status status = finish_primitive(cpu, described, what, names, primitive, error);
    if (descriptor && status == STATUS_OK)
        *descriptor = described;
    else
        dnnl_primitive_desc_destroy(described);
    return status;
}

Status cpu_gelu_primitives(CpuDevice *cpu, size_t count, Primitive *forward, Primitive *backward, Error *error)
{
    dnnl_memory_desc_t data;
    TRY_LIBRARY("GELU", dnnl_memory_desc_init_by_tag(&data, 1, (dnnl_dims_t){(dnnl_dim_t)count}, dnnl_f32, dnnl_a));
    dnnl_eltwise_desc_t operation;
    TRY_LIBRARY("GELU", dnnl_eltwise_forward_desc_init(&operation, dnnl_forward_training, dnnl_eltwise_gelu_erf, &data, 0, 0));
    dnnl_primitive_desc_t described;
    const int forward_names[] = {DNNL_ARG_SRC, DNNL_ARG_DST, 0};
    TRY(make_primitive(cpu, &operation, NULL, "GELU", forward_names, &described, forward, error));
    const int backward_names[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, 0};
    Status status;
    const dnnl_status_t initialised = dnnl_eltwise_backward_desc_init(&operation, dnnl_eltwise_gelu_erf, &data, &data, 0, 0);
    if (initialised == dnnl_success)
        status = make_primitive(cpu, &operation, described, "GELU", backward_names, NULL, backward, error);
    else
        status = library_failed("GELU", initialised, error);
    dnnl_primitive_desc_destroy(described);
    return status;
}

Status cpu_softmax_primitive(CpuDevice *cpu, size_t rows, size_t columns, Primitive *forward, Error *error)
{
    dnnl_memory_desc_t data;
    TRY_LIBRARY("softmax", dnnl_memory_desc_init_by_tag(&data, 2, (dnnl_dims_t){(dnnl_dim_t)rows, (dnnl_dim_t)columns},
                                                        dnnl_f32, dnnl_ab));
    dnnl_softmax_desc_t operation;
    TRY_LIBRARY("softmax", dnnl_softmax_forward_desc_init(&operation, dnnl_forward_inference, &data, 1));
    const int names[] = {DNNL_ARG_SRC, DNNL_ARG_DST, 0};
    return make_primitive(cpu, &operation, NULL, "softmax", names, NULL, forward, error);
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

Status cpu_product(CpuDevice *cpu, const Product *p, const float *a, const float *b, float *c, Error *error)
{
    compute_on_this_thread_alone();
    ProductClock *clock = &cpu->device.products;
    const int64_t start = clock->on ? clock_nanoseconds() : 0;
    TRY_LIBRARY("matrix product",
                dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', (dnnl_dim_t)p->m, (dnnl_dim_t)p->n,
                           (dnnl_dim_t)p->k, p->alpha, a, (dnnl_dim_t)p->a_pitch, b, (dnnl_dim_t)p->b_pitch, p->beta, c,
                           (dnnl_dim_t)p->c_pitch));
    if (clock->on) {
        clock->nanoseconds += clock_nanoseconds() - start;
        clock->calls++;
        clock->operations += 2.0 * (double)p->m * (double)p->n * (double)p->k;
    }
    return STATUS_OK;
}
