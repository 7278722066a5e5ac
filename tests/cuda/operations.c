/* The operations of the CUDA device on the stand-in: parameters, launches, scratch memory. */

#include <stdio.h>

#include "tests/cuda/operations.h"
#include "tests/cuda/standin/standin.h"

int main(void)
{
    static const struct {
        const char *device;
        int major;
        double bound;
        unsigned cluster;
    } runs[] = {{"cuda-fp32", 8, 1e-5, 0}, {"cuda", 8, 1e-2, 0}, {"cuda", 9, 1e-2, 0}, {"cuda", 9, 1e-2, 2}};
    int failed = 0;
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        standin_begin(&(StandinSetting){.major = runs[r].major});
        failed += run_operations(runs[r].device, runs[r].bound, false, runs[r].cluster);
        const StandinReport report = standin_report();
        if (report.live || report.races) {
            fprintf(stderr, "%zu objects left, %zu races: %s\n", report.live, report.races, report.first_race);
            failed++;
        }
        if (runs[r].cluster > 1 ? report.clustered == 0 : runs[r].major < 9 && report.clustered > 0) {
            fprintf(stderr, "%zu launches in clusters\n", report.clustered);
            failed++;
        }
        standin_kernels_end();
    }
    return failed;
}
