/* Products of experts compared with one product of the same total size: 64 experts with 64 rows each, and with uneven
   rows as from a router, against all rows times one matrix. GFLOP/s of one thread's processor time, the best of several
   rounds; each round runs both in turn. */

#include "tests/bench/ok.h"
#include "tests/device/run_op.h"
#include "runtime/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { EXPERTS = 64, ROWS = 64 * EXPERTS, ROUNDS = 9, PRODUCTS = 3 };

static float *numbers(Device *device, size_t count)
{
    void *memory;
    OK(device->run->allocate(device, count * sizeof(float), &memory, &error));
    for (size_t i = 0; i < count; i++)
        ((float *)memory)[i] = (float)((i * 7919) % 1000) * 1e-3f - 0.5f;
    return memory;
}

typedef struct Layer {
    Device *device;
    const Kernel *grouped, *one;
    float *x, *y, *w;
    int32_t begins[EXPERTS + 1];
} Layer;

static void run_grouped(const Layer *l, int product)
{
    const Op op = with_kernel(l->grouped);
    OK(product == 0   ? RUN_OP(l->device, &error, grouped_forward, op, l->x, l->w, l->begins, l->y)
       : product == 1 ? RUN_OP(l->device, &error, grouped_backward_input, op, l->y, l->w, l->begins, l->x)
                      : RUN_OP(l->device, &error, grouped_backward_weight, op, l->x, l->y, l->begins, l->w));
}

static void run_one(const Layer *l, int product)
{
    const Op op = with_kernel(l->one);
    OK(product == 0   ? RUN_OP(l->device, &error, linear_forward, op, l->x, l->w, NULL, NULL, l->y)
       : product == 1 ? RUN_OP(l->device, &error, linear_backward_input, op, l->y, l->w, l->x)
                      : RUN_OP(l->device, &error, linear_backward_weight, op, l->x, l->y, l->w, NULL));
}

static int64_t processor_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t time_of(void (*run)(const Layer *, int), const Layer *layer, int product, int64_t best)
{
    const int64_t begun = processor_nanoseconds();
    run(layer, product);
    const int64_t time = processor_nanoseconds() - begun;
    return time < best ? time : best;
}

static void compare(const Layer *layer, const char *spread)
{
    static const char *const names[PRODUCTS] = {"y=xw", "dx=dy w^T", "dw+=x^T dy"};
    const KernelShape *shape = &layer->one->shape;
    const double operations = 2.0 * (double)shape->rows * (double)shape->columns * (double)shape->outputs;
    for (int product = 0; product < PRODUCTS; product++) {
        int64_t grouped = INT64_MAX, one = INT64_MAX;
        for (int round = 0; round < ROUNDS; round++) {
            grouped = time_of(run_grouped, layer, product, grouped);
            one = time_of(run_one, layer, product, one);
        }
        printf("%d experts, %d rows %s, %zu to %zu, %s: %.1f GFLOP/s of experts, %.1f of one product, ratio %.2f\n",
               EXPERTS, ROWS, spread, shape->columns, shape->outputs, names[product], operations / (double)grouped,
               operations / (double)one, (double)one / (double)grouped);
    }
}

static void bench(Device *device, size_t columns, size_t outputs)
{
    Layer layer = {.device = device,
                   .x = numbers(device, ROWS * columns),
                   .y = numbers(device, ROWS * outputs),
                   .w = numbers(device, EXPERTS * columns * outputs)};
    const KernelShape one = {.kind = KERNEL_LINEAR, .rows = ROWS, .columns = columns, .outputs = outputs};
    KernelShape grouped = one;
    grouped.kind = KERNEL_GROUPED;
    grouped.routing = (Routing){.experts = EXPERTS, .chosen = 1};
    OK(device_kernel(device, &one, &layer.one, &error));
    OK(device_kernel(device, &grouped, &layer.grouped, &error));
    for (int e = 0; e <= EXPERTS; e++)
        layer.begins[e] = e * (ROWS / EXPERTS);
    compare(&layer, "evenly");
    /* 64, 96 or 128 rows for each expert until no rows are left: the last experts get none */
    for (int e = 1; e < EXPERTS; e++)
        layer.begins[e] = layer.begins[e - 1] + 64 + e % 3 * 32 > ROWS ? ROWS : layer.begins[e - 1] + 64 + e % 3 * 32;
    compare(&layer, "unevenly");
    device->run->deallocate(device, layer.x);
    device->run->deallocate(device, layer.y);
    device->run->deallocate(device, layer.w);
}

int main(void)
{
    Device *device;
    OK(device_open("cpu", 0, &device, &error));
    bench(device, 96, 128); /* dprun's default */
    bench(device, 512, 512);
    bench(device, 1024, 1024);
    device_close(device);
    return 0;
}
