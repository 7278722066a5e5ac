/* Checks the machine code of the kernels.
     - A tile of a fused launch reads what other tiles of the same launch have written. If the compiler takes memory for
       constant during a launch it loads through a cache that does not see stores (LDG…CONSTANT). And a block that has
       waited for a counter must empty the ordinary cache (CCTL.IVALL) before later loads, but not at each look.
     - Only one thread of a block waits for the memory of the whole GPU (MEMBAR.ALL.GPU).
     - Loops that are bound by memory have several 16-byte loads in flight in each thread.
     - GELU of bfloat16 takes few instructions.
   Reads the code with nvdisasm of the CUDA toolkit; skipped without nvdisasm, or if nvcc has not compiled the
   kernels. */

#include "runtime/cuda/jit.h"
#include "runtime/cuda/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char disassemble[] = "PATH=\"$PATH:${CUDA_HOME:-/usr/local/cuda}/bin\" nvdisasm -c";

enum { LABELS = 4096 };

/* What was found in the code of a kernel. */
typedef struct Loads {
    unsigned all, waits, faults;
    char first[200];                         /* the first fault */
    unsigned instructions, powers;           /* number of all instructions, and of powers of 2 (MUFU.EX2) */
    unsigned in_flight, most_in_flight;      /* 16-byte loads since the last label or branch; the largest number */
    unsigned fences, sleeps, empties, loops; /* MEMBAR.ALL.GPU, NANOSLEEP, CCTL.IVALL, branches back so far */
    /* of the label .L_x_N: the counts above where it was, plus 1 */
    struct {
        unsigned seen, sleeps, empties, loops;
    } labels[LABELS];
} Loads;

static void fault(Loads *loads, const char *what, const char *line)
{
    if (loads->faults++ == 0)
        snprintf(loads->first, sizeof loads->first, "%s: %.*s", what, (int)strcspn(line, ";"),
                 line + strspn(line, " "));
}

/* A loop without a loop in it that sleeps must not empty the cache. */
static void read_branch(Loads *loads, const char *line)
{
    const char *label = strstr(line, "`(.L_x_");
    const unsigned long number = label ? strtoul(label + 7, NULL, 10) : LABELS;
    loads->in_flight = 0;
    if (number >= LABELS || !loads->labels[number].seen)
        return;
    if (loads->labels[number].loops == loads->loops++ && loads->sleeps > loads->labels[number].sleeps &&
        loads->empties > loads->labels[number].empties)
        fault(loads, "the cache is emptied at every look", line);
}

static void read_label(Loads *loads, const char *line)
{
    const unsigned long number = strncmp(line, ".L_x_", 5) == 0 ? strtoul(line + 5, NULL, 10) : LABELS;
    loads->in_flight = 0;
    if (number >= LABELS)
        return;
    loads->labels[number].seen = 1;
    loads->labels[number].sleeps = loads->sleeps;
    loads->labels[number].empties = loads->empties;
    loads->labels[number].loops = loads->loops;
}

static void read_instruction(Loads *loads, const char *line, bool *stale)
{
    loads->instructions += strchr(line, ';') != NULL;
    loads->powers += strstr(line, " MUFU.EX2 ") != NULL;
    loads->fences += strstr(line, " MEMBAR.ALL.GPU") != NULL;
    loads->sleeps += strstr(line, " NANOSLEEP ") != NULL;
    loads->empties += strstr(line, " CCTL.IVALL") != NULL;
    if (strstr(line, " LDG.E.128") || strstr(line, " LD.E.128"))
        loads->most_in_flight = ++loads->in_flight > loads->most_in_flight ? loads->in_flight : loads->most_in_flight;
    if (line[0] == '.')
        read_label(loads, line);
    if (strstr(line, " BRA "))
        read_branch(loads, line);
    const char *load = strstr(line, " LD.");
    if (!load && !(load = strstr(line, " LDG."))) {
        if (strstr(line, " CCTL.IVALL"))
            *stale = false;
        return;
    }
    const size_t length = strcspn(load + 1, " ") + 1;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)length, load);
    loads->all++;
    if (strstr(name, ".CONSTANT") || strstr(name, ".CI"))
        fault(loads, "a load of what never changes", line);
    if (strstr(name, ".STRONG.GPU"))
        loads->waits++, *stale = true;
    else if (*stale)
        fault(loads, "a load behind a counter, the cache as it was", line);
}

/* Finds the loads of a kernel in a file of machine code; all zero if the file has no such kernel. */
static Loads loads_of(const char *file, const char *kernel)
{
    static Loads loads;
    memset(&loads, 0, sizeof loads);
    char command[400], section[100], *line = NULL;
    size_t size = 0;
    bool inside = false, stale = false;
    snprintf(command, sizeof command, "%s %s", disassemble, file);
    snprintf(section, sizeof section, ".text.%s:", kernel);
    FILE *text = popen(command, "r");
    assert_non_null(text);
    while (getline(&line, &size, text) > 0)
        if (strncmp(line, ".text.", 6) == 0)
            inside = strncmp(line, section, strlen(section)) == 0;
        else if (inside)
            read_instruction(&loads, line, &stale);
    free(line);
    assert_int_equal(pclose(text), 0);
    return loads;
}

static void require_disassembler(void)
{
    char command[400];
    snprintf(command, sizeof command, "%s --version > /dev/null 2>&1", disassemble);
    if (system(command) != 0) {
        puts("SKIPPED: no nvdisasm on the PATH or in $CUDA_HOME/bin, so nobody has read the machine code");
        skip();
    }
}

static Loads code_of(const char *unit, const char *kernel)
{
    char file[200];
    require_disassembler();
    snprintf(file, sizeof file, "build/kernels/%s.sm_90a.cubin", unit);
    if (access(file, R_OK) != 0) {
        puts("SKIPPED: no machine code for GPUs; `make gpu-code` compiles it with nvcc");
        skip();
    }
    return loads_of(file, kernel);
}

static void assert_fresh(const char *unit, const char *kernel)
{
    const Loads loads = code_of(unit, kernel);
    if (loads.faults > 0)
        fail_msg("%s: %u loads may be stale; %s", kernel, loads.faults, loads.first);
    if (loads.all < 100 || loads.waits == 0)
        fail_msg("%s: %u loads, %u of counters: that is not its code", kernel, loads.all, loads.waits);
}

static void test_fused(void **state)
{
    (void)state;
    assert_fresh("fused.f32", "fused_f32");
    assert_fresh("hopper", "fused_hopper");
    /* the release of count_up, and the fence of the thread that loads for the copy engine */
    assert_int_equal(code_of("hopper", "fused_hopper").fences, 2);
}

static void test_loads_in_flight(void **state)
{
    (void)state;
    static const struct {
        const char *unit, *kernel;
        unsigned least;
    } rows[] = {{"layers.bf16", "norm_forward_bf16", 4},         {"layers.bf16", "norm_backward_input_bf16", 4},
                {"layers.bf16", "norm_backward_weight_bf16", 8}, {"layers.bf16", "gelu_forward_bf16", 2},
                {"layers.bf16", "gelu_backward_bf16", 4},        {"attention.bf16", "attention_delta_bf16", 8},
                {"product.bf16", "product_weight_bf16", 8},      {"training.f32", "accumulate_f32", 8}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const Loads loads = code_of(rows[r].unit, rows[r].kernel);
        if (loads.most_in_flight < rows[r].least)
            fail_msg("%s has %u loads in flight, not %u", rows[r].kernel, loads.most_in_flight, rows[r].least);
    }
}

/* Of all instructions of the kernels, loads and stores included: at most 35 an element. */
static void test_gelu(void **state)
{
    (void)state;
    static const char *const kernels[] = {"gelu_forward_bf16", "gelu_backward_bf16"};
    for (int k = 0; k < 2; k++) {
        const Loads loads = code_of("layers.bf16", kernels[k]);
        assert_true(loads.powers >= 16 && loads.instructions <= 35 * loads.powers);
    }
}

/* Three kernels with a fault each, and one (fresh) without, to check that faults are detected and nothing else. */
static const char faulty[] =
    "#define WAIT(order) unsigned n; do asm volatile(\"ld.\" order \".gpu.global.u32 %0, [%1];\" : \"=r\"(n) : "
    "\"l\"(p) : \"memory\"); while (!n)\n"
    "extern \"C\" __global__ void constant(const float *__restrict__ from, float *__restrict__ to) { *to = *from; }\n"
    "extern \"C\" __global__ void stale(const unsigned *p, const float *from, float *to) { WAIT(\"relaxed\"); *to = "
    "*from; }\n"
    "extern \"C\" __global__ void empties(const unsigned *p, float *to) { for (unsigned n;;) { asm "
    "volatile(\"ld.acquire.gpu."
    "global.u32 %0, [%1];\" : \"=r\"(n) : \"l\"(p) : \"memory\"); if (n) break; __nanosleep(64); } *to = 1; }\n"
    "extern \"C\" __global__ void fresh(const unsigned *p, const float *from, float *to) { WAIT(\"acquire\"); *to = "
    "*from; }\n";

static void test_faults_are_found(void **state)
{
    (void)state;
    require_disassembler();
    const Nvrtc *nvrtc;
    Error error = {""};
    if (jit_open(&nvrtc, &error) != STATUS_OK) {
        printf("SKIPPED: %s\n", error.text);
        skip();
    }
    const JitSource source = {.name = "faulty", .text = faulty, .architecture = "sm_90a"};
    JitImage image;
    if (jit_compile(nvrtc, "", 1, &source, &image, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    char file[] = "/tmp/loads-XXXXXX";
    const int descriptor = mkstemp(file);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, image.code, image.bytes), image.bytes);
    close(descriptor);
    free(image.code);
    const Loads constant = loads_of(file, "constant"), stale = loads_of(file, "stale"),
                empties = loads_of(file, "empties"), fresh = loads_of(file, "fresh");
    const Loads none = loads_of(file, "fused_f32");
    unlink(file);
    assert_int_equal(constant.faults, 1);
    assert_int_equal(stale.faults, 1);
    assert_int_equal(empties.faults, 1);
    assert_true(stale.waits > 0);
    assert_int_equal(fresh.faults, 0);
    assert_true(fresh.waits > 0 && fresh.all > fresh.waits);
    assert_int_equal(none.all, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fused), cmocka_unit_test(test_loads_in_flight),
                                       cmocka_unit_test(test_gelu), cmocka_unit_test(test_faults_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
