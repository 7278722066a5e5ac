/* Hostile use of every function of dps.h: memory runs out at each allocation of each call, in turn, whether it comes
   from the host or from the C library; every pointer is NULL once; counts and lengths are enormous; numbers are NaN.
   The linker redirects libdps's calls of the C library to the functions below (--wrap in the Makefile). */

#include "tests/library/ranks.h"

#include <errno.h>
#include <locale.h>
#include <stdatomic.h>
#include <unistd.h>

#define DUALPIPE "schedules/dualpipe.dps"
#define CUT_OFF "schedule x\nranks"

/* --- allocations that are refused --- */

static atomic_int calls, refused, live; /* live: blocks, streams and locales that exist */
static atomic_int fail_at;              /* the number of the call that is refused; 0: none */
static bool forever;                    /* all later calls are refused too */
static atomic_bool armed;

/* Counts an allocation. True: it must fail. */
static bool refuse(void)
{
    if (!armed)
        return false;
    const int call = atomic_fetch_add(&calls, 1) + 1;
    const bool refuses = fail_at && (call == fail_at || (forever && call > fail_at));
    refused += refuses;
    errno = refuses ? ENOMEM : errno;
    return refuses;
}

#define WRAPPED(type, name, parameters, arguments) \
    type __real_##name parameters;                 \
    type __wrap_##name parameters;                 \
    type __wrap_##name parameters                  \
    {                                              \
        if (refuse())                              \
            return 0;                              \
        type made = __real_##name arguments;       \
        live += made != 0;                         \
        return made;                               \
    }
WRAPPED(void *, malloc, (size_t size), (size))
WRAPPED(void *, calloc, (size_t count, size_t size), (count, size))
WRAPPED(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
WRAPPED(char *, strdup, (const char *text), (text))
WRAPPED(char *, strndup, (const char *text, size_t size), (text, size))
WRAPPED(char *, realpath, (const char *path, char *resolved), (path, resolved))
WRAPPED(FILE *, fopen, (const char *path, const char *mode), (path, mode))
WRAPPED(FILE *, fdopen, (int descriptor, const char *mode), (descriptor, mode))
WRAPPED(locale_t, newlocale, (int mask, const char *name, locale_t base), (mask, name, base))
#undef WRAPPED

/* The text of the stream is a second block. */
FILE *__real_open_memstream(char **text, size_t *length);
FILE *__wrap_open_memstream(char **text, size_t *length);
FILE *__wrap_open_memstream(char **text, size_t *length)
{
    FILE *const stream = refuse() ? NULL : __real_open_memstream(text, length);
    live += stream ? 2 : 0;
    return stream;
}

void *__real_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size)
{
    void *const made = refuse() ? NULL : __real_realloc(block, size);
    live += made && !block;
    return made;
}

int __wrap_asprintf(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = refuse() ? -1 : vasprintf(text, format, arguments);
    va_end(arguments);
    live += length >= 0;
    return length;
}

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    live -= block != NULL;
    __real_free(block);
}

/* A stream in memory may find no room for the rest of its text when it is closed. */
int __real_fclose(FILE *stream);
int __wrap_fclose(FILE *stream);
int __wrap_fclose(FILE *stream)
{
    const bool full = fileno(stream) < 0 && refuse();
    const int failed = __real_fclose(stream);
    live--;
    return full ? EOF : failed;
}

void __real_freelocale(locale_t locale);
void __wrap_freelocale(locale_t locale);
void __wrap_freelocale(locale_t locale)
{
    live--;
    __real_freelocale(locale);
}

static void *give(void *user, size_t size)
{
    (void)user;
    void *const block = malloc(size);
    return block ? memset(block, 0xa5, size) : NULL;
}

static void take(void *user, void *block)
{
    (void)user;
    free(block);
}

/* --- the calls. Each returns its status; memory may be refused only within MAY_FAIL --- */

static void arm(void) { armed = true; }

static dps_status disarm(dps_status status)
{
    armed = false;
    return status;
}

#define MAY_FAIL(call) (arm(), disarm(call))

static const dps_host host = {.size = sizeof host, .allocate = give, .release = take};
static const char *const paths[] = {"schedules/gpipe.dps", "schedules/zb1p.dps", "schedules/zb-h1.dps"};
static const char *const costs[] = {"F=1,I=1.5,W=1", "F[0]=2,comm=0.1"};
static const dps_options sizes = {.size = sizeof sizes,
                                  .ranks = RANKS,
                                  .microbatches = MICROBATCHES,
                                  .costs = costs,
                                  .cost_count = 2,
                                  .slot_bytes = "message=1M,context=0,stash=0,gradient=0,weights=0",
                                  .memory_limit = "1G"};
static dps_program *program; /* the objects that calls use, made by a session that has memory */
static dps_prediction *prediction;
static void *bytes;
static size_t length;
static dps_format format;
static dps_program *made; /* what a call has made */
static char *text;
static char saved[] = "/tmp/attack-XXXXXX", file_of_costs[sizeof saved + 10];

static dps_status new_session(dps *d)
{
    (void)d;
    arm();
    dps *const opened = dps_new(&host);
    dps_free(opened);
    return disarm(opened ? DPS_OK : DPS_NO_MEMORY);
}

static dps_status without_program(dps_status status)
{
    dps_program_free(made);
    return status;
}

static dps_status compile(dps *d) { return without_program(MAY_FAIL(dps_compile_file(d, DUALPIPE, &sizes, &made))); }
static dps_status search(dps *d) { return without_program(MAY_FAIL(dps_compile_file(d, paths[1], &sizes, &made))); }
static dps_status load(dps *d) { return without_program(MAY_FAIL(dps_load(d, bytes, length, &made))); }
static dps_status load_file(dps *d) { return without_program(MAY_FAIL(dps_load_file(d, saved, &made))); }
static dps_status forward_half(dps *d) { return without_program(MAY_FAIL(dps_forward_half(d, program, &made))); }
static dps_status save(dps *d) { return MAY_FAIL(dps_save(d, program, saved)); }

static dps_status compile_order(dps *d)
{
    static const char order[] = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    return without_program(MAY_FAIL(dps_compile_text(d, order, strlen(order), "order.csv", NULL, &made)));
}

static dps_status compile_wrong(dps *d)
{
    const dps_status status = MAY_FAIL(dps_compile_text(d, CUT_OFF, strlen(CUT_OFF), NULL, NULL, &made));
    assert_true(status == DPS_NO_MEMORY || dps_diagnostic_count(d) > 0);
    return status == DPS_BAD_INPUT ? DPS_OK : status;
}

static dps_status predict(dps *d)
{
    const char *const from_file[] = {costs[0], file_of_costs};
    dps_prediction *predicted;
    const dps_status status = MAY_FAIL(dps_predict(d, program, from_file, 2, &predicted));
    dps_prediction_free(predicted);
    return status;
}

static dps_status without_text(dps *d, dps_status status)
{
    dps_release(d, text);
    return status;
}

static dps_status encode(dps *d)
{
    size_t size;
    return without_text(d, MAY_FAIL(dps_encode(d, program, (void **)&text, &size)));
}

static dps_status render(dps *d)
{
    return without_text(d, MAY_FAIL(dps_render(d, prediction, format, 0, &text, NULL)));
}
static dps_status compare(dps *d) { return without_text(d, MAY_FAIL(dps_compare(d, paths, 3, &sizes, &text, NULL))); }

static dps_status check(dps *d) { return without_text(d, MAY_FAIL(dps_check(d, paths, 3, &sizes, &text, NULL))); }

/* The advice is the same whenever there is enough memory: memory changes no candidate's result. */
static dps_status advise(dps *d)
{
    const dps_options small = {.size = sizeof small, .ranks = 2, .microbatches = 4, .costs = costs, .cost_count = 1};
    static char first[20000];
    const dps_status status = MAY_FAIL(dps_advise(d, paths, 3, &small, 600, 0, &text, NULL));
    if (status == DPS_OK && !*first)
        snprintf(first, sizeof first, "%s", text);
    if (status == DPS_OK)
        assert_string_equal(text, first);
    return without_text(d, status);
}

static dps_status balance(dps *d)
{
    static const double loads[] = {5, 1, 1, 1, 3, 2, 1, 1};
    static const uint32_t current[] = {0, 1, 2, 3, 0, 1, 3, 2, 1, 0, 0, 1};
    const dps_experts experts = {.size = sizeof experts,
                                 .layers = 2,
                                 .experts = 4,
                                 .replicas = 6,
                                 .gpus = 2,
                                 .loads = loads,
                                 .current = current};
    uint32_t placed[12];
    const dps_placement placement = {.size = sizeof placement, .placement = placed};
    return MAY_FAIL(dps_balance(d, &experts, &placement));
}

static dps_status open_rank(dps *d)
{
    const dps_rank_options early = {.size = sizeof early, .post_early = 1};
    dps_rank *rank;
    const dps_status status = MAY_FAIL(dps_rank_open(d, program, 1, &early, &rank));
    dps_rank_free(rank);
    return status;
}

static dps_status new_threads(dps *d)
{
    dps_threads *threads;
    const dps_status status = MAY_FAIL(dps_threads_new(d, program, 1, &threads));
    dps_threads_free(threads);
    return status;
}

static dps_status join_threads(dps *d)
{
    static void *messages[100], *gradients[2];
    static const size_t elements[2];
    const dps_buffers buffers = {
        .size = sizeof buffers, .messages = messages, .gradients = gradients, .elements = elements, .element_bytes = 4};
    const dps_instruction *action;
    dps_threads *threads;
    dps_rank *rank;
    assert_int_equal(dps_threads_new(d, program, 1, &threads), DPS_OK);
    assert_int_equal(dps_rank_open(d, program, 1, NULL, &rank), DPS_OK);
    const dps_status status = MAY_FAIL(dps_join(rank, threads, &buffers));
    if (status == DPS_NO_MEMORY) {
        assert_non_null(strstr(dps_rank_error(rank), "no memory"));
        assert_int_equal(dps_next(rank, &action), DPS_NO_MEMORY);
    }
    dps_rank_free(rank);
    dps_threads_free(threads);
    return status;
}

/* Runs all ranks as threads, with dps_step or with dps_next and dps_done; NORM calls dps_gather. A rank without memory
   ends the others, which fail. */
static dps_status run_threads(dps *d, Way way)
{
    Thread threads[RANKS];
    Run run;
    dps_status status = DPS_OK;
    start(&run, d, program, way, threads, RANKS);
    arm();
    run_all(threads, RANKS);
    disarm(DPS_OK);
    for (uint32_t r = 0; r < RANKS; r++)
        if (status != DPS_NO_MEMORY && threads[r].status != DPS_OK)
            status = threads[r].status;
    finish(&run, threads, RANKS);
    return status;
}

static dps_status step(dps *d) { return run_threads(d, PUSH); }
static dps_status next(dps *d) { return run_threads(d, PULL); }

typedef dps_status Call(dps *d);
static Call *const all_calls[] = {new_session, compile, search,       compile_order, compile_wrong, load,    load_file,
                                  encode,      save,    forward_half, predict,       render,        compare, advise,
                                  balance,     check,   open_rank,    new_threads,   join_threads,  step,    next};

static void make_objects(dps *d)
{
    const int descriptor = mkstemp(saved);
    assert_true(descriptor >= 0);
    close(descriptor);
    assert_int_equal(dps_compile_file(d, DUALPIPE, &sizes, &program), DPS_OK);
    assert_int_equal(dps_predict(d, program, NULL, 0, &prediction), DPS_OK);
    assert_int_equal(dps_encode(d, program, &bytes, &length), DPS_OK);
    assert_int_equal(dps_save(d, program, saved), DPS_OK);
    snprintf(file_of_costs, sizeof file_of_costs, "@%s.costs", saved);
    FILE *const file = fopen(file_of_costs + 1, "w");
    fputs("F = 2\n", file);
    fclose(file);
}

static int begin(void **state)
{
    dps *const d = *state = dps_new(NULL);
    make_objects(d);
    return 0;
}

static int end(void **state)
{
    unlink(saved);
    unlink(file_of_costs + 1);
    dps_release(*state, bytes);
    dps_prediction_free(prediction);
    dps_program_free(program);
    dps_free(*state);
    return 0;
}

/* --- memory --- */

/* Runs a call whose allocation number `at` is refused. Returns the number of its allocations. */
static int run_with_failure(Call *use, int at)
{
    const int before = live;
    dps *const d = dps_new(&host);
    calls = refused = 0;
    fail_at = at;
    const dps_status status = use(d);
    const int count = calls;
    fail_at = 0;
    assert_int_equal(status, refused ? DPS_NO_MEMORY : DPS_OK);
    if (refused)
        assert_int_equal(use(d), DPS_OK); /* the session is as good as before */
    dps_free(d);
    assert_int_equal(live, before);
    return count;
}

/* Refuses each allocation in turn. Of the many of a long call, it refuses MOST, at equal distances. */
static void refuse_each(Call *use)
{
    enum { MOST = 300 };
    const int count = run_with_failure(use, 0), stride = 1 + count / MOST;
    assert_true(count > 0);
    for (int at = 1; at <= count; at += stride)
        run_with_failure(use, at);
}

TEST(memory_may_run_out_in_every_call)
{
    for (size_t i = 0; i < sizeof all_calls / sizeof *all_calls; i++)
        for (int mode = 0; mode < 2; mode++) {
            forever = mode == 1;
            if (all_calls[i] != render)
                refuse_each(all_calls[i]);
            for (format = DPS_CSV; all_calls[i] == render && format <= DPS_OVERLAP_TEXT; format++)
                refuse_each(render);
        }
}

/* --- arguments that are wrong --- */

typedef struct Refusal {
    const char *call;
    dps_status status;
    char words[200]; /* of the session or rank */
} Refusal;

static Refusal refused_by(const char *call_text, dps_status status, const dps *d, const dps_rank *rank)
{
    Refusal refusal = {call_text, status, ""};
    snprintf(refusal.words, sizeof refusal.words, "%s", d ? dps_error(d) : rank ? dps_rank_error(rank) : "it is NULL");
    return refusal;
}

#define SESSION(call) refused_by(#call, call, d, NULL)
#define RANK(call) refused_by(#call, call, NULL, rank)
#define WORDLESS(call) refused_by(#call, call, NULL, NULL)

/* Every pointer that a function needs is NULL once. */
TEST(null_is_refused)
{
    dps *const d = *state;
    const char *const holes[] = {costs[0], NULL};
    const dps_options hole = {.size = sizeof hole, .costs = holes, .cost_count = 2};
    const dps_options no_costs = {.size = sizeof hole, .cost_count = 1};
    const dps_options no_parameters = {.size = sizeof hole, .parameter_count = 1};
    const dps_parameter nameless = {NULL, 1};
    const dps_options no_name = {.size = sizeof hole, .parameters = &nameless, .parameter_count = 1};
    const dps_experts experts = {.size = sizeof experts, .layers = 1, .experts = 1, .replicas = 1, .gpus = 1};
    const dps_placement placement = {.size = sizeof placement};
    const dps_instruction *action = NULL;
    dps_program_info program_info = {.size = sizeof program_info};
    dps_prediction_info prediction_info = {.size = sizeof prediction_info};
    dps_rank_prediction rank_info = {.size = sizeof rank_info};
    dps_instruction instruction = {.size = sizeof instruction};
    dps_diagnostic diagnostic = {.size = sizeof diagnostic};
    dps_program *kept = program;
    dps_prediction *predicted;
    dps_threads *threads, *other;
    dps_rank *rank, *opened;
    void *encoded;
    double number = 0;
    size_t size;
    assert_int_equal(dps_threads_new(d, program, 1, &threads), DPS_OK);
    assert_int_equal(dps_rank_open(d, program, 0, NULL, &rank), DPS_OK);
    const Refusal refusals[] = {
        WORDLESS(dps_compile_file(NULL, DUALPIPE, NULL, &kept)),
        SESSION(dps_compile_file(d, NULL, NULL, &kept)),
        SESSION(dps_compile_file(d, DUALPIPE, NULL, NULL)),
        SESSION(dps_compile_file(d, DUALPIPE, &hole, &kept)),
        SESSION(dps_compile_file(d, DUALPIPE, &no_costs, &kept)),
        SESSION(dps_compile_file(d, DUALPIPE, &no_parameters, &kept)),
        WORDLESS(dps_compile_file(d, DUALPIPE, &no_name, &kept)),
        WORDLESS(dps_compile_text(NULL, CUT_OFF, 1, NULL, NULL, &kept)),
        SESSION(dps_compile_text(d, NULL, 0, NULL, NULL, &kept)),
        SESSION(dps_compile_text(d, CUT_OFF, 1, NULL, NULL, NULL)),
        WORDLESS(dps_load(NULL, bytes, length, &kept)),
        SESSION(dps_load(d, NULL, 0, &kept)),
        SESSION(dps_load(d, bytes, length, NULL)),
        WORDLESS(dps_load_file(NULL, saved, &kept)),
        SESSION(dps_load_file(d, NULL, &kept)),
        SESSION(dps_load_file(d, saved, NULL)),
        WORDLESS(dps_encode(NULL, program, &encoded, &size)),
        SESSION(dps_encode(d, NULL, &encoded, &size)),
        SESSION(dps_encode(d, program, NULL, &size)),
        SESSION(dps_encode(d, program, &encoded, NULL)),
        WORDLESS(dps_save(NULL, program, saved)),
        SESSION(dps_save(d, NULL, saved)),
        SESSION(dps_save(d, program, NULL)),
        WORDLESS(dps_forward_half(NULL, program, &kept)),
        SESSION(dps_forward_half(d, NULL, &kept)),
        SESSION(dps_forward_half(d, program, NULL)),
        WORDLESS(dps_predict(NULL, program, NULL, 0, &predicted)),
        SESSION(dps_predict(d, NULL, NULL, 0, &predicted)),
        SESSION(dps_predict(d, program, NULL, 0, NULL)),
        SESSION(dps_predict(d, program, NULL, 1, &predicted)),
        SESSION(dps_predict(d, program, holes, 2, &predicted)),
        WORDLESS(dps_render(NULL, prediction, DPS_CSV, 0, &text, NULL)),
        SESSION(dps_render(d, NULL, DPS_CSV, 0, &text, NULL)),
        SESSION(dps_render(d, prediction, DPS_CSV, 0, NULL, NULL)),
        WORDLESS(dps_compare(NULL, paths, 1, NULL, &text, NULL)),
        SESSION(dps_compare(d, NULL, 1, NULL, &text, NULL)),
        SESSION(dps_compare(d, holes + 1, 1, NULL, &text, NULL)),
        SESSION(dps_compare(d, paths, 1, &hole, &text, NULL)),
        SESSION(dps_compare(d, paths, 1, NULL, NULL, NULL)),
        WORDLESS(dps_check(NULL, paths, 1, NULL, &text, NULL)),
        SESSION(dps_check(d, NULL, 1, NULL, &text, NULL)),
        SESSION(dps_check(d, paths, 1, NULL, NULL, NULL)),
        WORDLESS(dps_advise(NULL, paths, 1, &sizes, 1, 0, &text, NULL)),
        SESSION(dps_advise(d, NULL, 1, &sizes, 1, 0, &text, NULL)),
        SESSION(dps_advise(d, holes + 1, 1, &sizes, 1, 0, &text, NULL)),
        SESSION(dps_advise(d, paths, 1, &no_costs, 1, 0, &text, NULL)),
        SESSION(dps_advise(d, paths, 1, &sizes, 1, 0, NULL, NULL)),
        WORDLESS(dps_balance(NULL, &experts, &placement)),
        SESSION(dps_balance(d, NULL, &placement)),
        SESSION(dps_balance(d, &experts, NULL)),
        SESSION(dps_balance(d, &experts, &placement)),
        WORDLESS(dps_threads_new(NULL, program, 1, &other)),
        SESSION(dps_threads_new(d, NULL, 1, &other)),
        SESSION(dps_threads_new(d, program, 1, NULL)),
        WORDLESS(dps_rank_open(NULL, program, 0, NULL, &opened)),
        SESSION(dps_rank_open(d, NULL, 0, NULL, &opened)),
        SESSION(dps_rank_open(d, program, 0, NULL, NULL)),
        WORDLESS(dps_get_diagnostic(NULL, 0, &diagnostic)),
        WORDLESS(dps_get_diagnostic(d, 0, NULL)),
        WORDLESS(dps_get_program_info(NULL, &program_info)),
        WORDLESS(dps_get_program_info(program, NULL)),
        WORDLESS(dps_get_rank_info(NULL, 0, &(dps_rank_info){.size = sizeof(dps_rank_info)})),
        WORDLESS(dps_get_rank_info(program, 0, NULL)),
        WORDLESS(dps_get_pipe_info(NULL, 0, &(dps_pipe_info){.size = sizeof(dps_pipe_info)})),
        WORDLESS(dps_get_pipe_info(program, 0, NULL)),
        WORDLESS(dps_get_chunk_info(NULL, 0, 0, &(dps_chunk_info){.size = sizeof(dps_chunk_info)})),
        WORDLESS(dps_get_chunk_info(program, 0, 0, NULL)),
        WORDLESS(dps_get_group_member(NULL, 0, 0, &(dps_group_member){.size = sizeof(dps_group_member)})),
        WORDLESS(dps_get_group_member(program, 0, 0, NULL)),
        WORDLESS(dps_get_instruction(NULL, 0, 0, 0, &instruction)),
        WORDLESS(dps_get_instruction(program, 0, 0, 0, NULL)),
        WORDLESS(dps_get_component(NULL, 0, 0, 1, 1, 0, &(dps_component){.size = sizeof(dps_component)})),
        WORDLESS(dps_get_component(program, 0, 0, 1, 1, 0, NULL)),
        WORDLESS(dps_get_prediction_info(NULL, &prediction_info)),
        WORDLESS(dps_get_prediction_info(prediction, NULL)),
        WORDLESS(dps_get_rank_prediction(NULL, 0, &rank_info)),
        WORDLESS(dps_get_rank_prediction(prediction, 0, NULL)),
        WORDLESS(dps_next(NULL, &action)),
        RANK(dps_next(rank, NULL)),
        WORDLESS(dps_done(NULL, action, DPS_OK)),
        WORDLESS(dps_done(rank, NULL, DPS_OK)),
        WORDLESS(dps_step(NULL, &functions)),
        RANK(dps_step(rank, NULL)),
        WORDLESS(dps_join(NULL, threads, &(dps_buffers){.size = sizeof(dps_buffers)})),
        RANK(dps_join(rank, NULL, &(dps_buffers){.size = sizeof(dps_buffers)})),
        RANK(dps_join(rank, threads, NULL)),
        WORDLESS(dps_gather(NULL, &number, sizeof number, &number)),
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (refusals[i].status != DPS_BAD_USAGE || !strstr(refusals[i].words, " NULL"))
            fail_msg("%s: %d, %s", refusals[i].call, refusals[i].status, refusals[i].words);
    assert_null(kept);
    assert_true(*dps_version());
    assert_string_equal(dps_rank_error(NULL), "the rank is NULL");
    assert_non_null(strstr(dps_error(NULL), "session is NULL"));
    assert_int_equal(dps_diagnostic_count(NULL), 0);
    assert_int_equal(dps_instruction_text(NULL, 0, 0, NULL, 0), -1);
    assert_int_equal(dps_instruction_text(program, 0, 0, NULL, 10), -1);
    assert_true(dps_instruction_text(program, 0, 0, NULL, 0) > 0);
    dps_reason(NULL, "no rank");
    dps_reason(rank, NULL);
    dps_release(NULL, NULL);
    dps_release(d, NULL);
    dps_free(NULL);
    dps_program_free(NULL);
    dps_prediction_free(NULL);
    dps_rank_free(NULL);
    dps_threads_free(NULL);
    dps_rank_free(rank);
    dps_threads_free(threads);
}

/* Numbers that make no sense, and functions of the host of which one is missing. */
TEST(nonsense_is_refused)
{
    dps *const d = *state;
    static const double loads[] = {1, 2}, negative[] = {1, -1}, nan_load[] = {NAN, 1};
    const dps_experts good = {.size = sizeof good, .layers = 1, .experts = 2, .replicas = 2, .gpus = 1, .loads = loads};
    dps_experts experts[] = {good, good, good, good, good, good};
    uint32_t placed[2];
    const dps_placement placement = {.size = sizeof placement, .placement = placed};
    const dps_host giver = {.size = sizeof giver, .allocate = give}, taker = {.size = sizeof taker, .release = take};
    const dps_options many = {.size = sizeof many, .costs = costs, .cost_count = UINT32_MAX};
    const dps_options large = {.size = sizeof large, .ranks = UINT32_MAX, .microbatches = UINT32_MAX};
    const dps_options copies = {.size = sizeof copies, .ranks = 2, .microbatches = 2, .replicas = UINT32_MAX};
    dps_program *kept = program;
    dps_prediction *predicted;
    dps_threads *threads;
    dps_rank *rank;
    assert_null(dps_new(&giver));
    assert_null(dps_new(&taker));
    static const double deadlines[] = {NAN, -NAN, -1, -INFINITY};
    for (size_t i = 0; i < sizeof deadlines / sizeof *deadlines; i++) {
        assert_int_equal(dps_threads_new(d, program, deadlines[i], &threads), DPS_BAD_USAGE);
        assert_non_null(strstr(dps_error(d), "deadline"));
        assert_null(threads);
    }
    assert_int_equal(dps_threads_new(d, program, INFINITY, &threads), DPS_OK);
    dps_threads_free(threads);
    experts[0].threshold = NAN;
    experts[1].threshold = -1;
    experts[2].threshold = INFINITY;
    experts[3].loads = nan_load;
    experts[4].loads = negative;
    experts[5].replicas = experts[5].gpus = experts[5].groups = experts[5].nodes = UINT32_MAX;
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        const dps_status expected = experts[i].loads == loads ? DPS_BAD_USAGE : DPS_BAD_INPUT;
        assert_int_equal(dps_balance(d, &experts[i], &placement), expected);
    }
    assert_int_equal(dps_compile_file(d, DUALPIPE, &many, &kept), DPS_BAD_USAGE);
    assert_int_equal(dps_compile_file(d, DUALPIPE, &large, &kept), DPS_BAD_INPUT);
    assert_null(kept);
    assert_int_equal(dps_compile_text(d, CUT_OFF, SIZE_MAX, NULL, NULL, &kept), DPS_BAD_USAGE);
    assert_int_equal(dps_compile_text(d, "schedule\0x", 10, NULL, NULL, &kept), DPS_BAD_INPUT);
    assert_non_null(strstr(dps_error(d), "byte 8 is 0"));
    assert_int_equal(dps_load(d, "", 0, &kept), DPS_BAD_INPUT);
    assert_int_equal(dps_load(d, bytes, SIZE_MAX, &kept), DPS_BAD_USAGE);
    assert_int_equal(dps_predict(d, program, costs, SIZE_MAX, &predicted), DPS_BAD_USAGE);
    assert_int_equal(dps_compare(d, paths, SIZE_MAX, NULL, &text, NULL), DPS_BAD_USAGE);
    assert_int_equal(dps_compare(d, paths, 1, &many, &text, NULL), DPS_BAD_USAGE);
    assert_int_equal(dps_compare(d, paths, 1, &copies, &text, NULL), DPS_BAD_USAGE);
    assert_non_null(strstr(dps_error(d), "replicas"));
    assert_int_equal(dps_advise(d, paths, 0, &sizes, 1, 0, &text, NULL), DPS_BAD_USAGE);
    assert_int_equal(dps_advise(d, paths, 1, &sizes, 1, 8, &text, NULL), DPS_BAD_USAGE);
    assert_int_equal(dps_render(d, prediction, (dps_format)-1, 0, &text, NULL), DPS_BAD_USAGE);
    assert_int_equal(dps_render(d, prediction, DPS_SVG, UINT32_MAX, &text, NULL), DPS_BAD_USAGE);
    assert_int_equal(dps_rank_open(d, program, UINT32_MAX, NULL, &rank), DPS_BAD_USAGE);
    assert_int_equal(dps_instruction_text(program, 0, UINT32_MAX, NULL, 0), -1);
    assert_int_equal(dps_get_diagnostic(d, SIZE_MAX, &(dps_diagnostic){.size = sizeof(dps_diagnostic)}), DPS_BAD_USAGE);
}

/* --- calls within a call --- */

typedef struct Nested {
    dps *d;
    int calls;
} Nested;

/* The progress of a search, which calls the session that searches. */
static int call_again(void *user, const dps_progress *progress)
{
    Nested *nested = user;
    dps_program *kept = program;
    (void)progress;
    nested->calls++;
    assert_int_equal(dps_compile_file(nested->d, DUALPIPE, &sizes, &kept), DPS_BAD_USAGE);
    assert_null(kept);
    return nested->calls >= 3;
}

TEST(a_call_within_a_call_is_refused)
{
    Nested nested = {.calls = 0};
    const dps_host own = {.size = sizeof own, .user = &nested};
    const dps_options told = {.size = sizeof told, .ranks = 8, .microbatches = 32, .progress = call_again};
    nested.d = dps_new(&own);
    assert_int_equal(dps_compile_file(nested.d, paths[1], &told, &made), DPS_OK);
    assert_true(nested.calls >= 3);
    dps_program_free(made);
    dps_free(nested.d);
}

static void *use_shared(void *d)
{
    size_t good = 0;
    for (int i = 0; i < 30; i++) {
        dps_program *own;
        const dps_status status = dps_compile_text(d, CUT_OFF, strlen(CUT_OFF), NULL, NULL, &own);
        good += status == DPS_BAD_INPUT;
        assert_true(status == DPS_BAD_INPUT || status == DPS_BAD_USAGE);
    }
    return (void *)good;
}

/* Threads that use one session at once: each call is made or refused. */
TEST(overlapping_calls_are_refused)
{
    pthread_t threads[4];
    size_t good = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_shared, *state), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        good += (size_t)result;
    }
    assert_true(good > 0);
}

typedef struct Gatherer {
    dps_rank *rank;
    size_t bytes;
    dps_status status;
    pthread_t thread;
} Gatherer;

static void *gather(void *user)
{
    Gatherer *own = user;
    char mine[16] = {0}, all[16 * RANKS];
    own->status = dps_gather(own->rank, mine, own->bytes, all);
    return NULL;
}

/* Ranks that gather different numbers of bytes all fail. */
TEST(gathers_of_different_sizes_fail)
{
    dps *const d = *state;
    void *messages[100] = {0};
    const dps_buffers buffers = {.size = sizeof buffers, .messages = messages};
    Gatherer ranks[RANKS];
    dps_threads *threads;
    assert_int_equal(dps_threads_new(d, program, 60, &threads), DPS_OK);
    for (uint32_t r = 0; r < RANKS; r++) {
        ranks[r].bytes = r == 2 ? 16 : 8;
        assert_int_equal(dps_rank_open(d, program, r, NULL, &ranks[r].rank), DPS_OK);
        assert_int_equal(dps_join(ranks[r].rank, threads, &buffers), DPS_OK);
    }
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, gather, &ranks[r]), 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_int_equal(ranks[r].status, DPS_FAILED);
        assert_non_null(strstr(dps_rank_error(ranks[r].rank), "different numbers of bytes"));
        dps_rank_free(ranks[r].rank);
    }
    dps_threads_free(threads);
}

int main(void) { return test_program("attack", begin, end); }
