/* Speed of reading a trace of the PyTorch profiler and of assigning its kernels to components. Prints lines: name value
   unit. */
#include "study/measured/kineto_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LAYERS = 400, OPERATORS = 900, KERNELS = 70, ROUNDS = 5 };

/* Writes a layer with the form and mix of Kineto: per kernel one call of the runtime and about a dozen operators. */
static void put_layer(int layer, FILE *stream)
{
    static uint32_t correlation;
    const long time = 1740461679470813 + 30000L * layer;
    fprintf(stream,
            "  {\n    \"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"%s\", \"pid\": 1166, \"tid\": 1166,\n"
            "    \"ts\": %ld, \"dur\": 29000,\n    \"args\": {\n      \"External id\": 4610, \"Ev Idx\": 2041\n    }\n"
            "  },\n",
            layer % 2 ? "mlp" : "attention", time);
    for (int i = 0; i < OPERATORS; i++)
        fprintf(
            stream,
            "  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::elementwise_%d\", \"pid\": 1166, \"tid\": "
            "1166,\n    \"ts\": %ld, \"dur\": 17,\n    \"args\": {\n      \"External id\": %d, \"Record function id\": "
            "0, \"Ev Idx\": %d, \"Input type\": [\"c10::BFloat16\", \"\", \"Scalar\"]\n    }\n  },\n",
            i % 60, time + 30L * i, i, i);
    for (int i = 0; i < KERNELS; i++) {
        correlation++;
        fprintf(
            stream,
            "  {\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1166, "
            "\"tid\": 1166,\n    \"ts\": %ld, \"dur\": 5,\n    \"args\": {\n      \"External id\": %u, \"cbid\": 211, "
            "\"correlation\": %u\n    }\n  },\n",
            time + 300L * i, correlation, correlation);
        fprintf(
            stream,
            "  {\n    \"ph\": \"s\", \"id\": %u, \"pid\": 1166, \"tid\": 1166, \"ts\": %ld,\n    \"cat\": \"ac2g\", "
            "\"name\": \"ac2g\"\n  },\n",
            correlation, time + 300L * i);
        fprintf(
            stream,
            "  {\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void "
            "at::native::vectorized_elementwise_kernel<4, "
            "at::native::CUDAFunctor_add<float>, at::detail::Array<char*, %d> >(int, float)\", \"pid\": 0, \"tid\": "
            "7,\n    \"ts\": %ld, \"dur\": 100,\n    \"args\": {\n      \"External id\": %u,\n      \"queued\": 0, "
            "\"device\": 0, \"context\": 1,\n      \"stream\": 7, \"correlation\": %u,\n      \"registers per "
            "thread\": "
            "32,\n      \"shared memory\": 0,\n      \"blocks per SM\": 31.030304,\n      \"grid\": [4096, 1, 1],\n"
            "      \"block\": [128, 1, 1],\n      \"est. achieved occupancy %%\": 100\n    }\n  },\n",
            i % 20, time + 300L * i + 100000, correlation, correlation);
    }
}

/* Seconds of processor time. */
static double seconds_of(const char *map_path, const char *trace_path)
{
    Arena arena = {0};
    Error error = {""};
    KinetoMap map;
    KinetoTrace trace;
    KinetoProfile profile;
    const clock_t begun = clock();
    if (kineto_map_read(map_path, &arena, &map, &error) != STATUS_OK ||
        kineto_read(trace_path, &arena, &trace, &error) != STATUS_OK ||
        kineto_profile(&trace, &map, &arena, &profile, &error) != STATUS_OK) {
        error_print("kineto", &error);
        exit(1);
    }
    const double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    arena_free(&arena);
    return seconds;
}

int main(void)
{
    char map_path[] = "/tmp/map.XXXXXX", trace_path[] = "/tmp/trace.XXXXXX";
    FILE *map = fdopen(mkstemp(map_path), "w"), *trace = fdopen(mkstemp(trace_path), "w");
    if (!map || !trace)
        return 1;
    fputs("attention.F = attention\nmlp.F = mlp\n", map);
    fclose(map);
    fputs("{\n  \"schemaVersion\": 1,\n  \"traceEvents\": [\n", trace);
    for (int layer = 0; layer < LAYERS; layer++)
        put_layer(layer, trace);
    fputs("  {\"ph\": \"i\", \"name\": \"end\", \"ts\": 1}\n  ]\n}\n", trace);
    const double megabytes = (double)ftell(trace) * 1e-6;
    fclose(trace);
    double least = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        const double seconds = seconds_of(map_path, trace_path);
        least = seconds < least ? seconds : least;
    }
    unlink(map_path);
    unlink(trace_path);
    printf("kineto.trace %.0f MB\n", megabytes);
    printf("kineto.read_and_joined %.0f MB/s of processor time (goal 200)\n", megabytes / least);
    return 0;
}
