#include "runtime/cuda/nccl.h"

#include <dlfcn.h>

Nccl nccl;

Status nccl_load(Error *error)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return error_set(error, STATUS_RUN_FAILED, "transport nccl: NCCL is not installed (%s): install libnccl2",
                         dlerror());
    const struct {
        const char *name;
        void **function;
    } entries[] = {
        {"ncclGetVersion", (void **)&nccl.GetVersion},
        {"ncclGetErrorString", (void **)&nccl.GetErrorString},
        {"ncclGetUniqueId", (void **)&nccl.GetUniqueId},
        {"ncclCommInitRankConfig", (void **)&nccl.CommInitRankConfig},
        {"ncclCommGetAsyncError", (void **)&nccl.CommGetAsyncError},
        {"ncclCommFinalize", (void **)&nccl.CommFinalize},
        {"ncclCommDestroy", (void **)&nccl.CommDestroy},
        {"ncclCommAbort", (void **)&nccl.CommAbort},
        {"ncclGroupStart", (void **)&nccl.GroupStart},
        {"ncclGroupEnd", (void **)&nccl.GroupEnd},
        {"ncclSend", (void **)&nccl.Send},
        {"ncclRecv", (void **)&nccl.Recv},
    };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        *entries[i].function = dlsym(library, entries[i].name);
        if (!*entries[i].function)
            return error_set(error, STATUS_RUN_FAILED, "transport nccl: NCCL is too old (it has no %s), 2.14 is needed",
                             entries[i].name);
    }
    if (nccl.GetVersion(&nccl.version) != NCCL_OK || nccl.version < NCCL_LEAST)
        return error_set(error, STATUS_RUN_FAILED, "transport nccl: NCCL %d.%d is too old, 2.14 is needed",
                         nccl.version / 10000, nccl.version / 100 % 100);
    return STATUS_OK;
}

Status nccl_check(int code, const char *call, Error *error)
{
    if (code == NCCL_OK || code == NCCL_IN_PROGRESS)
        return STATUS_OK;
    return error_set(error, STATUS_RUN_FAILED, "%s: %s (%d)", call, nccl.GetErrorString(code), code);
}
