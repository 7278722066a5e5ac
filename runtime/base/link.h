#ifndef BASE_LINK_H
#define BASE_LINK_H

/* A network that a run imitates (dprun --link): no transfer between two of its processes arrives earlier than it would
   over such a network. A link leads from one process to another one, and carries one transfer at a time; but all pieces
   that a process sends in all-to-alls share one link. A transfer starts when both sides have posted it and the link is
   free, keeps the link busy for bytes / bandwidth, and arrives `latency` after that. */

#include "runtime/base/status.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct LinkModel {
    bool given;       /* false: transfers are as fast as the machine allows */
    double latency;   /* seconds */
    double bandwidth; /* bytes a second; 0: unlimited */
    int first, last;  /* only transfers between two of these processes are slowed down; they are counted from 0 */
} LinkModel;

/* Reads "latency=20us,bandwidth=2G,ranks=0-3". One of latency and bandwidth may be left out, and `ranks`, which then
   is all processes. A latency ends in s, ms, us or ns; a bandwidth may end in K, M, G or T, powers of 1024.
   STATUS_BAD_USAGE says what is wrong. */
Status link_read(const char *text, LinkModel *link, Error *error);

/* Whether transfers between these two processes use the imitated network. */
static inline bool link_connects(const LinkModel *link, int from, int to)
{
    return from >= link->first && from <= link->last && to >= link->first && to <= link->last && from != to;
}

/* The time at which a transfer arrives, in ns. *free: the time at which the link has finished all earlier transfers;
   becomes the time at which it has finished this one. `ready`: when the later of the two sides posted. */
static inline int64_t link_arrival(const LinkModel *link, int64_t *free, int64_t ready, size_t bytes)
{
    const double busy = link->bandwidth > 0 ? (double)bytes / link->bandwidth : 0;
    *free = (*free > ready ? *free : ready) + (int64_t)ceil(busy * 1e9);
    return *free + (int64_t)ceil(link->latency * 1e9);
}

#endif
