#include "runtime/executor/exchange.h"

static Status post(const Exchange *exchange, const Instruction *instruction, bool is_send, Error *error)
{
    Communicator *pipeline = exchange->pipeline;
    Message *message = &exchange->messages[instruction->message];
    message->peer = instruction->peer;
    message->is_send = is_send;
    return pipeline->run->post(pipeline, message, error);
}

static Status reduce(const ExchangeSum *sum, Error *error)
{
    Communicator *among = sum->among, *sharded = sum->sharded;
    if (among)
        TRY(among->run->sum_post(among, sum->buffer, sum->elements, sum->size, error));
    return sharded ? sharded->run->sum_post(sharded, sum->buffer + sum->elements * sum->size, sum->sharded_elements,
                                            sum->size, error)
                   : STATUS_OK;
}

static Status wait_reduce(const ExchangeSum *sum, Error *error)
{
    if (sum->among)
        TRY(sum->among->run->sum_wait(sum->among, error));
    return sum->sharded ? sum->sharded->run->sum_wait(sum->sharded, error) : STATUS_OK;
}

Status exchange_run(const Exchange *exchange, const Instruction *instruction, Error *error)
{
    Communicator *pipeline = exchange->pipeline;
    switch (instruction->opcode) {
    case OP_SEND_FORWARD:
    case OP_SEND_BACKWARD: return post(exchange, instruction, true, error);
    case OP_RECEIVE_FORWARD:
    case OP_RECEIVE_BACKWARD: return post(exchange, instruction, false, error);
    case OP_WAIT: return pipeline->run->wait(pipeline, &exchange->messages[instruction->message], error);
    case OP_REDUCE: return reduce(&exchange->sums[instruction->chunk], error);
    default: return wait_reduce(&exchange->sums[instruction->chunk], error);
    }
}
