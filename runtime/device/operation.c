#include "runtime/device/operation.h"

#include "runtime/device/device.h"

#include <stdlib.h>

const OpInfo op_info[OPERATION_KINDS] = {
#define OPERATION(name, SHAPE, OPERANDS) [OPERATION_##name] = {#name, {OPERANDS}},
#define OPERAND(effect, type, name) {#name, EFFECT_##effect},
#include "runtime/device/operations.def"
};

void op_append(OpList *list, const Op *op)
{
    if (list->count == list->room) {
        const size_t room = list->room ? 2 * list->room : 16;
        Op *ops = list->failed ? NULL : realloc(list->ops, room * sizeof *ops);
        list->failed = !ops;
        if (!ops)
            return;
        list->ops = ops;
        list->room = room;
    }
    list->ops[list->count++] = *op;
}

void op_list_free(OpList *list)
{
    free(list->ops);
    *list = (OpList){0};
}

/* False: the operation is left out, as nobody wants what it would write. */
static bool find_memory(const Op *op, void *const *bases, OpMemory *memory)
{
    for (int i = 0; i < OPERATION_OPERANDS; i++) {
        const Address *address = &op->operands[i];
        char *base = address->base ? bases[address->base - 1] : NULL;
        memory->operands[i] = base ? base + address->offset : NULL;
        if (!base && op_info[op->kind].operands[i].effect == EFFECT_IF_WANTED)
            return false;
    }
    return true;
}

Status op_run_one(Device *device, const Op *op, const OpMemory *memory, Error *error)
{
    const OpInfo *info = &op_info[op->kind];
    for (int i = 0; i < OPERATION_OPERANDS && info->operands[i].effect != EFFECT_NONE; i++)
        if (!memory->operands[i] && info->operands[i].effect != EFFECT_MAY_READ &&
            info->operands[i].effect != EFFECT_MAY_ADD)
            return error_set(error, STATUS_RUN_FAILED, "%s: operand %s has no memory", info->name,
                             info->operands[i].name);
    return device->run->operate(device, op, memory, error);
}

Status op_run(Device *device, const OpList *list, size_t begin, size_t end, void *const *bases, Error *error)
{
    OpMemory memory;
    for (size_t i = begin; i < end; i++)
        if (find_memory(&list->ops[i], bases, &memory))
            TRY(op_run_one(device, &list->ops[i], &memory, error));
    return STATUS_OK;
}
