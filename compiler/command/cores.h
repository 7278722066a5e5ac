#ifndef COMMAND_CORES_H
#define COMMAND_CORES_H

/* Runs many compilations at once. */

#include <stdint.h>

/* Calls work(context) once on each of several threads: as many as this process may use cores, but at most `most` and
   257, and fewer if the system starts no more. One of them is the caller's, which always calls it. Returns when all
   calls have returned. */
void on_all_cores(void *(*work)(void *context), void *context, uint64_t most);

#endif
