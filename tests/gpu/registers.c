/* Reads the compiler's reports on the prebuilt machine code. Each kernel must exist. No function in these reports may
   have a stack frame or spill registers to memory, and no report may have a warning. Functions of hopper.cu must use
   168 registers. Skipped if `make gpu-code` has not run. */

#include "runtime/cuda/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *log_of(const char *file)
{
    char path[200];
    snprintf(path, sizeof path, "build/kernels/%s.sm_90a.cubin.log", file);
    FILE *log = fopen(path, "r");
    if (!log)
        return NULL;
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, log) < (1 << 20) - 1);
    fclose(log);
    return text;
}

static void assert_there(const char *file, const char *kernel)
{
    char *text = log_of(file), entry[100];
    assert_non_null(text);
    snprintf(entry, sizeof entry, "entry function '%s' for 'sm_90a'", kernel);
    if (!strstr(text, entry))
        fail_msg("no %s in the compiler's log", kernel);
    const char *before = "";
    for (char *rest, *line = strtok_r(text, "\n", &rest); line; before = line, line = strtok_r(NULL, "\n", &rest))
        if (strstr(line, " bytes stack frame") &&
            strcmp(line, "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"))
            fail_msg("%s: %s: %s", file, before, line);
        else if (strstr(line, "warning")) /* such as: setmaxnreg ignored, wgmma serialized */
            fail_msg("%s: %s", file, line);
        else if (strcmp(file, "hopper") == 0 && strstr(line, "Used ") && !strstr(line, "Used 168 registers"))
            fail_msg("%s: %s: the warpgroups share out 3 x 168", before, line); /* hopper.cuh */
    free(text);
}

static void test_no_spills(void **state)
{
    (void)state;
    char *there = log_of("product.f32");
    if (!there) {
        puts("SKIPPED: no machine code for GPUs; `make gpu-code` compiles it with nvcc");
        skip();
    }
    free(there);
#define ONE(file, name, parameters) assert_there(#file, #name);
#define OF_FLOATS(file, name, parameters) assert_there(#file ".f32", #name);
#define IN_FLOAT(file, name, parameters) assert_there(#file ".f32", #name "_f32");
#define BOTH(file, name, parameters) \
    IN_FLOAT(file, name, parameters) \
    assert_there(#file ".bf16", #name "_bf16");
    KERNELS_OF_COMPUTE_TYPES(BOTH)
    KERNELS_OF_FLOATS(OF_FLOATS)
    KERNELS_OF_TABLES(IN_FLOAT) /* fused_hopper replaces fused_bf16 */
    KERNELS_OF_HOPPER(ONE)
    KERNELS_OF_HOPPER_TABLES(ONE)
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_spills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
