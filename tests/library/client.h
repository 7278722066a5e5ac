#pragma once

/* For tests that use libdps as an outside program does: with dps.h and nothing else of the project. */

#include "library/dps.h"
#include "tests/test.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline dps_program *compiled(dps *d, const char *path, uint32_t ranks, uint32_t microbatches)
{
    dps_program *program;
    const dps_options options = {.size = sizeof options, .ranks = ranks, .microbatches = microbatches};
    const dps_status status = dps_compile_file(d, path, &options, &program);
    assert_string_equal(dps_error(d), "");
    assert_int_equal(status, DPS_OK);
    return program;
}
