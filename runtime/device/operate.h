#ifndef OPERATION_FUNCTION
#error "define OPERATION_FUNCTION(name), the device's function for an operation"
#endif

/* Defines the function for DeviceTable.operate. It calls OPERATION_FUNCTION(name) for an OPERATION or CPU_OPERATION of
   operations.def, and group_NAME (group.h) for a GROUP_OPERATION. A device without functions for CPU_OPERATIONs and
   GROUP_OPERATIONs defines CPU_OPERATION as a `case` that refuses the operation. A device includes this file once. */

static Status operate(Device *device, const Op *op, const OpMemory *memory, Error *error)
{
    switch (op->kind) {
#define OPERATION(name, OPERANDS) \
    case OPERATION_##name:        \
        return OPERATION_FUNCTION(name)(device, op, &memory->name, error);
#ifndef CPU_OPERATION
#define GROUP_OPERATION(name, OPERANDS) \
    case OPERATION_##name:              \
        return group_##name(device, op, &memory->name, error);
#endif
#define OPERAND(effect, type, operand)
#include "runtime/device/operations.def"
    case OPERATION_KINDS: break;
    }
    return error_set(error, STATUS_RUN_FAILED, "internal error, no operation of kind %d", (int)op->kind);
}
