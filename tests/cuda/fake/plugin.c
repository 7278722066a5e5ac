/* In the plug-in that has the mock CUDA runtime and uses the fake NCCL: environment variables set both up when dprun
   loads it. At the end it prints the violations that they have noticed. */

#include "tests/cuda/fake/nccl.h"
#include "tests/cuda/mock/mock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FakeNcclBegin fake_nccl_begin;
FakeNcclReportFunction fake_nccl_report;

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
    fake_nccl_begin(&(FakeNccl){
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
    const FakeNcclReport nccl = fake_nccl_report();
    if (nccl.communicators || nccl.late_connections || nccl.mismatches || nccl.early_uses || nccl.early_ends)
        fprintf(stderr, "mock: %d communicators, %d late connections, %d mismatches, %d early uses, %d early ends\n",
                nccl.communicators, nccl.late_connections, nccl.mismatches, nccl.early_uses, nccl.early_ends);
    mock_kernels_end();
    mock_begin(&(MockSetting){0});
}
