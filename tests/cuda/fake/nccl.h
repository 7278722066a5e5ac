#pragma once

/* A fake libnccl.so.2 for ranks that are threads or processes of one machine, on the streams of the mock runtime. A
   group starts when it is the first operation left in its stream. A group ends when each of its transfers is complete;
   a transfer needs that the peer's group with the other end has started. An ended group is enqueued only when the
   communicator's state is queried or the communicator ends. A process that has died is not reported to the others. */

#include <stdbool.h>
#include <stddef.h>

typedef struct FakeNccl {
    int version;        /* 0: 22809 */
    const char *fails;  /* name of the call that fails, without "nccl"; NULL: none */
    int fails_at;       /* the n-th call of that name fails */
    int asked_fails_at; /* the n-th CommGetAsyncError reports that a peer is gone; 0: none */
    /* this rank's groups never start, except greetings (late_connections below); -1: all groups start */
    int silent_rank;
} FakeNccl;

typedef struct FakeNcclReport {
    int communicators; /* number of open communicators */
    int groups, transfers;
    int most_blocks;    /* what the last communicator got as maxCTAs; 0: nothing */
    int most_transfers; /* largest number of transfers of a group, greetings excepted */
    /* pairs of sender and receiver whose first transfer is not in a greeting (a group of one-byte transfers) */
    int late_connections;
    int mismatches; /* transfers for which sender and receiver give different sizes */
    int early_uses; /* groups that end before the previous group of the communicator is enqueued */
    int early_ends; /* communicators destroyed before all ranks had finalized them */
} FakeNcclReport;

/* The types of fake_nccl_begin and fake_nccl_report. Tests find these functions by dlsym. */
typedef void FakeNcclBegin(const FakeNccl *setting);
typedef FakeNcclReport FakeNcclReportFunction(void);
