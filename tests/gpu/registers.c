/* Reads the compiler's reports on the prebuilt machine code. Each kernel must exist for each architecture that it is
   for. No function in these reports may have a stack frame or spill registers to memory, and no report may have a
   warning. Functions of hopper.cu must use 168 registers. Skipped if `make gpu-code` has not run. */

#include "runtime/device/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const architectures[] = {"sm_80", "sm_90a", "sm_100"};

static char *log_of(const char *file, const char *architecture)
{
    char path[200];
    snprintf(path, sizeof path, "build/kernels/%s.%s.cubin.log", file, architecture);
    FILE *log = fopen(path, "r");
    if (!log)
        return NULL;
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, log) < (1 << 20) - 1);
    fclose(log);
    return text;
}

static void assert_there(const char *file, const char *architecture, const char *kernel)
{
    char *text = log_of(file, architecture), entry[100];
    assert_non_null(text);
    snprintf(entry, sizeof entry, "entry function '%s' for '%s'", kernel, architecture);
    if (!strstr(text, entry))
        fail_msg("%s: no %s in the compiler's log", architecture, kernel);
    const char *before = "";
    for (char *rest, *line = strtok_r(text, "\n", &rest); line; before = line, line = strtok_r(NULL, "\n", &rest))
        if (strstr(line, " bytes stack frame") &&
            strcmp(line, "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"))
            fail_msg("%s, %s: %s: %s", file, architecture, before, line);
        else if (strstr(line, "warning")) /* such as: setmaxnreg ignored, wgmma serialized */
            fail_msg("%s, %s: %s", file, architecture, line);
        else if (strcmp(file, "hopper") == 0 && strstr(line, "Used ") && !strstr(line, "Used 168 registers"))
            fail_msg("%s: %s: the warpgroups share out 3 x 168", before, line); /* hopper.cuh */
    free(text);
}

static void test_no_spills(void **state)
{
    (void)state;
    char *there = log_of("product.f32", architectures[0]);
    if (!there) {
        puts("SKIPPED: no machine code for GPUs; `make gpu-code` compiles it with nvcc");
        skip();
    }
    free(there);
    for (size_t a = 0; a < sizeof architectures / sizeof *architectures; a++) {
#define ONE(file, name, parameters) assert_there(#file, architectures[a], #name);
#define OF_FLOATS(file, name, parameters) assert_there(#file ".f32", architectures[a], #name);
#define IN_FLOAT(file, name, parameters) assert_there(#file ".f32", architectures[a], #name "_f32");
#define BOTH(file, name, parameters) \
    IN_FLOAT(file, name, parameters) \
    assert_there(#file ".bf16", architectures[a], #name "_bf16");
        KERNELS_OF_COMPUTE_TYPES(BOTH)
        KERNELS_OF_FLOATS(OF_FLOATS)
        if (!strcmp(architectures[a], "sm_90a")) { /* fused_hopper replaces fused_bf16 */
            KERNELS_OF_TABLES(IN_FLOAT)
            KERNELS_OF_HOPPER(ONE)
            KERNELS_OF_HOPPER_TABLES(ONE)
        } else {
            KERNELS_OF_TABLES(BOTH)
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_spills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
