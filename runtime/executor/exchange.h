#ifndef EXECUTOR_EXCHANGE_H
#define EXECUTOR_EXCHANGE_H

/* The instructions of a rank that communicate, over communicators: messages between two ranks, and sums of weight
   gradients among the copies of a stage. */

#include "runtime/program/program.h"
#include "runtime/transport/communicator.h"

/* The sum of one chunk's weight gradient. */
typedef struct ExchangeSum {
    Communicator *among;   /* of the copies of the chunk's stage; NULL: nothing is summed */
    Communicator *sharded; /* of those with the same shard; NULL: their elements are not summed */
    char *buffer;
    /* the elements of `among`, after which come those of `sharded`; size: bytes of an element */
    size_t elements, sharded_elements, size;
} ExchangeSum;

typedef struct Exchange {
    Communicator *pipeline; /* of all ranks of the program, member r being rank r */
    Message *messages;      /* [message slots]; the communicator may exchange their blocks */
    ExchangeSum *sums;      /* [the rank's chunks] */
} Exchange;

/* Whether exchange_run runs the opcode: SEND, RECEIVE, WAIT, REDUCE, WAIT_REDUCE. */
static inline bool exchange_has(uint8_t opcode) { return opcode >= OP_SEND_FORWARD && opcode <= OP_WAIT_REDUCE; }

Status exchange_run(const Exchange *exchange, const Instruction *instruction, Error *error);

#endif
