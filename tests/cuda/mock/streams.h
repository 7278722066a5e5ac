#pragma once

/* The streams of the mock runtime: lists of operations that are still to run. For each access of an operation to the
   GPU's memory, the mock checks that streams and events order it after earlier conflicting accesses. The callers of
   these functions hold mock_lock. */

#include "tests/cuda/mock/fused.h"

#include "runtime/cuda/cuda.h"

#include <pthread.h>

enum { STREAMS_MAX = 64 };

/* A vector clock: for each stream, the number of its operations that have happened before. */
typedef struct Clock {
    uint32_t of[STREAMS_MAX];
} Clock;

typedef enum WorkKind { LAUNCH, LAUNCH_FUSED, COPY, SET, RECORD, WAIT, ATTEMPT } WorkKind;

typedef struct Work Work;
struct Work {
    WorkKind kind;
    Work *next;
    uint64_t number; /* the number of this operation in its stream, counted from 1 */
    const MockKernel *kernel;
    size_t element_size;
    void *parameters;
    MockFused *fused;
    void *destination;
    const void *source;
    size_t bytes;
    int value;
    CudaEvent *event;  /* RECORD */
    CudaStream *other; /* WAIT: operation `other_number` of stream `other` must have run */
    uint64_t other_number;
    bool (*attempt)(void *data); /* ATTEMPT */
};

struct CUstream_st {
    unsigned id;
    uint64_t enqueued, run;
    Work *first, **end;
    Clock clock;
};

struct CUevent_st {
    CudaStream *stream; /* the stream in which the event was recorded last; NULL: never recorded */
    uint64_t number;
    unsigned looks; /* calls of EventQuery since the record */
    Clock clock;
    int64_t time;
};

extern pthread_mutex_t mock_lock;
extern MockSetting mock_setting;
extern MockReport mock_counts;
extern CudaStream *mock_streams[STREAMS_MAX]; /* [id]; NULL: destroyed. A run uses each id once */
extern unsigned mock_stream_count;
extern _Thread_local Clock mock_known; /* operations that the calling thread has waited for */

/* Forgets all streams, blocks of memory and accesses, and frees the memory that was passed to mock_at_end. */
void streams_begin(void);

/* Counts the call. True: it must fail. */
bool mock_fails(const char *name);
/* Counts a violation of the order. */
void mock_note(const char *problem);

/* Takes the larger number of the two clocks for each stream: `clock` comes after `other`. */
void clock_join(Clock *clock, const Clock *other);

/* Adds a block of the GPU's memory. Accesses to such blocks are checked. */
void block_add(void *memory, size_t bytes);
/* Removes the block that begins at `memory`. False: there is none. */
bool block_remove(const void *memory);

/* Advances the stream's vector clock: its next operation comes after all earlier operations of the stream, and after
   all operations that the calling thread has waited for. */
void stream_advance(CudaStream *stream);
/* Records an access of the stream's next operation, and reports a race if no order puts it after an earlier conflicting
   access. */
void stream_touch(const CudaStream *stream, const char *name, const void *memory, size_t bytes, bool writes);
void stream_enqueue(CudaStream *stream, Work operation);
/* Runs the stream's operations up to number `number`. False: one of them cannot run yet. */
bool stream_run_to(CudaStream *stream, uint64_t number);
/* Runs the operations of all streams, as far as they can run. */
void streams_run(void);
