#include "runtime/device/device.h"

#include <string.h>

static const DeviceTable *const tables[] = {&device_cpu, &device_oracle};
const char device_names[] = "cpu, oracle";

Status device_open(const char *name, int index, Device **opened, Error *error)
{
    *opened = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (strcmp(tables[i]->name, name) != 0)
            continue;
        TRY(tables[i]->open(index, opened, error));
        (*opened)->run = tables[i];
        return STATUS_OK;
    }
    return error_set(error, STATUS_BAD_USAGE, "no device '%s'; this build has: %s", name, device_names);
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

static bool same_shape(const KernelShape *a, const KernelShape *b)
{
    return a->kind == b->kind && a->rows == b->rows && a->columns == b->columns && a->outputs == b->outputs &&
           a->sequence == b->sequence && a->heads == b->heads;
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
