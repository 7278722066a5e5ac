#include "study/trials/installed.h"

#include "base/names.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_schedule(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);
    return entry->d_name[0] != '.' && length > 4 && strcmp(entry->d_name + length - 4, ".dps") == 0;
}

/* Writes the path of the folder that contains the running program, without a slash at its end. */
static bool program_folder(char folder[PATH_MAX])
{
    const ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    if (length <= 0)
        return false;
    folder[length] = 0;
    *strrchr(folder, '/') = 0;
    return true;
}

static const char *relative_path(const char *path)
{
    char current[PATH_MAX];
    const size_t length = getcwd(current, sizeof current) ? strlen(current) : 0;
    const bool below = length > 1 && strncmp(path, current, length) == 0 && path[length] == '/';
    return below ? path + length + 1 : path;
}

static void list_folder(const char *folder, Arena *arena, FileList *files)
{
    struct dirent **entries;
    char *const real = realpath(folder, NULL);
    const int count = real ? scandir(real, &entries, is_schedule, alphasort) : -1;
    if (count > 0)
        files->paths = arena_array(arena, (size_t)count, sizeof *files->paths);
    for (int i = 0; i < count; i++) {
        files->paths[files->count++] = relative_path(arena_format(arena, "%s/%s", real, entries[i]->d_name));
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    free(real);
}

Status installed_schedules(Arena *arena, FileList *files, Error *error)
{
    static const char *const places[] = {"../share/dpc/schedules", "schedules", "../schedules", "../../schedules"};
    char folder[PATH_MAX] = "";
    *files = (FileList){0};
    const bool known = program_folder(folder);
    for (size_t i = 0; known && i < sizeof places / sizeof *places && !files->count; i++)
        list_folder(arena_format(arena, "%s/%s", folder, places[i]), arena, files);
    if (!files->count)
        return error_set(error, STATUS_BAD_USAGE,
                         "there are no schedules in %s/../share/dpc/schedules or beside the program: "
                         "name files, or install dpc with make install",
                         folder);
    return STATUS_OK;
}

/* The file's name without folder and without .dps. */
static const char *bare_name(const char *path, Arena *arena)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    const size_t length = dot && strcmp(dot, ".dps") == 0 ? (size_t)(dot - name) : strlen(name);
    return arena_format(arena, "%.*s", (int)length, name);
}

Status installed_check(const char *path, Arena *arena, Error *error)
{
    FileList files;
    Error none;
    if (access(path, F_OK) == 0 || errno != ENOENT || installed_schedules(arena, &files, &none) != STATUS_OK)
        return STATUS_OK;
    const char *nearest_path = NULL;
    NearestWord nearest = nearest_to(bare_name(path, arena));
    for (size_t i = 0; i < files.count; i++) {
        const char *name = bare_name(files.paths[i], arena);
        nearest_consider(&nearest, name);
        nearest_path = nearest.word == name ? files.paths[i] : nearest_path;
    }
    return nearest_path ? error_set(error, STATUS_BAD_INPUT, "%s: no such file; did you mean %s?", path, nearest_path)
                        : STATUS_OK;
}
