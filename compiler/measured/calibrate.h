#ifndef MEASURED_CALIBRATE_H
#define MEASURED_CALIBRATE_H

/* `dpc calibrate`: what passes and messages took in measured runs, as a cost file. */

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdint.h>

/* From `count` traces of one model, cut into one number of stages, to the file `output` ("-": stdout). fastest: of the
 * so many shortest steps of each only; 0: of all. */
Status calibrate(int count, char *const *paths, uint32_t fastest, const char *output, Arena *arena, Error *error);

/* The same from traces of the PyTorch profiler, whose names the file `map` explains: costs of components, or of the
   passes of stages. */
Status calibrate_mapped(const char *map, int count, char *const *paths, uint32_t fastest, const char *output,
                        Arena *arena, Error *error);

#endif
