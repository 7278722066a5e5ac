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
    Op *own = &list->ops[list->count++];
    *own = *op;
    for (int i = 0; i < OPERATION_OPERANDS; i++) {
        if (op_info[op->kind].operands[i].effect == EFFECT_NONE)
            own->operands[i] = no_address; /* an initialiser that names fewer operands leaves the others as they are */
        if (own->operands[i].base > list->bases)
            list->bases = own->operands[i].base;
    }
}

void op_list_free(OpList *list)
{
    free(list->ops);
    *list = (OpList){0};
}

static bool only_reads(OpEffect effect) { return effect == EFFECT_READ || effect == EFFECT_MAY_READ; }

static bool depends(const Op *op, const Op *earlier)
{
    const OpOperand *own = op_info[op->kind].operands, *others = op_info[earlier->kind].operands;
    for (int i = 0; i < OPERATION_OPERANDS && own[i].effect; i++)
        for (int j = 0; j < OPERATION_OPERANDS && others[j].effect; j++)
            if (op->operands[i].base && op->operands[i].base == earlier->operands[j].base &&
                op->operands[i].offset == earlier->operands[j].offset &&
                !(only_reads(own[i].effect) && only_reads(others[j].effect)))
                return true;
    return false;
}

static bool may_be_left_out(const Op *op)
{
    for (int i = 0; i < OPERATION_OPERANDS; i++)
        if (op_info[op->kind].operands[i].effect == EFFECT_IF_WANTED)
            return true;
    return false;
}

/* before[i * count + j]: operation i comes after j, directly or by way of operations that always run. */
static bool order_one(OpList *list, size_t index, bool *before)
{
    Op *op = &list->ops[index];
    bool *own = &before[index * list->count];
    for (size_t j = index; j-- > 0;) {
        if (own[j] || !depends(op, &list->ops[j]))
            continue;
        if (op->after_count == OPERATION_AFTER_MOST)
            return false;
        op->after[op->after_count++] = (uint32_t)j;
        own[j] = true;
        for (size_t k = 0; k < j && !may_be_left_out(&list->ops[j]); k++)
            own[k] = own[k] || before[j * list->count + k];
    }
    return true;
}

Status op_list_order(OpList *list, Error *error)
{
    bool *before = calloc(list->count + 1, list->count + 1);
    if (!before)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    size_t i = 0;
    while (i < list->count && order_one(list, i, before))
        i++;
    free(before);
    return i == list->count ? STATUS_OK
                            : error_set(error, STATUS_RUN_FAILED,
                                        "operation %zu of a list, %s, comes directly after more than %d others", i,
                                        op_info[list->ops[i].kind].name, OPERATION_AFTER_MOST);
}

Status op_list_finish(OpList *list, Error *error)
{
    if (list->failed)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    if (list->bases > OPERATION_BASES)
        return error_set(error, STATUS_RUN_FAILED, "a list of operations has %u bases; it may have %d", list->bases,
                         OPERATION_BASES);
    return STATUS_OK;
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
