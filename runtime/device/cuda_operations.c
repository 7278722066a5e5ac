/* The operations of the CUDA device: parameters and launches of the kernels in kernels/kernels.h. */

#include "runtime/device/cuda.h"

#include <math.h>
#include <string.h>

static CudaDevice *cuda_of(Device *device) { return (CudaDevice *)device; }

static Status launch_on(CudaDevice *cuda, DeviceQueue queue, int kernel, CudaType type, Launch launch,
                        const void *parameters, Error *error)
{
    const CudaError code =
        cuda_runtime->LaunchKernel(cuda->module->kernels[kernel][type], launch, parameters, cuda->streams[queue]);
    if (code == CUDA_OK)
        return STATUS_OK;
    const Status status = cuda_status(code, "cudaLaunchKernel", error);
    error_prefix(error, "%s: ", cuda->module->names[kernel][type]);
    return status;
}

Status cuda_launch(CudaDevice *cuda, int kernel, CudaType type, Launch launch, const void *parameters, Error *error)
{
    return launch_on(cuda, QUEUE_COMPUTE, kernel, type, launch, parameters, error);
}

static Status launch_as(CudaDevice *cuda, int kernel, CudaType type, Launch launch, const void *parameters,
                        Error *error)
{
    if (launch.grid == 0)
        return STATUS_OK; /* nothing to do; CUDA does not accept an empty grid */
    return cuda_fusing(cuda) ? cuda_fuse(cuda, kernel, parameters, error)
                             : cuda_launch(cuda, kernel, type, launch, parameters, error);
}

#define LAUNCH(kernel, launch, parameters) \
    launch_as(cuda_of(device), CUDA_##kernel, cuda_of(device)->type, launch, parameters, error)
#define LAUNCH_FLOAT(kernel, launch, parameters) \
    launch_as(cuda_of(device), CUDA_##kernel, CUDA_F32, launch, parameters, error)

/* --- elementwise operations --- */

Status cuda_fill(Device *device, NumberKind kind, size_t count, double value, void *destination, Error *error)
{
    const Elementwise fill = {.to = destination, .value = (float)value, .count = count};
    const CudaType type = kind == MASTERS ? CUDA_F32 : cuda_of(device)->type;
    return launch_as(cuda_of(device), CUDA_fill, type, elementwise_launch(count), &fill, error);
}

Status cuda_copy(Device *device, size_t bytes, const void *source, void *destination, Error *error)
{
    if (cuda_fusing(cuda_of(device))) {
        const Copy copy = {.from = source, .to = destination, .bytes = bytes};
        return LAUNCH_FLOAT(copy_bytes, copy_launch(bytes), &copy);
    }
    CUDA_TRY(MemcpyAsync, destination, source, bytes, cuda_of(device)->streams[QUEUE_COMPUTE]);
    return STATUS_OK;
}

Status cuda_accumulate(Device *device, size_t count, const void *addend, void *sum, Error *error)
{
    const Elementwise add = {.from = addend, .to = sum, .count = count};
    return LAUNCH_FLOAT(accumulate, elementwise_launch(count), &add);
}

Status cuda_accumulate_on(Device *device, DeviceQueue queue, size_t count, const void *addend, void *sum, Error *error)
{
    const Elementwise add = {.from = addend, .to = sum, .count = count};
    if (count == 0)
        return STATUS_OK;
    return launch_on(cuda_of(device), queue, CUDA_accumulate, CUDA_F32, elementwise_launch(count), &add, error);
}

Status cuda_from_floats(Device *device, size_t count, const float *source, void *elements, Error *error)
{
    const Elementwise convert = {.from = source, .to = elements, .count = count};
    return LAUNCH(from_float, elementwise_launch(count), &convert);
}

Status cuda_to_floats(Device *device, size_t count, const void *elements, float *destination, Error *error)
{
    const Elementwise convert = {.from = elements, .to = destination, .count = count};
    return LAUNCH(to_float, elementwise_launch(count), &convert);
}

Status cuda_gelu_forward(Device *device, const Kernel *gelu, const void *x, void *y, Error *error)
{
    const Elementwise each = {.from = x, .to = y, .count = gelu->shape.rows * gelu->shape.columns};
    return LAUNCH(gelu_forward, elementwise_launch(each.count), &each);
}

Status cuda_gelu_backward(Device *device, const Kernel *gelu, const void *x, const void *dy, void *dx, Error *error)
{
    const Elementwise each = {.from = x, .other = dy, .to = dx, .count = gelu->shape.rows * gelu->shape.columns};
    return LAUNCH(gelu_backward, elementwise_launch(each.count), &each);
}

/* --- products --- */

enum { MAPS_NEARBY = 8 };

/* The entry of the matrix's tensor map in the cache. On a cache miss: an empty entry, or an old one to replace. */
static CudaMap *find_map(const CudaDevice *cuda, const CudaMatrix *matrix)
{
    const uint64_t first = cuda_hash(matrix, sizeof *matrix);
    for (unsigned i = 0; i < MAPS_NEARBY; i++) {
        CudaMap *map = &cuda->maps[(first + i) % CUDA_MAPS];
        if (!map->matrix.memory || memcmp(&map->matrix, matrix, sizeof *matrix) == 0)
            return map;
    }
    return &cuda->maps[first % CUDA_MAPS];
}

/* Gets the tensor map of a matrix from the cache. On a miss the driver encodes it. Slots and weights recur, so most
   calls are cache hits. */
static Status tensor_map(CudaDevice *cuda, const void *memory, TensorMapShape shape, TensorMap *map, Error *error)
{
    const CudaMatrix matrix = {.memory = memory, .shape = shape};
    CudaMap *known = find_map(cuda, &matrix);
    if (memcmp(&known->matrix, &matrix, sizeof matrix) != 0) {
        known->matrix.memory = NULL;
        TRY(cuda_status(cuda_runtime->EncodeTensorMap(&known->map, memory, &shape), "cuTensorMapEncodeTiled", error));
        known->matrix = matrix;
    }
    *map = known->map;
    return STATUS_OK;
}

/* Uses TMA and wgmma if the GPU and the shapes allow it. */
static Status product(Device *device, ProductLayout layout, int kernel, int hopper, const Product *p, Error *error)
{
    CudaDevice *cuda = cuda_of(device);
    if (device->products.on) {
        device->products.calls++;
        device->products.operations += 2.0 * p->m * p->n * p->k;
    }
    if (cuda->type != CUDA_BF16 || !cuda->module->kernels[hopper][CUDA_F32] || !hopper_takes(layout, p))
        return launch_as(cuda, kernel, cuda->type, product_launch(p), p, error);
    const unsigned multiprocessors = (unsigned)cuda->properties.multiprocessors;
    const unsigned cluster = cuda_fusing(cuda) ? 1 : hopper_cluster(p, multiprocessors);
    HopperProduct with_maps = {.product = *p, .band = hopper_band(p, multiprocessors, cluster)};
    TRY(tensor_map(cuda, p->a, tensor_map_shape(layout, p, 0), &with_maps.a, error));
    TRY(tensor_map(cuda, p->b, tensor_map_shape(layout, p, 1), &with_maps.b, error));
    return launch_as(cuda, hopper, CUDA_F32, hopper_launch(p, multiprocessors, cluster), &with_maps, error);
}

static Status linear_forward(Device *device, const Kernel *linear, const void *x, const void *w, const void *bias,
                             const void *residual, void *y, void *active, Error *error)
{
    const KernelShape *shape = &linear->shape;
    const Product p = {
        .a = x,
        .b = w,
        .c = y,
        .bias = bias,
        .residual = residual,
        .gelu = active,
        .m = (unsigned)shape->rows,
        .n = (unsigned)shape->outputs,
        .k = (unsigned)shape->columns,
    };
    return product(device, PRODUCT_FORWARD, CUDA_product_forward, CUDA_hopper_forward, &p, error);
}

Status cuda_linear_forward(Device *device, const Kernel *linear, const void *x, const void *w, const void *bias,
                           const void *residual, void *y, Error *error)
{
    return linear_forward(device, linear, x, w, bias, residual, y, NULL, error);
}

Status cuda_linear_gelu_forward(Device *device, const Kernel *linear, const Kernel *gelu, const void *x, const void *w,
                                const void *bias, void *y, void *active, Error *error)
{
    (void)gelu;
    return linear_forward(device, linear, x, w, bias, NULL, y, active, error);
}

static Status linear_backward_input(Device *device, const Kernel *linear, const void *dy, const void *w,
                                    const void *before, void *dx, Error *error)
{
    const KernelShape *shape = &linear->shape;
    const Product p = {
        .a = dy,
        .b = w,
        .c = dx,
        .gelu_input = before,
        .m = (unsigned)shape->rows,
        .n = (unsigned)shape->columns,
        .k = (unsigned)shape->outputs,
    };
    return product(device, PRODUCT_INPUT, CUDA_product_input, CUDA_hopper_input, &p, error);
}

Status cuda_linear_backward_input(Device *device, const Kernel *linear, const void *dy, const void *w, void *dx,
                                  Error *error)
{
    return linear_backward_input(device, linear, dy, w, NULL, dx, error);
}

Status cuda_linear_gelu_backward_input(Device *device, const Kernel *linear, const Kernel *gelu, const void *dy,
                                       const void *w, const void *before, void *dx, Error *error)
{
    (void)gelu;
    return linear_backward_input(device, linear, dy, w, before, dx, error);
}

Status cuda_linear_backward_weight(Device *device, const Kernel *linear, const void *x, const void *dy, void *dw,
                                   void *dbias, Error *error)
{
    const KernelShape *shape = &linear->shape;
    const Product p = {
        .a = x,
        .b = dy,
        .c = dw,
        .column_sums = dbias,
        .m = (unsigned)shape->columns,
        .n = (unsigned)shape->outputs,
        .k = (unsigned)shape->rows,
    };
    return product(device, PRODUCT_WEIGHT, CUDA_product_weight, CUDA_hopper_weight, &p, error);
}

/* --- attention --- */

static Attention attention_of(Device *device, const Kernel *kernel, int backward)
{
    const KernelShape *shape = &kernel->shape;
    Attention a = {.rows = (unsigned)shape->rows,
                   .columns = (unsigned)shape->columns,
                   .sequence = (unsigned)shape->sequence,
                   .heads = (unsigned)shape->heads};
    attention_fit(&a, (unsigned)device->run->size[ELEMENTS], backward,
                  (unsigned)cuda_of(device)->properties.shared_bytes - FUSED_HEAD);
    return a;
}

Status cuda_attention_forward(Device *device, const Kernel *attention, const void *qkv, void *y, void *context,
                              Error *error)
{
    Attention a = attention_of(device, attention, 0);
    a.qkv = qkv;
    a.y = y;
    a.logsumexp = context;
    CudaDevice *cuda = cuda_of(device);
    const bool hopper = cuda->type == CUDA_BF16 && cuda->module->kernels[CUDA_hopper_attention_forward][CUDA_F32];
    if (hopper && hopper_attention_takes(&a)) {
        HopperAttention with_map = {.attention = a};
        TRY(tensor_map(cuda, qkv, attention_map_shape(&a), &with_map.qkv, error));
        return LAUNCH_FLOAT(hopper_attention_forward,
                            hopper_attention_launch(&a, (unsigned)cuda->properties.multiprocessors), &with_map);
    }
    return LAUNCH(attention_forward, attention_forward_launch(&a, (unsigned)device->run->size[ELEMENTS]), &a);
}

Status cuda_attention_backward(Device *device, const Kernel *attention, const void *qkv, const void *y,
                               const void *context, const void *dy, void *dqkv, Error *error)
{
    Attention a = attention_of(device, attention, 1);
    a.qkv = qkv;
    a.y = (void *)(uintptr_t)y; /* both are only read here */
    a.logsumexp = (void *)(uintptr_t)context;
    a.dy = dy;
    a.dqkv = dqkv;
    a.delta = cuda_of(device)->delta.memory;
    TRY(LAUNCH(attention_delta, attention_delta_launch(&a), &a));
    return LAUNCH(attention_backward, attention_backward_launch(&a, (unsigned)device->run->size[ELEMENTS]), &a);
}

/* --- layers --- */

static Norm norm_of(const Kernel *kernel)
{
    return (Norm){.rows = (unsigned)kernel->shape.rows, .columns = (unsigned)kernel->shape.columns};
}

Status cuda_norm_forward(Device *device, const Kernel *norm, const void *x, const void *gain, const void *shift,
                         void *y, void *statistics, Error *error)
{
    Norm n = norm_of(norm);
    n.x = x;
    n.gain = gain;
    n.shift = shift;
    n.y = y;
    n.statistics = statistics;
    return LAUNCH(norm_forward, norm_rows_launch(&n), &n);
}

Status cuda_norm_backward_input(Device *device, const Kernel *norm, const void *x, const void *statistics,
                                const void *gain, const void *dy, const void *residual, void *dx, Error *error)
{
    Norm n = norm_of(norm);
    n.x = x;
    n.statistics = (void *)(uintptr_t)statistics; /* only read here */
    n.gain = gain;
    n.dy = dy;
    n.residual = residual;
    n.dx = dx;
    return LAUNCH(norm_backward_input, norm_rows_launch(&n), &n);
}

Status cuda_norm_backward_weight(Device *device, const Kernel *norm, const void *x, const void *statistics,
                                 const void *dy, void *dgain, void *dshift, Error *error)
{
    Norm n = norm_of(norm);
    n.x = x;
    n.statistics = (void *)(uintptr_t)statistics;
    n.dy = dy;
    n.dgain = dgain;
    n.dshift = dshift;
    return LAUNCH(norm_backward_weight, norm_columns_launch(&n), &n);
}

static Embedding embedding_of(size_t rows, size_t columns, size_t sequence, const int32_t *tokens)
{
    return (Embedding){
        .tokens = tokens, .rows = (unsigned)rows, .columns = (unsigned)columns, .sequence = (unsigned)sequence};
}

Status cuda_embedding_forward(Device *device, size_t rows, size_t columns, size_t sequence, const int32_t *tokens,
                              const void *token_table, const void *position_table, void *y, Error *error)
{
    Embedding e = embedding_of(rows, columns, sequence, tokens);
    e.token_table = token_table;
    e.position_table = position_table;
    e.y = y;
    return LAUNCH(embedding_forward, embedding_forward_launch(&e), &e);
}

Status cuda_embedding_backward(Device *device, size_t rows, size_t columns, size_t sequence, const int32_t *tokens,
                               const void *dy, void *dtoken_table, void *dposition_table, Error *error)
{
    Embedding e = embedding_of(rows, columns, sequence, tokens);
    e.dy = dy;
    e.dtoken_table = dtoken_table;
    e.dposition_table = dposition_table;
    return LAUNCH(embedding_backward, embedding_backward_launch(&e), &e);
}

/* --- training --- */

static Status finish_sum(Device *device, size_t partials, double scale, double *result, Error *error)
{
    const Sum sum = {.partial = cuda_of(device)->sums.memory, .result = result, .scale = scale, .count = partials};
    return LAUNCH_FLOAT(finish_sum, finish_sum_launch(), &sum);
}

Status cuda_cross_entropy(Device *device, const Kernel *kernel, double scale, const int32_t *targets, void *logits,
                          double *loss, Error *error)
{
    const CrossEntropy c = {
        .logits = logits,
        .targets = targets,
        .row_losses = cuda_of(device)->sums.memory,
        .scale = (float)scale,
        .rows = (unsigned)kernel->shape.rows,
        .columns = (unsigned)kernel->shape.columns,
    };
    TRY(LAUNCH(cross_entropy, cross_entropy_launch(&c), &c));
    return finish_sum(device, c.rows, 1 / (double)c.rows, loss, error);
}

Status cuda_squared_error(Device *device, size_t count, double scale, const void *y, const float *targets, void *dy,
                          double *loss, Error *error)
{
    const SquaredError s = {
        .y = y,
        .targets = targets,
        .dy = dy,
        .partial = cuda_of(device)->sums.memory,
        .scale = (float)scale,
        .count = count,
    };
    TRY(LAUNCH(squared_error, sum_launch(count), &s));
    return finish_sum(device, sum_partials(count), 1 / (double)count, loss, error);
}

Status cuda_sum_of_squares(Device *device, size_t count, const void *values, double *result, Error *error)
{
    const Sum sum = {.values = values, .partial = cuda_of(device)->sums.memory, .count = count};
    TRY(LAUNCH_FLOAT(sum_of_squares, sum_launch(count), &sum));
    return finish_sum(device, sum_partials(count), 1, result, error);
}

Status cuda_adamw(Device *device, const AdamW *settings, size_t count, void *weights, void *gradients, void *moment1,
                  void *moment2, void *elements, Error *error)
{
    const double correction1 = 1 - pow(settings->beta1, (double)settings->step);
    const double correction2 = 1 - pow(settings->beta2, (double)settings->step);
    const AdamWStep step = {
        .parameters = weights,
        .gradients = gradients,
        .moment1 = moment1,
        .moment2 = moment2,
        .bf16_copy = elements,
        .rate = (float)settings->rate,
        .rate_corrected = (float)(settings->rate / correction1),
        .beta1 = (float)settings->beta1,
        .beta2 = (float)settings->beta2,
        .one_minus_beta1 = (float)(1 - settings->beta1),
        .one_minus_beta2 = (float)(1 - settings->beta2),
        .inverse_root_correction = (float)(1 / sqrt(correction2)),
        .epsilon = (float)settings->epsilon,
        .decay = (float)settings->decay,
        .clip = (float)settings->clip,
        .count = count,
    };
    return LAUNCH_FLOAT(adamw, elementwise_launch(count), &step);
}
