#ifndef COMMAND_CORES_H
#define COMMAND_CORES_H

/* Runs many compilations at once. */

#include <stdint.h>

/* Calls work(context) once on each of several threads: as many as this process has cores, but at most `most`. Returns
   when all calls have returned. */
void on_all_cores(void *(*work)(void *context), void *context, uint64_t most);

#endif
