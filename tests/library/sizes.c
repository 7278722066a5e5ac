/* Structs of other versions of dps.h: calls with each struct that has a `size`, in every shorter size of whole words
   and in longer ones. dps_progress is left out, as only the library makes it. The byte after the struct cannot be
   accessed. */

#include "tests/library/client.h"

#include <sys/mman.h>
#include <unistd.h>

enum { WORD = sizeof(size_t), LONGER = 32, STRUCT_MAX = 512 };

static dps *d;
static dps_program *program;
static dps_prediction *prediction;
static dps_rank *rank;

static int begin(void **state)
{
    dps_program *wrong;
    (void)state;
    d = dps_new(NULL);
    program = compiled(d, "schedules/dualpipe.dps", 4, 8);
    assert_int_equal(dps_predict(d, program, NULL, 0, &prediction), DPS_OK);
    assert_int_equal(dps_compile_text(d, "schedule x\nranks", 16, NULL, NULL, &wrong), DPS_BAD_INPUT);
    return 0; /* the session has a diagnostic now */
}

static int end(void **state)
{
    (void)state;
    dps_prediction_free(prediction);
    dps_program_free(program);
    dps_free(d);
    return 0;
}

/* Returns `size` bytes that end directly before a page that cannot be accessed: first `used` bytes of `content`, then
   0xee. The next call overwrites them. */
static void *guarded(size_t size, const void *content, size_t used)
{
    static char *page;
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (!page) {
        page = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(page != MAP_FAILED);
        assert_int_equal(mprotect(page + bytes, bytes, PROT_NONE), 0);
    }
    memset(page, 0xee, bytes);
    return memcpy(page + bytes - size, content, used);
}

/* --- structs that the library fills in --- */

static dps_status program_info(void *of) { return dps_get_program_info(program, of); }
static dps_status rank_info(void *of) { return dps_get_rank_info(program, 0, of); }
static dps_status pipe_info(void *of) { return dps_get_pipe_info(program, 0, of); }
static dps_status chunk_info(void *of) { return dps_get_chunk_info(program, 0, 0, of); }
static dps_status member(void *of) { return dps_get_group_member(program, 0, 0, of); }
/* The index of the first F&B of rank 0. */
static uint32_t first_pair(void)
{
    dps_instruction i = {.size = sizeof i};
    uint32_t n = 0;
    while (dps_get_instruction(program, 0, n, 0, &i) == DPS_OK && i.halves == 1)
        n++;
    return n;
}

static dps_status instruction(void *of) { return dps_get_instruction(program, 0, 0, 0, of); }
static dps_status component(void *of) { return dps_get_component(program, 0, first_pair(), 1, 1, 0, of); }
static dps_status prediction_info(void *of) { return dps_get_prediction_info(prediction, of); }
static dps_status rank_prediction(void *of) { return dps_get_rank_prediction(prediction, 0, of); }
static dps_status diagnostic(void *of) { return dps_get_diagnostic(d, 0, of); }

/* Checks that `fill` gives a struct of another size as many of the same members as it has room for, and zeros after
   those that the library knows. `fill` refuses a size below one word. The last member ends at `used`; padding may
   follow. */
static void filled_to_its_size(dps_status (*fill)(void *), size_t size, size_t used)
{
    char whole[STRUCT_MAX] = {0};
    memcpy(whole, &size, sizeof size);
    assert_int_equal(fill(whole), DPS_OK);
    for (size_t given = WORD; given <= size + LONGER; given += WORD) {
        memcpy(whole, &given, sizeof given);
        char *const filled = guarded(given, &given, sizeof given);
        assert_int_equal(fill(filled), DPS_OK);
        assert_memory_equal(filled, whole, given < used ? given : used);
        for (size_t i = size; i < given; i++)
            assert_int_equal(filled[i], 0);
    }
    for (size_t given = 0; given < WORD; given++)
        assert_int_equal(fill(guarded(WORD, &given, sizeof given)), DPS_BAD_USAGE);
}

TEST(structs_are_filled_to_their_size)
{
#define FILL(name, type, last) filled_to_its_size(name, sizeof(type), offsetof(type, last) + sizeof((type *)0)->last)
    FILL(program_info, dps_program_info, is_asynchronous);
    FILL(rank_info, dps_rank_info, messages_received);
    FILL(pipe_info, dps_pipe_info, first);
    FILL(chunk_info, dps_chunk_info, group);
    FILL(member, dps_group_member, chunk);
    FILL(instruction, dps_instruction, second);
    FILL(component, dps_component, communicates);
    FILL(prediction_info, dps_prediction_info, messages_time);
    FILL(rank_prediction, dps_rank_prediction, peak_memory);
    FILL(diagnostic, dps_diagnostic, help);
#undef FILL
}

/* --- structs that the library reads --- */

static uint32_t placed[12];
static double before[2], after[2], loads[] = {5, 1, 1, 1, 3, 2, 1, 1};
static void *messages[300], *gradients[] = {before, before};
static const size_t elements[] = {2, 2};
static const dps_experts good_experts = {
    .size = sizeof good_experts, .layers = 2, .experts = 4, .replicas = 6, .gpus = 2, .loads = loads};
static const dps_placement good_placement = {
    .size = sizeof good_placement, .placement = placed, .before = before, .after = after};

static void *give(void *user, size_t size) { return (void)user, malloc(size); }
static void take(void *user, void *memory) { (void)user, free(memory); }
static int nothing(void *user, const dps_instruction *i) { return (void)user, (void)i, 0; }

static dps_status host(const void *given)
{
    dps *session = dps_new(given);
    dps_free(session);
    return session ? DPS_OK : DPS_BAD_USAGE;
}

static dps_status options(const void *given)
{
    dps_program *made;
    const dps_status status = dps_compile_file(d, "schedules/dualpipe.dps", given, &made);
    dps_program_free(made);
    return status;
}

static dps_status rank_options(const void *given)
{
    const dps_status status = dps_rank_open(d, program, 0, given, &rank);
    dps_rank_free(rank);
    return status;
}

static dps_status functions(const void *given)
{
    assert_int_equal(dps_rank_open(d, program, 0, NULL, &rank), DPS_OK);
    const dps_status status = dps_step(rank, given);
    dps_rank_free(rank);
    return status;
}

static dps_status buffers(const void *given)
{
    dps_threads *threads;
    assert_int_equal(dps_threads_new(d, program, 1, &threads), DPS_OK);
    assert_int_equal(dps_rank_open(d, program, 0, NULL, &rank), DPS_OK);
    const dps_status status = dps_join(rank, threads, given);
    dps_rank_free(rank);
    dps_threads_free(threads);
    return status;
}

static dps_status experts(const void *given) { return dps_balance(d, given, &good_placement); }
static dps_status placement(const void *given) { return dps_balance(d, &good_experts, given); }

/* A shorter struct is taken as if zeros followed; a longer one is refused unless the rest is zeros; a size below one
   word is refused. */
static void read_to_its_size(dps_status (*use)(const void *), const void *whole, size_t size)
{
    char padded[STRUCT_MAX + LONGER] = {0};
    for (size_t given = 0; given < WORD; given++)
        assert_int_equal(use(guarded(WORD, &given, sizeof given)), DPS_BAD_USAGE);
    for (size_t given = WORD; given <= size; given += WORD) {
        memcpy(padded, whole, given);
        const dps_status expected = use(padded);
        memcpy(padded, &given, sizeof given);
        assert_int_equal(use(guarded(given, padded, given)), expected);
    }
    assert_int_equal(use(whole), DPS_OK);
    const size_t longer = size + LONGER;
    memcpy(padded, &longer, sizeof longer);
    assert_int_equal(use(guarded(longer, padded, longer)), DPS_OK);
    padded[longer - 1] = 1;
    assert_int_equal(use(guarded(longer, padded, longer)), DPS_BAD_USAGE);
}

TEST(structs_are_read_to_their_size)
{
#define READ(name, ...) \
    read_to_its_size(name, &(dps_##name){.size = sizeof(dps_##name), __VA_ARGS__}, sizeof(dps_##name))
    READ(host, .allocate = give, .release = take);
    READ(options, .ranks = 4, .microbatches = 8);
    READ(rank_options, .ranks = 4, .post_early = 1);
    READ(functions, .forward = nothing, .backward_input = nothing, .backward_weight = nothing, .backward = nothing,
         .overlap = nothing, .send = nothing, .receive = nothing, .wait = nothing, .reduce = nothing,
         .wait_reduce = nothing, .norm = nothing, .update = nothing);
    READ(buffers, .messages = messages, .gradients = gradients, .elements = elements, .element_bytes = 8);
#undef READ
    read_to_its_size(experts, &good_experts, sizeof good_experts);
    read_to_its_size(placement, &good_placement, sizeof good_placement);
}

int main(void) { return test_program("sizes", begin, end); }
