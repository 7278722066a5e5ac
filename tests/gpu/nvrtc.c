/* The sources that are embedded in the program are whole: NVRTC, where it is installed, makes of them what nvcc makes of the
   files, without a GPU and without any header of its own. A quick one stands for all here; names on the command line are
   made instead, for another architecture where one is among them. */

#include "runtime/base/clock.h"
#include "runtime/device/cuda.h"
#include "runtime/device/jit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 32 };

typedef struct Work {
    const Nvrtc *nvrtc;
    JitSource source;
    char name[64];
    Status status;
    Error error;
    size_t bytes;
    pthread_t thread;
} Work;

static void *compile(void *argument)
{
    Work *work = argument;
    void *image;
    work->status = jit_compile(work->nvrtc, "", &work->source, &image, &work->bytes, &work->error);
    free(image);
    return NULL;
}

static const char *wanted[FILES_MAX] = {"training"};
static const char *architecture = "sm_90a";

static bool is_wanted(const char *file)
{
    for (int i = 0; i < FILES_MAX && wanted[i]; i++)
        if (strcmp(wanted[i], file) == 0)
            return true;
    return false;
}

static void test_sources(void **state)
{
    (void)state;
    const Nvrtc *nvrtc;
    Error error = {""};
    if (jit_open(&nvrtc, &error) != STATUS_OK)
        skip();
    const char *names[FILES_MAX], *texts[FILES_MAX];
    Work works[FILES_MAX];
    int headers = 0, count = 0;
    for (const CudaImage *image = cuda_images; image->file; image++)
        if (!image->architecture && strchr(image->file, '.')) {
            names[headers] = image->file;
            texts[headers++] = image->begin;
        }
    const int64_t begun = clock_nanoseconds();
    for (const CudaImage *image = cuda_images; image->file; image++) {
        if (image->architecture || !is_wanted(image->file))
            continue;
        Work *work = &works[count++];
        *work = (Work){.nvrtc = nvrtc};
        snprintf(work->name, sizeof work->name, "%s.cu", image->file);
        work->source = (JitSource){.name = work->name, .text = image->begin, .headers = headers, .header_names = names,
                                   .header_texts = texts, .architecture = architecture};
        assert_int_equal(pthread_create(&work->thread, NULL, compile, work), 0);
    }
    for (int i = 0; i < count; i++)
        pthread_join(works[i].thread, NULL);
    for (int i = 0; i < count; i++)
        if (works[i].status != STATUS_OK || works[i].bytes < 1000)
            fail_msg("%s: %s", works[i].name, works[i].error.text);
    assert_true(count > 0);
    printf("%d sources for %s in %.1f s\n", count, architecture, (double)(clock_nanoseconds() - begun) * 1e-9);
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc && i < FILES_MAX; i++)
        if (strncmp(argv[i], "sm_", 3) == 0)
            architecture = argv[i];
        else
            wanted[files++] = argv[i];
    if (files)
        wanted[files] = NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sources)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
