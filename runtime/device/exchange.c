#include "runtime/device/exchange.h"

#include <stdlib.h>

static size_t members_of(const Exchange *exchange) { return (size_t)exchange->group->members; }

Exchange *exchange_make(const Exchange *fields)
{
    const size_t begins = members_of(fields) + 1;
    Exchange *made = calloc(1, sizeof *made + 2 * begins * sizeof *made->begins);
    if (!made)
        return NULL;
    *made = *fields;
    made->posted.send_begins = made->begins;
    made->posted.receive_begins = made->begins + begins;
    return made;
}

static Status post(Exchange *exchange, const void *send, void *receive, Error *error)
{
    exchange->posted.send = send;
    exchange->posted.receive = receive;
    const Status status = exchange->group->post(exchange->group->context, &exchange->posted, error);
    if (status != STATUS_OK)
        error_prefix(error, "%s: ", exchange->name);
    return status;
}

static Status await(Exchange *exchange, Error *error)
{
    const Status status = exchange->group->wait(exchange->group->context, &exchange->posted, error);
    if (status != STATUS_OK)
        error_prefix(error, "%s: ", exchange->name);
    return status;
}

/* Each member is told the number of rows of each expert that it holds. */
Status exchange_counts_post(Exchange *exchange, const int32_t *begins, int32_t *sent, int32_t *received, Error *error)
{
    const size_t members = members_of(exchange), bytes = exchange->experts / members * sizeof *sent;
    for (size_t e = 0; e < exchange->experts; e++)
        sent[e] = begins[e + 1] - begins[e];
    for (size_t m = 0; m < 2 * (members + 1); m++)
        exchange->begins[m] = m % (members + 1) * bytes;
    return post(exchange, sent, received, error);
}

Status exchange_counts_wait(Exchange *exchange, const int32_t *sent, int32_t *received, int32_t *held, Error *error)
{
    (void)sent; /* belongs to the all-to-all until now */
    TRY(await(exchange, error));
    size_t rows = 0;
    held[0] = 0;
    for (size_t block = 0; block < exchange->experts; block++) {
        rows += (size_t)received[block];
        held[block + 1] = (int32_t)rows;
    }
    if (rows > exchange->room)
        return error_set(error, STATUS_RUN_FAILED,
                         "%s: %zu rows for the experts of this rank, and --expert-rows has planned room for %zu: give "
                         "it a larger factor, or leave it out for the worst case",
                         exchange->name, rows, exchange->room);
    return STATUS_OK;
}

/* Blocks are sorted by member, then by expert. On the side of the tokens a member's blocks are the experts that it
   holds; on the side of the experts they are the experts held here, with the rows of that member's tokens. */
Status exchange_rows_post(Exchange *exchange, const void *x, const int32_t *begins, const int32_t *held, void *y,
                          Error *error)
{
    const size_t members = members_of(exchange), each = exchange->experts / members;
    size_t *of_tokens = exchange->begins, *of_experts = exchange->begins + members + 1;
    if (exchange->back) {
        of_experts = exchange->begins;
        of_tokens = exchange->begins + members + 1;
    }
    for (size_t m = 0; m <= members; m++) {
        of_tokens[m] = (size_t)begins[m * each] * exchange->row_bytes;
        of_experts[m] = (size_t)held[m * each] * exchange->row_bytes;
    }
    return post(exchange, x, y, error);
}

Status exchange_rows_wait(Exchange *exchange, const void *x, void *y, Error *error)
{
    (void)x, (void)y; /* belong to the all-to-all until now */
    return await(exchange, error);
}
