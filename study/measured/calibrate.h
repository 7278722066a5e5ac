#pragma once

/* `dpc calibrate`: writes the times of passes and messages in traces as a cost file. */

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

/* Writes the costs that `count` traces of dprun show to the file `output` ("-": stdout). All traces whose passes count
   (calibration.h) must cut the model into the same number of stages. fastest: use only this many of the shortest steps
   of each trace; 0: all steps. Step 1 is never used if there are others. */
Status calibrate(int count, char *const *paths, uint32_t fastest, const char *output, Arena *arena, Error *error);

/* Writes the costs that traces of the PyTorch profiler show: costs of components, or of the passes of stages. The file
   at the path `map` says what the names in the traces mean. STATUS_BAD_USAGE: the map has components, and `fastest` is
   not 0. */
Status calibrate_mapped(const char *map, int count, char *const *paths, uint32_t fastest, const char *output,
                        Arena *arena, Error *error);
