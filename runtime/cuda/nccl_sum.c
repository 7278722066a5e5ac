/* Sums (all-reduce) by NCCL's point-to-point transfers, so that the order of the additions is fixed: every member
   receives its slice of every member's buffer, adds them up, and sends the sum to all members. All of this is enqueued
   when the sum is posted, on the messages queue, concurrently with the computation. */
#include "runtime/cuda/nccl.h"
#include "runtime/transport/sum.h"

enum { PIECE = 1 << 22 }; /* elements per piece: bounds the memory for received slices */

static size_t piece_of(size_t elements) { return elements < PIECE ? elements : PIECE; }

Status nccl_sum_prepare(NcclCommunicator *side, size_t elements, Error *error)
{
    NcclMember *member = side->member;
    const DeviceTable *run = member->device->run;
    const size_t room = sum_slices_room(piece_of(elements), side->communicator.count);
    void *memory = NULL;
    if (elements == 0 || side->communicator.count == 1 || room <= member->part_elements)
        return STATUS_OK;
    run->deallocate(member->device, member->parts); /* deallocate waits until the device no longer uses the memory */
    member->parts = NULL;
    member->part_elements = 0;
    TRY(run->allocate(member->device, room * sizeof *member->parts, &memory, error));
    /* allocate zeroes the memory on the compute queue */
    TRY(nccl_follow(member, QUEUE_MESSAGES, QUEUE_COMPUTE, error));
    member->parts = memory;
    member->part_elements = room;
    return STATUS_OK;
}

static Status transfer(NcclCommunicator *side, bool is_send, float *memory, size_t count, int i, Error *error)
{
    return nccl_add(side->member, &(NcclTransfer){is_send, memory, count, NCCL_FLOATS, side->communicator.members[i]},
                    error);
}

/* With `collects`, sends each member its slice of this member's buffer, and receives this member's slices of the other
   buffers into `parts`, `pitch` elements apart. Otherwise sends the sums of this member's slice to all members, and
   receives the sums of their slices. */
static Status exchange(NcclCommunicator *side, bool collects, float *buffer, size_t elements, size_t pitch,
                       Error *error)
{
    const Communicator *communicator = &side->communicator;
    const SumSlice own = sum_slice(elements, communicator->self, communicator->count);
    TRY(nccl_begin_group(side->member, error));
    Status status = STATUS_OK;
    for (int i = 0; status == STATUS_OK && i < communicator->count; i++) {
        const SumSlice slice = sum_slice(elements, i, communicator->count);
        if (i == communicator->self)
            continue;
        status = collects ? transfer(side, true, buffer + slice.start, slice.length, i, error)
                          : transfer(side, true, buffer + own.start, own.length, i, error);
        if (status == STATUS_OK)
            status = collects ? transfer(side, false, side->member->parts + (size_t)i * pitch, own.length, i, error)
                              : transfer(side, false, buffer + slice.start, slice.length, i, error);
    }
    return nccl_end_group(side->member, status, error);
}

static Status enqueue_piece(NcclCommunicator *side, float *buffer, size_t elements, Error *error)
{
    Device *device = side->member->device;
    const DeviceAsync *queues = device->run->async;
    const int self = side->communicator.self, count = side->communicator.count;
    const SumSlice own = sum_slice(elements, self, count);
    const size_t pitch = (own.length + SUM_LINE - 1) / SUM_LINE * SUM_LINE;
    float *const parts = side->member->parts, *const mine = buffer + own.start, *sum = self == 0 ? mine : parts;
    TRY(exchange(side, true, buffer, elements, pitch, error));
    for (int i = 1; i < count; i++)
        TRY(queues->accumulate(device, QUEUE_MESSAGES, own.length, i == self ? mine : parts + (size_t)i * pitch, sum,
                               error));
    if (self != 0)
        TRY(queues->copy_block(device, QUEUE_MESSAGES, own.length * sizeof *sum, sum, mine, error));
    return exchange(side, false, buffer, elements, pitch, error);
}

/* Enqueues a sum. On a GPU all sums are of floats. */
Status nccl_sum_post(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error)
{
    NcclCommunicator *side = (NcclCommunicator *)communicator;
    NcclMember *member = side->member;
    (void)size;
    if (communicator->count == 1)
        return STATUS_OK;
    TRY(nccl_flush(member, error));
    TRY(nccl_follow(member, QUEUE_MESSAGES, QUEUE_COMPUTE, error));
    for (size_t at = 0, some; at < elements; at += some) {
        some = piece_of(elements - at);
        TRY(enqueue_piece(side, (float *)buffer + at, some, error));
    }
    return member->device->run->async->record(member->device, QUEUE_MESSAGES, side->summed, error);
}

Status nccl_sum_wait(Communicator *communicator, Error *error)
{
    const NcclCommunicator *side = (NcclCommunicator *)communicator;
    if (communicator->count == 1)
        return STATUS_OK;
    Device *device = side->member->device;
    return device->run->async->await(device, QUEUE_COMPUTE, side->summed, error);
}
