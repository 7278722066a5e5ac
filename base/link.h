#pragma once

/* A slow network that a run imitates (dprun --link): no transfer between two processes of the run arrives earlier than
   it would over such a network. A link leads from one process to another one, and carries one transfer at a time; but
   all pieces that a process sends in all-to-alls share one link. If ranks are threads, each counts as a process. A
   transfer starts when both sides have posted it and the link is free, keeps the link busy for bytes / bandwidth, and
   arrives `latency` after that. */

#include "base/status.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct LinkModel {
    bool given;       /* false: transfers are as fast as the machine allows */
    double latency;   /* seconds */
    double bandwidth; /* bytes a second; 0: unlimited */
    int first, last;  /* only transfers between two of the processes first to last (from 0) are slowed down */
} LinkModel;

/* Reads "latency=20us,bandwidth=2G,ranks=0-3". Without `latency` the latency is 0, without `bandwidth` the bandwidth is
   unlimited; a latency above 0 or a bandwidth must be given. Without `ranks` all processes have the network. A latency
   ends in s, ms, us or ns; a bandwidth may end in K, M, G or T, powers of 1024. STATUS_BAD_USAGE: the error says what
   is wrong. */
Status link_read(const char *text, LinkModel *link, Error *error);

/* Whether transfers from process `from` to process `to` use the imitated network; false if both are the same one. */
static inline bool link_connects(const LinkModel *link, int from, int to)
{
    return from >= link->first && from <= link->last && to >= link->first && to <= link->last && from != to;
}

/* Adds a transfer to a link and returns when it ends. The transfer takes `time`, and begins at `ready` or at *free,
   whichever is later. *free: when all earlier transfers of the link end; becomes the end of this transfer. All times in
   ns. */
static inline int64_t link_occupy(int64_t *free, int64_t ready, int64_t time)
{
    *free = (*free > ready ? *free : ready) + time;
    return *free;
}

/* When a transfer of `bytes` bytes arrives, in ns. *free: when the link has finished all earlier transfers; becomes the
   time when it has finished this one. `ready`: the time at which both sender and receiver had posted. */
static inline int64_t link_arrival(const LinkModel *link, int64_t *free, int64_t ready, size_t bytes)
{
    const double busy = link->bandwidth > 0 ? (double)bytes / link->bandwidth : 0;
    return link_occupy(free, ready, (int64_t)ceil(busy * 1e9)) + (int64_t)ceil(link->latency * 1e9);
}
