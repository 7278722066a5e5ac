#include "runtime/device/device.h"

#include "base/plugin.h"

#include <string.h>

static const struct {
    const char *name;
    const DeviceTable *table; /* NULL: it is in dprun-cuda.so */
    const char *symbol;
} devices[] = {{"cpu", &device_cpu, NULL}, {"cuda", NULL, "device_cuda"}, {"cuda-fp32", NULL, "device_cuda_fp32"}};

const DeviceTable *device_added;

static Status find(const char *name, const DeviceTable **table, Error *error)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcmp(devices[i].name, name) == 0) {
            const void *found = devices[i].table;
            if (!found)
                TRY(plugin_table(&plugin_cuda, devices[i].symbol, &found, error));
            *table = found;
            return STATUS_OK;
        }
    *table = device_added;
    if (device_added && strcmp(device_added->name, name) == 0)
        return STATUS_OK;
    return error_set(error, STATUS_BAD_USAGE, "no device '%s'; there are: cpu, cuda, cuda-fp32", name);
}

const char *device_choose(const char *name)
{
    Error unheard;
    const DeviceTable *table;
    if (strcmp(name, "auto") == 0)
        return find("cuda", &table, &unheard) == STATUS_OK && table->probe(&unheard) == STATUS_OK ? "cuda" : "cpu";
    return find(name, &table, &unheard) == STATUS_BAD_USAGE ? NULL : name;
}

static Status open_it(const char *name, int index, Device **opened, Error *error)
{
    const DeviceTable *table;
    TRY(find(name, &table, error));
    TRY(table->open(index, opened, error));
    (*opened)->run = table;
    return STATUS_OK;
}

Status device_open(const char *name, int index, Device **opened, Error *error)
{
    *opened = NULL;
    const Status status = open_it(name, index, opened, error);
    if (status == STATUS_RUN_FAILED)
        error_prefix(error, "device %s: ", name);
    return status;
}

void device_close(Device *device)
{
    if (!device)
        return;
    for (Kernel *kernel = device->kernels; kernel;) {
        Kernel *next = kernel->next;
        device->run->free_kernel(device, kernel);
        kernel = next;
    }
    device->run->close(device);
}

static bool same_routing(const Routing *a, const Routing *b)
{
    return a->experts == b->experts && a->chosen == b->chosen && a->groups == b->groups &&
           a->best_groups == b->best_groups && a->softmax == b->softmax && a->factor == b->factor;
}

static bool same_shape(const KernelShape *a, const KernelShape *b)
{
    return a->kind == b->kind && a->rows == b->rows && a->columns == b->columns && a->outputs == b->outputs &&
           a->sequence == b->sequence && a->heads == b->heads && a->sources == b->sources &&
           same_routing(&a->routing, &b->routing);
}

Status device_kernel(Device *device, const KernelShape *shape, const Kernel **kernel, Error *error)
{
    for (Kernel *known = device->kernels; known; known = known->next) {
        if (same_shape(&known->shape, shape)) {
            *kernel = known;
            return STATUS_OK;
        }
    }
    Kernel *made = NULL;
    TRY(device->run->make_kernel(device, shape, &made, error));
    made->shape = *shape;
    made->next = device->kernels;
    device->kernels = made;
    *kernel = made;
    return STATUS_OK;
}
