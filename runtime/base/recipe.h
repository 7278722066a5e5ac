#ifndef BASE_RECIPE_H
#define BASE_RECIPE_H

/* The inside of a fused F&B: in which order the components of a layer run, those of a forward and those of a backward
   of another microbatch, so that what one half sends over the network hides behind what the other computes. A schedule
   writes it (grammar/LANGUAGE.md), the program carries it, the stages of a model follow it, layer by layer.

   A recipe has two streams. Each runs its entries in their order; between the streams an entry waits for the one that
   it needs: F of a component for the F of the component before it in the layer, B for the B of the component behind it,
   W for its own B. B is the input half of a backward, W the weight half; what communicates has no W. */

#include "runtime/base/parts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum RecipeStream { RECIPE_COMPUTE, RECIPE_COMM, RECIPE_STREAMS } RecipeStream;

extern const bool recipe_communicates[MODEL_PARTS];
extern const char *const recipe_stream_names[RECIPE_STREAMS];

typedef struct RecipeEntry {
    uint8_t component, pass;
} RecipeEntry;

enum {
    RECIPE_ENTRIES = (int)RECIPE_COMPONENTS * (int)RECIPE_PASSES, /* at most */
    RECIPE_SHARE_MAX = 65535,
};

typedef struct Recipe {
    RecipeEntry entries[RECIPE_STREAMS][RECIPE_ENTRIES];
    uint8_t counts[RECIPE_STREAMS];
    uint16_t share, whole; /* of a device's multiprocessors comm takes share in whole; 0 in 0: not said */
} Recipe;

/* The part of a layer of that name, or RECIPE_COMPONENTS. */
ModelPart recipe_component(const char *name);
bool recipe_entry_same(RecipeEntry a, RecipeEntry b);
/* "mlp(B)". Returns what snprintf returns. */
int recipe_entry_text(RecipeEntry entry, char *text, size_t size);

/* Writes the streams, a line each: `before`, "compute: attention(F) mlp(B)" with the share behind comm, `after`. */
void recipe_put(const Recipe *recipe, const char *before, const char *after, FILE *stream);

/* Whether the recipe has the entry, in either stream. */
bool recipe_has(const Recipe *recipe, ModelPart component, RecipePass pass);
/* What an entry waits for within its layer; false: nothing. */
bool recipe_needs(const Recipe *recipe, RecipeEntry entry, RecipeEntry *needed);

/* All entries in one order in which they can be issued, one at a time: each behind what it needs, those of a stream in
   theirs, a communication as early as it can. `order` has RECIPE_ENTRIES places; returns how many there are. Fewer than
   the recipe has: the streams, or one, wait for ever. */
uint32_t recipe_order(const Recipe *recipe, RecipeEntry *order);

/* What is wrong with a recipe, the first thing of it, in words. */
typedef struct RecipeFault {
    RecipeStream stream; /* the entry that it is about; or the stream's count, when something is missing there */
    uint32_t index;
    char text[256], help[192]; /* help "": none */
} RecipeFault;

/* Whether each component that it names has F and B once, and W once if it computes; only what communicates is in comm;
   no stream waits for ever; the share is a part. */
bool recipe_check(const Recipe *recipe, RecipeFault *fault);

#endif
