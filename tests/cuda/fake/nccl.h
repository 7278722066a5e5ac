#ifndef TESTS_CUDA_FAKE_NCCL_H
#define TESTS_CUDA_FAKE_NCCL_H

/* A fake libnccl.so.2 for ranks that are threads or processes of one machine, on the streams of the mock runtime. A
   group starts when it is the first of its stream. It ends when every transfer of it has met its peer's, whose group
   must have started as well. Nothing of a call happens before the communicator's state is queried. Nobody learns that a
   process has died. */

#include <stdbool.h>
#include <stddef.h>

typedef struct FakeNccl {
    int version;        /* 0: 22809 */
    const char *fails;  /* name of the call that fails, without "nccl" */
    int fails_at;       /* the n-th call of it fails */
    int asked_fails_at; /* the n-th CommGetAsyncError reports that a peer is gone */
    int silent_rank;    /* groups of this rank do not start, greetings excepted; -1: all groups start */
} FakeNccl;

typedef struct FakeNcclReport {
    int communicators; /* number of open communicators */
    int groups, transfers;
    int most_transfers;   /* largest number of transfers of a group, greetings excepted */
    int late_connections; /* pairs of ranks that communicate before their greeting, a group of transfers of one byte */
    int mismatches;       /* transfers whose ends have different sizes */
    int early_uses;       /* calls before the last call was complete */
    int early_ends;       /* communicators destroyed before all ranks had finalized them */
} FakeNcclReport;

/* Tests find both by dlsym. */
typedef void FakeNcclBegin(const FakeNccl *setting);
typedef FakeNcclReport FakeNcclReportFunction(void);

#endif
