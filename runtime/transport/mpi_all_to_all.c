/* All-to-alls between processes. Each piece for another member that is not empty is a transfer. MPI delivers the
   transfers between two processes that have the same tag in the order of their posts, so the pieces of several
   all-to-alls in flight are not mixed up. */
#include "runtime/transport/mpi.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

Status mpi_all_to_all_prepare(MpiCommunicator *side, const CommunicatorConfig *config, Error *error)
{
    const size_t most = (size_t)config->all_to_alls_in_flight, count = (size_t)config->count;
    if (!most)
        return STATUS_OK;
    side->pieces = calloc(most * 2 * count, sizeof *side->pieces);
    side->exchanging = calloc(most, sizeof *side->exchanging);
    side->all_to_alls = most;
    side->next_with_all_to_alls = side->world->with_all_to_alls;
    side->world->with_all_to_alls = side;
    side->communicator.bytes += most * (2 * count * sizeof *side->pieces + sizeof *side->exchanging);
    return side->pieces && side->exchanging
               ? STATUS_OK
               : error_set(error, STATUS_RUN_FAILED, "%s: no memory for all-to-alls of %d ranks",
                           world_member_name(&side->world->world.config, side->world->world.number).text,
                           config->count);
}

void mpi_all_to_all_remove(const MpiCommunicator *side)
{
    for (MpiCommunicator **at = &side->world->with_all_to_alls; *at; at = &(*at)->next_with_all_to_alls)
        if (*at == side) {
            *at = side->next_with_all_to_alls;
            return;
        }
}

/* The [2 * count] transfers of entry `number` of the all-to-alls: for each member first the piece received from that
   member, then the piece sent to that member. */
static MpiTransfer *pieces_of(const MpiCommunicator *side, uint64_t number)
{
    return &side->pieces[number * 2 * (uint64_t)side->communicator.count];
}

static size_t piece_bytes(const size_t *begins, int member) { return begins[member + 1] - begins[member]; }

Status mpi_all_to_all_post(Communicator *communicator, AllToAll *all_to_all, Error *error)
{
    MpiCommunicator *side = (MpiCommunicator *)communicator;
    const size_t *in = all_to_all->receive_begins, *out = all_to_all->send_begins;
    const int self = communicator->self;
    size_t free = 0;
    while (free < side->all_to_alls && side->exchanging[free])
        free++;
    if (free == side->all_to_alls)
        return communicator_overrun(communicator, "all-to-alls", error);
    side->exchanging[free] = all_to_all;
    all_to_all->number = free;
    all_to_all->arrival = 0;
    MpiTransfer *pieces = pieces_of(side, free);
    for (int m = 0; m < communicator->count; m++) {
        if (m != self && piece_bytes(in, m))
            TRY(mpi_start(side->world, false, side->tag + 2, (char *)all_to_all->receive + in[m], piece_bytes(in, m),
                          communicator->members[m], &pieces[2 * m], error));
        if (m != self && piece_bytes(out, m)) /* MPI_Isend only reads; the cast removes the const for mpi_start */
            TRY(mpi_start(side->world, true, side->tag + 2, (char *)(uintptr_t)all_to_all->send + out[m],
                          piece_bytes(out, m), communicator->members[m], &pieces[2 * m + 1], error));
    }
    if (piece_bytes(out, self))
        memcpy((char *)all_to_all->receive + in[self], (const char *)all_to_all->send + out[self],
               piece_bytes(out, self));
    return STATUS_OK;
}

/* Notes the present time if all pieces for this member have arrived. */
static Status note_arrival(const MpiCommunicator *side, AllToAll *all_to_all, Error *error)
{
    MpiTransfer *pieces = pieces_of(side, all_to_all->number);
    for (int m = 0; m < side->communicator.count; m++) {
        bool done = m == side->communicator.self || !piece_bytes(all_to_all->receive_begins, m);
        if (!done)
            TRY(mpi_test(side->world, &pieces[2 * m], &done, error));
        if (!done)
            return STATUS_OK;
    }
    all_to_all->arrival = clock_nanoseconds();
    return STATUS_OK;
}

Status mpi_all_to_alls_advance(MpiWorld *world, Error *error)
{
    for (MpiCommunicator *side = world->with_all_to_alls; side; side = side->next_with_all_to_alls)
        for (size_t i = 0; i < side->all_to_alls; i++)
            if (side->exchanging[i] && !side->exchanging[i]->arrival)
                TRY(note_arrival(side, side->exchanging[i], error));
    return STATUS_OK;
}

Status mpi_all_to_all_wait(Communicator *communicator, AllToAll *all_to_all, Error *error)
{
    MpiCommunicator *side = (MpiCommunicator *)communicator;
    MpiTransfer *pieces = pieces_of(side, all_to_all->number);
    int64_t last = 0;
    bool known = true; /* whether the imitated network has given the arrivals of all pieces */
    for (int m = 0; m < communicator->count; m++) {
        const int member = communicator->members[m];
        if (m != communicator->self && piece_bytes(all_to_all->receive_begins, m)) {
            TRY(mpi_await(side->world, &pieces[2 * m], member, error));
            known = known && pieces[2 * m].arrival > 0;
            last = pieces[2 * m].arrival > last ? pieces[2 * m].arrival : last;
        }
        if (m != communicator->self && piece_bytes(all_to_all->send_begins, m))
            TRY(mpi_await(side->world, &pieces[2 * m + 1], member, error));
    }
    side->exchanging[all_to_all->number] = NULL;
    if (known && last)
        all_to_all->arrival = last;
    return STATUS_OK;
}
