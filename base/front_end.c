#include "base/front_end.h"

typedef struct Words {
    const char *name, *before;
} Words;

#define NUMBER(option, member, argument)                                                   \
    {                                                                                      \
        {"--" option, "--" option " "}, {member, member " = "}, { argument, argument "=" } \
    }
#define TEXT(option, member, argument)                                         \
    {                                                                          \
        {option, option " "}, {member, member " "}, { argument, argument " " } \
    }
static const Words words[SETTABLE][FRONT_ENDS] = {
    [SET_RANKS] = NUMBER("ranks", "ranks", "ranks"),
    [SET_MICROBATCHES] = NUMBER("microbatches", "microbatches", "microbatches"),
    [SET_PARAMETER] = TEXT("-D", "parameters", "params"),
    [SET_COST] = TEXT("--cost", "costs", "costs"),
    [SET_SLOT_BYTES] = TEXT("--slot-bytes", "slot_bytes", "slot_bytes"),
    [SET_MEMORY_LIMIT] = TEXT("--memory-limit", "memory_limit", "memory_limit"),
    [SET_REPLICAS] = NUMBER("replicas", "replicas", "replicas"),
    [SET_SECONDS] = NUMBER("seconds", "seconds", "seconds"),
    [SET_GPUS] = NUMBER("gpus", "gpus", "gpus"),
    [SET_GROUPS] = NUMBER("groups", "groups", "groups"),
    [SET_NODES] = NUMBER("nodes", "nodes", "nodes"),
    [SET_DISTINCT] = NUMBER("distinct", "distinct", "distinct"),
    [SET_MOVES] = NUMBER("moves", "most_moves", "moves"),
    [SET_ALL_METHODS] = {{"--method best", ""}, {"`eplb` 0", ""}, {"method='best'", ""}},
    [SET_ALLOW_ASYNC] = {{"--allow async", ""}, {"DPS_ALLOW_ASYNC", ""}, {"allow='async'", ""}},
    [SET_ALLOW_NAIVE] = {{"--allow naive", ""}, {"DPS_ALLOW_NAIVE", ""}, {"allow='naive'", ""}},
};
#undef NUMBER
#undef TEXT

const char *front_name(FrontEnd front_end, Settable what) { return words[what][front_end].name; }
const char *front_before(FrontEnd front_end, Settable what) { return words[what][front_end].before; }
