/* Streams, events and timing events of the CUDA device. */

#include "runtime/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

static Status make_event(Device *device, DeviceEvent **event, Error *error)
{
    (void)device;
    *event = calloc(1, sizeof **event);
    if (!*event)
        return error_set(error, STATUS_RUN_FAILED, "out of memory on the host: no room for a CUDA event");
    const Status status = cuda_status(cuda_runtime->EventCreate(&(*event)->event, 0), "cudaEventCreate", error);
    if (status != STATUS_OK) {
        free(*event);
        *event = NULL;
    }
    return status;
}

static void free_event(Device *device, DeviceEvent *event)
{
    (void)device;
    if (event)
        cuda_runtime->EventDestroy(event->event);
    free(event);
}

static Status record(Device *device, DeviceQueue queue, DeviceEvent *event, Error *error)
{
    CUDA_TRY(EventRecord, event->event, ((CudaDevice *)device)->streams[queue]);
    return STATUS_OK;
}

static Status await(Device *device, DeviceQueue queue, DeviceEvent *event, Error *error)
{
    CUDA_TRY(StreamWaitEvent, ((CudaDevice *)device)->streams[queue], event->event);
    return STATUS_OK;
}

static Status copy_block(Device *device, DeviceQueue queue, size_t bytes, const void *source, void *destination,
                         Error *error)
{
    CUDA_TRY(MemcpyAsync, destination, source, bytes, ((CudaDevice *)device)->streams[queue]);
    return STATUS_OK;
}

static void *native_queue(Device *device, DeviceQueue queue)
{
    CudaDevice *cuda = (CudaDevice *)device;
    cuda->library = cuda->library || queue == QUEUE_MESSAGES;
    return cuda->streams[queue];
}

static void identity(const Device *device, unsigned char bytes[DEVICE_IDENTITY])
{
    memcpy(bytes, ((const CudaDevice *)device)->properties.uuid, DEVICE_IDENTITY);
}

void cuda_free_marks(CudaDevice *cuda)
{
    for (size_t i = 0; i < cuda->mark_count; i++)
        cuda_runtime->EventDestroy(cuda->marks[i]);
    free(cuda->marks);
    cuda->marks = NULL;
    cuda->mark_count = 0;
}

static Status make_marks(Device *device, size_t count, Error *error)
{
    CudaDevice *cuda = (CudaDevice *)device;
    cuda_free_marks(cuda);
    cuda->marks = calloc(count + 1, sizeof *cuda->marks);
    if (!cuda->marks)
        return error_set(error, STATUS_RUN_FAILED, "out of memory on the host: no room for %zu timing events", count);
    for (; cuda->mark_count < count; cuda->mark_count++)
        CUDA_TRY(EventCreate, &cuda->marks[cuda->mark_count], 1);
    return STATUS_OK;
}

static Status mark(Device *device, size_t number, Error *error)
{
    CudaDevice *cuda = (CudaDevice *)device;
    CUDA_TRY(EventRecord, cuda->marks[number], cuda->streams[QUEUE_COMPUTE]);
    return STATUS_OK;
}

static Status reached(Device *device, size_t number, bool *reached, Error *error)
{
    const CudaError code = cuda_runtime->EventQuery(((CudaDevice *)device)->marks[number]);
    *reached = code == CUDA_OK;
    return code == CUDA_NOT_READY ? STATUS_OK : cuda_status(code, "cudaEventQuery", error);
}

static Status mark_time(Device *device, size_t number, int64_t *nanoseconds, Error *error)
{
    CudaDevice *cuda = (CudaDevice *)device;
    float milliseconds;
    CUDA_TRY(EventElapsedTime, &milliseconds, cuda->marks[0], cuda->marks[number]);
    *nanoseconds = (int64_t)((double)milliseconds * 1e6);
    return STATUS_OK;
}

const DeviceAsync cuda_queues = {
    .make_event = make_event,
    .free_event = free_event,
    .record = record,
    .await = await,
    .copy_block = copy_block,
    .accumulate = cuda_accumulate_on,
    .native_queue = native_queue,
    .identity = identity,
    .make_marks = make_marks,
    .mark = mark,
    .reached = reached,
    .mark_time = mark_time,
};
