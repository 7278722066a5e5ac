#include "runtime/cuda/jit.h"

#include "base/file.h"

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
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
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
    return error_set(error, STATUS_RUN_FAILED, "cannot compile %s for %s: %s: %s (%d)", source->name,
                     source->architecture, call, nvrtc->GetErrorString(code), code);
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

enum { NVRTC_INVALID_OPTION = 5 };

/* Compiles a source with NVRTC, which may divide the functions among threads. The number of parts (16) is fixed, so the
   machine code does not depend on the machine that compiles. */
static int compile_program(const Nvrtc *nvrtc, NvrtcProgram program, const JitSource *source)
{
    char architecture[64], macro[64];
    const char *options[4] = {architecture, "--std=c++17"};
    int count = 2;
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", source->architecture);
    if (source->macro) {
        snprintf(macro, sizeof macro, "--define-macro=%s", source->macro);
        options[count++] = macro;
    }
    options[count] = "--split-compile=16";
    const int code = nvrtc->CompileProgram(program, count + 1, options);
    /* an older NVRTC does not know --split-compile: compile without it */
    return code == NVRTC_INVALID_OPTION ? nvrtc->CompileProgram(program, count, options) : code;
}

static Status make_image(const Nvrtc *nvrtc, NvrtcProgram program, const JitSource *source, JitImage *image,
                         Error *error)
{
    const Status status = check(nvrtc, compile_program(nvrtc, program, source), "nvrtcCompileProgram", source, error);
    if (status != STATUS_OK) {
        append_log(nvrtc, program, error);
        return status;
    }
    TRY(check(nvrtc, nvrtc->GetCUBINSize(program, &image->bytes), "nvrtcGetCUBINSize", source, error));
    image->code = malloc(image->bytes + 1);
    if (!image->code)
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory for its machine code, %zu bytes", source->name,
                         image->bytes);
    return check(nvrtc, nvrtc->GetCUBIN(program, image->code), "nvrtcGetCUBIN", source, error);
}

static Status compile(const Nvrtc *nvrtc, const JitSource *source, JitImage *image, Error *error)
{
    NvrtcProgram program = NULL;
    TRY(check(nvrtc,
              nvrtc->CreateProgram(&program, source->text, source->name, source->headers, source->header_texts,
                                   source->header_names),
              "nvrtcCreateProgram", source, error));
    const Status status = make_image(nvrtc, program, source, image, error);
    nvrtc->DestroyProgram(&program);
    return status;
}

/* --- the cache folder --- */

/* The cache key: a 128-bit hash of everything that the machine code depends on. Each half is a 64-bit FNV hash (Fowler,
   Noll and Vo), with a start value of its own. */
typedef struct Key {
    uint64_t half[2];
} Key;

static void key_add(Key *key, const char *text)
{
    do /* hashes the terminating 0, too, so that "ab", "c" and "a", "bc" have different keys */
        for (int h = 0; h < 2; h++)
            key->half[h] = (key->half[h] ^ (unsigned char)*text) * 1099511628211u;
    while (*text++);
}

static Key key_of(const JitSource *source, int major, int minor)
{
    Key key = {{14695981039346656037u, 0x9e3779b97f4a7c15u}};
    char version[32];
    snprintf(version, sizeof version, "NVRTC %d.%d", major, minor);
    const char *const parts[] = {"dprun 2", version, source->architecture, source->name, source->text};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        key_add(&key, parts[i]);
    key_add(&key, source->macro ? source->macro : "");
    for (int i = 0; i < source->headers; i++) {
        key_add(&key, source->header_names[i]);
        key_add(&key, source->header_texts[i]);
    }
    return key;
}

/* The header of a cache file. It is in the byte order of the machine: the cache is not for other machines. */
typedef struct Head {
    char magic[8];
    Key key;
    uint64_t bytes;
    uint64_t check; /* CRC-32 of the image */
} Head;
static const char magic[8] = "DPCUBIN";

static uint64_t check_of(const void *image, size_t bytes) { return crc32_z(0, image, bytes); }

/* Loads a cache file. False: it cannot be opened, is damaged or for another key, or there is no memory for it. */
static bool load(const char *path, const Key *key, JitImage *image)
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
        image->bytes = head.bytes;
        image->code = malloc(image->bytes + 1);
        whole = image->code && fread(image->code, 1, image->bytes, stream) == image->bytes &&
                check_of(image->code, image->bytes) == head.check;
    }
    fclose(stream);
    if (whole) {
        utimensat(AT_FDCWD, path, NULL, 0); /* sets the file's time to now, so that jit_trim deletes it last */
    } else {
        free(image->code);
        image->code = NULL;
    }
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

static void keep(const char *path, const Key *key, const JitImage *image)
{
    Head head = {.key = *key, .bytes = image->bytes, .check = check_of(image->code, image->bytes)};
    memcpy(head.magic, magic, sizeof magic);
    Error unheard; /* nobody reads this error: without the cache file the next start is only slower */
    OutputFile file;
    if (file_begin(path, &file, &unheard) != STATUS_OK)
        return;
    fwrite(&head, sizeof head, 1, file.stream);
    fwrite(image->code, 1, image->bytes, file.stream);
    if (file_finish(&file, &unheard) != STATUS_OK)
        file_abandon(&file);
}

/* Locks the cache folder while this process compiles; the lock ends when the descriptor is closed or the process ends.
   If another process holds the lock for longer than LOCK_WAIT_MILLISECONDS, this process compiles without the lock,
   which is safe: files of the cache appear whole or not at all. Returns the descriptor of the lock file, with or
   without the lock; -1: the file cannot be opened. */
enum { LOCK_WAIT_MILLISECONDS = 60000 };
static int lock(const char *folder)
{
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s/lock", folder);
    const struct timespec millisecond = {.tv_nsec = 1000000};
    if ((size_t)length >= sizeof path)
        return -1;
    const int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    for (int waited = 0; descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) != 0; waited++) {
        if (errno != EWOULDBLOCK || waited == LOCK_WAIT_MILLISECONDS)
            break;
        nanosleep(&millisecond, NULL);
    }
    return descriptor;
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
    if (cache && *cache == '/') /* the XDG Base Directory Specification says to ignore relative paths */
        snprintf(path, size, "%s/dprun", cache);
    else if (home && *home)
        snprintf(path, size, "%s/.cache/dprun", home);
}

/* --- compile or load --- */

/* The job of making the machine code of one source. */
typedef struct Job {
    const Nvrtc *nvrtc;
    const JitSource *source;
    JitImage *image;
    Key key;
    char path[PATH_MAX]; /* of its cache file; "": there is no cache folder, or the path would be too long */
    bool threaded, made;
    pthread_t thread;
    Status status;
    Error error;
} Job;

static void *work(void *argument)
{
    Job *job = argument;
    job->status = compile(job->nvrtc, job->source, job->image, &job->error);
    job->made = true;
    return NULL;
}

static void plan(Job *job, const Nvrtc *nvrtc, const char *folder, int major, int minor, const JitSource *source,
                 JitImage *image)
{
    *image = (JitImage){NULL, 0};
    *job = (Job){.nvrtc = nvrtc, .source = source, .image = image, .key = key_of(source, major, minor)};
    const int length = snprintf(job->path, sizeof job->path, "%s/%016llx%016llx.cubin", folder,
                                (unsigned long long)job->key.half[0], (unsigned long long)job->key.half[1]);
    if (!*folder || (size_t)length >= sizeof job->path)
        *job->path = '\0';
}

/* Loads machine code from the cache for each job that has none yet, as far as the cache has it. Returns how many jobs
   have machine code now. */
static size_t load_all(size_t count, Job *jobs)
{
    size_t there = 0;
    for (Job *job = jobs; job < jobs + count; job++)
        there += job->image->code || (*job->path && load(job->path, &job->key, job->image));
    return there;
}

/* Compiles the sources that were not in the cache, each on its own thread. NVRTC allows this for different programs
   (NVRTC's guide, "Thread Safety"); versions before 12.3 serialize most of it. */
static Status make_rest(size_t count, Job *jobs, Error *error)
{
    for (Job *job = jobs; job < jobs + count; job++)
        if (!job->image->code) {
            job->threaded = pthread_create(&job->thread, NULL, work, job) == 0;
            if (!job->threaded)
                work(job);
        }
    Status status = STATUS_OK;
    for (Job *job = jobs; job < jobs + count; job++) {
        if (job->threaded)
            pthread_join(job->thread, NULL);
        if (status == STATUS_OK && job->status != STATUS_OK) {
            status = job->status;
            *error = job->error;
        }
    }
    return status;
}

static Status make_in(const char *folder, size_t count, Job *jobs, Error *error)
{
    if (!*folder || !make_folders(folder))
        return make_rest(count, jobs, error);
    const int locked = lock(folder);
    const Status status = load_all(count, jobs) == count ? STATUS_OK : make_rest(count, jobs, error);
    for (Job *job = jobs; job < jobs + count; job++)
        if (job->made && job->status == STATUS_OK && *job->path)
            keep(job->path, &job->key, job->image);
    jit_trim(folder, JIT_FOLDER_BYTES);
    if (locked >= 0)
        close(locked);
    return status;
}

Status jit_compile(const Nvrtc *nvrtc, const char *folder, size_t count, const JitSource *sources, JitImage *images,
                   Error *error)
{
    int major = 0, minor = 0;
    if (count == 0)
        return STATUS_OK;
    TRY(check(nvrtc, nvrtc->Version(&major, &minor), "nvrtcVersion", sources, error));
    Job *jobs = malloc(count * sizeof *jobs);
    if (!jobs)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    for (size_t i = 0; i < count; i++)
        plan(&jobs[i], nvrtc, folder, major, minor, &sources[i], &images[i]);
    const Status status = load_all(count, jobs) == count ? STATUS_OK : make_in(folder, count, jobs, error);
    for (size_t i = 0; status != STATUS_OK && i < count; i++) {
        free(images[i].code);
        images[i] = (JitImage){NULL, 0};
    }
    free(jobs);
    return status;
}
