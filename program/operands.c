#include "program/operands.h"

#include <string.h>

#define SLOT_INDEX(name) ((offsetof(Instruction, name) - offsetof(Instruction, slot)) / sizeof(uint16_t))
#define CHUNK {OPERAND_CHUNK, 0, 0, 0},
#define MICROBATCH {OPERAND_MICROBATCH, 0, 0, 0},
#define PEER {OPERAND_PEER, 0, 0, 0},
#define COUNT {OPERAND_COUNT, 0, 0, 0},
#define PUT_OFF {OPERAND_PUT_OFF, 0, 0, 0},
#define READ(name, class, content) {OPERAND_READ, SLOT_INDEX(name), SLOT_##class, CONTENT_##content},
#define FILL(name, class, content) {OPERAND_FILL, SLOT_INDEX(name), SLOT_##class, CONTENT_##content},
#define TAKE(name, class, content) {OPERAND_TAKE, SLOT_INDEX(name), SLOT_##class, CONTENT_##content},
#define SCRATCH(name, class) {OPERAND_SCRATCH, SLOT_INDEX(name), SLOT_##class, CONTENT_NONE},
#define POST_SEND(name, class, content) {OPERAND_POST_SEND, SLOT_INDEX(name), SLOT_##class, CONTENT_##content},
#define POST_RECEIVE(name, class, content) {OPERAND_POST_RECEIVE, SLOT_INDEX(name), SLOT_##class, CONTENT_##content},
#define SETTLE(name, class) {OPERAND_SETTLE, SLOT_INDEX(name), SLOT_##class, CONTENT_NONE},
#define VERSION(name) {OPERAND_VERSION, SLOT_INDEX(name), SLOT_WEIGHTS, CONTENT_NONE},
#define NEWEST(name) {OPERAND_NEWEST, SLOT_INDEX(name), SLOT_WEIGHTS, CONTENT_NONE},
#define NEXT(name) {OPERAND_NEXT, SLOT_INDEX(name), SLOT_WEIGHTS, CONTENT_NONE},
#define OPCODE(name, opcode_text, list, does) [OP_##name] = {opcode_text, does, {list{OPERAND_NONE, 0, 0, 0}}},

const OpcodeInfo opcode_table[OPCODE_COUNT] = {
#include "program/opcodes.def"
};

const ContentInfo content_table[CONTENTS] = {
    [CONTENT_INPUT] = {"x", "the activation made by the stage before", LABEL_ACTIVATION, -1, -1},
    [CONTENT_OUTPUT] = {"y", "the activation made by this stage", LABEL_ACTIVATION, 0, 1},
    [CONTENT_DINPUT] = {"dx", "the gradient of the input, made by this stage", LABEL_DERIVATIVE, 0, -1},
    [CONTENT_DOUTPUT] = {"dy", "the gradient of the output, made by the next stage", LABEL_DERIVATIVE, 1, 1},
    [CONTENT_CONTEXT] = {"c", "what I needs of its F", LABEL_CONTEXT, 0, 0},
    [CONTENT_STASH] = {"t", "what W needs of its F", LABEL_STASH, 0, 0},
    [CONTENT_GRADIENT] = {"g", "what W needs of its I", LABEL_GRADIENT, 0, 0},
};

const char *const slot_class_names[SLOT_CLASSES] = {[SLOT_MESSAGE] = "message",
                                                    [SLOT_CONTEXT] = "context",
                                                    [SLOT_STASH] = "stash",
                                                    [SLOT_GRADIENT] = "gradient",
                                                    [SLOT_WEIGHTS] = "weights"};

const char *operand_letters(const Operand *operand)
{
    static const char *const class_letters[SLOT_CLASSES] = {
        [SLOT_MESSAGE] = "s", [SLOT_CONTEXT] = "c", [SLOT_STASH] = "t", [SLOT_GRADIENT] = "g", [SLOT_WEIGHTS] = "w"};
    return operand->content == CONTENT_NONE ? class_letters[operand->class] : content_table[operand->content].letters;
}

const Group *program_group(const Program *program, uint32_t stage)
{
    for (uint32_t g = 0; g < program->group_count; g++)
        if (program->groups[g].stage == stage)
            return &program->groups[g];
    return NULL;
}

Instruction instruction_blank(Opcode opcode, uint32_t line)
{
    Instruction instruction = {.opcode = (uint8_t)opcode, .line = line};
    memset(instruction.slot, 0xff, sizeof instruction.slot); /* SLOT_NONE */
    return instruction;
}
