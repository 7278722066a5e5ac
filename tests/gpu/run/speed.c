/* Measures matrix products of the CUDA device and of cuBLASLt, in one process on the same random data, and compares one
   number of every tile with a sum in double. Each product alone, and with what the layers of a GPT add to it (bias and
   GELU, GELU', the gradient of the bias), which cuBLASLt does by its epilogues; its GELU is the approximation by tanh.
   Then causal attention, for which half of all pairs of a query and a key count. Prints a name, a value and a unit per
   line. `speed small`: only the least shapes; `speed attention`: only attention. */

#include "tests/device/run_op.h"
#include "tests/gpu/run/measure.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

/* --- the declarations of cuBLASLt that are used --- */

enum { FLOAT = 0, BF16 = 14, SUMS_IN_FLOAT = 68 };
enum {
    TRANSPOSE_A = 3,
    TRANSPOSE_B = 4,
    EPILOGUE = 7,
    BIAS = 8,
    AUXILIARY = 11,
    AUXILIARY_PITCH = 12
}; /* attributes */
enum { WORKSPACE_MOST = 1 };
enum { PLAIN = 1, GELU_AUX_BIAS = 164, DGELU = 192, BGRADA = 256 }; /* epilogues */

typedef struct Heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} Heuristic;

typedef struct Blas {
    void *handle, *workspace, *stream;
    int (*Create)(void **handle);
    int (*MatmulDescCreate)(void **product, int sums, int scale);
    int (*MatmulDescSetAttribute)(void *product, int attribute, const void *value, size_t bytes);
    int (*MatrixLayoutCreate)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t pitch);
    int (*MatmulPreferenceCreate)(void **preference);
    int (*MatmulPreferenceSetAttribute)(void *preference, int attribute, const void *value, size_t bytes);
    int (*MatmulAlgoGetHeuristic)(void *handle, void *product, void *a, void *b, void *c, void *d, void *preference,
                                  int wanted, Heuristic *results, int *count);
    int (*Matmul)(void *handle, void *product, const void *alpha, const void *a, void *a_layout, const void *b,
                  void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                  const void *algorithm, void *workspace, size_t bytes, void *stream);
} Blas;

static const size_t workspace_bytes = (size_t)32 << 20;

static void blas_ok(int code, const char *call)
{
    if (code != 0) {
        fprintf(stderr, "cublasLt%s: error %d\n", call, code);
        exit(1);
    }
}
#define BLAS(blas, call, ...) blas_ok((blas)->call(__VA_ARGS__), #call)

static bool open_blas(Blas *blas, Device *device)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW);
    if (!library)
        return false;
#define FIND(name) *(void **)&blas->name = dlsym(library, "cublasLt" #name)
    FIND(Create), FIND(MatmulDescCreate), FIND(MatmulDescSetAttribute), FIND(MatrixLayoutCreate);
    FIND(MatmulPreferenceCreate), FIND(MatmulPreferenceSetAttribute), FIND(MatmulAlgoGetHeuristic), FIND(Matmul);
    blas->stream = device->run->async->native_queue(device, QUEUE_COMPUTE);
    OK(device->run->allocate(device, workspace_bytes, &blas->workspace, &error));
    return blas->Create(&blas->handle) == 0;
}

/* --- what is timed --- */

typedef enum Layout { FORWARD, INPUT, WEIGHT, LAYOUTS } Layout;
static const char *const layout_names[LAYOUTS] = {"forward", "input", "weight"};
static const char *const more_names[LAYOUTS] = {"forward_bias_gelu", "input_gelu", "weight_bias"};

typedef struct Work {
    Device *device;
    const Kernel *kernel, *gelu;
    Layout layout;
    bool more; /* with bias and GELU, GELU', or the gradient of the bias */
    size_t rows, columns, outputs;
    void *x, *w, *y, *dw;
    void *bias, *dbias, *before; /* before: what the GELU is applied to, of x or y's size, whichever is larger */
} Work;

static void multiply(const void *product)
{
    const Work *work = product;
    Device *device = work->device;
    const Op linear = with_kernel(work->kernel);
    if (work->layout == FORWARD && work->more)
        OK(RUN_OP(device, &error, linear_gelu_forward, with_gelu(work->kernel, work->gelu), work->x, work->w,
                  work->bias, work->before, work->y));
    else if (work->layout == FORWARD)
        OK(RUN_OP(device, &error, linear_forward, linear, work->x, work->w, NULL, NULL, work->y));
    else if (work->layout == INPUT && work->more)
        OK(RUN_OP(device, &error, linear_gelu_backward_input, linear, work->y, work->w, work->before, work->x));
    else if (work->layout == INPUT)
        OK(RUN_OP(device, &error, linear_backward_input, linear, work->y, work->w, work->x));
    else
        OK(RUN_OP(device, &error, linear_backward_weight, linear, work->x, work->y, work->dw,
                  work->more ? work->dbias : NULL));
}

/* The same by cuBLASLt. Its matrices are stored by columns, so it computes the transposed product: of w and x, of w and
   y, of y and x. */
typedef struct TheirWork {
    const Blas *blas;
    void *product, *a_layout, *b_layout, *d_layout;
    const void *a, *b;
    void *d;
    float beta;
    Heuristic best;
} TheirWork;

static TheirWork their_work(const Blas *blas, const Work *work)
{
    const uint64_t r = work->rows, c = work->columns, o = work->outputs;
    const struct {
        const void *a, *b;
        void *d;
        uint64_t a_rows, a_columns, b_rows, b_columns, d_rows, d_columns;
        int transpose_a, transpose_b, type, epilogue;
    } all[LAYOUTS] = {[FORWARD] = {work->w, work->x, work->y, o, c, c, r, o, r, 0, 0, BF16, GELU_AUX_BIAS},
                      [INPUT] = {work->w, work->y, work->x, o, c, o, r, c, r, 1, 0, BF16, DGELU},
                      [WEIGHT] = {work->y, work->x, work->dw, o, r, c, r, o, c, 0, 1, FLOAT, BGRADA}},
      one = all[work->layout];
    TheirWork theirs = {.blas = blas, .a = one.a, .b = one.b, .d = one.d, .beta = work->layout == WEIGHT ? 1.0F : 0.0F};
    void *preference, *bias = work->layout == WEIGHT ? work->dbias : work->bias;
    const int64_t pitch = (int64_t)one.d_rows;
    int count = 0;
    BLAS(blas, MatmulDescCreate, &theirs.product, SUMS_IN_FLOAT, FLOAT);
#define SET(attribute, value) BLAS(blas, MatmulDescSetAttribute, theirs.product, attribute, &(value), sizeof(value))
    SET(TRANSPOSE_A, one.transpose_a), SET(TRANSPOSE_B, one.transpose_b);
    if (work->more) {
        SET(EPILOGUE, one.epilogue);
        if (work->layout != INPUT)
            SET(BIAS, bias);
        if (work->layout != WEIGHT)
            SET(AUXILIARY, work->before), SET(AUXILIARY_PITCH, pitch);
    }
    BLAS(blas, MatrixLayoutCreate, &theirs.a_layout, BF16, one.a_rows, one.a_columns, (int64_t)one.a_rows);
    BLAS(blas, MatrixLayoutCreate, &theirs.b_layout, BF16, one.b_rows, one.b_columns, (int64_t)one.b_rows);
    BLAS(blas, MatrixLayoutCreate, &theirs.d_layout, one.type, one.d_rows, one.d_columns, pitch);
    BLAS(blas, MatmulPreferenceCreate, &preference);
    BLAS(blas, MatmulPreferenceSetAttribute, preference, WORKSPACE_MOST, &workspace_bytes, sizeof workspace_bytes);
    if (blas->MatmulAlgoGetHeuristic(blas->handle, theirs.product, theirs.a_layout, theirs.b_layout, theirs.d_layout,
                                     theirs.d_layout, preference, 1, &theirs.best, &count) != 0 ||
        count == 0)
        theirs.blas = NULL;
    return theirs; /* its descriptions live as long as the program */
}

static void multiply_theirs(const void *product)
{
    const TheirWork *t = product;
    const float one = 1;
    BLAS(t->blas, Matmul, t->blas->handle, t->product, &one, t->a, t->a_layout, t->b, t->b_layout, &t->beta, t->d,
         t->d_layout, t->d, t->d_layout, t->best.algorithm, t->blas->workspace, workspace_bytes, t->blas->stream);
}

/* How often `run` runs in a second. */
static double times_a_second(Device *device, void (*run)(const void *), const void *work)
{
    return 1 / seconds_of(device, run, work, 10);
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

/* Measures one product, by this project and by cuBLASLt (NULL: it is not installed). Returns whether the results of
   this project are right. */
static bool print_product(const Work *work, const Blas *blas)
{
    const double operations = 2e-12 * (double)work->rows * (double)work->columns * (double)work->outputs;
    char name[96];
    snprintf(name, sizeof name, "product.%s.%zux%zux%zu", (work->more ? more_names : layout_names)[work->layout],
             work->rows, work->columns, work->outputs);
    const double ours = operations * times_a_second(work->device, multiply, work);
    printf("%s %.1f TFLOP/s\n", name, ours);
    double off = 0;
    if (!work->more || work->layout == WEIGHT) {
        off = error_of(work);
        printf("%s.off %.2e of_a_sum_in_double\n", name, off);
    }
    if (blas) {
        const TheirWork their = their_work(blas, work);
        if (!their.blas) {
            fprintf(stderr, "%s: cuBLASLt has no algorithm\n", name);
        } else {
            const double theirs = operations * times_a_second(work->device, multiply_theirs, &their);
            printf("%s.cublas %.1f TFLOP/s\n%s.ratio %.3f of_cublas\n", name, theirs, name, ours / theirs);
        }
    }
    return off <= 0.03;
}

/* Measures the products of a linear layer. */
static bool print_products(Device *device, const Blas *blas, size_t rows, size_t columns, size_t outputs)
{
    Work work = {.device = device, .rows = rows, .columns = columns, .outputs = outputs};
    const size_t wider = columns > outputs ? columns : outputs;
    const KernelShape linear = {.kind = KERNEL_LINEAR, .rows = rows, .columns = columns, .outputs = outputs},
                      gelu = {.kind = KERNEL_GELU, .rows = rows, .columns = outputs};
    OK(device_kernel(device, &linear, &work.kernel, &error));
    OK(device_kernel(device, &gelu, &work.gelu, &error));
    void *const blocks[] = {work.x = random_elements(device, COMPUTE_TYPE, rows * columns, 1),
                            work.w = random_elements(device, COMPUTE_TYPE, columns * outputs, 2),
                            work.y = random_elements(device, COMPUTE_TYPE, rows * outputs, 3),
                            work.dw = random_elements(device, MASTER_TYPE, columns * outputs, 4),
                            work.bias = random_elements(device, COMPUTE_TYPE, outputs, 5),
                            work.dbias = random_elements(device, MASTER_TYPE, outputs, 6),
                            work.before = random_elements(device, COMPUTE_TYPE, rows * wider, 7)};
    bool right = true;
    for (work.layout = FORWARD; work.layout < LAYOUTS; work.layout++) {
        work.more = false;
        right &= print_product(&work, blas);
        work.more = true;
        right &= print_product(&work, blas);
    }
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
        device->run->deallocate(device, blocks[b]);
    return right;
}

int main(int argc, char **argv)
{
    const bool small = argc > 1 && strcmp(argv[1], "small") == 0;
    bool wrong = false;
    /* output appears line by line, so results are printed even if the program fails later */
    setvbuf(stdout, NULL, _IOLBF, 0);
    static const size_t shapes[][3] = {{8192, 8192, 8192},  {4096, 4096, 16384}, {4096, 16384, 4096},
                                       {4096, 4096, 12288}, {2048, 2048, 8192},  {2048, 8192, 2048},
                                       {2048, 2048, 6144},  {2048, 2048, 2048},  {2048, 1024, 4096},
                                       {2048, 4096, 1024},  {2048, 512, 2048},   {256, 128, 384}};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    Device *device;
    Blas blas = {0};
    OK(device_open("cuda", 0, &device, &error));
    OK(device->run->async->make_marks(device, 2, &error));
    const bool has_blas = open_blas(&blas, device);
    const bool only_attention = argc > 1 && strcmp(argv[1], "attention") == 0;
    for (size_t s = small ? SHAPES - 1 : 0; s < SHAPES && !only_attention; s++)
        wrong |= !print_products(device, has_blas ? &blas : NULL, shapes[s][0], shapes[s][1], shapes[s][2]);
    if (!has_blas)
        fprintf(stderr, "cuBLASLt is not installed or does not start: no ratios\n");
    static const size_t attentions[][4] = {
        {1, 4096, 32, 128}, {4, 2048, 16, 128}, {1, 16384, 16, 128}, {4, 2048, 32, 64}, {1, 128, 1, 64}};
    enum { ATTENTIONS = sizeof attentions / sizeof *attentions };
    for (size_t s = small ? ATTENTIONS - 1 : 0; s < ATTENTIONS; s++)
        print_attention(device, attentions[s][0], attentions[s][1], attentions[s][2], attentions[s][3]);
    device->run->deallocate(device, blas.workspace);
    device_close(device);
    return wrong;
}
