/* Sums between processes, piece by piece (reduce-scatter, then all-gather). For each piece every member receives its
   slice of every other member's buffer, adds them up, and sends the sum to all others. A sum advances at calls of
   progress, and while the member waits for anything. */
#include "runtime/transport/mpi.h"
#include "runtime/transport/sum.h"

#include <stdlib.h>

enum { PIECE = 1 << 20 }; /* elements per piece: bounds the memory for slices of the other members */

static size_t piece_of(size_t elements) { return elements < PIECE ? elements : PIECE; }

Status mpi_sum_prepare(MpiCommunicator *side, const CommunicatorConfig *config, Error *error)
{
    const size_t count = (size_t)config->count;
    const size_t room = sum_slices_room(piece_of(config->sum_elements), config->count) * config->sum_size;
    if (count == 1 || config->sum_elements == 0)
        return STATUS_OK;
    side->transfers = malloc(2 * count * sizeof *side->transfers);
    side->parts = malloc(count * sizeof *side->parts);
    side->received = malloc(room);
    if (!side->transfers || !side->parts || !side->received)
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory for the buffers of sums over %d ranks",
                         world_member_name(&side->world->world.config, side->world->world.number).text, config->count);
    side->communicator.bytes += room;
    return STATUS_OK;
}

static size_t present_length(const MpiCommunicator *side)
{
    const size_t rest = side->elements - side->at;
    return rest < side->piece ? rest : side->piece;
}

/* Where member i's slice of the current piece begins in this member's buffer. *bytes: its length. */
static char *slice_of(const MpiCommunicator *side, int i, size_t *bytes)
{
    const SumSlice slice = sum_slice(present_length(side), i, side->communicator.count);
    *bytes = slice.length * side->size;
    return side->buffer + (side->at + slice.start) * side->size;
}

/* Starts the transfers of a phase. SUM_COLLECTS: this member sends each other member that member's slice of its buffer,
   and receives its own slice of each other member's buffer. SUM_SPREADS: this member sends the sum of its slice to all
   others, and receives the sums of their slices. */
static Status begin(MpiCommunicator *side, SumPhase phase, Error *error)
{
    const Communicator *communicator = &side->communicator;
    const int self = communicator->self;
    size_t own_bytes, bytes;
    char *own = slice_of(side, self, &own_bytes);
    MpiTransfer *transfer = side->transfers;
    side->phase = phase;
    side->next = 0;
    for (int i = 0; i < communicator->count; i++) {
        char *slice = slice_of(side, i, &bytes), *received = side->received + (size_t)i * own_bytes;
        const bool collects = phase == SUM_COLLECTS;
        const int member = communicator->members[i];
        if (collects)
            side->parts[i] = i == self ? own : received;
        if (i == self)
            continue;
        TRY(mpi_start(side->world, false, side->tag + 1, collects ? received : slice, collects ? own_bytes : bytes,
                      member, transfer++, error));
        TRY(mpi_start(side->world, true, side->tag + 1, collects ? slice : own, collects ? bytes : own_bytes, member,
                      transfer++, error));
    }
    return STATUS_OK;
}

static void add_up(const MpiCommunicator *side)
{
    size_t bytes;
    char *own = slice_of(side, side->communicator.self, &bytes);
    const size_t length = bytes / side->size;
    for (size_t at = 0; at < length; at += SUM_BLOCK) {
        SumBlock sums;
        const size_t some = length - at < SUM_BLOCK ? length - at : SUM_BLOCK;
        sum_in_order(side->parts, side->communicator.count, at, some, side->size, &sums);
        memcpy(own + at * side->size, &sums, some * side->size);
    }
}

static Status advance(MpiCommunicator *side, Error *error)
{
    while (side->phase != SUM_DONE) {
        for (; side->next < 2 * (side->communicator.count - 1); side->next++) {
            bool done;
            TRY(mpi_test(side->world, &side->transfers[side->next], &done, error));
            if (!done)
                return STATUS_OK;
        }
        if (side->phase == SUM_COLLECTS) {
            add_up(side);
            TRY(begin(side, SUM_SPREADS, error));
        } else if ((side->at += side->piece) < side->elements) {
            TRY(begin(side, SUM_COLLECTS, error));
        } else {
            side->phase = SUM_DONE;
        }
    }
    return STATUS_OK;
}

Status mpi_sums_advance(MpiWorld *world, Error *error)
{
    for (MpiCommunicator *side = world->summing; side; side = side->summing)
        TRY(advance(side, error));
    return STATUS_OK;
}

Status mpi_sum_post(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error)
{
    MpiCommunicator *side = (MpiCommunicator *)communicator;
    if (communicator->count == 1 || elements == 0)
        return STATUS_OK;
    side->buffer = buffer;
    side->elements = elements;
    side->size = size;
    side->piece = piece_of(elements);
    side->at = 0;
    side->summing = side->world->summing;
    side->world->summing = side;
    return begin(side, SUM_COLLECTS, error);
}

/* The member of the world at the other end of the sum's first unfinished transfer. */
static int awaited_member(const MpiCommunicator *side)
{
    const int other = side->next / 2;
    return side->communicator.members[other + (other >= side->communicator.self)];
}

Status mpi_sum_wait(Communicator *communicator, Error *error)
{
    MpiCommunicator *side = (MpiCommunicator *)communicator;
    TRY(advance(side, error));
    while (side->phase != SUM_DONE) {
        TRY(mpi_await(side->world, &side->transfers[side->next], awaited_member(side), error));
        TRY(advance(side, error));
    }
    for (MpiCommunicator **at = &side->world->summing; *at; at = &(*at)->summing)
        if (*at == side) {
            *at = side->summing;
            break;
        }
    return STATUS_OK;
}
