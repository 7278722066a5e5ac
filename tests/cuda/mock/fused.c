#include "tests/cuda/mock/fused.h"

#include "tests/gpu/fused_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROBLEM = 256 };

struct MockFused {
    Fused table; /* the table of the launch */
    unsigned count;
    size_t element_size;
    Operation *operations;
    TileRun *runs;
    size_t forget;
};

#define NAME(file, name, parameters) [CUDA_##name] = #name,
static const char *const names[CUDA_KERNELS] = {KERNELS(NAME)};
#undef NAME

static const MockKernel *kernel_of(KernelNumber kind, size_t *element_size)
{
    const char *const suffixes[] = {*element_size == 4 ? "_f32" : "_bf16", ""};
    for (int s = 0; s < 2; s++) {
        char name[64];
        size_t size;
        snprintf(name, sizeof name, "%s%s", names[kind], suffixes[s]);
        const MockKernel *kernel = mock_kernel(name, &size);
        if (kernel) {
            *element_size = size;
            return kernel;
        }
    }
    return NULL;
}

unsigned mock_fused_count(const MockFused *fused) { return fused->count; }

const MockKernel *mock_fused_operation(const MockFused *fused, unsigned index, const void **parameters,
                                       size_t *element_size)
{
    *parameters = &fused->operations[index].of;
    *element_size = fused->element_size;
    return kernel_of(fused->operations[index].kind, element_size);
}

void mock_fused_free(MockFused *fused)
{
    free(fused->operations);
    free(fused->runs);
    free(fused);
}

/* --- dependences --- */

static bool comes_after(const MockFused *fused, unsigned index, unsigned which, unsigned *other)
{
    const Operation *o = &fused->operations[index];
    if (which >= o->after_count || fused->forget == index + 1)
        return false;
    *other = o->after[which];
    return true;
}

/* Returns before[i * count + j]: operation i depends on operation j, directly or through others. An operation depends
   only on earlier ones. */
static bool *order_of(const MockFused *fused)
{
    const unsigned count = fused->count;
    bool *before = calloc((size_t)count * count + 1, sizeof *before);
    for (unsigned i = 0; i < count; i++)
        for (unsigned a = 0, other; comes_after(fused, i, a, &other); a++) {
            before[i * count + other] = true;
            for (unsigned j = 0; j < other; j++)
                before[i * count + j] |= before[other * count + j];
        }
    return before;
}

typedef struct Range {
    const char *begin, *end;
    bool read, written;
} Range;

static size_t ranges_of(const MockFused *fused, unsigned index, Range *ranges)
{
    MockOperand operands[MOCK_OPERANDS];
    const void *parameters;
    size_t element_size, found = 0;
    const MockKernel *kernel = mock_fused_operation(fused, index, &parameters, &element_size);
    const size_t count = kernel->operands(parameters, operands);
    for (size_t i = 0; i < count; i++) {
        const char *memory;
        memcpy(&memory, (const char *)parameters + operands[i].offset, sizeof memory);
        if (memory)
            ranges[found++] =
                (Range){memory, memory + operands[i].count * (operands[i].size ? operands[i].size : element_size),
                        operands[i].read, operands[i].written};
    }
    return found;
}

static bool meet(const Range *a, size_t a_count, const Range *b, size_t b_count)
{
    for (size_t i = 0; i < a_count; i++)
        for (size_t j = 0; j < b_count; j++)
            if ((a[i].written || b[j].written) && a[i].begin < b[j].end && b[j].begin < a[i].end)
                return true;
    return false;
}

static void find_races(const MockFused *fused, char *problem)
{
    const unsigned count = fused->count;
    bool *before = order_of(fused);
    Range(*ranges)[MOCK_OPERANDS] = calloc((size_t)count + 1, sizeof *ranges);
    size_t *counts = calloc((size_t)count + 1, sizeof *counts);
    for (unsigned i = 0; i < count; i++) {
        counts[i] = ranges_of(fused, i, ranges[i]);
        for (unsigned j = 0; j < i; j++)
            if (!before[i * count + j] && meet(ranges[i], counts[i], ranges[j], counts[j]))
                snprintf(problem, PROBLEM, "%s, operation %u, and %s, operation %u, of one launch, unordered",
                         names[fused->operations[j].kind], j, names[fused->operations[i].kind], i);
    }
    free(before);
    free(ranges);
    free(counts);
}

/* --- a launch --- */

MockFused *mock_fused_take(CudaStream *stream, const Fused *table, size_t element_size, size_t forget, char *problem)
{
    MockFused *fused = calloc(1, sizeof *fused);
    Fused here = *table;
    Error error = {""};
    fused->table = *table;
    fused->element_size = element_size;
    fused->forget = forget;
    const size_t bytes = table->run_count * sizeof(TileRun);
    here.runs = fused->runs = malloc(bytes + 1);
    mock_read(stream, table->runs, bytes, fused->runs);
    for (unsigned r = 0; r < table->run_count; r++)
        if (fused->runs[r].operation >= fused->count)
            fused->count = fused->runs[r].operation + 1;
    here.operations = fused->operations = aligned_alloc(_Alignof(Operation), (fused->count + 1) * sizeof(Operation));
    mock_read(stream, table->operations, fused->count * sizeof(Operation), fused->operations);
    *problem = '\0';
    for (unsigned i = 0; i < fused->count && !*problem; i++)
        if (fused->operations[i].kind >= CUDA_KERNELS)
            snprintf(problem, PROBLEM, "a fused launch: operation %u is none", i);
        else if (fused->operations[i].tiles != operation_tiles(&fused->operations[i], (unsigned)element_size))
            snprintf(problem, PROBLEM, "a fused launch: operation %u has %u tiles", i, fused->operations[i].tiles);
    if (!*problem && fused_check(&here, fused->count, &error) != STATUS_OK)
        snprintf(problem, PROBLEM, "a fused launch: %.200s", error.text);
    if (!*problem)
        find_races(fused, problem);
    return fused;
}

static bool may_run(const MockFused *fused, const bool *done, unsigned index)
{
    bool may = !done[index];
    for (unsigned a = 0, other; comes_after(fused, index, a, &other); a++)
        may = may && done[other];
    return may;
}

static bool is_same(const MockFused *fused)
{
    return memcmp(fused->table.operations, fused->operations, fused->count * sizeof(Operation)) == 0 &&
           memcmp(fused->table.runs, fused->runs, fused->table.run_count * sizeof(TileRun)) == 0;
}

const char *mock_fused_run(MockFused *fused, uint64_t (*random)(void))
{
    if (!is_same(fused))
        return "a fused launch: its table has changed since it was enqueued";
    for (unsigned i = 0; i < fused->count; i++)
        if (*fused->table.drawn || fused->table.done[i])
            return "a fused launch: its counters are not zero";
    memset(fused->table.cleared, 0, fused->table.cleared_count * sizeof *fused->table.cleared);
    bool *done = calloc((size_t)fused->count + 1, sizeof *done);
    for (unsigned left = fused->count; left > 0; left--) {
        unsigned index = (unsigned)(random() % fused->count);
        while (!may_run(fused, done, index))
            index = (index + 1) % fused->count;
        const void *parameters;
        size_t element_size;
        const MockKernel *kernel = mock_fused_operation(fused, index, &parameters, &element_size);
        mock_run(kernel, element_size, parameters);
        done[index] = true;
        fused->table.done[index] = fused->operations[index].tiles;
    }
    *fused->table.drawn = fused->table.tickets;
    free(done);
    return NULL;
}
