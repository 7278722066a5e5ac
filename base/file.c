#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reading a device or a pipe, which may never end, fails once it has given this many bytes. */
enum { ENDLESS = 1 << 28 };

/* most temporary names that are tried for a file */
enum { NAMES = 1000 };

/* The path in a message: an empty path would not be seen. */
static const char *shown(const char *path) { return *path ? path : "''"; }

/* Reads the stream to its end. The first memory has room for all of a regular file; for other streams, whose size is
   unknown, it grows. */
static Status read_all(FILE *stream, const char *path, Arena *arena, char **bytes, size_t *size, Error *error)
{
    struct stat there;
    size_t capacity = 1 << 14, used = 0;
    const bool is_file = fstat(fileno(stream), &there) == 0 && S_ISREG(there.st_mode);
    if (is_file && (size_t)there.st_size >= capacity)
        /* one byte more than the file has, so that the read sees the end of the file */
        capacity = (size_t)there.st_size + 1;
    char *text = arena_allocate(arena, capacity + 1);
    for (;;) {
        if (!text)
            return error_set(error, STATUS_NO_MEMORY, "%s: no memory to read it", path);
        used += fread(text + used, 1, capacity - used, stream);
        if (ferror(stream))
            return error_set(error, STATUS_BAD_INPUT, "%s: %s", path, strerror(errno));
        if (used < capacity)
            break;
        if (!is_file && used >= ENDLESS)
            return error_set(error, STATUS_BAD_INPUT,
                             "%s: the input has not ended after %d MiB; put larger data into a file", path,
                             ENDLESS >> 20);
        text = arena_grow(arena, text, capacity, 2 * capacity + 1);
        capacity *= 2;
    }
    text[used] = '\0';
    *bytes = text;
    *size = used;
    return STATUS_OK;
}

Status file_read(const char *path, Arena *arena, char **bytes, size_t *size, Error *error)
{
    if (strcmp(path, "-") == 0)
        return read_all(stdin, "standard input", arena, bytes, size, error);
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return error_set(error, errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_BAD_INPUT, "%s: %s", shown(path),
                         strerror(errno));
    jmp_buf *const exhausted = arena->exhausted;
    arena->exhausted = NULL; /* without memory, the arena returns NULL here: a jump would leave the stream open */
    *bytes = NULL;
    const Status status = read_all(stream, path, arena, bytes, size, error);
    fclose(stream);
    arena->exhausted = exhausted;
    return status;
}

typedef struct Folder {
    char text[PATH_MAX]; /* the system opens no longer path */
} Folder;

static Folder folder_of(const char *path)
{
    Folder folder = {"."};
    const char *const last = strrchr(path, '/');
    if (last)
        snprintf(folder.text, sizeof folder.text, "%.*s", last == path ? 1 : (int)(last - path), path);
    return folder;
}

static const char *last_part(const char *path)
{
    const char *last = strrchr(path, '/');
    return last ? last + 1 : path;
}

typedef struct TemporaryPrefix {
    char text[256];
} TemporaryPrefix;

/* The prefix of the names of temporary files for `path`, without the folder. A long name is truncated, so two files
   may have the same prefix. */
static TemporaryPrefix temporary_prefix(const char *path)
{
    TemporaryPrefix prefix;
    snprintf(prefix.text, sizeof prefix.text, ".%.200s.dptmp.", last_part(path));
    return prefix;
}

static const char suffix[] = "XXXXXX";

/* The path of a temporary file for `path`, in the same folder, with the suffix XXXXXX, which number_temporary replaces.
   The caller frees it. NULL: out of memory. */
static char *temporary_of(const char *path)
{
    char *temporary = NULL;
    return asprintf(&temporary, "%.*s%s%s", (int)(last_part(path) - path), path, temporary_prefix(path).text, suffix) <
                   0
               ? NULL
               : temporary;
}

/* Replaces the suffix of the path `temporary` by six hexadecimal digits, made from the process's id and `tried`, the
   number of names that were tried before. */
static void number_temporary(char *temporary, unsigned tried)
{
    snprintf(temporary + strlen(temporary) - strlen(suffix), sizeof suffix, "%06x",
             (((unsigned)getpid() * 0x9e3779b1u >> 8) + tried) & 0xffffff);
}

static bool is_name_of(int descriptor, int folder, const char *name)
{
    struct stat opened, named;
    return fstat(descriptor, &opened) == 0 && fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* Removes the temporary file `name` if it can be locked: then its writer has died, or has not locked it yet and will
   try another name (open_named). */
static void remove_unlocked(int folder, const char *name)
{
    const int descriptor = openat(folder, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return;
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0 && is_name_of(descriptor, folder, name))
        unlinkat(folder, name, 0);
    close(descriptor);
}

/* Removes the temporary files that killed writers of `path` have left. */
static void remove_abandoned(const char *path)
{
    const TemporaryPrefix prefix = temporary_prefix(path);
    const size_t length = strlen(prefix.text);
    DIR *entries = opendir(folder_of(path).text);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (strncmp(entry->d_name, prefix.text, length) == 0 && strlen(entry->d_name) == length + strlen(suffix))
            remove_unlocked(dirfd(entries), entry->d_name);
    if (entries)
        closedir(entries);
}

typedef struct OpenedName {
    char text[64];
} OpenedName;

/* The path in /proc of an open file, also of one that has no name in the file system. */
static OpenedName opened_name(int descriptor)
{
    OpenedName name;
    snprintf(name.text, sizeof name.text, "/proc/self/fd/%d", descriptor);
    return name;
}

/* Opens and locks a file without a name in the folder of `path`. -1 if this fails, for example because the file system
   has no such files, or because /proc is missing, through which the file gets its name later. */
static int open_nameless(const char *path)
{
    int descriptor = open(folder_of(path).text, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (descriptor >= 0 && access(opened_name(descriptor).text, F_OK) != 0) { /* /proc is not mounted */
        close(descriptor);
        descriptor = -1;
    }
    if (descriptor >= 0)
        flock(descriptor, LOCK_EX); /* locked before it has a name, so that no other writer removes it */
    return descriptor;
}

/* Opens and locks a file with a temporary name. If the name is taken, or another writer removes the file before it is
   locked, tries the next name. -1: another error, or all NAMES names were tried. */
static int open_named(char *temporary)
{
    for (unsigned tried = 0; tried < NAMES; tried++) {
        number_temporary(temporary, tried);
        const int descriptor = open(temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        if (descriptor < 0 && errno == EEXIST)
            continue;
        if (descriptor < 0)
            return -1;
        flock(descriptor, LOCK_EX);
        if (is_name_of(descriptor, AT_FDCWD, temporary))
            return descriptor;
        close(descriptor);
    }
    return -1;
}

/* Opens a file in the folder of `path`: without a name if possible, otherwise with a temporary name made from
   file->temporary. */
static int open_beside(const char *path, OutputFile *file)
{
    remove_abandoned(path);
    const int descriptor = open_nameless(path);
    file->nameless = descriptor >= 0;
    return file->nameless ? descriptor : open_named(file->temporary);
}

/* The path of the file to replace: `path` or, if that is a symbolic link to an existing file, the path of that file, so
   that the link stays. The caller frees the result. NULL: out of memory. */
static char *behind_links(const char *path)
{
    struct stat there;
    char *target = lstat(path, &there) == 0 && S_ISLNK(there.st_mode) ? realpath(path, NULL) : NULL;
    return target ? target : strdup(path);
}

bool file_is_kept(const char *path)
{
    struct stat there;
    return strcmp(path, "-") != 0 && (stat(path, &there) != 0 || S_ISREG(there.st_mode));
}

Status file_begin_path(const char *path, OutputFile *file, Error *error)
{
    *file = (OutputFile){0};
    if (!*path) {
        errno = ENOENT;               /* an empty path is an error; without this check a temporary file would be made */
    } else if (!file_is_kept(path)) { /* a device or a pipe (/dev/null, /dev/full) is written directly */
        file->stream = fopen(path, "wb");
        file->path = strdup(path);
        if (file->stream && file->path)
            return STATUS_OK;
    } else {
        file->path = behind_links(path);
        file->temporary = file->path ? temporary_of(file->path) : NULL;
        int descriptor = file->temporary ? open_beside(file->path, file) : -1;
        if (descriptor >= 0) {
            file->stream = fdopen(descriptor, "wb");
            if (file->stream)
                return STATUS_OK;
            close(descriptor);
            if (!file->nameless)
                unlink(file->temporary);
        }
    }
    Status status = error_set(error, errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_RUN_FAILED, "cannot write %s: %s",
                              shown(path), strerror(errno));
    if (file->stream)
        fclose(file->stream);
    free(file->temporary);
    free(file->path);
    *file = (OutputFile){0};
    return status;
}

/* Gives a nameless file a temporary name: only a rename can replace an existing file, and a rename needs a name. */
static bool give_temporary_name(OutputFile *file)
{
    const OpenedName opened = opened_name(fileno(file->stream));
    for (unsigned tried = 0; tried < NAMES; tried++) {
        number_temporary(file->temporary, tried);
        file->nameless = linkat(AT_FDCWD, opened.text, AT_FDCWD, file->temporary, AT_SYMLINK_FOLLOW) != 0;
        if (!file->nameless || errno != EEXIST)
            return !file->nameless;
    }
    return false;
}

/* Syncs the folder of `path`: only then is a new name safe on the disk. False: the sync failed. It is no failure if the
   file system cannot sync folders, or if the folder cannot be opened. */
static bool sync_folder(const char *path)
{
    const int descriptor = open(folder_of(path).text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return true;
    const bool good = fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS;
    const int reason = errno;
    close(descriptor);
    errno = reason;
    return good;
}

/* Flushes the stream. If it writes to a temporary file, syncs that to the disk and gives it its final name. The stream
   stays open, because closing it would release the lock on the temporary file. */
static bool put_in_place(OutputFile *file)
{
    if (fflush(file->stream) != 0 || ferror(file->stream))
        return false;
    if (!file->temporary)
        return true;
    if (fsync(fileno(file->stream)) != 0 || (file->nameless && !give_temporary_name(file)) ||
        rename(file->temporary, file->path) != 0)
        return false;
    file->nameless = true; /* the temporary name is gone: file_abandon has nothing to remove */
    return sync_folder(file->path);
}

/* Ends the compression, if there is one. False: the last compressed data could not be written. */
static bool end_compression(OutputFile *file)
{
    FILE *const stream = file->compressed ? file->stream : NULL;
    if (!stream)
        return true;
    const bool good = !ferror(stream);
    file->stream = file->compressed;
    file->compressed = NULL;
    return fclose(stream) == 0 && good;
}

Status file_finish(OutputFile *file, Error *error)
{
    bool good = end_compression(file) && put_in_place(file);
    int reason = errno;
    if (good && file->path) {
        good = fclose(file->stream) == 0;
        reason = errno;
        file->stream = NULL;
    }
    const Status status = good ? STATUS_OK
                               : error_set(error, STATUS_RUN_FAILED, "cannot write %s: %s",
                                           file->path ? file->path : "standard output", strerror(reason));
    file_abandon(file);
    return status;
}

void file_abandon(OutputFile *file)
{
    end_compression(file);
    if (file->temporary && !file->nameless)
        unlink(file->temporary); /* before fclose, which releases the lock */
    if (file->stream && file->path)
        fclose(file->stream);
    free(file->temporary);
    free(file->path);
    *file = (OutputFile){0};
}

Status file_check(const char *path, Error *error)
{
    OutputFile file;
    struct stat there;
    if (strcmp(path, "-") == 0)
        return STATUS_OK;
    if (stat(path, &there) == 0 && S_ISFIFO(there.st_mode))
        return access(path, W_OK) == 0
                   ? STATUS_OK
                   : error_set(error, STATUS_RUN_FAILED, "cannot write %s: %s", path, strerror(errno));
    TRY(file_begin_path(path, &file, error));
    file_abandon(&file);
    return STATUS_OK;
}

/* Whether two paths, of which at least one has no file yet, will name the same file. */
static bool is_same_place(const char *one, const char *other)
{
    struct stat a, b;
    if (strcmp(last_part(one), last_part(other)) != 0)
        return false;
    const bool same = stat(folder_of(one).text, &a) == 0 && stat(folder_of(other).text, &b) == 0 &&
                      a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    return same || strcmp(one, other) == 0;
}

static bool is_same_file(const char *one, const char *other)
{
    struct stat a, b;
    if (!one || !other || strcmp(one, "-") == 0 || strcmp(other, "-") == 0)
        return false;
    if (stat(one, &a) != 0 || stat(other, &b) != 0)
        return is_same_place(one, other);
    return S_ISREG(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

Status file_keep_apart(const char *const *outputs, size_t output_count, const char *const *inputs, size_t input_count,
                       Error *error)
{
    for (size_t i = 0; i < output_count; i++) {
        for (size_t j = 0; j < input_count; j++)
            if (is_same_file(outputs[i], inputs[j]))
                return error_set(error, STATUS_BAD_USAGE,
                                 "%s is an input and would be overwritten; name another file for the output",
                                 outputs[i]);
        for (size_t j = 0; j < i; j++)
            if (is_same_file(outputs[i], outputs[j]))
                return error_set(error, STATUS_BAD_USAGE, "two outputs would go to %s; name a file for each",
                                 outputs[i]);
    }
    return STATUS_OK;
}
