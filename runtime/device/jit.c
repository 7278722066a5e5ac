#include "runtime/device/jit.h"

#include "runtime/base/file.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* --- NVRTC --- */

static const char *const library_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

static Nvrtc opened;
static char failure[256];
static pthread_once_t open_once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof library_names / sizeof *library_names; i++)
        library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(failure, sizeof failure, "NVRTC is not installed (none of %s, %s, %s can be opened)", library_names[0],
                 library_names[1], library_names[2]);
        return;
    }
    const struct {
        const char *name;
        void **function;
    } entries[] = {
        {"nvrtcGetErrorString", (void **)&opened.GetErrorString},
        {"nvrtcVersion", (void **)&opened.Version},
        {"nvrtcCreateProgram", (void **)&opened.CreateProgram},
        {"nvrtcDestroyProgram", (void **)&opened.DestroyProgram},
        {"nvrtcCompileProgram", (void **)&opened.CompileProgram},
        {"nvrtcGetCUBINSize", (void **)&opened.GetCUBINSize},
        {"nvrtcGetCUBIN", (void **)&opened.GetCUBIN},
        {"nvrtcGetProgramLogSize", (void **)&opened.GetProgramLogSize},
        {"nvrtcGetProgramLog", (void **)&opened.GetProgramLog},
    };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        *entries[i].function = dlsym(library, entries[i].name);
        if (!*entries[i].function && !*failure)
            snprintf(failure, sizeof failure, "NVRTC is too old: it has no %s", entries[i].name);
    }
}

Status jit_open(const Nvrtc **nvrtc, Error *error)
{
    pthread_once(&open_once, open_library);
    *nvrtc = &opened;
    return *failure ? error_set(error, STATUS_RUN_FAILED, "%s", failure) : STATUS_OK;
}

static Status check(const Nvrtc *nvrtc, int code, const char *call, const JitSource *source, Error *error)
{
    if (code == 0)
        return STATUS_OK;
    return error_set(error, STATUS_RUN_FAILED, "%s for %s: %s: %s (%d)", source->name, source->architecture, call,
                     nvrtc->GetErrorString(code), code);
}

static void append_log(const Nvrtc *nvrtc, NvrtcProgram program, Error *error)
{
    size_t bytes = 0;
    if (nvrtc->GetProgramLogSize(program, &bytes) != 0 || bytes < 2)
        return;
    char *log = calloc(1, bytes + 1);
    const size_t used = strlen(error->text);
    if (log && nvrtc->GetProgramLog(program, log) == 0)
        snprintf(error->text + used, sizeof error->text - used, "\n%s", log);
    free(log);
}

static Status make_image(const Nvrtc *nvrtc, NvrtcProgram program, const JitSource *source, void **image, size_t *bytes,
                         Error *error)
{
    char architecture[64];
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", source->architecture);
    const char *const options[] = {architecture, "--std=c++17"};
    const Status status = check(nvrtc, nvrtc->CompileProgram(program, sizeof options / sizeof *options, options),
                                "nvrtcCompileProgram", source, error);
    if (status != STATUS_OK) {
        append_log(nvrtc, program, error);
        return status;
    }
    TRY(check(nvrtc, nvrtc->GetCUBINSize(program, bytes), "nvrtcGetCUBINSize", source, error));
    *image = malloc(*bytes + 1);
    if (!*image)
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory for its machine code, %zu bytes", source->name, *bytes);
    return check(nvrtc, nvrtc->GetCUBIN(program, *image), "nvrtcGetCUBIN", source, error);
}

static Status compile(const Nvrtc *nvrtc, const JitSource *source, void **image, size_t *bytes, Error *error)
{
    NvrtcProgram program = NULL;
    TRY(check(nvrtc, nvrtc->CreateProgram(&program, source->text, source->name, source->headers, source->header_texts,
                                          source->header_names),
              "nvrtcCreateProgram", source, error));
    const Status status = make_image(nvrtc, program, source, image, bytes, error);
    nvrtc->DestroyProgram(&program);
    if (status != STATUS_OK) {
        free(*image);
        *image = NULL;
    }
    return status;
}

/* --- the folder --- */

/* Fowler, Noll and Vo's hash, twice from different starts: 128 bits of everything that the machine code depends on. */
typedef struct Key {
    uint64_t half[2];
} Key;

static void key_add(Key *key, const char *text)
{
    for (size_t i = 0; i <= strlen(text); i++) /* with the closing 0, so that parts cannot run into each other */
        for (int h = 0; h < 2; h++)
            key->half[h] = (key->half[h] ^ (unsigned char)text[i]) * 1099511628211u;
}

static Key key_of(const JitSource *source, int major, int minor)
{
    Key key = {{14695981039346656037u, 0x9e3779b97f4a7c15u}};
    char version[32];
    snprintf(version, sizeof version, "NVRTC %d.%d", major, minor);
    const char *const parts[] = {"dprun 1", version, source->architecture, source->name, source->text};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        key_add(&key, parts[i]);
    for (int i = 0; i < source->headers; i++) {
        key_add(&key, source->header_names[i]);
        key_add(&key, source->header_texts[i]);
    }
    return key;
}

/* What a file begins with. It is read on the machine that wrote it. */
typedef struct Head {
    char magic[8];
    Key key;
    uint64_t bytes;
    uint64_t check; /* CRC-32 of the image */
} Head;
static const char magic[8] = "DPCUBIN";

static uint64_t check_of(const void *image, size_t bytes)
{
    return crc32_z(0, image, bytes);
}

/* False when it is not there or not whole. */
static bool load(const char *path, const Key *key, void **image, size_t *bytes)
{
    Head head;
    bool whole = false;
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return false;
    struct stat about;
    if (fread(&head, sizeof head, 1, stream) == 1 && memcmp(head.magic, magic, sizeof magic) == 0 &&
        memcmp(&head.key, key, sizeof *key) == 0 && fstat(fileno(stream), &about) == 0 &&
        (uint64_t)about.st_size == sizeof head + head.bytes) {
        *bytes = head.bytes;
        *image = malloc(*bytes + 1);
        whole = *image && fread(*image, 1, *bytes, stream) == *bytes && check_of(*image, *bytes) == head.check;
        if (!whole)
            free(*image);
    }
    fclose(stream);
    if (whole)
        utimensat(AT_FDCWD, path, NULL, 0); /* used now: the last to be trimmed */
    else
        *image = NULL;
    return whole;
}

static bool make_folders(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", folder);
    for (char *end = path + 1; (end = strchr(end, '/')); *end++ = '/') {
        *end = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static void keep(const char *folder, const char *path, const Key *key, const void *image, size_t bytes)
{
    Head head = {.key = *key, .bytes = bytes, .check = check_of(image, bytes)};
    memcpy(head.magic, magic, sizeof magic);
    Error unheard; /* without the folder everything works, only slower */
    OutputFile file;
    if (!make_folders(folder) || file_begin(path, &file, &unheard) != STATUS_OK)
        return;
    fwrite(&head, sizeof head, 1, file.stream);
    fwrite(image, 1, bytes, file.stream);
    if (file_finish(&file, &unheard) != STATUS_OK)
        file_abandon(&file);
    jit_trim(folder, JIT_FOLDER_BYTES);
}

typedef struct Kept {
    char name[NAME_MAX + 1];
    struct timespec used;
    size_t bytes;
} Kept;

static int by_age(const void *a, const void *b)
{
    const struct timespec *left = &((const Kept *)a)->used, *right = &((const Kept *)b)->used;
    if (left->tv_sec != right->tv_sec)
        return left->tv_sec < right->tv_sec ? -1 : 1;
    return (left->tv_nsec > right->tv_nsec) - (left->tv_nsec < right->tv_nsec);
}

void jit_trim(const char *folder, size_t most_bytes)
{
    DIR *stream = opendir(folder);
    Kept *kept = NULL;
    size_t count = 0, total = 0;
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        struct stat about;
        if (!strstr(entry->d_name, ".cubin") || fstatat(dirfd(stream), entry->d_name, &about, 0) != 0)
            continue;
        Kept *more = realloc(kept, (count + 1) * sizeof *kept);
        if (!more)
            break;
        kept = more;
        kept[count] = (Kept){.used = about.st_mtim, .bytes = (size_t)about.st_size};
        snprintf(kept[count].name, sizeof kept[count].name, "%s", entry->d_name);
        total += kept[count++].bytes;
    }
    if (count)
        qsort(kept, count, sizeof *kept, by_age);
    for (size_t i = 0; i < count && total > most_bytes; i++) {
        unlinkat(dirfd(stream), kept[i].name, 0);
        total -= kept[i].bytes;
    }
    free(kept);
    if (stream)
        closedir(stream);
}

void jit_folder(char *path, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *path = '\0';
    if (cache && *cache == '/') /* relative ones are to be ignored, says the XDG Base Directory Specification */
        snprintf(path, size, "%s/dprun", cache);
    else if (home && *home)
        snprintf(path, size, "%s/.cache/dprun", home);
}

Status jit_compile(const Nvrtc *nvrtc, const char *folder, const JitSource *source, void **image, size_t *bytes, Error *error)
{
    int major = 0, minor = 0;
    *image = NULL;
    TRY(check(nvrtc, nvrtc->Version(&major, &minor), "nvrtcVersion", source, error));
    const Key key = key_of(source, major, minor);
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s/%016llx%016llx.cubin", folder, (unsigned long long)key.half[0],
                                (unsigned long long)key.half[1]);
    const bool has_folder = *folder && length > 0 && (size_t)length < sizeof path;
    if (has_folder && load(path, &key, image, bytes))
        return STATUS_OK;
    TRY(compile(nvrtc, source, image, bytes, error));
    if (has_folder)
        keep(folder, path, &key, *image, *bytes);
    return STATUS_OK;
}
