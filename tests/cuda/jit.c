/* Kernels compiled by a mock compiler: when the compiler is called, which results are cached, what happens with damaged
   files of the cache, how the cache is trimmed, and that threads which start together compile each kernel once. */

#include "runtime/cuda/jit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct _nvrtcProgram {
    char text[256];
};

static atomic_int compilations, live, at_work, together;
/* wait_for: each compilation waits, for at most 10 s, until so many of them have run at the same time; 0: it does not
   wait */
static int minor_version, compile_result, wait_for;
/* the mock is an old NVRTC, which cannot split a compilation among threads */
static bool old;
static char last_options[128], last_header[64];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static const char *get_error_string(int error) { return error ? "an error" : "no error"; }

static int version(int *major, int *minor)
{
    *major = 13;
    *minor = minor_version;
    return 0;
}

static int create_program(NvrtcProgram *program, const char *source, const char *name, int headers,
                          const char *const *contents, const char *const *names)
{
    (void)name;
    *program = calloc(1, sizeof **program);
    snprintf((*program)->text, sizeof(*program)->text, "code of %s", source);
    pthread_mutex_lock(&mutex);
    snprintf(last_header, sizeof last_header, "%s: %s", headers ? names[0] : "", headers ? contents[0] : "");
    pthread_mutex_unlock(&mutex);
    live++;
    return 0;
}

static int destroy_program(NvrtcProgram *program)
{
    free(*program);
    live--;
    return 0;
}

static int compile_program(NvrtcProgram program, int options, const char *const *option)
{
    const bool splits = strncmp(option[options - 1], "--split-compile", strlen("--split-compile")) == 0;
    if (old && splits)
        return 5;
    compilations++;
    const int now = ++at_work;
    if (now > together)
        together = now;
    for (int i = 0; i < 10000 && together < wait_for; i++)
        usleep(1000);
    pthread_mutex_lock(&mutex);
    *last_options = '\0';
    for (int i = 0; i < options; i++)
        snprintf(last_options + strlen(last_options), sizeof last_options - strlen(last_options), "%s ", option[i]);
    pthread_mutex_unlock(&mutex);
    at_work--;
    return strstr(program->text, "bad") ? 6 : compile_result;
}

static int cubin_size(NvrtcProgram program, size_t *bytes)
{
    *bytes = strlen(program->text);
    return 0;
}

static int cubin(NvrtcProgram program, char *image)
{
    memcpy(image, program->text, strlen(program->text));
    return 0;
}

static const char log_text[] = "a.cu(1): error: this is no C++";

static int log_size(NvrtcProgram program, size_t *bytes)
{
    (void)program;
    *bytes = sizeof log_text;
    return 0;
}

static int get_log(NvrtcProgram program, char *log)
{
    (void)program;
    memcpy(log, log_text, sizeof log_text);
    return 0;
}

static const Nvrtc nvrtc = {get_error_string, version, create_program, destroy_program, compile_program,
                            cubin_size,       cubin,   log_size,       get_log};

static char folder[256];

static void remove_all(const char *path)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0);
}

static int set_up(void **state)
{
    (void)state;
    const char *build = getenv("BUILD");
    snprintf(folder, sizeof folder, "%s/tests/cuda/cache/deep/er", build ? build : "build");
    remove_all(folder);
    compilations = live = at_work = together = 0;
    minor_version = compile_result = wait_for = 0;
    old = false;
    return 0;
}

static JitSource source_of(const char *text, const char *architecture)
{
    static const char *const names[] = {"kernels.h"}, *const texts[] = {"enum { A };"};
    return (JitSource){.name = "a.cu",
                       .text = text,
                       .headers = 1,
                       .header_names = names,
                       .header_texts = texts,
                       .architecture = architecture};
}

static void expect(const JitSource *source, const char *in, const char *code, int compiled)
{
    JitImage image;
    Error error = {""};
    if (jit_compile(&nvrtc, in, 1, source, &image, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_int_equal(image.bytes, strlen(code));
    assert_memory_equal(image.code, code, image.bytes);
    assert_int_equal(compilations, compiled);
    assert_int_equal(live, 0);
    free(image.code);
}

static void test_kept(void **state)
{
    (void)state;
    JitSource source = source_of("x", "sm_90a");
    expect(&source, folder, "code of x", 1);
    assert_string_equal(last_options, "--gpu-architecture=sm_90a --std=c++17 --split-compile=16 ");
    assert_string_equal(last_header, "kernels.h: enum { A };");
    expect(&source, folder, "code of x", 1);
    JitSource other = source_of("y", "sm_90a");
    expect(&other, folder, "code of y", 2);
    source.architecture = "sm_80";
    expect(&source, folder, "code of x", 3);
    static const char *const texts[] = {"enum { B };"};
    source.header_texts = texts;
    expect(&source, folder, "code of x", 4);
    source.headers = 0;
    expect(&source, folder, "code of x", 5);
    minor_version = 1;
    expect(&source, folder, "code of x", 6);
    expect(&source, folder, "code of x", 6);
    minor_version = 0;
    expect(&other, folder, "code of y", 6);
    other.macro = "ONLY_f32";
    expect(&other, folder, "code of y", 7);
    assert_string_equal(last_options,
                        "--gpu-architecture=sm_90a --std=c++17 --define-macro=ONLY_f32 --split-compile=16 ");
    other.macro = "ONLY_bf16";
    old = true;
    expect(&other, folder, "code of y", 8);
    assert_string_equal(last_options, "--gpu-architecture=sm_90a --std=c++17 --define-macro=ONLY_bf16 ");
}

enum { SOURCES = 4 };

static void expect_all(const JitSource *sources, const char *const *texts)
{
    JitImage images[SOURCES];
    Error error = {""};
    if (jit_compile(&nvrtc, folder, SOURCES, sources, images, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    for (int i = 0; i < SOURCES; i++) {
        char code[16];
        snprintf(code, sizeof code, "code of %s", texts[i]);
        assert_int_equal(images[i].bytes, strlen(code));
        assert_memory_equal(images[i].code, code, images[i].bytes);
        free(images[i].code);
    }
}

/* All kernels that are not in the cache are compiled at the same time; cached ones are not compiled again. */
static void test_together(void **state)
{
    (void)state;
    static const char *const texts[SOURCES] = {"a", "b", "c", "d"};
    JitSource sources[SOURCES];
    for (int i = 0; i < SOURCES; i++)
        sources[i] = source_of(texts[i], "sm_80");
    expect(&sources[2], folder, "code of c", 1);
    wait_for = SOURCES - 1;
    expect_all(sources, texts);
    assert_int_equal(compilations, SOURCES);
    assert_int_equal(together, SOURCES - 1);
    expect_all(sources, texts);
    assert_int_equal(compilations, SOURCES);
}

/* Compiles the kernels that all threads of test_started_together need: each must be compiled once. */
static void *start(void *argument)
{
    static const char *const texts[SOURCES] = {"a", "b", "c", "d"};
    JitSource sources[SOURCES];
    for (int i = 0; i < SOURCES; i++)
        sources[i] = source_of(texts[i], "sm_80");
    expect_all(sources, texts);
    return argument;
}

static void test_started_together(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, start, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(compilations, SOURCES);
}

/* One of several compilations fails: its error is reported, and none of the results is returned. */
static void test_one_fails(void **state)
{
    (void)state;
    static const char *const texts[] = {"a", "bad", "c"};
    JitSource sources[3];
    JitImage images[3];
    Error error = {""};
    for (int i = 0; i < 3; i++)
        sources[i] = source_of(texts[i], "sm_80");
    assert_int_equal(jit_compile(&nvrtc, folder, 3, sources, images, &error), STATUS_RUN_FAILED);
    assert_string_equal(
        error.text, "cannot compile a.cu for sm_80: nvrtcCompileProgram: an error (6)\na.cu(1): error: this is no C++");
    for (int i = 0; i < 3; i++)
        assert_null(images[i].code);
    assert_int_equal(live, 0);
    expect(&sources[2], folder, "code of c", 3); /* the kernels that did not fail are in the cache */
}

/* Calls `change` for the only .cubin file of the cache. The caller checks that the code is then compiled again. */
static void damage(void (*change)(const char *path))
{
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    int files = 0;
    for (struct dirent *entry; (entry = readdir(stream));) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strstr(entry->d_name, ".cubin")) {
            change(path);
            files++;
        }
    }
    closedir(stream);
    assert_int_equal(files, 1);
}

static void cut(const char *path)
{
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(truncate(path, about.st_size - 1), 0);
}

static void empty(const char *path) { assert_int_equal(truncate(path, 0), 0); }

static void flip(const char *path)
{
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    fseek(stream, -1, SEEK_END);
    fputc('#', stream);
    fclose(stream);
}

static void spoil_head(const char *path)
{
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    fseek(stream, 10, SEEK_SET);
    fputc('#', stream);
    fclose(stream);
}

static void append(const char *path)
{
    FILE *stream = fopen(path, "ab");
    assert_non_null(stream);
    fputc('#', stream);
    fclose(stream);
}

static void test_damaged(void **state)
{
    (void)state;
    static void (*const changes[])(const char *) = {cut, empty, flip, spoil_head, append};
    const JitSource source = source_of("x", "sm_80");
    int made = 1;
    expect(&source, folder, "code of x", made);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        damage(changes[i]);
        expect(&source, folder, "code of x", ++made);
        expect(&source, folder, "code of x", made);
    }
}

static void test_without_folder(void **state)
{
    (void)state;
    const JitSource source = source_of("x", "sm_80");
    expect(&source, "", "code of x", 1);
    expect(&source, "", "code of x", 2);
    expect(&source, "/dev/null/nowhere", "code of x", 3);
}

static void test_errors(void **state)
{
    (void)state;
    const JitSource source = source_of("x", "sm_80");
    JitImage image;
    Error error = {""};
    compile_result = 6;
    assert_int_equal(jit_compile(&nvrtc, folder, 1, &source, &image, &error), STATUS_RUN_FAILED);
    assert_string_equal(
        error.text, "cannot compile a.cu for sm_80: nvrtcCompileProgram: an error (6)\na.cu(1): error: this is no C++");
    assert_null(image.code);
    assert_int_equal(live, 0);
    compile_result = 0;
    expect(&source, folder, "code of x", 2); /* the failure is not cached */
}

/* Of three files the two that were used last are kept. */
static void test_trim(void **state)
{
    (void)state;
    static const char *const texts[] = {"x", "y", "z"};
    for (int i = 0; i < 3; i++) {
        const JitSource source = source_of(texts[i], "sm_80");
        char code[16];
        snprintf(code, sizeof code, "code of %s", texts[i]);
        expect(&source, folder, code, i + 1);
        usleep(20000);
    }
    const JitSource x = source_of("x", "sm_80"), y = source_of("y", "sm_80"), z = source_of("z", "sm_80");
    expect(&x, folder, "code of x", 3);
    jit_trim(folder, 120);
    expect(&x, folder, "code of x", 3);
    expect(&z, folder, "code of z", 3);
    expect(&y, folder, "code of y", 4);
    jit_trim("/dev/null/nowhere", 0);
}

static void test_folder(void **state)
{
    (void)state;
    char path[64];
    setenv("XDG_CACHE_HOME", "/x/cache", 1);
    setenv("HOME", "/home/me", 1);
    jit_folder(path, sizeof path);
    assert_string_equal(path, "/x/cache/dprun");
    setenv("XDG_CACHE_HOME", "relative", 1);
    jit_folder(path, sizeof path);
    assert_string_equal(path, "/home/me/.cache/dprun");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    jit_folder(path, sizeof path);
    assert_string_equal(path, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_kept, set_up),           cmocka_unit_test_setup(test_damaged, set_up),
        cmocka_unit_test_setup(test_without_folder, set_up), cmocka_unit_test_setup(test_errors, set_up),
        cmocka_unit_test_setup(test_trim, set_up),           cmocka_unit_test(test_folder),
        cmocka_unit_test_setup(test_together, set_up),       cmocka_unit_test_setup(test_started_together, set_up),
        cmocka_unit_test_setup(test_one_fails, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
