/* Reads generated traces of the PyTorch profiler: which events the reader keeps, and which component each kernel
   belongs to. */

#include "study/measured/json_read.h"
#include "study/measured/kineto_profile.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

/* A file that a test writes; the end of the test removes it. */
typedef struct Made {
    char path[64];
    FILE *stream;
} Made;

static Made make(void)
{
    Made made = {.path = "/tmp/kineto.XXXXXX"};
    const int file = mkstemp(made.path);
    assert_true(file >= 0);
    made.stream = fdopen(file, "w");
    assert_non_null(made.stream);
    return made;
}

static Made make_text(const char *text)
{
    Made made = make();
    fputs(text, made.stream);
    assert_int_equal(fclose(made.stream), 0);
    return made;
}

/* --- JSON --- */

static size_t read_tokens(const char *path, char *texts, size_t size, Error *error)
{
    static const char letters[] = "?{}[]ktnw";
    Arena arena = {0};
    JsonReader json;
    size_t count = 0;
    *error = (Error){""};
    assert_int_equal(json_open(&json, path, &arena, error), STATUS_OK);
    for (JsonKind kind; (kind = json_next(&json)) != JSON_END; count++) {
        const size_t used = strlen(texts);
        if (kind == JSON_OBJECT || kind == JSON_OBJECT_END || kind == JSON_ARRAY || kind == JSON_ARRAY_END)
            snprintf(texts + used, size - used, "%c ", letters[kind]);
        else
            snprintf(texts + used, size - used, "%c:%.*s ", letters[kind], (int)json.length, json.text);
    }
    json_close(&json, error);
    arena_free(&arena);
    return count;
}

TEST(json_gives_its_tokens)
{
    char texts[400] = "";
    Error error;
    Made made = make_text(" {\"a\\n\\u00e9\\\"\": [1, -2.5e3 , true,null, NaN],\n \"b\":{}, \"c\" : [] }\n");
    read_tokens(made.path, texts, sizeof texts, &error);
    assert_string_equal(error.text, "");
    assert_string_equal(texts, "{ k:a\n\xc3\xa9\" [ n:1 n:-2.5e3 w:true w:null w:NaN ] k:b { } k:c [ ] } ");
    unlink(made.path);
}

TEST(json_says_what_is_wrong)
{
    static const struct {
        const char *text, *place, *fault;
    } wrong[] = {
        {"", "1:1", "there is nothing in the file"},
        {"{\"a\"", "1:5", "the file ends in the middle"},
        {"{\n\"a\" 1}", "2:5", "a colon is missing"},
        {"{\"a\":1 \"b\":2}", "1:8", "a comma is missing"},
        {"{\"a\":1,}", "1:8", "a key in quotes is missing"},
        {"[1,]", "1:4", "a value is missing"},
        {"[1}", "1:3", "a comma is missing"},
        {"[{\"a\": 1},\n {\"b\": 2,", "2:10", "the file ends in the middle"},
        {"[\"a\nb\"]", "1:4", "a string has a control character in it"},
        {"[\"\\q\"]", "1:6", "a string has an unknown escape in it"},
        {"[\"\\u12\"]", "1:8", "a string has an unknown escape in it"},
        {"[maybe]", "1:7", "a word is none of true, false, null, NaN and Infinity"},
        {"[] []", "1:4", "something follows the end"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char texts[200] = "", expected[200];
        Error error;
        Made made = make_text(wrong[i].text);
        read_tokens(made.path, texts, sizeof texts, &error);
        snprintf(expected, sizeof expected, "%s:%s: cannot be read as a trace (JSON): %s", made.path, wrong[i].place,
                 wrong[i].fault);
        assert_string_equal(error.text, expected);
        unlink(made.path);
    }
    Made made = make();
    for (int i = 0; i < 1000; i++)
        putc('[', made.stream);
    fclose(made.stream);
    char texts[4000] = "";
    Error error;
    read_tokens(made.path, texts, sizeof texts, &error);
    assert_non_null(strstr(error.text, "more than 64 objects and arrays are nested"));
    unlink(made.path);
}

/* Chrome's trace format allows an array without its ]. */
TEST(json_reads_an_open_array)
{
    static const char *const texts[] = {"[{\"a\": 1}", "[{\"a\": 1},\n", "[{\"a\": 1}]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char tokens[100] = "";
        Error error;
        Made made = make_text(texts[i]);
        read_tokens(made.path, tokens, sizeof tokens, &error);
        assert_string_equal(error.text, "");
        assert_memory_equal(tokens, "[ { k:a n:1 } ", 14);
        unlink(made.path);
    }
}

/* Strings of 2 to 401 characters, some of which cross the end of the reader's window, and one that is longer than the
   window. The file is once plain and once compressed. */
TEST(json_reads_across_its_window)
{
    enum { STRINGS = 3000, LONG = 700000 };
    for (int compressed = 0; compressed < 2; compressed++) {
        Arena arena = {0};
        Error error = {""};
        Made made = make();
        fclose(made.stream);
        gzFile file = gzopen(made.path, compressed ? "wb" : "wbT");
        gzputs(file, "[\"");
        for (int i = 0; i < LONG; i++)
            gzputs(file, i % 7 ? "x" : "\\n");
        gzputs(file, "\"");
        for (int i = 0; i < STRINGS; i++)
            gzprintf(file, ",\n \"%0*d\\t\"", 1 + i % 400, i);
        gzputs(file, "]");
        gzclose(file);
        JsonReader json;
        assert_int_equal(json_open(&json, made.path, &arena, &error), STATUS_OK);
        assert_int_equal(json_next(&json), JSON_ARRAY);
        assert_int_equal(json_next(&json), JSON_TEXT);
        assert_int_equal(json.length, JSON_TEXT_MAX);
        for (int i = 0; i < STRINGS; i++) {
            char expected[500];
            snprintf(expected, sizeof expected, "%0*d\t", 1 + i % 400, i);
            assert_int_equal(json_next(&json), JSON_TEXT);
            assert_true(json_is(&json, expected));
        }
        assert_int_equal(json_next(&json), JSON_ARRAY_END);
        assert_int_equal(json_next(&json), JSON_END);
        assert_int_equal(json.line, STRINGS + 1);
        assert_int_equal(json_close(&json, &error), STATUS_OK);
        arena_free(&arena);
        unlink(made.path);
    }
}

/* --- maps --- */

TEST(patterns_match)
{
    MapNumbers numbers;
    assert_true(kineto_map_matches("attn(F)", "attn(F)", NULL));
    assert_false(kineto_map_matches("attn(F)", "attn(F) ", NULL));
    assert_true(kineto_map_matches("*flash*fwd*", "void flash::compute_fwd<float*>", NULL));
    assert_false(kineto_map_matches("*flash*fwd", "void flash::compute_fwd<float*>", NULL));
    assert_true(kineto_map_matches("?x*", "axis", NULL));
    assert_false(kineto_map_matches("a*b*c*d*e", "aabbccddaabbccddaabbccdd", NULL));
    assert_true(kineto_map_matches("PP:{stage}F{microbatch}", "PP:12F345", &numbers));
    assert_int_equal(numbers.stage, 12);
    assert_int_equal(numbers.microbatch, 345);
    assert_false(kineto_map_matches("PP:{stage}F{microbatch}", "PP:12B345", &numbers));
    assert_false(kineto_map_matches("PP:{stage}F{microbatch}", "PP:F345", &numbers));
    assert_true(kineto_map_matches("*{stage}", "run 7", &numbers));
    assert_int_equal(numbers.stage, 7);
    assert_int_equal(numbers.microbatch, -1);
}

/* --- traces --- */

static uint32_t correlation;

static void begin_trace(Made *made)
{
    *made = make();
    correlation = 0;
    fputs("{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"G\", \"numSms\": 100}],\n"
          "\"traceEvents\": [\n{\"ph\": \"M\", \"name\": \"process_name\"}",
          made->stream);
}

static void put_annotation(const Made *made, const char *name, int thread, int start, int length)
{
    fprintf(made->stream,
            ",\n{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"%s\", \"pid\": 5, \"tid\": %d, \"ts\": %d, "
            "\"dur\": %d}",
            name, thread, start, length);
}

static void put_launch(const Made *made, int thread, int start)
{
    fprintf(made->stream,
            ",\n{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 5, \"tid\": %d, "
            "\"ts\": %d, \"dur\": 1, \"args\": {\"correlation\": %u}}",
            thread, start, ++correlation);
}

/* Adds a kernel with the correlation number of the last put_launch, which makes that its launch. */
static void put_kernel(const Made *made, const char *name, int device, int stream, int start, int length)
{
    fprintf(made->stream,
            ",\n{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %d.250, "
            "\"dur\": %d, \"args\": {\"device\": %d, \"stream\": %d, \"correlation\": %u, \"grid\": [5, 2, 1]}}",
            name, device, stream, start, length, device, stream, correlation);
}

static void end_trace(Made *made)
{
    fputs("\n]}\n", made->stream);
    assert_int_equal(fclose(made->stream), 0);
}

typedef struct Profiled {
    Arena arena;
    KinetoMap map;
    KinetoTrace trace;
    KinetoProfile profile;
} Profiled;

static void profile(Profiled *profiled, Made *made, const char *map)
{
    Error error = {""};
    Made map_file = make_text(map);
    memset(profiled, 0, sizeof *profiled);
    end_trace(made);
    assert_int_equal(kineto_map_read(map_file.path, &profiled->arena, &profiled->map, &error), STATUS_OK);
    assert_int_equal(kineto_read(made->path, &profiled->arena, &profiled->trace, &error), STATUS_OK);
    assert_int_equal(kineto_profile(&profiled->trace, &profiled->map, &profiled->arena, &profiled->profile, &error),
                     STATUS_OK);
    unlink(map_file.path);
    unlink(made->path);
}

static void expect_span(const Profiled *profiled, uint32_t number, unsigned component, RecipePass pass, int64_t start,
                        int64_t end)
{
    assert_true(number < profiled->profile.span_count);
    const ProfileSpan *span = &profiled->profile.spans[number];
    assert_int_equal(span->subject, component * RECIPE_PASSES + pass);
    assert_int_equal(span->start, 1000 * start + 250);
    assert_int_equal(span->end, 1000 * end + 250);
}

/* A launch belongs to the innermost annotation around it on its own thread. If there is none, as on autograd's thread,
   it belongs to the innermost annotation around it on another thread. */
TEST(launches_belong_to_annotations_on_any_thread)
{
    Made made;
    Profiled profiled;
    begin_trace(&made);
    put_annotation(&made, "outer", 1, 0, 1000);
    put_annotation(&made, "attn", 1, 10, 20);
    put_annotation(&made, "mlp", 1, 40, 20);
    put_annotation(&made, "attn", 3, 45, 10);
    put_launch(&made, 1, 12);
    put_kernel(&made, "a", 0, 7, 100, 10);
    /* thread 2 has no annotations, so the innermost annotation that started last counts, which is on thread 3 */
    put_launch(&made, 2, 50);
    put_kernel(&made, "b", 0, 7, 120, 10);
    put_launch(&made, 1, 51); /* thread 1 has an annotation of its own, which takes precedence */
    put_kernel(&made, "c", 0, 7, 140, 10);
    put_launch(&made, 2, 57); /* the annotation on thread 3 has ended; that on thread 1 counts */
    put_kernel(&made, "d", 0, 7, 160, 10);
    put_launch(&made, 2, 70); /* this launch is only inside the outer annotation, which is not in the map */
    put_kernel(&made, "e", 0, 7, 180, 10);
    profile(&profiled, &made, "attention.F = attn\nmlp.F = mlp\n");
    assert_int_equal(profiled.profile.span_count, 3);
    expect_span(&profiled, 0, RECIPE_ATTENTION, RECIPE_F, 100, 110);
    expect_span(&profiled, 1, RECIPE_ATTENTION, RECIPE_F, 120, 130);
    expect_span(&profiled, 2, RECIPE_MLP, RECIPE_F, 140, 170);
    assert_int_equal(profiled.profile.foreign, 1);
    assert_int_equal(profiled.profile.groups[0].idle, 40000);
    arena_free(&profiled.arena);
}

/* One process with two GPUs: each has its own layers and times. */
TEST(devices_are_apart)
{
    Made made;
    Profiled profiled;
    begin_trace(&made);
    for (int device = 0; device < 2; device++)
        for (int layer = 0; layer < 3; layer++) {
            const int time = 100 * layer + 1000 * device;
            put_annotation(&made, "attn", 1, time, 10);
            put_launch(&made, 1, time + 1);
            put_kernel(&made, "a", device, 7, 100 * layer, 50 + device);
            put_annotation(&made, "send", 1, time + 20, 10);
            put_launch(&made, 1, time + 21);
            put_kernel(&made, "s", device, 9, 100 * layer + 25, 50);
        }
    profile(&profiled, &made, "attention.F = attn\ndispatch.F = send\n");
    const KinetoProfile *profile = &profiled.profile;
    assert_int_equal(profile->group_count, 2);
    assert_int_equal(profile->layers, 3);
    assert_int_equal(profile->span_count, 12);
    assert_int_equal(profile->blocks, 10);
    for (int device = 0; device < 2; device++) {
        const ProfileGroup *group = &profile->groups[device];
        assert_int_equal(group->device, device);
        assert_int_equal(group->end - group->start, 275000);
        assert_int_equal(group->busy[RECIPE_COMPUTE], 3 * (50 + device) * 1000);
        assert_int_equal(group->busy[RECIPE_COMM], 150000);
        assert_int_equal(group->both, 3 * (25 + device) * 1000);
        assert_int_equal(group->idle, 50000);
    }
    const RecipeTimes times =
        kineto_recipe_times(profile, kineto_typical_group(profile, &profiled.arena), &profiled.arena);
    assert_int_equal(times.counts[RECIPE_COMPUTE], 3);
    assert_int_equal(times.counts[RECIPE_COMM], 3);
    assert_int_equal(times.spans[RECIPE_COMM][2].layer, 2);
    arena_free(&profiled.arena);
}

/* Without annotations a component begins with a kernel that the map names as its first (`.first`), but only if the
   component comes next in the order of the map. */
TEST(cycles_tell_components)
{
    static const char map[] = "attention.F.first = norm\nmlp.F.first = norm\nattention.B.first = grad*\n"
                              "dispatch.F.first = notify\ncombine.F.first = notify\ncomm.stream = 9\n";
    Made made;
    Profiled profiled;
    begin_trace(&made);
    for (int layer = 0; layer < 2; layer++) {
        static const char *const compute[] = {"norm", "gemm", "norm", "gemm", "gemm", "grad_a", "grad_b", "gemm"};
        static const char *const comm[] = {"notify", "data", "notify", "data"};
        for (int k = 0; k < 8; k++)
            put_kernel(&made, compute[k], 0, 7, 1000 * layer + 100 * k, 90);
        for (int k = 0; k < 4; k++)
            put_kernel(&made, comm[k], 0, 9, 1000 * layer + 200 * k, 150);
    }
    profile(&profiled, &made, map);
    assert_int_equal(profiled.profile.found, FOUND_BY_CYCLE);
    assert_int_equal(profiled.profile.span_count, 10);
    assert_int_equal(profiled.profile.layers, 2);
    expect_span(&profiled, 0, RECIPE_ATTENTION, RECIPE_F, 0, 190);
    expect_span(&profiled, 1, RECIPE_DISPATCH, RECIPE_F, 0, 350);
    expect_span(&profiled, 2, RECIPE_MLP, RECIPE_F, 200, 490);
    expect_span(&profiled, 3, RECIPE_COMBINE, RECIPE_F, 400, 750);
    expect_span(&profiled, 4, RECIPE_ATTENTION, RECIPE_B, 500, 790);
    expect_span(&profiled, 5, RECIPE_ATTENTION, RECIPE_F, 1000, 1190);
    arena_free(&profiled.arena);
}

/* A map may name the kernels of a component (`.kernel`). Consecutive kernels of one component are then one span, even
   with a foreign kernel between them. Annotations take precedence over these names. */
TEST(names_tell_components)
{
    Made made;
    Profiled profiled;
    begin_trace(&made);
    put_kernel(&made, "flash_fwd", 0, 7, 0, 10);
    put_kernel(&made, "other", 0, 7, 10, 10);
    put_kernel(&made, "flash_fwd", 0, 7, 20, 10);
    put_kernel(&made, "moe_gemm", 0, 7, 30, 10);
    put_kernel(&made, "flash_fwd", 0, 7, 40, 10);
    put_annotation(&made, "backward", 1, 0, 10);
    put_launch(&made, 1, 5);
    put_kernel(&made, "flash_fwd", 0, 7, 60, 10);
    profile(&profiled, &made, "attention.F.kernel = flash*\nmlp.F.kernel = moe_*\nmlp.B = backward\n");
    assert_int_equal(profiled.profile.found, FOUND_BY_ANNOTATION | FOUND_BY_NAME);
    assert_int_equal(profiled.profile.span_count, 4);
    expect_span(&profiled, 0, RECIPE_ATTENTION, RECIPE_F, 0, 30);
    expect_span(&profiled, 1, RECIPE_MLP, RECIPE_F, 30, 40);
    expect_span(&profiled, 2, RECIPE_ATTENTION, RECIPE_F, 40, 50);
    expect_span(&profiled, 3, RECIPE_MLP, RECIPE_B, 60, 70);
    assert_int_equal(profiled.profile.foreign, 1);
    arena_free(&profiled.arena);
}

/* If F&Bs are annotated, kernels launched outside of these annotations do not count. */
TEST(pairs_limit_what_counts)
{
    Made made;
    Profiled profiled;
    begin_trace(&made);
    for (int i = 0; i < 4; i++) {
        if (i)
            put_annotation(&made, "pair", 1, 100 * i, 90);
        put_annotation(&made, "attn", 1, 100 * i + 10, 10);
        put_launch(&made, 1, 100 * i + 11);
        put_kernel(&made, "a", 0, 7, 1000 * i, 10 * (i + 1));
    }
    profile(&profiled, &made, "FB = pair\nattention.F = attn\n");
    assert_true(profiled.profile.has_pairs);
    assert_int_equal(profiled.profile.group_count, 3);
    assert_int_equal(profiled.profile.layers, 1);
    assert_int_equal(profiled.profile.span_count, 3);
    expect_span(&profiled, 0, RECIPE_ATTENTION, RECIPE_F, 1000, 1020);
    assert_int_equal(kineto_typical_group(&profiled.profile, &profiled.arena), 1);
    arena_free(&profiled.arena);
}

/* An event with a missing or wrong field is skipped, or the field is replaced, without an error. */
TEST(missing_fields_do_no_harm)
{
    static const char *const events[] = {
        "{}",
        "7",
        "[]",
        "{\"ph\": \"X\"}",
        "{\"ph\": \"X\", \"cat\": \"kernel\"}",
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": 1, \"dur\": 1}",
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": 1, \"dur\": -1}",
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": 1e300, \"dur\": 1}",
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": 99999999999999999999, \"dur\": 1}",
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": \"1\", \"dur\": 1, \"args\": 5}",
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": 5, \"ts\": 1, \"dur\": 1, \"args\": {\"grid\": 5}}",
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": 1, \"dur\": 1, \"args\": {\"grid\": [1e30, []]}}",
        "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"ts\": 1, \"dur\": 1}",
        "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"args\": {\"correlation\": 5}}",
        "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"ts\": 1}",
        "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"ts\": 1, \"dur\": 2}",
        "{\"ph\": \"f\", \"cat\": \"ac2g\", \"id\": 12, \"ts\": 1}",
        "{\"ph\": \"X\", \"cat\": \"Trace\", \"pid\": \"Spans\", \"tid\": \"PyTorch\", \"ts\": 1, \"dur\": 1}",
        "{\"dur\": 2, \"args\": {\"correlation\": 1}, \"ts\": 3, \"cat\": \"kernel\", \"ph\": \"X\"}",
    };
    Made made;
    Profiled profiled;
    begin_trace(&made);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        fprintf(made.stream, ",\n%s", events[i]);
    put_annotation(&made, "attn", 1, 0, 10);
    put_launch(&made, 1, 1);
    put_kernel(&made, "a", 0, 7, 100, 10);
    profile(&profiled, &made, "attention.F = attn\n");
    assert_int_equal(profiled.trace.kernel_count, 6);
    assert_int_equal(profiled.trace.annotation_count, 2);
    assert_int_equal(profiled.trace.incomplete, 7);
    assert_int_equal(profiled.trace.orphans, 4);
    arena_free(&profiled.arena);
}

static long peak_kilobytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* Most events of a trace are calls of operators, which the reader does not keep. KINETO_MB=1000 makes the trace as
   large as real ones. */
TEST(a_large_trace_takes_little_memory)
{
    const char *wanted = getenv("KINETO_MB");
    const long megabytes = wanted ? atol(wanted) : 40;
    Made made;
    Arena arena = {0};
    Error error = {""};
    KinetoTrace trace;
    begin_trace(&made);
    int kernels = 0;
    for (int i = 0; ftell(made.stream) < megabytes << 20; i++) {
        fprintf(
            made.stream,
            ",\n  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::op%d\", \"pid\": 5, \"tid\": 1,\n"
            "    \"ts\": %d, \"dur\": 3,\n    \"args\": {\n      \"External id\": %d, \"Ev Idx\": %d, \"Input Dims\": "
            "[[4096, 7168], [7168, 2048]], \"Sequence number\": %d\n    }\n  }",
            i % 50, i, i, i, i);
        if (i % 20 == 0) {
            put_launch(&made, 1, i);
            put_kernel(&made, "gemm", 0, 7, i, 10);
            kernels++;
        }
    }
    end_trace(&made);
    const long before = peak_kilobytes();
    assert_int_equal(kineto_read(made.path, &arena, &trace, &error), STATUS_OK);
    const long grown = peak_kilobytes() - before;
    assert_int_equal(trace.kernel_count, kernels);
    assert_int_equal(trace.launch_count, kernels);
    assert_true(grown < 2048 + megabytes * 1024 / 20);
    arena_free(&arena);
    unlink(made.path);
}

int main(void) { return test_program("kineto", NULL, NULL); }
