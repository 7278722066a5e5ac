/* Uses libdps as a program outside of this project does: with dps.h and nothing else. */

#include "tests/library/client.h"

#include <glob.h>
#include <locale.h>
#include <pthread.h>
#include <unistd.h>

#define DUALPIPE "schedules/dualpipe.dps"

static void assert_near(double one, double other) { assert_true(fabs(one - other) <= 1e-9 * fabs(other)); }

static char *rendered(dps *d, const dps_prediction *prediction, dps_format format)
{
    char *text;
    size_t length;
    assert_int_equal(dps_render(d, prediction, format, 0, &text, &length), DPS_OK);
    assert_int_equal(strlen(text), length);
    return text;
}

/* --- what is in a program --- */

TEST(a_program_says_what_is_in_it)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, DUALPIPE, 4, 8);
    dps_program_info info = {.size = sizeof info};
    assert_int_equal(dps_get_program_info(program, &info), DPS_OK);
    assert_string_equal(info.schedule, "dualpipe");
    assert_string_equal(info.source, "dualpipe.dps");
    assert_int_equal(info.ranks, 4);
    assert_int_equal(info.stages, 4);
    assert_int_equal(info.pipes, 2);
    assert_int_equal(info.microbatches, 8);
    assert_false(info.is_forward_only || info.is_asynchronous);
    dps_pipe_info pipe = {.size = sizeof pipe};
    assert_int_equal(dps_get_pipe_info(program, 1, &pipe), DPS_OK);
    assert_int_equal(pipe.first, 4);
    assert_int_equal(dps_get_pipe_info(program, 2, &pipe), DPS_BAD_USAGE);
    for (uint32_t r = 0; r < info.ranks; r++)
        for (uint32_t c = 0; c < 2; c++) {
            dps_chunk_info chunk = {.size = sizeof chunk};
            dps_group_member member = {.size = sizeof member};
            assert_int_equal(dps_get_chunk_info(program, r, c, &chunk), DPS_OK);
            assert_int_equal(chunk.stage, chunk.pipe ? 3 - r : r);
            assert_int_equal(dps_get_group_member(program, (uint32_t)chunk.group, chunk.pipe, &member), DPS_OK);
            assert_int_equal(member.rank, r);
            assert_int_equal(member.chunk, c);
            assert_int_equal(dps_get_group_member(program, (uint32_t)chunk.group, 2, &member), DPS_BAD_USAGE);
        }
    dps_program_free(program);
    dps_free(d);
}

/* Whether each message slot of an instruction is below `count` or -1 (none). */
static bool messages_within(const dps_instruction *i, uint32_t count)
{
    const int32_t slots[] = {i->message, i->x, i->y, i->dx, i->dy};
    for (size_t k = 0; k < sizeof slots / sizeof *slots; k++)
        if (slots[k] < -1 || slots[k] >= (int32_t)count)
            return false;
    return true;
}

/* Adds the number of instructions of each opcode of a rank to `passes`. Compares the operands of SEND_F, and on a
   middle stage those of W and of the F of an F&B, with the disassembler's text. */
static void read_rank(const dps_program *program, uint32_t rank, uint32_t passes[DPS_END + 1])
{
    dps_rank_info info = {.size = sizeof info};
    assert_int_equal(dps_get_rank_info(program, rank, &info), DPS_OK);
    for (uint32_t n = 0; n < info.instructions; n++) {
        dps_instruction i = {.size = sizeof i}, second = {.size = sizeof second};
        char text[200], expected[200];
        assert_int_equal(dps_get_instruction(program, rank, n, 0, &i), DPS_OK);
        assert_int_equal(dps_get_instruction(program, rank, n, 1, &second), i.halves == 2 ? DPS_OK : DPS_BAD_USAGE);
        assert_true(messages_within(&i, info.slots[DPS_SLOT_MESSAGE]));
        assert_true(i.context < (int32_t)info.slots[DPS_SLOT_CONTEXT]);
        passes[i.opcode]++;
        dps_instruction_text(program, rank, n, text, sizeof text);
        if (i.opcode == DPS_BACKWARD_WEIGHT && i.dy >= 0 && i.x >= 0) {
            snprintf(expected, sizeof expected, "W%d m%d x%d t%d dy%d g%d", i.chunk, i.microbatch, i.x, i.stash, i.dy,
                     i.gradient);
            assert_string_equal(text, expected);
        }
        if (i.opcode == DPS_SEND_FORWARD) {
            snprintf(expected, sizeof expected, "SEND_F%d m%d r%d y%d", i.chunk, i.microbatch, i.peer, i.message);
            assert_string_equal(text, expected);
        }
        if (i.opcode == DPS_OVERLAP && i.x >= 0 && i.y >= 0) {
            assert_true(second.opcode == DPS_BACKWARD || second.opcode == DPS_BACKWARD_INPUT);
            snprintf(expected, sizeof expected, "F%d m%d x%d y%d c%d t%d &", i.chunk, i.microbatch, i.x, i.y, i.context,
                     i.stash);
            assert_memory_equal(text, expected, strlen(expected));
        }
    }
    dps_instruction none = {.size = sizeof none};
    assert_int_equal(dps_get_instruction(program, rank, info.instructions, 0, &none), DPS_BAD_USAGE);
    assert_int_equal(dps_instruction_text(program, rank, info.instructions, NULL, 0), -1);
}

TEST(instructions_have_their_operands_by_name)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, DUALPIPE, 4, 8);
    uint32_t passes[DPS_END + 1] = {0};
    for (uint32_t r = 0; r < 4; r++)
        read_rank(program, r, passes);
    assert_int_equal(passes[DPS_FORWARD] + passes[DPS_OVERLAP], 8 * 4);
    assert_true(passes[DPS_OVERLAP] > 0 && passes[DPS_BACKWARD_WEIGHT] > 0);
    assert_int_equal(passes[DPS_SEND_FORWARD], passes[DPS_RECEIVE_FORWARD]);
    assert_int_equal(passes[DPS_SEND_FORWARD], 8 * 3);
    assert_int_equal(passes[DPS_REDUCE], 8);
    assert_int_equal(passes[DPS_END], 4);
    dps_program_free(program);

    program = compiled(d, "schedules/pipedream.dps", 2, 4);
    bool updates = false;
    dps_instruction i = {.size = sizeof i};
    for (uint32_t n = 0; dps_get_instruction(program, 0, n, 0, &i) == DPS_OK; n++)
        if (i.opcode == DPS_ASYNC_UPDATE) {
            updates = true;
            assert_true(i.weights >= 0 && i.next_weights >= 0 && i.count == 1 && i.x == -1);
        }
    assert_true(updates);
    dps_program_free(program);
    dps_free(d);
}

/* --- mistakes --- */

TEST(a_mistake_is_data_and_text)
{
    static const char text[] = "schedule s\nranks P = 2\nmicrobatches M = 2\n\npipe p:\n  stage s on rank q\n";
    dps *d = dps_new(NULL);
    dps_program *program = (dps_program *)d;
    assert_int_equal(dps_compile_text(d, text, strlen(text), "mine.dps", NULL, &program), DPS_BAD_INPUT);
    assert_null(program);
    assert_true(dps_diagnostic_count(d) >= 1);
    dps_diagnostic first = {.size = sizeof first};
    assert_int_equal(dps_get_diagnostic(d, 0, &first), DPS_OK);
    assert_int_equal(first.severity, DPS_ERROR);
    char expected[300];
    snprintf(expected, sizeof expected, "mine.dps:%u:%u: error: %s\n", first.line, first.column, first.text);
    assert_memory_equal(dps_error(d), expected, strlen(expected));
    assert_non_null(strstr(dps_error(d), "^"));
    assert_int_equal(dps_get_diagnostic(d, dps_diagnostic_count(d), &first), DPS_BAD_USAGE);

    /* this call succeeds, so the diagnostics of the earlier error are gone */
    dps_program_free(compiled(d, DUALPIPE, 4, 8));
    assert_int_equal(dps_diagnostic_count(d), 0);
    dps_free(d);
}

TEST(help_belongs_to_its_error)
{
    dps *d = dps_new(NULL);
    dps_program *program;
    const dps_options options = {.size = sizeof options, .ranks = 3, .microbatches = 8};
    assert_int_equal(dps_compile_file(d, DUALPIPE, &options, &program), DPS_BAD_INPUT);
    dps_diagnostic error = {.size = sizeof error};
    assert_int_equal(dps_get_diagnostic(d, 0, &error), DPS_OK);
    assert_string_equal(error.help, "here P = 3\nthe nearest numbers that work: ranks = 2 or 4");
    assert_non_null(strstr(dps_error(d), "  help: here P = 3\n  help: the nearest numbers that work: ranks = 2 or 4"));
    assert_true(error.end_line > error.line || error.end_column > error.column);
    dps_free(d);
}

TEST(wrong_arguments_are_refused_with_words)
{
    static const dps_parameter unknown = {"chunkz", 2};
    static const char *const costs[] = {"F=1", "G=2"}, *const standard_input[] = {"@-"}, *const part[] = {"qkv.F=1"};
    const dps_options wrong[] = {
        {.size = sizeof *wrong, .parameters = &unknown, .parameter_count = 1},
        {.size = sizeof *wrong, .costs = costs, .cost_count = 2},
        {.size = sizeof *wrong, .costs = standard_input, .cost_count = 1},
        {.size = sizeof *wrong, .costs = part, .cost_count = 1},
        {.size = sizeof *wrong, .memory_limit = "1G"},
        {.size = sizeof *wrong, .slot_bytes = "everything=1"},
        {.size = sizeof *wrong, .replicas = 2},
        {.size = 0},
    };
    static const char *const words[] = {"chunkz",     "G",          "standard input", "qkv.F",
                                        "slot_bytes", "everything", "dps_compare",    "dps_options"};
    dps *d = dps_new(NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dps_program *program;
        assert_int_equal(dps_compile_file(d, DUALPIPE, &wrong[i], &program), DPS_BAD_USAGE);
        assert_null(program);
        assert_non_null(strstr(dps_error(d), words[i]));
        assert_int_equal(dps_diagnostic_count(d), 0);
    }
    dps_program *program;
    assert_int_equal(dps_compile_file(d, "nowhere.dps", NULL, &program), DPS_BAD_INPUT);
    assert_non_null(strstr(dps_error(d), "nowhere.dps: No such file"));
    assert_int_equal(dps_load_file(d, DUALPIPE, &program), DPS_BAD_INPUT);
    assert_int_equal(strncmp(dps_error(d), DUALPIPE, strlen(DUALPIPE)), 0);
    dps_free(d);
}

/* --- versions of the header --- */

TEST(structs_of_other_versions_are_taken)
{
    dps *d = dps_new(NULL);
    dps_program *program;
    struct {
        dps_options known;
        void *newer;
    } newer = {.known = {.size = sizeof newer, .ranks = 4, .microbatches = 8}};
    assert_int_equal(dps_compile_file(d, DUALPIPE, &newer.known, &program), DPS_OK);
    dps_program_free(program);
    newer.newer = d;
    assert_int_equal(dps_compile_file(d, DUALPIPE, &newer.known, &program), DPS_BAD_USAGE);
    assert_non_null(strstr(dps_error(d), "dps_options"));

    /* A host built with an older dps.h: its struct ends after the number of microbatches. */
    const dps_options older = {
        .size = offsetof(dps_options, parameter_count), .ranks = 4, .microbatches = 8, .parameter_count = 99};
    assert_int_equal(dps_compile_file(d, DUALPIPE, &older, &program), DPS_OK);
    dps_program_info info;
    memset(&info, 0xee, sizeof info);
    info.size = offsetof(dps_program_info, stages);
    assert_int_equal(dps_get_program_info(program, &info), DPS_OK);
    assert_int_equal(info.ranks, 4);
    assert_int_equal(info.stages, 0xeeeeeeee); /* unchanged, because the older struct does not have this field */
    info.size = 0;
    assert_int_equal(dps_get_program_info(program, &info), DPS_BAD_USAGE);
    dps_program_free(program);
    dps_free(d);
    char version[40];
    snprintf(version, sizeof version, "%d.%d.%d", DPS_VERSION_MAJOR, DPS_VERSION_MINOR, DPS_VERSION_PATCH);
    assert_string_equal(dps_version(), version);
}

/* --- saving and loading --- */

static void same_text(dps *d, const dps_prediction *one, const dps_prediction *other, dps_format format)
{
    char *a = rendered(d, one, format), *b = rendered(d, other, format);
    assert_string_equal(a, b);
    dps_release(d, a);
    dps_release(d, b);
}

/* Texts and pictures of a program that was encoded and loaded equal those of the compiled one. */
TEST(a_loaded_program_is_the_one_that_was_saved)
{
    static const char *const costs[] = {"F=3,I=2,W=1.5,comm=0.25,bytes=7,memory_I=2,memory_W=1"};
    static const dps_format formats[] = {DPS_CSV, DPS_COMMS, DPS_ASM, DPS_STATS, DPS_TEXT, DPS_TRACE};
    glob_t files;
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &files), 0);
    assert_true(files.gl_pathc > 20);
    dps *d = dps_new(NULL);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        dps_program *program = compiled(d, files.gl_pathv[i], 0, 0), *loaded;
        void *bytes, *again;
        size_t length, length_again;
        dps_prediction *one, *other;
        assert_int_equal(dps_encode(d, program, &bytes, &length), DPS_OK);
        assert_int_equal(dps_load(d, bytes, length, &loaded), DPS_OK);
        assert_int_equal(dps_encode(d, loaded, &again, &length_again), DPS_OK);
        assert_int_equal(length, length_again);
        assert_memory_equal(bytes, again, length);
        assert_int_equal(dps_predict(d, program, costs, 1, &one), DPS_OK);
        assert_int_equal(dps_predict(d, loaded, costs, 1, &other), DPS_OK);
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
            same_text(d, one, other, formats[f]);
        dps_program_info info = {.size = sizeof info};
        assert_int_equal(dps_get_program_info(program, &info), DPS_OK);
        if (info.pipes == 1) /* the picture has the names of several pipes, which a program does not store */
            same_text(d, one, other, DPS_SVG);
        dps_prediction_free(one);
        dps_prediction_free(other);
        dps_program_free(program);
        dps_program_free(loaded);
        ((char *)bytes)[length / 2] ^= 1;
        assert_int_equal(dps_load(d, bytes, length, &loaded), DPS_BAD_INPUT);
        assert_null(loaded);
        dps_release(d, bytes);
        dps_release(d, again);
    }
    globfree(&files);
    dps_free(d);
}

TEST(a_program_is_saved_to_a_file)
{
    char path[] = "/tmp/dps-client-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, DUALPIPE, 4, 8), *loaded;
    assert_int_equal(dps_save(d, program, path), DPS_OK);
    assert_int_equal(dps_load_file(d, path, &loaded), DPS_OK);
    assert_int_equal(dps_save(d, program, "/nowhere/at/all.bin"), DPS_FAILED);
    assert_non_null(strstr(dps_error(d), "/nowhere/at/all.bin"));
    dps_program_free(program);
    dps_program_free(loaded);
    unlink(path);
    dps_free(d);
}

/* --- times and pictures --- */

TEST(times_follow_the_costs)
{
    static const char *const costs[] = {"F=1,I=1,W=1", "unit=1e-3"};
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, "schedules/gpipe.dps", 4, 8);
    dps_prediction *prediction;
    assert_int_equal(dps_predict(d, program, costs, 2, &prediction), DPS_OK);
    dps_prediction_info info = {.size = sizeof info};
    assert_int_equal(dps_get_prediction_info(prediction, &info), DPS_OK);
    assert_near(info.makespan, (8 + 3) * 3); /* (M + P - 1)(F + B): Huang et al., GPipe, section 2 */
    assert_near(info.bubble_rate, 3.0 / 11);
    assert_near(info.seconds, 1e-3);
    assert_true(info.bound > 24 && info.bound <= info.makespan);
    dps_rank_prediction rank = {.size = sizeof rank};
    assert_int_equal(dps_get_rank_prediction(prediction, 3, &rank), DPS_OK);
    assert_near(rank.busy, 24);
    assert_near(rank.idle, rank.end - rank.start - 24);
    assert_int_equal(dps_get_rank_prediction(prediction, 4, &rank), DPS_BAD_USAGE);
    dps_prediction_free(prediction);
    static const char *const wrong[] = {"F=fast"};
    assert_int_equal(dps_predict(d, program, wrong, 1, &prediction), DPS_BAD_USAGE);
    assert_null(prediction);
    assert_non_null(strstr(dps_error(d), "fast"));
    dps_program_free(program);
    dps_free(d);
}

TEST(pictures_are_text)
{
    static const char *const begins[] = {"0F0",
                                         "0F0",
                                         "schedule dualpipe",
                                         "{\"schedule\": \"dualpipe\"",
                                         "<svg",
                                         "<!DOCTYPE html>",
                                         "dualpipe: 4 ranks",
                                         "{\"displayTimeUnit\"",
                                         "",
                                         "dualpipe: "};
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, DUALPIPE, 4, 8);
    dps_prediction *prediction;
    char *text;
    assert_int_equal(dps_predict(d, program, NULL, 0, &prediction), DPS_OK);
    for (dps_format format = DPS_CSV; format <= DPS_OVERLAP_TEXT; format++) {
        text = rendered(d, prediction, format);
        const char *at = strstr(text, begins[format]);
        assert_true(at && at - text < 60);
        dps_release(d, text);
    }
    assert_int_equal(dps_render(d, prediction, (dps_format)(DPS_SHARDY + 1), 0, &text, NULL), DPS_BAD_USAGE);
    assert_null(text);
    assert_int_equal(dps_render(d, prediction, DPS_JAXPP, 0, &text, NULL),
                     DPS_BAD_INPUT); /* it has no copies of stages */
    assert_int_equal(dps_render(d, prediction, DPS_TEXT, 10, &text, NULL), DPS_BAD_USAGE);
    assert_int_equal(dps_render(d, prediction, DPS_SVG, 10, &text, NULL), DPS_BAD_USAGE);
    assert_int_equal(dps_render(d, prediction, DPS_TEXT, 60, &text, NULL), DPS_OK);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(strlen(line) <= 60 || strncmp(line, "rank", 4) != 0);
    dps_release(d, text);
    dps_prediction_free(prediction);
    dps_program_free(program);
    dps_free(d);
}

/* The program that calls the library may have set a locale with decimal commas. */
TEST(numbers_have_points_in_every_locale)
{
    static const char *const costs[] = {"F=1.5,I=1.25,W=1"};
    char folder[] = "/tmp/dps-locale-XXXXXX", command[200];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/comma", folder);
    assert_int_equal(system(command), 0);
    setenv("LOCPATH", folder, 1);
    assert_non_null(setlocale(LC_ALL, "comma"));
    char half[8];
    snprintf(half, sizeof half, "%.1f", 0.5);
    assert_string_equal(half, "0,5");
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, DUALPIPE, 4, 8);
    dps_prediction *prediction;
    assert_int_equal(dps_predict(d, program, costs, 1, &prediction), DPS_OK);
    dps_rank_prediction rank = {.size = sizeof rank};
    assert_int_equal(dps_get_rank_prediction(prediction, 0, &rank), DPS_OK);
    assert_near(rank.busy, 8 * 3.75);
    char *text = rendered(d, prediction, DPS_SVG);
    assert_non_null(strstr(text, "1.5"));
    snprintf(half, sizeof half, "%.1f", 0.5);
    assert_string_equal(half, "0,5"); /* the host's locale is unchanged */
    dps_release(d, text);
    dps_prediction_free(prediction);
    dps_program_free(program);
    dps_free(d);
    setlocale(LC_ALL, "C");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* --- the host's functions --- */

typedef struct Host {
    int told;         /* how often progress was called */
    uint32_t planned; /* the number of orders in the last call of progress */
} Host;

static int stop_at_third(void *user, const dps_progress *progress)
{
    assert_true(progress->tried <= progress->planned && progress->cost >= progress->bound);
    Host *host = user;
    host->told++;
    host->planned = progress->planned;
    return host->told >= 3;
}

TEST(a_search_tells_and_can_be_stopped)
{
    Host host = {0};
    const dps_host functions = {.size = sizeof functions, .user = &host};
    const dps_options options = {.size = sizeof options, .ranks = 8, .microbatches = 32, .progress = stop_at_third};
    dps *d = dps_new(&functions);
    dps_program *program;
    assert_int_equal(dps_compile_file(d, "schedules/zb1p.dps", &options, &program), DPS_OK);
    assert_true(host.told >= 3 && (uint32_t)host.told < host.planned / 2);
    dps_program_free(program);
    dps_free(d);
}

/* --- threads --- */

static void *compile_and_draw(void *shared)
{
    dps *d = dps_new(NULL);
    char *first = NULL;
    for (int i = 0; i < 3; i++) {
        dps_program *program = compiled(d, "schedules/zb1p.dps", 4, 8), *wrong;
        dps_prediction *prediction;
        assert_int_equal(dps_compile_text(d, "schedule x\nranks", 16, NULL, NULL, &wrong), DPS_BAD_INPUT);
        assert_int_equal(dps_predict(d, program, NULL, 0, &prediction), DPS_OK);
        char *text = rendered(d, prediction, DPS_SVG), *of_shared = rendered(d, shared, DPS_EXPLAIN);
        if (first)
            assert_string_equal(text, first);
        dps_release(d, first);
        first = text;
        dps_release(d, of_shared);
        dps_prediction_free(prediction);
        dps_program_free(program);
    }
    dps_free(d);
    return first;
}

TEST(threads_compile_at_the_same_time)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, DUALPIPE, 4, 8);
    dps_prediction *shared;
    assert_int_equal(dps_predict(d, program, NULL, 0, &shared), DPS_OK);
    pthread_t threads[2];
    void *texts[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, compile_and_draw, shared), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], &texts[i]), 0);
    assert_string_equal(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
    dps_prediction_free(shared);
    dps_program_free(program);
    dps_free(d);
}

/* --- experts --- */

TEST(experts_are_placed)
{
    /* The example of DeepSeek's EPLB (README of the repository), with its result. */
    static const double loads[] = {90, 132, 40,  61, 104, 165, 39,  4,   73,  56, 183, 86,
                                   20, 107, 104, 64, 19,  197, 187, 157, 172, 86, 16,  27};
    static const uint32_t expected[] = {5, 6,  5, 7, 8, 4,  3, 4, 10, 9, 10, 2, 0, 1, 11, 1,
                                        7, 10, 6, 8, 6, 11, 8, 9, 2,  4, 5,  1, 5, 0, 3,  1};
    uint32_t placed[32], moves[2];
    double before[2], after[2], bound[2];
    dps_experts experts = {.size = sizeof experts,
                           .layers = 2,
                           .experts = 12,
                           .replicas = 16,
                           .gpus = 8,
                           .groups = 4,
                           .nodes = 2,
                           .loads = loads,
                           .eplb = 1};
    const dps_placement placement = {.size = sizeof placement,
                                     .placement = placed,
                                     .before = before,
                                     .after = after,
                                     .bound = bound,
                                     .moves = moves};
    dps *d = dps_new(NULL);
    assert_int_equal(dps_balance(d, &experts, &placement), DPS_OK);
    assert_memory_equal(placed, expected, sizeof placed);
    const double of_eplb = after[0];
    experts.eplb = 0;
    assert_int_equal(dps_balance(d, &experts, &placement), DPS_OK);
    assert_true(after[0] >= of_eplb && after[0] <= bound[0] && after[0] > before[0] && moves[0] > 0);

    uint32_t current[32];
    memcpy(current, placed, sizeof current);
    experts.current = current;
    assert_int_equal(dps_balance(d, &experts, &placement), DPS_OK);
    assert_int_equal(moves[0] + moves[1], 0);
    current[16] = 99;
    assert_int_equal(dps_balance(d, &experts, &placement), DPS_BAD_INPUT);
    assert_non_null(strstr(dps_error(d), "layer 1"));
    experts.replicas = 7;
    assert_int_equal(dps_balance(d, &experts, &placement), DPS_BAD_USAGE);
    dps_free(d);
}

int main(void) { return test_program("client", NULL, NULL); }
