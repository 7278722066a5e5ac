#include "runtime/device/group.h"

#include <math.h>
#include <stdlib.h>

static size_t members_of(const GroupExchange *exchange) { return (size_t)exchange->group->members; }

static void fill(GroupExchange *made, const GroupExchange *fields)
{
    *made = *fields;
    made->posted.send_begins = made->begins;
    made->posted.receive_begins = made->begins + members_of(fields) + 1;
}

GroupExchange *group_make_exchange(const GroupExchange *fields)
{
    const size_t bytes = sizeof *fields + 2 * (members_of(fields) + 1) * sizeof *fields->begins;
    GroupExchange *made = calloc(2, bytes);
    if (!made)
        return NULL;
    fill(made, fields);
    made->second = (GroupExchange *)(void *)((char *)made + bytes);
    fill(made->second, fields);
    made->second->flight.half = 1;
    return made;
}

/* --- copies of experts --- */

ExpertCopies *group_make_copies(uint32_t experts, uint32_t physical, uint32_t self)
{
    const size_t numbers = 3 * (size_t)physical + 2 * (size_t)experts + 1;
    ExpertCopies *made = calloc(1, sizeof *made + numbers * sizeof *made->numbers);
    if (!made)
        return NULL;
    *made = (ExpertCopies){.experts = experts, .physical = physical, .self = self};
    made->expert = made->numbers;
    made->copies = made->expert + physical;
    made->rows = made->copies + physical;
    made->next = made->rows + physical;
    made->begins = made->next + experts;
    for (uint32_t p = 0; p < physical; p++)
        made->expert[p] = p % experts;
    group_place_copies(made, made->expert);
    return made;
}

void group_place_copies(ExpertCopies *copies, const uint32_t *placement)
{
    uint32_t count = 0;
    for (uint32_t e = 0; e < copies->experts; e++) {
        copies->begins[e] = count;
        for (uint32_t p = 0; p < copies->physical; p++)
            if (placement[p] == e)
                copies->copies[count++] = p;
    }
    copies->begins[copies->experts] = count;
    for (uint32_t p = 0; p < copies->physical; p++)
        copies->expert[p] = placement[p];
}

EXCHANGE(choose_copies)
{
    ExpertCopies *copies = op->copies;
    for (uint32_t e = 0; e < copies->experts; e++)
        copies->next[e] = copies->self;
    for (size_t i = 0; i < op->count; i++) {
        const size_t expert = (size_t)o->chosen[i];
        const uint32_t first = copies->begins[expert], count = copies->begins[expert + 1] - first;
        const uint32_t physical = copies->copies[first + copies->next[expert]++ % count];
        copies->rows[physical]++;
        o->placed[i] = (int32_t)physical;
    }
    return STATUS_OK;
}

/* --- all-to-alls --- */

static Status post(GroupExchange *exchange, const void *send, void *receive, Error *error)
{
    exchange->posted.send = send;
    exchange->posted.receive = receive;
    exchange->number = flights_post(exchange->group->flights, &exchange->flight);
    const Status status = exchange->group->post(exchange->group->context, &exchange->posted, error);
    flights_release(exchange->group->flights, exchange->number);
    if (status != STATUS_OK)
        error_prefix(error, "%s of layer %u: ", exchange->what, exchange->flight.layer);
    return status;
}

static Status await(GroupExchange *exchange, Error *error)
{
    flights_await(exchange->group->flights, exchange->number);
    const Status status = exchange->group->wait(exchange->group->context, &exchange->posted, error);
    flights_end(exchange->group->flights, exchange->number, exchange->posted.arrival);
    if (status != STATUS_OK)
        error_prefix(error, "%s of layer %u: ", exchange->what, exchange->flight.layer);
    return status;
}

/* Sends each member, itself included, the number of rows that this member's tokens have for each of that member's
   experts. */
EXCHANGE(counts_post)
{
    const size_t members = members_of(op->exchange), bytes = op->exchange->experts / members * sizeof *o->sent;
    for (size_t e = 0; e < op->exchange->experts; e++)
        o->sent[e] = o->begins[e + 1] - o->begins[e];
    op->exchange->flight.counts = true;
    for (size_t m = 0; m < 2 * (members + 1); m++)
        op->exchange->begins[m] = m % (members + 1) * bytes;
    return post(op->exchange, o->sent, o->received, error);
}

EXCHANGE(counts_wait)
{
    TRY(await(op->exchange, error));
    size_t rows = 0;
    o->held[0] = 0;
    for (size_t block = 0; block < op->exchange->experts; block++) {
        rows += (size_t)o->received[block];
        o->held[block + 1] = (int32_t)rows;
    }
    if (rows > op->exchange->room)
        return error_set(
            error, STATUS_RUN_FAILED,
            "%s of layer %u: the experts of this rank get %zu rows, but --expert-rows has planned room for %zu: "
            "these need --expert-rows %.10g, and others may need more; without it there is room for the worst case",
            op->exchange->what, op->exchange->flight.layer, rows, op->exchange->room,
            ceil(100 * (double)rows / (double)op->exchange->equal) / 100);
    return STATUS_OK;
}

/* Posts the all-to-all of rows, with one piece to and from every member. `begins` has the first row of each expert
   among the rows of this member's tokens: the rows of `each` consecutive experts are the piece of the member that holds
   them. `held` has the first row of each block among the rows of this member's experts: the rows of `each` consecutive
   blocks are the piece of the member that owns their tokens. Dispatch sends the former and receives the latter, combine
   the other way round. */
EXCHANGE(rows_post)
{
    const size_t members = members_of(op->exchange), each = op->exchange->experts / members;
    size_t *of_tokens = op->exchange->begins, *of_experts = op->exchange->begins + members + 1;
    if (op->exchange->back) {
        of_experts = op->exchange->begins;
        of_tokens = op->exchange->begins + members + 1;
    }
    for (size_t m = 0; m <= members; m++) {
        of_tokens[m] = (size_t)o->begins[m * each] * op->exchange->row_bytes;
        of_experts[m] = (size_t)o->held[m * each] * op->exchange->row_bytes;
    }
    return post(op->exchange, o->x, o->y, error);
}

EXCHANGE(rows_wait) { return await(op->exchange, error); }
