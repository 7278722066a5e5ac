#ifndef COMMAND_CORES_H
#define COMMAND_CORES_H

/* Many compilations at once. */

#include <stdint.h>

/* Calls `work` with the context on as many threads as this process has cores, but no more than `most`, and returns when
   all calls have returned. */
void on_all_cores(void *(*work)(void *context), void *context, uint64_t most);

#endif
