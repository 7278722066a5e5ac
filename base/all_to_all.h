#pragma once

#include <stddef.h>
#include <stdint.h>

/* An all-to-all: each member sends one piece to every member, itself included. Pieces may be empty. Piece m of `send`
   goes to member m: the bytes from send_begins[m] up to, not including, send_begins[m + 1]. Piece m of `receive` comes
   from member m: receive_begins gives its place in `receive` in the same way. Sender and receiver must give a piece the
   same size. If the sizes are known only at run time, an all-to-all of the sizes comes first. The caller owns this
   struct, both buffers and both arrays of offsets, and changes none of them from the post until the wait has
   returned. */
typedef struct AllToAll {
    const void *send;
    void *receive;                              /* does not overlap `send` */
    const size_t *send_begins, *receive_begins; /* [members + 1] bytes */
    uint64_t number;                            /* set by the transport for itself */
    /* after the wait: when the last piece for this member arrived, in ns of clock_nanoseconds; 0: unknown. How exact it
       is without --link depends on the transport. local: when the last piece from or for this member was copied. mpi:
       when a call of progress first found that all pieces for this member had arrived; 0 if no such call did */
    int64_t arrival;
} AllToAll;
