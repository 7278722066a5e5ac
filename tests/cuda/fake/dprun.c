/* dprun with the mock CUDA runtime and the fake NCCL, as a program. The environment has their settings. At the end it
   prints what they have noticed. */

#include "tests/cuda/fake/nccl.h"
#include "tests/cuda/standin/standin.h"

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

/* STANDIN_ALONE: every process sees only its own GPU. FAKE_NCCL_FAILS: applies to process FAKE_NCCL_RANK. */
__attribute__((constructor)) static void begin(void)
{
    const int process = number("OMPI_COMM_WORLD_RANK", 0);
    const bool alone = getenv("STANDIN_ALONE") != NULL;
    standin_begin(&(StandinSetting){
        .order = (StandinOrder)number("STANDIN_ORDER", STANDIN_LATE),
        .seed = (uint64_t)process,
        .devices = alone ? 1 : number("STANDIN_DEVICES", 1),
        .first_device = alone ? process : 0,
    });
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    FakeNcclBegin *fake_begin = NULL;
    if (!library) {
        fprintf(stderr, "stand-in: %s\n", dlerror());
        return;
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
    const StandinReport standin = standin_report();
    if (standin.races)
        fprintf(stderr, "stand-in: %zu races, first: %s\n", standin.races, standin.first_race);
    if (standin.live)
        fprintf(stderr, "stand-in: %zu things were not given back\n", standin.live);
    if (!fake_report)
        return;
    const FakeNcclReport nccl = fake_report();
    if (nccl.communicators || nccl.late_connections || nccl.mismatches || nccl.early_uses || nccl.early_ends)
        fprintf(stderr,
                "stand-in: %d communicators, %d late connections, %d mismatches, %d early uses, %d early ends\n",
                nccl.communicators, nccl.late_connections, nccl.mismatches, nccl.early_uses, nccl.early_ends);
    standin_kernels_end();
    standin_begin(&(StandinSetting){0});
}
