/* The operations of the CUDA device on the mock runtime: parameters, launches, scratch memory. */

#include <stdio.h>

#include "tests/cuda/operations.h"
#include "tests/cuda/mock/mock.h"

int main(void)
{
    static const struct {
        int major, shared_bytes;
        OperationsRun run;
    } runs[] = {
        {8, 0, {.device = "cuda-fp32", .bound = 1e-5}},
        {8, 0, {.device = "cuda", .bound = 1e-2}},
        {9, 0, {.device = "cuda", .bound = 1e-2}},
        {8, 0, {.device = "cuda-fp32", .bound = 1e-5, .fused = true}},
        {9, 0, {.device = "cuda", .bound = 1e-2, .fused = true}},
        {8, 99 << 10, {.device = "cuda-fp32", .bound = 1e-5}},
        {8, 99 << 10, {.device = "cuda", .bound = 1e-2}},
        {8, 99 << 10, {.device = "cuda-fp32", .bound = 1e-5, .fused = true}},
    };
    int failed = 0;
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        const OperationsRun *run = &runs[r].run;
        mock_begin(&(MockSetting){.major = runs[r].major, .shared_bytes = runs[r].shared_bytes});
        failed += run_operations(*run);
        const MockReport report = mock_report();
        if (report.live || report.races) {
            fprintf(stderr, "%zu objects left, %zu races: %s\n", report.live, report.races, report.first_race);
            failed++;
        }
        if ((runs[r].major == 9 && !run->fused) != (report.clustered > 0) || run->fused != (report.fused > 0)) {
            fprintf(stderr, "%zu launches in clusters, %zu fused\n", report.clustered, report.fused);
            failed++;
        }
        mock_kernels_end();
    }
    return failed;
}
