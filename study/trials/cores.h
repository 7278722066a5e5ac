#pragma once

/* Runs work on all cores, such as many compilations at once. */

#include <stdint.h>

/* Calls work(context) once on each of several threads, one of which is the calling thread. There are as many threads as
   cores that this process may use, but at most `most` and at most 257, at least the calling one, and fewer if the
   system cannot start so many. Returns when all calls have returned. */
void on_all_cores(void *(*work)(void *context), void *context, uint64_t most);
