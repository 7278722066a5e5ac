/* Concurrent rank threads: each has its own device, and all compute the same bits. A device alone starts no worker
   threads. */

#include "runtime/device/device.h"
#include "tests/device/run_op.h"
#include "tests/test.h"
#include "runtime/model/random.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 96, SEQUENCE = 48, COLUMNS = 64, HEADS = 2, WIDE = 4 * COLUMNS, ROUNDS = 20, THREADS = 4 };

typedef struct Worker {
    Device *device;
    uint64_t digest; /* hash of all results */
    Status status;
    Error error;
    pthread_t thread;
} Worker;

static uint64_t digest_of(uint64_t digest, const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        digest = random_key(digest, bits);
    }
    return digest;
}

/* Runs operations that use oneDNN: attention, a linear layer, GELU and cross-entropy. worker->digest becomes a hash of
   their results. */
static Status compute(Worker *worker)
{
    Device *device = worker->device;
    Error *error = &worker->error;
    const DeviceTable *run = device->run;
    const Kernel *linear, *gelu, *attention, *loss;
    TRY(device_kernel(device, &(KernelShape){.kind = KERNEL_LINEAR, .rows = ROWS, .columns = COLUMNS, .outputs = WIDE},
                      &linear, error));
    TRY(device_kernel(device, &(KernelShape){.kind = KERNEL_GELU, .rows = ROWS, .columns = WIDE}, &gelu, error));
    TRY(device_kernel(
        device,
        &(KernelShape){
            .kind = KERNEL_ATTENTION, .rows = ROWS, .columns = COLUMNS, .sequence = SEQUENCE, .heads = HEADS},
        &attention, error));
    TRY(device_kernel(device, &(KernelShape){.kind = KERNEL_CROSS_ENTROPY, .rows = ROWS, .columns = WIDE}, &loss,
                      error));
    enum { X, W, Y, ACTIVE, CONTEXT, DW, BUFFERS };
    const size_t counts[BUFFERS] = {ROWS * WIDE, COLUMNS * WIDE,     ROWS * WIDE,
                                    ROWS * WIDE, attention->context, COLUMNS * WIDE};
    void *buffers[BUFFERS];
    for (size_t b = 0; b < BUFFERS; b++) {
        TRY(run->allocate(device, counts[b] * sizeof(float), &buffers[b], error));
        for (size_t i = 0; i < counts[b]; i++)
            ((float *)buffers[b])[i] = random_normal(b, i);
    }
    int32_t targets[ROWS];
    for (int32_t i = 0; i < ROWS; i++)
        targets[i] = i;
    worker->digest = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double host_loss;
        TRY(RUN_OP(device, error, attention_forward, with_kernel(attention), buffers[X], buffers[Y], buffers[CONTEXT]));
        TRY(RUN_OP(device, error, linear_forward, with_kernel(linear), buffers[Y], buffers[W], NULL, NULL,
                   buffers[ACTIVE]));
        TRY(RUN_OP(device, error, gelu_forward, with_kernel(gelu), buffers[ACTIVE], buffers[X]));
        TRY(RUN_OP(device, error, linear_backward_weight, with_kernel(linear), buffers[Y], buffers[X], buffers[DW],
                   NULL));
        TRY(RUN_OP(device, error, cross_entropy, with_scale(loss, 1), targets, buffers[ACTIVE], &host_loss));
        worker->digest = digest_of(worker->digest, buffers[X], counts[X]);
        worker->digest = digest_of(worker->digest, buffers[DW], counts[DW]);
        worker->digest = digest_of(worker->digest, (const float[]){(float)host_loss}, 1);
    }
    for (size_t b = 0; b < BUFFERS; b++)
        run->deallocate(device, buffers[b]);
    return STATUS_OK;
}

static void *work(void *argument)
{
    Worker *worker = argument;
    worker->status = compute(worker);
    return NULL;
}

static size_t thread_count(void)
{
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Opens devices in this thread and uses them in other threads, as a host may do. */
TEST(test_bits_are_the_same_in_every_thread)
{
    static Worker alone, workers[THREADS];
    assert_int_equal(device_open("cpu", 0, &alone.device, &alone.error), STATUS_OK);
    const size_t before = thread_count();
    work(&alone);
    assert_int_equal(alone.status, STATUS_OK);
    assert_int_equal(thread_count(), before); /* no worker threads were started */
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(device_open("cpu", 0, &workers[i].device, &workers[i].error), STATUS_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].status, STATUS_OK);
        assert_true(workers[i].digest == alone.digest);
        device_close(workers[i].device);
    }
    device_close(alone.device);
}

int main(void) { return test_program("threads", NULL, NULL); }
