/* Measures matrix products of the CUDA device and of cuBLAS, in one process on the same random data, and compares one
   number of every tile with a sum in double. Then causal attention, for which half of all pairs of a query and a key
   count. Prints a name, a value and a unit per line. `speed small`: only the least shapes. */

#include "tests/device/run_op.h"
#include "tests/gpu/run/measure.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

/* --- the declarations of cuBLAS that are used --- */

enum { NORMAL = 0, TRANSPOSED = 1, FLOAT = 0, BF16 = 14, SUMS_IN_FLOAT = 68, ANY_ALGORITHM = -1 };

typedef struct Blas {
    void *handle;
    int (*create)(void **handle);
    int (*set_stream)(void *handle, void *stream);
    int (*gemm)(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha, const void *a,
                int a_type, int a_pitch, const void *b, int b_type, int b_pitch, const void *beta, void *c, int c_type,
                int c_pitch, int compute, int algorithm);
} Blas;

static bool open_blas(Blas *blas, void *stream)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW);
    if (!library)
        return false;
    *(void **)&blas->create = dlsym(library, "cublasCreate_v2");
    *(void **)&blas->set_stream = dlsym(library, "cublasSetStream_v2");
    *(void **)&blas->gemm = dlsym(library, "cublasGemmEx");
    return blas->create && blas->set_stream && blas->gemm && blas->create(&blas->handle) == 0 &&
           blas->set_stream(blas->handle, stream) == 0;
}

/* --- what is timed --- */

typedef enum Layout { FORWARD, INPUT, WEIGHT, LAYOUTS } Layout;
static const char *const layout_names[LAYOUTS] = {"forward", "input", "weight"};

typedef struct Work {
    Device *device;
    const Kernel *kernel;
    Layout layout;
    size_t rows, columns, outputs;
    void *x, *w, *y, *dw;
    const Blas *blas; /* cuBLAS is measured; NULL: the CUDA device's own products are measured */
} Work;

static void multiply(const void *product)
{
    const Work *work = product;
    const int m = (int)work->rows, k = (int)work->columns, n = (int)work->outputs;
    const float one = 1, zero = 0;
    int code = 0;
    switch (work->layout) {
    case FORWARD:
        if (!work->blas)
            OK(RUN_OP(work->device, &error, linear_forward, with_kernel(work->kernel), work->x, work->w, NULL, NULL,
                      work->y));
        else
            code = work->blas->gemm(work->blas->handle, NORMAL, NORMAL, n, m, k, &one, work->w, BF16, n, work->x, BF16,
                                    k, &zero, work->y, BF16, n, SUMS_IN_FLOAT, ANY_ALGORITHM);
        break;
    case INPUT:
        if (!work->blas)
            OK(RUN_OP(work->device, &error, linear_backward_input, with_kernel(work->kernel), work->y, work->w,
                      work->x));
        else
            code = work->blas->gemm(work->blas->handle, TRANSPOSED, NORMAL, k, m, n, &one, work->w, BF16, n, work->y,
                                    BF16, n, &zero, work->x, BF16, k, SUMS_IN_FLOAT, ANY_ALGORITHM);
        break;
    default:
        if (!work->blas)
            OK(RUN_OP(work->device, &error, linear_backward_weight, with_kernel(work->kernel), work->x, work->y,
                      work->dw, NULL));
        else
            code = work->blas->gemm(work->blas->handle, NORMAL, TRANSPOSED, n, k, m, &one, work->y, BF16, n, work->x,
                                    BF16, k, &one, work->dw, FLOAT, n, SUMS_IN_FLOAT, ANY_ALGORITHM);
    }
    if (code != 0) {
        fprintf(stderr, "cuBLAS: error %d\n", code);
        exit(1);
    }
}

enum { WARM = 3, TIMED = 10 };

/* How often `run` runs in a second: the mean over TIMED runs. */
static double times_a_second(Device *device, void (*run)(const void *), const void *work)
{
    const DeviceAsync *queues = device->run->async;
    int64_t time;
    for (int i = 0; i < WARM; i++)
        run(work);
    OK(queues->mark(device, 0, &error));
    for (int i = 0; i < TIMED; i++)
        run(work);
    OK(queues->mark(device, 1, &error));
    wait_for_mark(device, 1);
    OK(queues->mark_time(device, 1, &time, &error));
    return TIMED / ((double)time * 1e-9);
}

/* Floating-point operations a second. */
static double rate(const Work *work)
{
    return 2.0 * (double)work->rows * (double)work->columns * (double)work->outputs *
           times_a_second(work->device, multiply, work);
}

/* --- what is compared --- */

enum { TILE = 128 };

static float *stored(const Work *work, NumberKind kind, size_t count, const void *memory)
{
    float *values = malloc(count * sizeof *values);
    OK(work->device->run->store_floats(work->device, kind, count, memory, values, &error));
    return values;
}

/* Runs the product once, and compares one number of each tile of its result, at a place that moves from tile to tile,
   with the sum in double: the largest error over the root mean square of the sums. Result(i, j) is the sum
   over l < k of a[i * a_i + l * a_l] * b[j * b_j + l * b_l]. */
static double error_of(const Work *work)
{
    const size_t r = work->rows, c = work->columns, o = work->outputs;
    const struct {
        void *a, *b, *result;
        size_t m, n, k, a_i, a_l, b_j, b_l;
    } all[LAYOUTS] = {[FORWARD] = {work->x, work->w, work->y, r, o, c, c, 1, 1, o},
                      [INPUT] = {work->y, work->w, work->x, r, c, o, o, 1, o, 1},
                      [WEIGHT] = {work->x, work->y, work->dw, c, o, r, 1, c, 1, o}},
      one = all[work->layout];
    const NumberKind kind = work->layout == WEIGHT ? MASTER_TYPE : COMPUTE_TYPE;
    float *a = stored(work, COMPUTE_TYPE, one.m * one.k, one.a), *b = stored(work, COMPUTE_TYPE, one.n * one.k, one.b);
    float *before = stored(work, kind, one.m * one.n, one.result); /* the gradients of weights are added to */
    multiply(work);
    float *after = stored(work, kind, one.m * one.n, one.result);
    double worst = 0, squares = 0;
    size_t tiles = 0;
    for (size_t i = 0; i + TILE <= one.m; i += TILE)
        for (size_t j = 0; j + TILE <= one.n; j += TILE, tiles++) {
            const size_t row = i + 37 * tiles % TILE, column = j + 91 * tiles % TILE, at = row * one.n + column;
            double sum = 0;
            for (size_t l = 0; l < one.k; l++)
                sum += (double)a[row * one.a_i + l * one.a_l] * (double)b[column * one.b_j + l * one.b_l];
            const double off = fabs((double)after[at] - (kind == MASTER_TYPE ? (double)before[at] : 0) - sum);
            worst = off > worst || off != off ? off : worst;
            squares += sum * sum;
        }
    free(a), free(b), free(before), free(after);
    return worst / sqrt(squares / (double)tiles);
}

/* --- attention --- */

typedef struct Attend {
    Device *device;
    const Kernel *kernel;
    void *qkv, *y, *context, *dqkv;
} Attend;

static void attend_forward(const void *attention)
{
    const Attend *a = attention;
    OK(RUN_OP(a->device, &error, attention_forward, with_kernel(a->kernel), a->qkv, a->y, a->context));
}

static void attend_backward(const void *attention)
{
    const Attend *a = attention;
    OK(RUN_OP(a->device, &error, attention_backward, with_kernel(a->kernel), a->qkv, a->y, a->context, a->y, a->dqkv));
}

static void print_attention(Device *device, size_t samples, size_t sequence, size_t heads, size_t width)
{
    const size_t rows = samples * sequence, columns = heads * width;
    const double product = (double)rows * (double)sequence * (double)columns * 1e-12;
    const KernelShape shape = {
        .kind = KERNEL_ATTENTION, .rows = rows, .columns = columns, .sequence = sequence, .heads = heads};
    Attend a = {.device = device};
    char name[96];
    snprintf(name, sizeof name, "%zux%zux%zux%zu", samples, sequence, heads, width);
    OK(device_kernel(device, &shape, &a.kernel, &error));
    a.qkv = random_elements(device, COMPUTE_TYPE, 3 * rows * columns, 1);
    a.dqkv = random_elements(device, COMPUTE_TYPE, 3 * rows * columns, 2);
    a.y = random_elements(device, COMPUTE_TYPE, rows * columns, 3);
    OK(device->run->allocate(device, a.kernel->context * device->run->size[COMPUTE_TYPE], &a.context, &error));
    const double forward = 2 * product * times_a_second(device, attend_forward, &a);
    printf("attention.forward.%s %.1f TFLOP/s\n", name, forward);
    printf("attention.backward.%s %.1f TFLOP/s\n", name, 5 * product * times_a_second(device, attend_backward, &a));
    void *const blocks[] = {a.qkv, a.dqkv, a.y, a.context};
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
        device->run->deallocate(device, blocks[b]);
}

int main(int argc, char **argv)
{
    const bool small = argc > 1 && strcmp(argv[1], "small") == 0;
    bool wrong = false;
    /* output appears line by line, so results are printed even if the program fails later */
    setvbuf(stdout, NULL, _IOLBF, 0);
    static const size_t shapes[][3] = {{8192, 8192, 8192},  {4096, 4096, 16384}, {4096, 16384, 4096},
                                       {4096, 4096, 12288}, {1024, 1024, 4096},  {512, 512, 2048},
                                       {256, 128, 384}};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    Device *device;
    Blas blas = {0};
    OK(device_open("cuda", 0, &device, &error));
    OK(device->run->async->make_marks(device, 2, &error));
    const bool has_blas = open_blas(&blas, device->run->async->native_queue(device, QUEUE_COMPUTE));
    for (size_t s = small ? SHAPES - 1 : 0; s < SHAPES; s++) {
        Work work = {.device = device, .rows = shapes[s][0], .columns = shapes[s][1], .outputs = shapes[s][2]};
        const KernelShape shape = {
            .kind = KERNEL_LINEAR, .rows = work.rows, .columns = work.columns, .outputs = work.outputs};
        OK(device_kernel(device, &shape, &work.kernel, &error));
        work.x = random_elements(device, COMPUTE_TYPE, work.rows * work.columns, 1);
        work.w = random_elements(device, COMPUTE_TYPE, work.columns * work.outputs, 2);
        work.y = random_elements(device, COMPUTE_TYPE, work.rows * work.outputs, 3);
        work.dw = random_elements(device, MASTER_TYPE, work.columns * work.outputs, 4);
        for (work.layout = FORWARD; work.layout < LAYOUTS; work.layout++) {
            char name[96];
            snprintf(name, sizeof name, "product.%s.%zux%zux%zu", layout_names[work.layout], work.rows, work.columns,
                     work.outputs);
            work.blas = NULL;
            const double ours = rate(&work);
            printf("%s %.1f TFLOP/s\n", name, ours * 1e-12);
            const double off = error_of(&work);
            printf("%s.off %.2e of_a_sum_in_double\n", name, off);
            wrong |= !(off <= 0.03);
            if (!has_blas)
                continue;
            work.blas = &blas;
            const double theirs = rate(&work);
            work.blas = NULL;
            printf("%s.cublas %.1f TFLOP/s\n%s.ratio %.3f of_cublas\n", name, theirs * 1e-12, name, ours / theirs);
        }
        void *const blocks[] = {work.x, work.w, work.y, work.dw};
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
            device->run->deallocate(device, blocks[b]);
    }
    if (!has_blas)
        fprintf(stderr, "cuBLAS is not installed: no ratios\n");
    static const size_t attentions[][4] = {
        {1, 4096, 32, 128}, {4, 2048, 16, 128}, {1, 16384, 16, 128}, {4, 2048, 32, 64}, {1, 128, 1, 64}};
    enum { ATTENTIONS = sizeof attentions / sizeof *attentions };
    for (size_t s = small ? ATTENTIONS - 1 : 0; s < ATTENTIONS; s++)
        print_attention(device, attentions[s][0], attentions[s][1], attentions[s][2], attentions[s][3]);
    device_close(device);
    return wrong;
}
