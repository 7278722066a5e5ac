/* A step allocates nothing: the calls of allocation functions are counted from the end of the first step to the end of
   the last but one, because in the last one a rank may write its files while another still computes. The linker
   redirects the calls of the project's own objects to the functions below (--wrap in the Makefile), so the calls inside
   of other libraries are not counted. */
#include "tests/exec/training.h"

#include <dlfcn.h>
#include <stdatomic.h>

/* during: allocations from the end of the first step to the end of the last but one; before: all others of a run */
static atomic_int before, during;
static atomic_bool counting;
static _Atomic(void *) caller; /* the code that made the first allocation counted in `during` */

static void count_call(void *from)
{
    void *none = NULL;
    if (!atomic_load(&counting)) {
        atomic_fetch_add(&before, 1);
        return;
    }
    atomic_compare_exchange_strong(&caller, &none, from);
    atomic_fetch_add(&during, 1);
}

/* Counts the calls of a function that allocates, then calls it. */
#define COUNTED(type, name, parameters, arguments) \
    type __real_##name parameters;                 \
    type __wrap_##name parameters;                 \
    type __wrap_##name parameters                  \
    {                                              \
        count_call(__builtin_return_address(0));   \
        return __real_##name arguments;            \
    }
COUNTED(void *, malloc, (size_t size), (size))
COUNTED(void *, calloc, (size_t count, size_t size), (count, size))
COUNTED(void *, realloc, (void *memory, size_t size), (memory, size))
COUNTED(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
COUNTED(FILE *, open_memstream, (char **text, size_t *size), (text, size))
COUNTED(FILE *, fmemopen, (void *memory, size_t size, const char *mode), (memory, size, mode))

static void count_after_first_step(void *context, const StepReport *report)
{
    (void)context;
    atomic_store(&counting, report->step < STEPS - 1);
}

/* Trains the small model with experts. `option` may be NULL. */
static void check(const char *schedule, const char *shards, char *option)
{
    char program[200], arguments[300];
    snprintf(arguments, sizeof arguments, "--ranks 2 --microbatches 4 schedules/%s.dps", schedule);
    compile_program(arguments, program);
    // clang-format off
    char *line[] = {"dprun", "--model", experts, "--set", "hidden=16", "--set", "sequence=8", "--set", "layers=8",
                    "--set", "heads=2", "--steps", "4", "--replicas=2", (char *)shards, program, option, NULL};
    // clang-format on
    Run run;
    atomic_store(&before, 0);
    atomic_store(&during, 0);
    run_load(&run, line);
    run_to_end(&run, &(SessionHooks){.observer = {.step = count_after_first_step}});
    assert_true(atomic_load(&before) > 0); /* the redirection works */
    Dl_info of_caller = {0};
    if (atomic_load(&during) && dladdr(atomic_load(&caller), &of_caller))
        fail_msg("%s %s %s: steps 2 to %d allocate %d times, first in %s", schedule, shards, option ? option : "",
                 STEPS - 1, atomic_load(&during), of_caller.dli_sname ? of_caller.dli_sname : "a static function");
    assert_int_equal(atomic_load(&during), 0);
}

TEST(a_step_allocates_nothing)
{
    check("1f1b", "--expert-parallel=1", NULL);
    check("1f1b", "--expert-parallel=2", NULL);
    check("1f1b", "--expert-parallel=2", "--expert-rows=2");
    /* dualpipev has F&Bs, whose recipe overlaps the all-to-alls with computation */
    check("dualpipev", "--expert-parallel=2", NULL);
    check("dualpipev", "--expert-parallel=2", "--expert-rows=2");
    /* --trace: a step keeps its times in tables made before the first step */
    check("dualpipev", "--expert-parallel=2", "--trace=/dev/null");
}

int main(void) { return test_program("allocations", make_folder, remove_folder); }
