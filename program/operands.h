#pragma once

/* opcodes.def as arrays, for all code that walks the operands of instructions. */

#include "program/program.h"

typedef enum OperandKind {
    OPERAND_NONE, /* closes a list */
    OPERAND_CHUNK,
    OPERAND_MICROBATCH,
    OPERAND_PEER,
    OPERAND_COUNT,
    OPERAND_PUT_OFF,
    /* from here on, operands are slots */
    OPERAND_READ,
    OPERAND_FILL,
    OPERAND_TAKE,
    OPERAND_SCRATCH,
    OPERAND_POST_SEND,
    OPERAND_POST_RECEIVE,
    OPERAND_SETTLE,
    OPERAND_VERSION,
    OPERAND_NEWEST,
    OPERAND_NEXT,
} OperandKind;

typedef enum Content {
    CONTENT_NONE, /* no content is named: SCRATCH, SETTLE and slots of weights */
    CONTENT_INPUT,
    CONTENT_OUTPUT,
    CONTENT_DINPUT,
    CONTENT_DOUTPUT,
    CONTENT_CONTEXT,
    CONTENT_STASH,
    CONTENT_GRADIENT,
    CONTENTS
} Content;

typedef struct Operand {
    uint8_t kind;
    uint8_t slot; /* index in Instruction.slot */
    uint8_t class;
    uint8_t content;
} Operand;

enum { OPERANDS_MAX = 10 };

typedef struct OpcodeInfo {
    const char *text, *what;
    Operand operands[OPERANDS_MAX + 1];
} OpcodeInfo;

extern const OpcodeInfo opcode_table[OPCODE_COUNT];

/* What a slot holds, independent of the instruction that names it. An activation or gradient between stages is labelled
   with the stage that computed it. So OUTPUT of stage s and INPUT of stage s+1 have the same label, whether both stages
   are on one rank or a message connects them. */
typedef enum LabelKind { LABEL_ACTIVATION = 1, LABEL_DERIVATIVE, LABEL_CONTEXT, LABEL_STASH, LABEL_GRADIENT } LabelKind;

typedef struct ContentInfo {
    const char *letters; /* in the disassembler's text */
    const char *what;
    uint8_t label; /* LabelKind */
    int8_t maker;  /* the stage that computed the content, relative to the instruction's stage */
    /* relative to the instruction's stage: the stage that sends or receives the content as a message. At the first or
       last stage, where there is no such stage, there is no such content. 0: the content is not sent */
    int8_t neighbour;
} ContentInfo;

extern const ContentInfo content_table[CONTENTS];

extern const char *const slot_class_names[SLOT_CLASSES];

/* The letters that the disassembler writes for a slot operand: those of its content, or of its class if the operand has
   no content. */
const char *operand_letters(const Operand *operand);

static inline bool operand_is_slot(const Operand *operand) { return operand->kind >= OPERAND_READ; }

/* Whether a forward-only program may contain the opcode. Only such a program may contain FORWARD_ONLY and
   OVERLAP_FORWARD. */
static inline bool opcode_is_forward_only(uint8_t opcode)
{
    return opcode == OP_FORWARD_ONLY || opcode == OP_OVERLAP_FORWARD || opcode == OP_SEND_FORWARD ||
           opcode == OP_RECEIVE_FORWARD || opcode == OP_WAIT || opcode == OP_END;
}

/* --- the file's frame --- */
#define PROGRAM_MAGIC "DPSPROG\n"
enum { PROGRAM_MAGIC_SIZE = 8, PROGRAM_VERSION = 7 };
