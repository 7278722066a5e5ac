#ifndef TESTS_CUDA_FAKE_NCCL_H
#define TESTS_CUDA_FAKE_NCCL_H

/* A libnccl.so.2 for ranks that are threads or processes of one machine, on the stand-in's streams: a group begins when
   it is the first of its stream and ends when every transfer of it has met its other end, which must have begun as
   well. Nothing of a call is done before the communicator was asked how it is. Of a process that has died the others
   hear nothing. */

#include <stdbool.h>
#include <stddef.h>

typedef struct FakeNccl {
    int version;        /* 0: 22809 */
    const char *fails;  /* this call, without "nccl", */
    int fails_at;       /* its so manieth time */
    int asked_fails_at; /* the so manieth CommGetAsyncError tells that a peer is gone */
    int silent_rank;    /* its groups never begin after the first; -1: none */
} FakeNccl;

typedef struct FakeNcclReport {
    int communicators; /* open */
    int groups, transfers;
    int most_transfers;   /* of a group behind the first of its rank */
    int late_connections; /* pairs of ranks that first met in another group than the first */
    int mismatches;       /* ends that met with different sizes */
    int early_uses;       /* calls before the one before was done */
    int early_ends;       /* communicators destroyed before all ranks had finalized them */
} FakeNcclReport;

/* Both by dlsym. */
typedef void FakeNcclBegin(const FakeNccl *setting);
typedef FakeNcclReport FakeNcclReportFunction(void);

#endif
