#ifndef MEASURED_CALIBRATE_H
#define MEASURED_CALIBRATE_H

/* `dpc calibrate`: writes the times of passes and messages in measured runs as a cost file. */

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdint.h>

/* From `count` traces of one model, cut into the same number of stages, to the file `output` ("-": stdout). fastest:
   use only that many of the shortest steps of each trace; 0: all steps. */
Status calibrate(int count, char *const *paths, uint32_t fastest, const char *output, Arena *arena, Error *error);

/* The same from traces of the PyTorch profiler. The file `map` explains their names: costs of components, or of the
   passes of stages. */
Status calibrate_mapped(const char *map, int count, char *const *paths, uint32_t fastest, const char *output,
                        Arena *arena, Error *error);

#endif
