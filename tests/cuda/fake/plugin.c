/* In the plug-in that has the mock CUDA runtime and uses the fake NCCL: environment variables set both up when dprun
   loads it. At the end it prints the violations that they have noticed. */

#include "tests/cuda/fake/nccl.h"
#include "tests/cuda/mock/mock.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FakeNcclReportFunction *fake_report;

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* MOCK_ALONE: every process sees only its own GPU. FAKE_NCCL_FAILS: the call that fails in process FAKE_NCCL_RANK. */
__attribute__((constructor)) static void begin(void)
{
    const int process = number("OMPI_COMM_WORLD_RANK", 0);
    const bool alone = getenv("MOCK_ALONE") != NULL;
    mock_begin(&(MockSetting){
        .order = (MockOrder)number("MOCK_ORDER", MOCK_LATE),
        .seed = (uint64_t)process,
        .devices = alone ? 1 : number("MOCK_DEVICES", 1),
        .first_device = alone ? process : 0,
    });
    /* RTLD_LAZY, because the mock's functions, which the fake NCCL calls, are in the global scope only later */
    void *library = dlopen("libnccl.so.2", RTLD_LAZY);
    FakeNcclBegin *fake_begin = NULL;
    if (!library) {
        fprintf(stderr, "mock: %s\n", dlerror());
        _exit(1);
    }
    *(void **)&fake_begin = dlsym(library, "fake_nccl_begin");
    *(void **)&fake_report = dlsym(library, "fake_nccl_report");
    fake_begin(&(FakeNccl){
        .fails = process == number("FAKE_NCCL_RANK", 0) ? getenv("FAKE_NCCL_FAILS") : NULL,
        .fails_at = number("FAKE_NCCL_AT", 1),
        .silent_rank = number("FAKE_NCCL_SILENT", -1),
    });
}

__attribute__((destructor)) static void end(void)
{
    const MockReport mock = mock_report();
    if (mock.races)
        fprintf(stderr, "mock: %zu races, first: %s\n", mock.races, mock.first_race);
    if (mock.live)
        fprintf(stderr, "mock: %zu things were not given back\n", mock.live);
    if (!fake_report)
        return;
    const FakeNcclReport nccl = fake_report();
    if (nccl.communicators || nccl.late_connections || nccl.mismatches || nccl.early_uses || nccl.early_ends)
        fprintf(stderr, "mock: %d communicators, %d late connections, %d mismatches, %d early uses, %d early ends\n",
                nccl.communicators, nccl.late_connections, nccl.mismatches, nccl.early_uses, nccl.early_ends);
    mock_kernels_end();
    mock_begin(&(MockSetting){0});
}
