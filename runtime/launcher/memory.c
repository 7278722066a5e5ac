#include "runtime/launcher/memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The files of control groups of version 2 and version 1 (the kernel's admin-guide/cgroup-v2 and cgroup-v1/memory).
   Both versions count cached files as used memory, although that memory can be freed. */
typedef struct GroupFiles {
    const char *limits[2], *used;
    const char *cached[2]; /* keys in memory.stat with the sizes of cached files */
} GroupFiles;

static const GroupFiles version_1 = {
    {"memory.limit_in_bytes", NULL}, "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}};
static const GroupFiles version_2 = {{"memory.max", "memory.high"}, "memory.current", {"active_file", "inactive_file"}};

enum { PATH_SIZE = 2 * PATH_MAX, LINE_SIZE = 2 * PATH_MAX };

static FILE *open_below(const char *root, const char *folder, const char *name)
{
    char path[2 * PATH_SIZE];
    const int length = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    return length < (int)sizeof path ? fopen(path, "r") : NULL;
}

/* The number after `key` in the file; if `key` is NULL, the number that is the whole file. Returns `otherwise` if the
   file cannot be opened or has no such number ("max"). */
static uint64_t read_number(const char *root, const char *folder, const char *name, const char *key, uint64_t otherwise)
{
    char line[LINE_SIZE];
    const size_t skipped = key ? strlen(key) : 0;
    uint64_t found = otherwise;
    FILE *stream = open_below(root, folder, name);
    while (stream && fgets(line, sizeof line, stream)) {
        unsigned long long number;
        if ((!key || strncmp(line, key, skipped) == 0) && sscanf(line + skipped, " %llu", &number) == 1) {
            found = number;
            break;
        }
    }
    if (stream)
        fclose(stream);
    return found;
}

/* The FNV-1a hash. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

/* Adds a pool with `free` bytes left, unless there are MEMORY_POOLS_MAX pools. Its key depends on its name and the name
   of the machine. */
static void add_pool(MemoryPools *pools, const char *name, uint64_t free)
{
    char machine[65] = "";
    if (pools->count == MEMORY_POOLS_MAX)
        return;
    MemoryPool *pool = &pools->pools[pools->count++];
    gethostname(machine, sizeof machine - 1);
    snprintf(pool->name, sizeof pool->name, "%.*s", (int)sizeof pool->name - 1, name);
    pool->key = hash_text(hash_text(hash_text(0xcbf29ce484222325u, machine), " "), name) | 1;
    pool->free = free;
}

static void add_group(const char *root, const char *folder, const char *group, const GroupFiles *files,
                      MemoryPools *pools)
{
    uint64_t limit = UINT64_MAX;
    for (size_t i = 0; i < 2 && files->limits[i]; i++) {
        const uint64_t one = read_number(root, folder, files->limits[i], NULL, UINT64_MAX);
        limit = one < limit ? one : limit;
    }
    if (limit >= (uint64_t)1 << 62) /* version 1 writes "no limit" as a huge number */
        return;
    uint64_t used = read_number(root, folder, files->used, NULL, 0);
    for (size_t i = 0; i < 2; i++) {
        const uint64_t cached = read_number(root, folder, "memory.stat", files->cached[i], 0);
        used -= cached < used ? cached : used;
    }
    add_pool(pools, group, used < limit ? limit - used : 0);
}

/* Adds a pool for a control group and one for each of its ancestors up to the mount point, as far as they have limits.
   The memory of a group counts towards the limits of its ancestors, too. top: the path of the group that is mounted at
   `mount`; it is often "/". */
static void add_groups(const char *root, const char *mount, const char *top, char *group, const GroupFiles *files,
                       MemoryPools *pools)
{
    const size_t above = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(group, top, above) != 0 || (group[above] && group[above] != '/'))
        /* In a container the kernel may show the group's path as it is outside of the container, so that it is not
           below `top`. The group mounted at `mount` is used then */
        strcpy(group, top);
    for (;;) {
        char folder[PATH_SIZE];
        if (snprintf(folder, sizeof folder, "%s%s", mount, strlen(group) > above ? group + above : "") <
            (int)sizeof folder)
            add_group(root, folder, *group ? group : "/", files, pools);
        char *last = strrchr(group, '/');
        if (!last || last < group + above || strcmp(group, "/") == 0)
            return;
        *last = '\0';
    }
}

/* Finds the path of this process's control group: in the hierarchy of the memory controller (version 1), or in the one
   hierarchy of version 2. */
static bool find_group(const char *root, const GroupFiles *files, char group[LINE_SIZE])
{
    char line[LINE_SIZE];
    bool found = false;
    FILE *stream = open_below(root, "/proc/self", "cgroup");
    while (stream && !found && fgets(line, sizeof line, stream)) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        char *next = controllers + 1;
        if (files == &version_2)
            found = *next == '\0';
        for (char *name; files == &version_1 && !found && (name = strsep(&next, ",")) != NULL;)
            found = strcmp(name, "memory") == 0;
        if (found)
            strcpy(group, path);
    }
    if (stream)
        fclose(stream);
    return found;
}

/* Adds the groups of every mounted hierarchy of control groups. The lines of mountinfo are "ID PARENT MAJOR:MINOR ROOT
   MOUNT OPTIONS [OPTIONAL] - TYPE SOURCE SUPER" (proc_pid_mountinfo(5)). */
static void add_hierarchies(const char *root, MemoryPools *pools)
{
    char line[LINE_SIZE], top[LINE_SIZE], mount[LINE_SIZE], type[64], super[LINE_SIZE], group[LINE_SIZE];
    FILE *stream = open_below(root, "/proc/self", "mountinfo");
    while (stream && fgets(line, sizeof line, stream)) {
        const char *rest = strstr(line, " - ");
        if (!rest || sscanf(line, "%*s %*s %*s %s %s", top, mount) != 2 ||
            sscanf(rest, " - %63s %*s %s", type, super) != 2)
            continue;
        const GroupFiles *files = strcmp(type, "cgroup2") == 0                             ? &version_2
                                  : strcmp(type, "cgroup") == 0 && strstr(super, "memory") ? &version_1
                                                                                           : NULL;
        if (files && find_group(root, files, group))
            add_groups(root, mount, top, group, files, pools);
    }
    if (stream)
        fclose(stream);
}

MemoryPools memory_pools(const char *root)
{
    MemoryPools pools = {0};
    const uint64_t kibibytes = read_number(root, "/proc", "meminfo", "MemAvailable:", UINT64_MAX);
    if (kibibytes != UINT64_MAX)
        add_pool(&pools, "", kibibytes << 10);
    add_hierarchies(root, &pools);
    return pools;
}

MemoryNeed memory_need(const MemoryPools *pools, uint64_t bytes)
{
    MemoryNeed need = {.bytes = bytes};
    for (size_t i = 0; i < pools->count; i++)
        need.keys[i] = pools->pools[i].key;
    return need;
}

static bool takes_from(const MemoryNeed *need, uint64_t key)
{
    bool takes = false;
    for (size_t i = 0; i < MEMORY_POOLS_MAX; i++)
        takes |= need->keys[i] == key;
    return takes;
}

const MemoryPool *memory_shortage(const MemoryPools *pools, const MemoryNeed *needs, uint32_t ranks, uint64_t *bytes)
{
    for (size_t p = 0; p < pools->count; p++) {
        *bytes = 0;
        for (uint32_t r = 0; r < ranks; r++)
            *bytes += takes_from(&needs[r], pools->pools[p].key) ? needs[r].bytes : 0;
        if (*bytes > pools->pools[p].free)
            return &pools->pools[p];
    }
    return NULL;
}
