#ifndef OPERATION_FUNCTION
#error "define OPERATION_FUNCTION(name), the device's function for an operation"
#endif

/* Defines DeviceTable.operate: it calls OPERATION_FUNCTION(name)(device, the parameters of SHAPE, operands, error) for
   an operation of operations.def. Each device includes this file once. */

/* clang-format off */
static Status operate(Device *device, const Op *op, const OpMemory *memory, Error *error)
{
    switch (op->kind) {
#define OPERATION(name, SHAPE, OPERANDS)                                                            \
    case OPERATION_##name: {                                                                               \
        const struct name##_operands *o = &memory->name;                                            \
        return OPERATION_FUNCTION(name)(device ARGUMENTS_##SHAPE OPERANDS, error);                  \
    }
#ifndef CPU_OPERATION
#define GROUP_OPERATION(name, SHAPE, OPERANDS)                                                      \
    case OPERATION_##name: {                                                                               \
        const struct name##_operands *o = &memory->name;                                            \
        return exchange_##name(op->exchange OPERANDS, error);                                       \
    }
#endif
#define OPERAND(effect, type, operand) , o->operand
#include "runtime/device/operations.def"
    case OPERATION_KINDS: break;
    }
    return error_set(error, STATUS_RUN_FAILED, "no operation of kind %d", (int)op->kind);
}
/* clang-format on */
