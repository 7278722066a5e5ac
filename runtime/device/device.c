#include "runtime/device/device.h"

#include <string.h>

static const DeviceTable *const tables[] = {&device_cpu, &device_cuda, &device_cuda_fp32, &device_oracle};
static const char device_names[] = "cpu, cuda, cuda-fp32, oracle";

const char *device_choose(const char *name)
{
    Error unheard;
    if (strcmp(name, "auto") == 0)
        return device_cuda.probe(&unheard) == STATUS_OK ? device_cuda.name : device_cpu.name;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (strcmp(tables[i]->name, name) == 0)
            return tables[i]->name;
    return NULL;
}

Status device_open(const char *name, int index, Device **opened, Error *error)
{
    *opened = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (strcmp(tables[i]->name, name) != 0)
            continue;
        const Status status = tables[i]->open(index, opened, error);
        if (status != STATUS_OK) {
            error_prefix(error, "device %s: ", name);
            return status;
        }
        (*opened)->run = tables[i];
        return STATUS_OK;
    }
    return error_set(error, STATUS_BAD_USAGE, "no device '%s'; there are: %s", name, device_names);
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
