/* Where does a stage's time go? Runs a middle stage of one layer with hidden 1024 and sequence 512 on one thread.
   Prints the share of F, I and W that matrix products take, and the rate of these products. Compares the rate with that
   of the library alone: as many calls for the same shapes, on matrices that nobody else accesses in between. */

#include "base/clock.h"
#include "runtime/model/model.h"
#include "tests/bench/ok.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 1024, SEQUENCE = 512, HEADS = 16, BLOCK = 128, ROUNDS = 5, PASSES = 3 };

static void *elements(Device *device, size_t count)
{
    void *memory;
    OK(device->run->allocate(device, count * device->run->size[COMPUTE_TYPE], &memory, &error));
    for (size_t i = 0; i < count; i++)
        ((float *)memory)[i] = (float)((i * 7919) % 1000) * 1e-3f - 0.5f;
    return memory;
}

/* The time in ns of the fastest of several calls. */
static int64_t library_time(const float *a, const float *b, float *c, char ta, char tb, size_t m, size_t n, size_t k,
                            float beta)
{
    int64_t best = INT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t start = clock_nanoseconds();
        if (dnnl_sgemm(ta, tb, (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1, a, (dnnl_dim_t)(ta == 'T' ? m : k), b,
                       (dnnl_dim_t)(tb == 'T' ? k : n), beta, c, (dnnl_dim_t)n) != dnnl_success)
            exit(3);
        const int64_t time = clock_nanoseconds() - start;
        if (time < best)
            best = time;
    }
    return best;
}

/* The time in ns that the library alone takes for all products of a layer's F, I and W. */
static int64_t layer_time(Device *device)
{
    static const size_t linear[][2] = {
        {HIDDEN, 3 * HIDDEN}, {HIDDEN, HIDDEN}, {HIDDEN, 4 * HIDDEN}, {4 * HIDDEN, HIDDEN}};
    const size_t most = 4 * (size_t)HIDDEN * HIDDEN;
    float *a = elements(device, most), *b = elements(device, most), *c = elements(device, most);
    int64_t total = 0;
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++) {
        const size_t from = linear[i][0], to = linear[i][1];
        total += library_time(a, b, c, 'N', 'N', SEQUENCE, to, from, 1);
        total += library_time(a, b, c, 'N', 'T', SEQUENCE, from, to, 0);
        total += library_time(a, b, c, 'T', 'N', from, to, SEQUENCE, 1);
    }
    for (size_t keys = BLOCK; keys <= SEQUENCE; keys += BLOCK) {
        const size_t width = HIDDEN / HEADS;
        const int64_t scores = library_time(a, b, c, 'N', 'T', BLOCK, keys, width, 0);
        const int64_t mixed = library_time(a, b, c, 'N', 'N', BLOCK, width, keys, 0);
        const int64_t to_keys = library_time(a, b, c, 'T', 'N', keys, width, BLOCK, keys == SEQUENCE ? 0 : 1);
        total += HEADS * (2 * scores + 2 * mixed + 2 * to_keys); /* attention in F: scores, y; in I: dp, dq, dv, dk */
    }
    device->run->deallocate(device, a);
    device->run->deallocate(device, b);
    device->run->deallocate(device, c);
    return total;
}

int main(void)
{
    ModelConfig config;
    OK(model_config_load("gpt", &config, &error));
    config.hidden = HIDDEN;
    config.heads = HEADS;
    config.sequence = SEQUENCE;
    config.microbatch_size = 1;
    OK(model_config_check(&config, 3, &error));
    Device *device;
    Stage *stage;
    OK(device_open("cpu", 0, &device, &error));
    OK(stage_open(&config, device, 1, 3, 1, &stage, &error));
    const StageSizes *sizes = stage_sizes(stage);
    void *parameters = elements(device, sizes->parameters);
    OK(stage_initialize(stage, &(StageWeights){.parameters = parameters, .master_weights = parameters}, &error));
    const PassBuffers buffers = {
        .parameters = parameters,
        .parameter_gradients = elements(device, sizes->parameters),
        .x = elements(device, sizes->message),
        .y = elements(device, sizes->message),
        .dx = elements(device, sizes->message),
        .dy = elements(device, sizes->message),
        .context = elements(device, sizes->context),
        .stash = elements(device, sizes->stash),
        .gradient = elements(device, sizes->gradient),
        .workspace = elements(device, sizes->workspace),
    };
    static Status (*const passes[PASSES])(Stage *, const PassBuffers *, Error *) = {stage_forward, stage_backward_input,
                                                                                    stage_backward_weight};
    int64_t best[PASSES] = {INT64_MAX, INT64_MAX, INT64_MAX};
    ProductClock products[PASSES] = {{0}};
    for (int round = 0; round < ROUNDS; round++)
        for (int p = 0; p < PASSES; p++) {
            device->products = (ProductClock){.on = true};
            const int64_t start = clock_nanoseconds();
            OK(passes[p](stage, &buffers, &error));
            const int64_t time = clock_nanoseconds() - start;
            if (time < best[p]) {
                best[p] = time;
                products[p] = device->products;
            }
        }
    int64_t all = 0, in_products = 0;
    double operations = 0;
    for (int p = 0; p < PASSES; p++) {
        printf("%c: %7.2f ms, %5.1f %% of it in %3llu products at %5.1f GFLOP/s\n", "FIW"[p], (double)best[p] * 1e-6,
               100 * (double)products[p].nanoseconds / (double)best[p], (unsigned long long)products[p].calls,
               products[p].operations / (double)products[p].nanoseconds);
        all += best[p];
        in_products += products[p].nanoseconds;
        operations += products[p].operations;
    }
    const int64_t alone = layer_time(device);
    printf("share of products: %.1f %% (goal 85)\n", 100 * (double)in_products / (double)all);
    printf("rate of products: %.1f GFLOP/s, the library alone %.1f: %.1f %% (goal 90)\n",
           operations / (double)in_products, operations / (double)alone, 100 * (double)alone / (double)in_products);
    void *const allocated[] = {parameters,        buffers.parameter_gradients,
                               buffers.y,         buffers.dx,
                               buffers.context,   buffers.stash,
                               buffers.gradient,  buffers.workspace,
                               (void *)buffers.x, (void *)buffers.dy};
    for (size_t i = 0; i < sizeof allocated / sizeof *allocated; i++)
        device->run->deallocate(device, allocated[i]);
    stage_close(stage);
    device_close(device);
    return 0;
}
