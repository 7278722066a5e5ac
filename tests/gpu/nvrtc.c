/* The sources embedded in the program are complete: NVRTC, if installed, compiles them as nvcc compiles the files,
   without a GPU and without headers of its own. Here one quick unit is compiled. Units named on the command line
   (attention.bf16 hopper ...) are compiled instead, all at once, for another architecture if the line names one; this
   shows how long a first start takes. */

#include "base/clock.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/jit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { UNITS_MAX = 32 };

static const char *wanted[UNITS_MAX] = {"training.bf16"};
static size_t count = 1;
static const char *architecture = "sm_90a";

static const char *text_of(const char *file)
{
    for (const CudaImage *image = cuda_images; image->file; image++)
        if (!image->architecture && strcmp(image->file, file) == 0)
            return image->begin;
    fail_msg("there is no %s", file);
    return NULL;
}

static double processor_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static void test_sources(void **state)
{
    (void)state;
    const Nvrtc *nvrtc;
    Error error = {""};
    if (jit_open(&nvrtc, &error) != STATUS_OK)
        skip();
    const char *names[UNITS_MAX], *texts[UNITS_MAX];
    char files[UNITS_MAX][32];
    JitSource sources[UNITS_MAX];
    JitImage images[UNITS_MAX];
    int headers = 0;
    for (const CudaImage *image = cuda_images; image->file; image++)
        if (!image->architecture && strchr(image->file, '.')) {
            names[headers] = image->file;
            texts[headers++] = image->begin;
        }
    for (size_t i = 0; i < count; i++) {
        snprintf(files[i], sizeof files[i], "%s", wanted[i]);
        char *type = strchr(files[i], '.');
        if (type)
            *type++ = '\0';
        sources[i] = (JitSource){.name = wanted[i],
                                 .text = text_of(files[i]),
                                 .headers = headers,
                                 .header_names = names,
                                 .header_texts = texts,
                                 .architecture = architecture,
                                 .macro = !type                      ? NULL
                                          : strcmp(type, "f32") == 0 ? "ONLY_f32"
                                                                     : "ONLY_bf16"};
    }
    const int64_t begun = clock_nanoseconds();
    const double used = processor_seconds();
    if (jit_compile(nvrtc, "", count, sources, images, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    printf("%zu units for %s in %.1f s, %.1f s of processor time\n", count, architecture,
           (double)(clock_nanoseconds() - begun) * 1e-9, processor_seconds() - used);
    for (size_t i = 0; i < count; i++) {
        assert_true(images[i].bytes > 1000);
        free(images[i].code);
    }
}

int main(int argc, char **argv)
{
    size_t named = 0;
    for (int i = 1; i < argc && named < UNITS_MAX; i++)
        if (strncmp(argv[i], "sm_", 3) == 0)
            architecture = argv[i];
        else
            wanted[named++] = argv[i];
    count = named ? named : count;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sources)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
