/* Transfers between processes over an imitated network. Beside each transfer the sender sends the time at which its
   side of the link is ready; the receiver computes the arrival. All processes are on one machine, so they share a
   clock. The state of a link for messages is in the process of the receiver. The all-to-alls of a sender use one link,
   which carries the pieces in the order of members. The sender keeps a state of that link as if every receiver had
   posted before the sender. Each receiver also keeps one, for the pieces that it gets. */
#include "runtime/transport/mpi.h"

#include "base/clock.h"

#include <stdlib.h>

bool mpi_link_prepare(MpiWorld *world, const WorldConfig *config)
{
    world->arriving_end = &world->arriving;
    world->links = config->link.given ? calloc(2 * (size_t)config->size, sizeof *world->links) : NULL;
    return world->links || !config->link.given;
}

/* The time at which the link for this member's all-to-alls has sent everything that was posted so far. It is stored in
   the member's own entry, which is otherwise unused: a member sends no messages to itself. */
static int64_t *own_link(const MpiWorld *world) { return &world->links[world->world.number]; }

static int64_t link_ready(const MpiWorld *world, bool all_to_all, size_t bytes)
{
    const int64_t now = clock_nanoseconds();
    if (!all_to_all)
        return now;
    const int64_t ready = now > *own_link(world) ? now : *own_link(world);
    link_arrival(&world->world.config.link, own_link(world), now, bytes);
    return ready;
}

int mpi_link_start(MpiWorld *world, bool is_send, bool all_to_all, int tag, size_t bytes, int member,
                   MpiTransfer *transfer)
{
    transfer->link = &world->links[member + (all_to_all ? world->world.config.size : 0)];
    transfer->bytes = bytes;
    if (is_send) {
        transfer->ready = link_ready(world, all_to_all, bytes);
        return MPI_Isend(&transfer->ready, 1, MPI_INT64_T, member, tag, world->times, &transfer->time);
    }
    transfer->posted = clock_nanoseconds();
    transfer->arrival = INT64_MAX;
    transfer->next = NULL;
    *world->arriving_end = transfer;
    world->arriving_end = &transfer->next;
    return MPI_Irecv(&transfer->ready, 1, MPI_INT64_T, member, tag, world->times, &transfer->time);
}

/* Computes the arrivals of the receives that have got the sender's time, in the order in which the receives were
   posted. */
static int compute_arrivals(MpiWorld *world)
{
    int code = MPI_SUCCESS;
    for (MpiTransfer **at = &world->arriving; *at && code == MPI_SUCCESS;) {
        MpiTransfer *transfer = *at;
        int there = 0;
        code = MPI_Test(&transfer->time, &there, MPI_STATUS_IGNORE);
        if (!there) {
            at = &transfer->next;
            continue;
        }
        transfer->arrival =
            link_arrival(&world->world.config.link, transfer->link,
                         transfer->ready > transfer->posted ? transfer->ready : transfer->posted, transfer->bytes);
        *at = transfer->next;
        if (!*at)
            world->arriving_end = at;
    }
    return code;
}

int mpi_link_test(MpiWorld *world, MpiTransfer *transfer, int *done)
{
    if (transfer->arrival == 0) /* a send */
        return MPI_Test(&transfer->time, done, MPI_STATUS_IGNORE);
    const int code = compute_arrivals(world);
    *done = transfer->arrival <= clock_nanoseconds();
    return code;
}
