#include "base/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

const Plugin plugin_mpi = {"dprun-mpi.so", "MPI, install libopenmpi-dev", "is MPI's library installed (openmpi-bin)?"};
const Plugin plugin_cuda = {"dprun-cuda.so",
                            "CUDA, install the CUDA toolkit (where it is not in /usr/local/cuda, set CUDA_HOME)",
                            "was it built with this dprun?"};

static Status find(const Plugin *plugin, char path[PATH_MAX], Error *error)
{
    static const char *const folders[] = {"", "../lib/dprun/"}; /* in a build, in an installation */
    enum { LONGEST = 64 };
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - LONGEST);
    if (length <= 0)
        return error_set(error, STATUS_RUN_FAILED, "cannot find %s: /proc/self/exe is not readable", plugin->file);
    path[length] = '\0';
    char *name = strrchr(path, '/') + 1;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        strcat(strcpy(name, folders[i]), plugin->file);
        if (access(path, R_OK) == 0)
            return STATUS_OK;
    }
    return error_set(error, STATUS_RUN_FAILED,
                     "no %s in %.*s, the folder of dprun: run dprun where it was built or installed; if it was built "
                     "without %s and run make all",
                     plugin->file, (int)(name - path), path, plugin->without);
}

Status plugin_table(const Plugin *plugin, const char *table, const void **found, Error *error)
{
    char path[PATH_MAX];
    *found = dlsym(RTLD_DEFAULT, table);
    if (*found)
        return STATUS_OK;
    TRY(find(plugin, path, error));
    /* RTLD_GLOBAL, because MPI loads plugins of its own that look up MPI's symbols in the global scope */
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return error_set(error, STATUS_RUN_FAILED, "cannot load %s: %s; %s", plugin->file, dlerror(), plugin->unless);
    const char *(*interface)(void) = NULL;
    *(void **)&interface = dlsym(library, "plugin_interface");
    const char *version = interface ? interface() : NULL;
    *found = dlsym(library, table);
    if (version && *found && strcmp(version, PLUGIN_VERSION) == 0)
        return STATUS_OK;
    error_set(error, STATUS_RUN_FAILED, "%s belongs to dprun %s, and this is dprun %s: build both again", path,
              version ? version : "of another build", PLUGIN_VERSION);
    dlclose(library);
    return STATUS_RUN_FAILED;
}
