/* Which library should multiply matrices? The shapes of a stage (y = x w, dx = dy w^T, dw += x^T dy) on one thread,
   then in two rank threads at once, with oneDNN's sgemm, its matmul primitives (float32 and bfloat16) and OpenBLAS, if
   installed. GFLOP/s, best of several rounds. docs/decisions/onednn.md has the figures and the decision. */

#include "base/clock.h"
#include "runtime/device/cpu_dnnl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYOUTS = 3, ROUNDS = 4, MILLISECONDS_A_ROUND = 40 };

typedef enum Layout { FORWARD, INPUT, WEIGHT } Layout; /* y = x w; dx = dy w^T; dw += x^T dy */
static const char *const layout_names[LAYOUTS] = {"y=xw", "dx=dy w^T", "dw+=x^T dy"};

typedef struct Shape {
    int tokens, from, to;
} Shape;

static const Shape shapes[] = {{512, 1024, 4096}, {512, 4096, 1024}, {512, 1024, 1024},
                               {256, 128, 512},   {128, 128, 512},   {128, 128, 128}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* C[m, n] = A B, or C += A B with `accumulate`. All are row-major; A and B may be stored transposed. */
typedef struct Product {
    int m, n, k;
    bool transpose_a, transpose_b, accumulate;
    void *a, *b;
    float *c;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[3];
} Product;

typedef void (*Multiply)(Product *product);

typedef void CblasSgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a,
                        int lda, const float *b, int ldb, float beta, float *c, int ldc);
static CblasSgemm *cblas;

static void multiply_openblas(Product *p)
{
    cblas(101, p->transpose_a ? 112 : 111, p->transpose_b ? 112 : 111, p->m, p->n, p->k, 1, p->a,
          p->transpose_a ? p->m : p->k, p->b, p->transpose_b ? p->k : p->n, p->accumulate ? 1 : 0, p->c, p->n);
}

static void multiply_sgemm(Product *p)
{
    dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n, p->k, 1, p->a,
               p->transpose_a ? p->m : p->k, p->b, p->transpose_b ? p->k : p->n, p->accumulate ? 1 : 0, p->c, p->n);
}

static void multiply_primitive(Product *p) { dnnl_primitive_execute(p->primitive, p->stream, 3, p->arguments); }

static void check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "oneDNN: %s: status %d\n", what, status);
    exit(3);
}

/* Makes a matmul primitive of oneDNN and returns the name of its kernel. NULL: this processor has no kernel for the
   type. */
static const char *prepare_primitive(Product *p, dnnl_engine_t engine, dnnl_data_type_t type)
{
    dnnl_memory_desc_t a, b, c;
    check(dnnl_memory_desc_create_with_strides(&a, 2, (dnnl_dims_t){p->m, p->k}, type,
                                               p->transpose_a ? (dnnl_dims_t){1, p->m} : (dnnl_dims_t){p->k, 1}),
          "descriptor");
    check(dnnl_memory_desc_create_with_strides(&b, 2, (dnnl_dims_t){p->k, p->n}, type,
                                               p->transpose_b ? (dnnl_dims_t){1, p->k} : (dnnl_dims_t){p->n, 1}),
          "descriptor");
    check(dnnl_memory_desc_create_with_strides(&c, 2, (dnnl_dims_t){p->m, p->n}, dnnl_f32, (dnnl_dims_t){p->n, 1}),
          "descriptor");
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t post;
    dnnl_primitive_desc_t descriptor;
    check(dnnl_primitive_attr_create(&attributes), "attributes");
    check(dnnl_post_ops_create(&post), "post-ops");
    if (p->accumulate)
        check(dnnl_post_ops_append_sum(post, 1), "sum");
    check(dnnl_primitive_attr_set_post_ops(attributes, post), "post-ops");
    dnnl_status_t status = dnnl_matmul_primitive_desc_create(&descriptor, engine, a, b, NULL, c, attributes);
    dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attributes);
    dnnl_memory_desc_destroy(a);
    dnnl_memory_desc_destroy(b);
    dnnl_memory_desc_destroy(c);
    if (status == dnnl_unimplemented)
        return NULL;
    check(status, "matmul");
    check(dnnl_primitive_create(&p->primitive, descriptor), "matmul");
    const char *implementation = "";
    check(dnnl_primitive_desc_query(descriptor, dnnl_query_impl_info_str, 0, &implementation), "name");
    void *data[3] = {p->a, p->b, p->c};
    const int names[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    for (int i = 0; i < 3; i++) {
        p->arguments[i].arg = names[i];
        check(dnnl_memory_create(&p->arguments[i].memory,
                                 dnnl_primitive_desc_query_md(descriptor, dnnl_query_exec_arg_md, names[i]), engine,
                                 data[i]),
              "memory");
    }
    return implementation; /* owned by the library */
}

static Product make(Shape shape, Layout layout)
{
    Product p = {0};
    p.m = layout == WEIGHT ? shape.from : shape.tokens;
    p.n = layout == INPUT ? shape.from : shape.to;
    p.k = layout == FORWARD ? shape.from : layout == INPUT ? shape.to : shape.tokens;
    p.transpose_a = layout == WEIGHT;
    p.transpose_b = layout == INPUT;
    p.accumulate = layout == WEIGHT;
    p.a = aligned_alloc(64, sizeof(float) * (size_t)p.m * (size_t)p.k);
    p.b = aligned_alloc(64, sizeof(float) * (size_t)p.k * (size_t)p.n);
    p.c = aligned_alloc(64, sizeof(float) * (size_t)p.m * (size_t)p.n);
    if (!p.a || !p.b || !p.c)
        exit(3);
    memset(p.a, 0, sizeof(float) * (size_t)p.m * (size_t)p.k); /* zeros are valid in either type */
    memset(p.b, 0, sizeof(float) * (size_t)p.k * (size_t)p.n);
    memset(p.c, 0, sizeof(float) * (size_t)p.m * (size_t)p.n);
    return p;
}

static double rate(Product *product, Multiply multiply)
{
    double best = 0;
    multiply(product);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = clock_nanoseconds(), now = start;
        int64_t calls = 0;
        for (; now - start < MILLISECONDS_A_ROUND * 1000000; now = clock_nanoseconds(), calls++)
            multiply(product);
        double speed = 2.0 * product->m * product->n * product->k * (double)calls / (double)(now - start);
        if (speed > best)
            best = speed;
    }
    return best;
}

typedef struct Job {
    dnnl_engine_t engine;
    int library; /* 0 OpenBLAS, 1 sgemm, 2 matmul, 3 matmul bfloat16 */
    Shape shape;
    Layout layout;
    double rate;
    const char *implementation;
    pthread_t thread;
} Job;

static const char *const library_names[] = {"openblas", "dnnl sgemm", "dnnl matmul", "dnnl bf16"};
enum { LIBRARIES = 4 };

static void *work(void *argument)
{
    Job *job = argument;
    void (*set_threads)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set_threads)
        set_threads(1); /* for this thread */
    static const Multiply ways[LIBRARIES] = {multiply_openblas, multiply_sgemm, multiply_primitive, multiply_primitive};
    Product product = make(job->shape, job->layout);
    if (job->library >= 2) {
        check(dnnl_stream_create(&product.stream, job->engine, dnnl_stream_default_flags), "stream");
        job->implementation = prepare_primitive(&product, job->engine, job->library == 2 ? dnnl_f32 : dnnl_bf16);
    }
    if (job->library < 2 || job->implementation)
        job->rate = rate(&product, ways[job->library]);
    if (job->library >= 2) {
        for (int i = 0; i < 3; i++)
            dnnl_memory_destroy(product.arguments[i].memory);
        dnnl_primitive_destroy(product.primitive);
        dnnl_stream_destroy(product.stream);
    }
    free(product.a);
    free(product.b);
    free(product.c);
    return NULL;
}

static void print_start_up(const char *what, int64_t start)
{
    printf("start-up: %-44s %8.2f ms\n", what, (double)(clock_nanoseconds() - start) * 1e-6);
}

int main(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    int64_t start = clock_nanoseconds();
    void *openblas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (openblas) {
        cblas = (CblasSgemm *)dlsym(openblas, "cblas_sgemm");
        print_start_up("OpenBLAS: loading", start);
    }
    start = clock_nanoseconds();
    dnnl_engine_t engine;
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
    print_start_up("oneDNN: engine (loaded with the program)", start);
    for (int library = 0; library < 3; library++) {
        if (library == 0 && !cblas)
            continue;
        Product product = make(shapes[SHAPES - 1], FORWARD);
        start = clock_nanoseconds();
        if (library == 0) {
            multiply_openblas(&product);
        } else if (library == 1) {
            multiply_sgemm(&product);
        } else {
            check(dnnl_stream_create(&product.stream, engine, dnnl_stream_default_flags), "stream");
            prepare_primitive(&product, engine, dnnl_f32);
            multiply_primitive(&product);
        }
        char what[64];
        snprintf(what, sizeof what, "%s: first small product", library_names[library]);
        print_start_up(what, start);
    }
    for (int threads = 1; threads <= 2; threads++) {
        printf("\n%d thread%s, GFLOP/s each%s\n%18s %-12s", threads, threads == 1 ? "" : "s at once",
               threads == 1 ? "" : " (the slower)", "tokens from to", "");
        for (int library = 0; library < LIBRARIES; library++)
            printf(" %11s", library_names[library]);
        printf("\n");
        for (int shape = 0; shape < SHAPES; shape++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                printf("%8d %4d %4d %-12s", shapes[shape].tokens, shapes[shape].from, shapes[shape].to,
                       layout_names[layout]);
                const char *implementation = NULL;
                for (int library = 0; library < LIBRARIES; library++) {
                    if (library == 0 && !cblas) {
                        printf(" %11s", "-");
                        continue;
                    }
                    Job jobs[2];
                    for (int i = 0; i < threads; i++) {
                        jobs[i] = (Job){
                            .engine = engine, .library = library, .shape = shapes[shape], .layout = (Layout)layout};
                        if (pthread_create(&jobs[i].thread, NULL, work, &jobs[i]))
                            return 3;
                    }
                    double slowest = 0;
                    for (int i = 0; i < threads; i++) {
                        pthread_join(jobs[i].thread, NULL);
                        if (i == 0 || jobs[i].rate < slowest)
                            slowest = jobs[i].rate;
                    }
                    if (library == 2)
                        implementation = jobs[0].implementation;
                    if (slowest > 0)
                        printf(" %11.1f", slowest);
                    else
                        printf(" %11s", "-");
                    fflush(stdout);
                }
                printf("  %s\n", implementation ? implementation : "");
            }
    }
    dnnl_engine_destroy(engine);
    return 0;
}
