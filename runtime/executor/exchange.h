#pragma once

/* Runs the instructions of a rank that communicate: messages between two ranks, and sums of weight gradients over the
   copies of a stage. It needs only communicators. */

#include "program/program.h"
#include "runtime/transport/communicator.h"

/* The sum of one chunk's weight gradient. */
typedef struct ExchangeSum {
    /* the communicator among all copies of the chunk's stage; NULL: the elements that are not sharded are not summed */
    Communicator *among;
    /* the communicator among the copies with the same shard; NULL: sharded elements are not summed */
    Communicator *sharded;
    char *buffer;
    /* `buffer` has `elements` numbers that `among` sums, then `sharded_elements` numbers that `sharded` sums; size:
       bytes of a number */
    size_t elements, sharded_elements, size;
} ExchangeSum;

typedef struct Exchange {
    Communicator *pipeline; /* the communicator among all ranks of this replica; member r is rank r */
    Message *messages;      /* [message slots]; a communicator may replace the block of a message (Message.block) */
    ExchangeSum *sums;      /* [the rank's chunks] */
} Exchange;

/* Whether exchange_run runs the opcode: SEND, RECEIVE, WAIT, REDUCE, WAIT_REDUCE. */
static inline bool exchange_has(uint8_t opcode) { return opcode >= OP_SEND_FORWARD && opcode <= OP_WAIT_REDUCE; }

Status exchange_run(const Exchange *exchange, const Instruction *instruction, Error *error);
