#pragma once

/* A recipe is the inside of a fused F&B: the order in which the components of a layer run, those of a forward and those
   of the backward of another microbatch, so that the computation of one half hides the communication of the
   other. A schedule file has the recipe (grammar/LANGUAGE.md), the program carries it, and the stages of a model follow
   it, layer by layer.

   A recipe may also be the inside of an F&F, the forwards of two microbatches. Its entries then have the passes
   RECIPE_FIRST and RECIPE_SECOND.

   A recipe has two streams. Each stream runs its entries in order. Each entry waits for the entry that it needs, also
   if that is in the other stream: the F of a component needs the F of the component before it in the layer, B needs the
   B of the component after it, and W needs the B of its own component. B is the input half of a backward, W the weight
   half. Components that communicate have no W.

   The recipe of an F&B may put weight gradients off: the W in its third list, `after`, do not run in the F&B. A rank
   runs them right after the F&B, once it has posted the messages of the F&B.

   In an F&F, the shared experts need attention, and the next layer needs the shared experts. The streams describe one
   round of a loop over the layers. In an F&F, an entry is late if it comes before an entry that it needs, or if the
   streams would otherwise wait for each other forever; every entry that needs a late one is late, too. A late entry
   belongs to the layer of the round before (recipe_late).

   A recipe is walked in one way (recipe_walk): each stream in its order, communication as early as what it needs
   allows, also that of the next layer. The predicted time, the merged list of a real stage (runtime/model/overlap.c)
   and the simulator (runtime/simulator/pair.c) follow this walk. */

#include "program/parts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The lists of entries: the two streams, and the W that are put off. */
typedef enum RecipeStream {
    RECIPE_COMPUTE,
    RECIPE_COMM,
    RECIPE_STREAMS,
    RECIPE_AFTER = RECIPE_STREAMS,
    RECIPE_LISTS
} RecipeStream;

extern const bool recipe_communicates[MODEL_PARTS];
extern const char *const recipe_stream_names[RECIPE_LISTS];

typedef struct RecipeEntry {
    uint8_t component, pass; /* pass: RECIPE_F, B or W; RECIPE_FIRST or RECIPE_SECOND in an F&F */
} RecipeEntry;

enum {
    RECIPE_ENTRIES = 2 * (int)RECIPE_NAMES, /* most entries of a recipe: every name in both halves of an F&F */
    RECIPE_SHARE_MAX = 65535,
};

_Static_assert((int)RECIPE_ENTRIES >= (int)RECIPE_COMPONENTS * (int)RECIPE_PASSES, "an F&B has no more entries");

typedef struct Recipe {
    RecipeEntry entries[RECIPE_LISTS][RECIPE_ENTRIES];
    uint8_t counts[RECIPE_LISTS];
    /* the comm stream gets `share` of every `whole` multiprocessors of a GPU; both 0: the device chooses */
    uint16_t share, whole;
} Recipe;

/* Whether the recipe is that of an F&F; false for an empty recipe. */
bool recipe_is_forward(const Recipe *recipe);
bool recipe_entry_same(RecipeEntry a, RecipeEntry b);
/* Writes the text of an entry, such as "mlp(B)". Returns the result of snprintf. */
int recipe_entry_text(RecipeEntry entry, char *text, size_t size);

/* Writes a line for each list that has entries: `before`, then "compute: attention(F) mlp(B)" or the like, then
   `after`. If comm has a share, its line also has " on 20 of 132". */
void recipe_put(const Recipe *recipe, const char *before, const char *after, FILE *stream);

/* Whether the recipe has the entry, in any list. */
bool recipe_has(const Recipe *recipe, ModelPart component, uint8_t pass);
/* The components whose W the recipe puts off, as bits 1 << ModelPart; 0: none. */
uint16_t recipe_put_off(const Recipe *recipe);
/* Finds the entry of the same layer that `entry` needs; false: it needs none. */
bool recipe_needs(const Recipe *recipe, RecipeEntry entry, RecipeEntry *needed);

/* The half of an F&B or F&F that an entry with this pass belongs to. 0: RECIPE_F and RECIPE_FIRST. 1: RECIPE_B,
   RECIPE_W and RECIPE_SECOND. */
uint8_t recipe_half(uint8_t pass);

/* The late entries of an F&F. A late entry belongs to the layer of the round before, and is issued before the entries
   that begin the layer of this round. If there are late entries, the F&F needs one round more than it has layers. */
typedef struct RecipeLate {
    bool late[RECIPE_NAMES][RECIPE_HALVES];
    bool any;
} RecipeLate;
RecipeLate recipe_late(const Recipe *recipe);

/* A walk over the entries of a whole F&B or F&F, in an order in which they can be issued one at a time: each after the
   entry that it needs. Entries of a stream keep their order. An entry of comm is issued as early as possible. So comm
   may begin the next layer while compute has not ended the present one: with the recipe of dualpipe.dps, combine(B) of
   the next layer is issued before attention(W). */
typedef struct RecipeWalk {
    const Recipe *recipe;
    RecipeLate late;
    uint32_t layers[2];                           /* number of layers of the stage of each half */
    uint32_t at[RECIPE_STREAMS];                  /* number of entries of each stream issued so far, in all rounds */
    uint32_t issued[RECIPE_NAMES][RECIPE_HALVES]; /* [part][pass]: number of rounds in which the entry was issued */
} RecipeWalk;

/* A walk at its beginning. The arguments are the recipe, which must outlive the walk, and the numbers of layers of the
   stages of the first and of the second half. */
RecipeWalk recipe_walk(const Recipe *recipe, uint32_t first_layers, uint32_t second_layers);
/* Writes the next entry and its layer in its stage, counted from 0 in the order in which the pass runs layers: in an F
   from the stage's first layer, in a backward from its last. False: there is none. */
bool recipe_walk_next(RecipeWalk *walk, RecipeEntry *entry, uint32_t *layer);

/* Writes the entries of one round in the order of a walk. `order` has room for RECIPE_ENTRIES. Returns the number of
   entries; if the streams of the recipe have more, a stream waits forever. */
uint32_t recipe_order(const Recipe *recipe, RecipeEntry *order);

/* The first error in a recipe, in words. */
typedef struct RecipeFault {
    /* the list with the error, and the index of the wrong entry; if the error is not in an entry, the index after the
       last entry */
    RecipeStream stream;
    uint32_t index;
    char text[256], help[192]; /* help "": none */
} RecipeFault;

/* Checks that each component that is named has F and B once, and W once if it computes; in an F&F, that each part that
   is named is once in each half, that qkv and core are named both or neither, and not beside attention, and that
   shared is named only with mlp; that comm has only components that communicate; that `after` has only W; that no
   stream waits forever; and that the share is smaller than the whole. False: *fault has the first error. If the result
   is true, *fault has no meaning. */
bool recipe_check(const Recipe *recipe, RecipeFault *fault);
