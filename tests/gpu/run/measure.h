#pragma once

/* Shared by the programs that time a GPU. */

#include "runtime/device/device.h"
#include "runtime/model/random.h"

#include <stdio.h>
#include <stdlib.h>

#define OK(call)                                                            \
    do {                                                                    \
        Error error = {""};                                                 \
        if ((call) != STATUS_OK) {                                          \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, error.text); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static inline void wait_for_mark(Device *device, size_t number)
{
    for (bool reached = false; !reached;)
        OK(device->run->async->reached(device, number, &reached, &error));
}

enum { WARM = 3 };

/* Seconds of a call of `run` on the device's compute queue: the mean over `times` calls, after WARM others. */
static inline double seconds_of(Device *device, void (*run)(const void *), const void *work, int times)
{
    const DeviceAsync *queues = device->run->async;
    int64_t time;
    for (int i = 0; i < WARM; i++)
        run(work);
    OK(queues->mark(device, 0, &error));
    for (int i = 0; i < times; i++)
        run(work);
    OK(queues->mark(device, 1, &error));
    wait_for_mark(device, 1);
    OK(queues->mark_time(device, 1, &time, &error));
    return (double)time * 1e-9 / times;
}

/* An array filled with a few random numbers over and over. Not zeros, because a GPU may multiply zeros faster. */
static inline void *random_elements(Device *device, NumberKind kind, size_t count, uint64_t key)
{
    enum { PIECE = 1 << 20 };
    void *memory = NULL;
    float *values = malloc(PIECE * sizeof *values);
    OK(device->run->allocate(device, count * device->run->size[kind], &memory, &error));
    for (size_t i = 0; i < PIECE; i++)
        values[i] = 0.1f * random_normal(key, i);
    for (size_t done = 0; done < count; done += PIECE) {
        const size_t length = count - done < PIECE ? count - done : PIECE;
        OK(device->run->load_floats(device, kind, length, values, (char *)memory + done * device->run->size[kind],
                                    &error));
    }
    free(values);
    return memory;
}
