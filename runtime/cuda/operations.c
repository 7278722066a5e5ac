/* The operations of the CUDA device: parameters and launches of the kernels in kernels/kernels.h. */

#include "runtime/cuda/cuda.h"

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
    const CudaType type = kind == MASTER_TYPE ? CUDA_F32 : cuda_of(device)->type;
    return launch_as(cuda_of(device), CUDA_fill, type, elementwise_launch(count), &fill, error);
}

Status cuda_copy_bytes(Device *device, size_t bytes, const void *source, void *destination, Error *error)
{
    if (cuda_fusing(cuda_of(device))) {
        const Copy copy = {.from = source, .to = destination, .bytes = bytes};
        return LAUNCH_FLOAT(copy_bytes, copy_launch(bytes), &copy);
    }
    CUDA_TRY(MemcpyAsync, destination, source, bytes, cuda_of(device)->streams[QUEUE_COMPUTE]);
    return STATUS_OK;
}

CUDA(copy) { return cuda_copy_bytes(device, op->count, o->source, o->destination, error); }

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

CUDA(from_floats)
{
    const Elementwise convert = {.from = o->source, .to = o->elements, .count = op->count};
    return LAUNCH(from_float, elementwise_launch(op->count), &convert);
}

CUDA(to_floats)
{
    const Elementwise convert = {.from = o->elements, .to = o->destination, .count = op->count};
    return LAUNCH(to_float, elementwise_launch(op->count), &convert);
}

CUDA(gelu_forward)
{
    const Elementwise each = {.from = o->x, .to = o->y, .count = op->kernel->shape.rows * op->kernel->shape.columns};
    return LAUNCH(gelu_forward, elementwise_launch(each.count), &each);
}

CUDA(gelu_backward)
{
    const Elementwise each = {
        .from = o->x, .other = o->dy, .to = o->dx, .count = op->kernel->shape.rows * op->kernel->shape.columns};
    return LAUNCH(gelu_backward, elementwise_launch(each.count), &each);
}

/* --- products --- */

enum { MAPS_NEARBY = 8 };

/* The entry of the cache that has the matrix's tensor map. On a cache miss: an empty entry, or another matrix's entry
   to overwrite. */
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

/* Gets the tensor map of a matrix from the cache. On a miss the driver encodes it. Buffers of passes and weights have
   the same addresses in all steps, so most calls are cache hits. */
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

/* One matrix product. Uses the kernel `hopper` (TMA and wgmma) if the device is bfloat16 and the GPU and the shapes
   allow it, else `kernel`. */
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
    const unsigned columns = cuda_fusing(cuda) ? HOPPER_TILE_N : hopper_columns(p, multiprocessors);
    const unsigned cluster = cuda_fusing(cuda) ? 1 : hopper_cluster(p, columns, multiprocessors);
    HopperProduct with_maps = {
        .product = *p, .columns = columns, .band = hopper_band(p, columns, multiprocessors, cluster)};
    TRY(tensor_map(cuda, p->a, tensor_map_shape(layout, p, 0), &with_maps.a, error));
    TRY(tensor_map(cuda, p->b, tensor_map_shape(layout, p, 1), &with_maps.b, error));
    return launch_as(cuda, hopper, CUDA_F32, hopper_launch(&with_maps, multiprocessors, cluster), &with_maps, error);
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

CUDA(linear_forward) { return linear_forward(device, op->kernel, o->x, o->w, o->bias, o->residual, o->y, NULL, error); }

CUDA(linear_gelu_forward)
{
    return linear_forward(device, op->kernel, o->x, o->w, o->bias, NULL, o->y, o->active, error);
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

CUDA(linear_backward_input) { return linear_backward_input(device, op->kernel, o->dy, o->w, NULL, o->dx, error); }

CUDA(linear_gelu_backward_input)
{
    return linear_backward_input(device, op->kernel, o->dy, o->w, o->before, o->dx, error);
}

CUDA(linear_backward_weight)
{
    const KernelShape *shape = &op->kernel->shape;
    const Product p = {
        .a = o->x,
        .b = o->dy,
        .c = o->dw,
        .column_sums = o->dbias,
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
    attention_fit(&a, (unsigned)device->run->size[COMPUTE_TYPE], backward,
                  (unsigned)cuda_of(device)->properties.shared_bytes - FUSED_HEAD);
    return a;
}

/* Launches a kernel with TMA and wgmma if the device is bfloat16 and the GPU and the shape allow it, else the portable
   kernel. A fused launch has only its forward. */
static Status attention(Device *device, int backward, const Attention *a, Error *error)
{
    CudaDevice *cuda = cuda_of(device);
    const int hopper = backward ? CUDA_hopper_attention_backward : CUDA_hopper_attention_forward;
    const unsigned size = (unsigned)device->run->size[COMPUTE_TYPE];
    if (cuda->type != CUDA_BF16 || !cuda->module->kernels[hopper][CUDA_F32] || !hopper_attention_takes(a) ||
        (backward && cuda_fusing(cuda)))
        return backward ? LAUNCH(attention_backward, attention_backward_launch(a, size), a)
                        : LAUNCH(attention_forward, attention_forward_launch(a, size), a);
    HopperAttention with_maps = {.attention = *a};
    TRY(tensor_map(cuda, a->qkv, attention_map_shape(a, 3, backward), &with_maps.qkv, error));
    if (backward)
        TRY(tensor_map(cuda, a->dy, attention_map_shape(a, 1, backward), &with_maps.dy, error));
    return launch_as(cuda, hopper, CUDA_F32,
                     hopper_attention_launch(a, (unsigned)cuda->properties.multiprocessors, backward), &with_maps,
                     error);
}

CUDA(attention_forward)
{
    Attention a = attention_of(device, op->kernel, 0);
    a.qkv = o->qkv;
    a.y = o->y;
    a.logsumexp = o->context;
    return attention(device, 0, &a, error);
}

CUDA(attention_backward)
{
    Attention a = attention_of(device, op->kernel, 1);
    a.qkv = o->qkv;
    a.y = (void *)(uintptr_t)o->y; /* the casts remove const: the kernels only read y and logsumexp */
    a.logsumexp = (void *)(uintptr_t)o->context;
    a.dy = o->dy;
    a.dqkv = o->dqkv;
    a.delta = cuda_of(device)->delta.memory;
    TRY(LAUNCH(attention_delta, attention_delta_launch(&a), &a));
    return attention(device, 1, &a, error);
}

/* --- layers --- */

static Norm norm_of(const Kernel *kernel)
{
    return (Norm){.rows = (unsigned)kernel->shape.rows, .columns = (unsigned)kernel->shape.columns};
}

CUDA(norm_forward)
{
    Norm n = norm_of(op->kernel);
    n.x = o->x;
    n.gain = o->gain;
    n.shift = o->shift;
    n.y = o->y;
    n.statistics = o->statistics;
    return LAUNCH(norm_forward, norm_rows_launch(&n), &n);
}

CUDA(norm_backward_input)
{
    Norm n = norm_of(op->kernel);
    n.x = o->x;
    n.statistics = (void *)(uintptr_t)o->statistics; /* the kernel only reads `statistics` */
    n.gain = o->gain;
    n.dy = o->dy;
    n.residual = o->residual;
    n.dx = o->dx;
    return LAUNCH(norm_backward_input, norm_rows_launch(&n), &n);
}

CUDA(norm_backward_weight)
{
    Norm n = norm_of(op->kernel);
    n.x = o->x;
    n.statistics = (void *)(uintptr_t)o->statistics;
    n.dy = o->dy;
    n.dgain = o->dgain;
    n.dshift = o->dshift;
    return LAUNCH(norm_backward_weight, norm_columns_launch(&n), &n);
}

static Embedding embedding_of(size_t rows, size_t columns, size_t sequence, const int32_t *tokens)
{
    return (Embedding){
        .tokens = tokens, .rows = (unsigned)rows, .columns = (unsigned)columns, .sequence = (unsigned)sequence};
}

CUDA(embedding_forward)
{
    Embedding e = embedding_of(op->rows, op->columns, op->sequence, o->tokens);
    e.token_table = o->token_table;
    e.position_table = o->position_table;
    e.y = o->y;
    return LAUNCH(embedding_forward, embedding_forward_launch(&e), &e);
}

CUDA(embedding_backward)
{
    Embedding e = embedding_of(op->rows, op->columns, op->sequence, o->tokens);
    e.dy = o->dy;
    e.dtoken_table = o->dtoken_table;
    e.dposition_table = o->dposition_table;
    return LAUNCH(embedding_backward, embedding_backward_launch(&e), &e);
}

/* --- training --- */

static Status finish_sum(Device *device, size_t partials, double scale, double *result, Error *error)
{
    const Sum sum = {.partial = cuda_of(device)->sums.memory, .result = result, .scale = scale, .count = partials};
    return LAUNCH_FLOAT(finish_sum, finish_sum_launch(), &sum);
}

CUDA(cross_entropy)
{
    const CrossEntropy c = {
        .logits = o->logits,
        .targets = o->targets,
        .row_losses = cuda_of(device)->sums.memory,
        .scale = (float)op->scale,
        .rows = (unsigned)op->kernel->shape.rows,
        .columns = (unsigned)op->kernel->shape.columns,
    };
    TRY(LAUNCH(cross_entropy, cross_entropy_launch(&c), &c));
    return finish_sum(device, c.rows, 1 / (double)c.rows, o->loss, error);
}

CUDA(squared_error)
{
    const SquaredError s = {
        .y = o->y,
        .targets = o->targets,
        .dy = o->dy,
        .partial = cuda_of(device)->sums.memory,
        .scale = (float)op->scale,
        .count = op->count,
    };
    TRY(LAUNCH(squared_error, sum_launch(op->count), &s));
    return finish_sum(device, sum_partials(op->count), 1 / (double)op->count, o->loss, error);
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
