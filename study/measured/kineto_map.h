#pragma once

/* What the names in a trace of the PyTorch profiler mean. A map is a file of settings (base/settings.h):

     attention.F        = attn(F)          an annotation (record_function) around the launches of this component
     attention.F.first  = *ln_fwd_kernel*  if there are no annotations: the first kernel of the component. The
                                           components of a stream form a cycle, in the order of these lines
     attention.F.kernel = *flash_fwd*      if there is neither: a kernel that only this component has
     FB                 = 1F1B             an annotation around the layers of one F&B
     F = PP:{stage}F{microbatch}           an annotation around a pass of a stage; also B, I, W, U. Without {stage} the
                                           stage is the rank; {microbatch} is needed (of a U: the update, from 0)
     comm.stream        = 27               the stream on which communication runs, or
     comm.kernel        = nccl*            the kernels of communication. Without either line,
                                           the kernels of dispatch and combine communicate
     comm.data          = *dispatch<*      kernels that move data; in the rest of its time, a component
                                           waits for other ranks

   A component is one of program/parts.h with its pass: F, B, W. In a pattern * matches any text and ? any
   character. A key may have several lines; a name then has to match only one of them. */

#include "compiler/schedule/schedule.h"
#include "base/arena.h"
#include "program/recipe.h"
#include "base/status.h"

/* The subject of a line: a component (its RecipeEntry as a number, see subject_entry), a pass of a stage, an F&B, or
   communication. */
enum {
    SUBJECT_PASS = RECIPE_ENTRIES, /* SUBJECT_PASS + ActionKind: a pass of a stage */
    SUBJECT_FB = SUBJECT_PASS + ACTION_U + 1,
    SUBJECT_COMM,
    SUBJECTS,
    SUBJECT_NONE = SUBJECTS,
};

/* What the pattern of a line is compared with: names of annotations, of the first kernel of a component, of kernels,
   numbers of streams, or names of kernels that move data. */
typedef enum MapUse { MAP_ANNOTATION, MAP_FIRST, MAP_KERNEL, MAP_STREAM, MAP_DATA, MAP_USES } MapUse;

typedef struct MapRule {
    uint8_t subject, use;
    const char *pattern;
} MapRule;

typedef struct KinetoMap {
    const char *path;
    MapRule *rules; /* in the order of the file's lines */
    size_t count;
} KinetoMap;

/* The numbers that {stage} and {microbatch} of a pattern matched; -1: the pattern does not have the placeholder. */
typedef struct MapNumbers {
    int64_t stage, microbatch;
} MapNumbers;

/* Reads the map at `path`. STATUS_BAD_INPUT: the error names the file and, if a line is wrong, the line. The arena owns
   what the map points to. */
Status kineto_map_read(const char *path, Arena *arena, KinetoMap *map, Error *error);
/* Whether the map has lines about components; otherwise it is about the passes of stages. */
bool kineto_map_has_components(const KinetoMap *map);
/* Whether the text matches the pattern. `numbers` gets what placeholders matched; it may be NULL. */
bool kineto_map_matches(const char *pattern, const char *text, MapNumbers *numbers);
/* The first rule with this use whose pattern the text matches; NULL: there is none. */
const MapRule *kineto_map_find(const KinetoMap *map, MapUse use, const char *text, MapNumbers *numbers);

static inline RecipeEntry subject_entry(unsigned subject)
{
    return (RecipeEntry){(uint8_t)(subject / RECIPE_PASSES), (uint8_t)(subject % RECIPE_PASSES)};
}

static inline bool subject_communicates(unsigned subject)
{
    return recipe_communicates[subject_entry(subject).component];
}
