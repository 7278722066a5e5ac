#include "runtime/program/operands.h"

#define CHUNK {OPERAND_CHUNK, 0, 0, 0},
#define MICROBATCH {OPERAND_MICROBATCH, 0, 0, 0},
#define PEER {OPERAND_PEER, 0, 0, 0},
#define GROUP {OPERAND_GROUP, 0, 0, 0},
#define COUNT {OPERAND_COUNT, 0, 0, 0},
#define READ(index, class, content) {OPERAND_READ, index, SLOT_##class, CONTENT_##content},
#define FILL(index, class, content) {OPERAND_FILL, index, SLOT_##class, CONTENT_##content},
#define TAKE(index, class, content) {OPERAND_TAKE, index, SLOT_##class, CONTENT_##content},
#define SCRATCH(index, class) {OPERAND_SCRATCH, index, SLOT_##class, CONTENT_NONE},
#define POST_SEND(index, class, content) {OPERAND_POST_SEND, index, SLOT_##class, CONTENT_##content},
#define POST_RECEIVE(index, class, content) {OPERAND_POST_RECEIVE, index, SLOT_##class, CONTENT_##content},
#define SETTLE(index, class) {OPERAND_SETTLE, index, SLOT_##class, CONTENT_NONE},
#define VERSION(index) {OPERAND_VERSION, index, SLOT_WEIGHTS, CONTENT_NONE},
#define NEWEST(index) {OPERAND_NEWEST, index, SLOT_WEIGHTS, CONTENT_NONE},
#define RENEW(index) {OPERAND_RENEW, index, SLOT_WEIGHTS, CONTENT_NONE},
#define OPCODE(name, opcode_text, list, does) [OP_##name] = {opcode_text, does, {list{OPERAND_NONE, 0, 0, 0}}},

const OpcodeInfo opcode_table[OPCODE_COUNT] = {
#include "runtime/program/opcodes.def"
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
