/* Programs with one fault each in an F&B or in a recipe: program_verify must report it. */

#include "program/program.h"
#include "tests/program/damage.h"
#include "tests/model/recipes.h"

static Recipe damaged_recipe;
static void give_recipe(Program *program)
{
    damaged_recipe = (Recipe){
        .entries = {DUALPIPE_COMPUTE, {{RECIPE_COMBINE, RECIPE_B}, {RECIPE_COMBINE, RECIPE_F}}},
        .counts = {6, 2},
        .share = 20,
        .whole = 132,
    };
    program->recipes.common = &damaged_recipe;
}
static void recipe_twice(Program *program)
{
    give_recipe(program);
    damaged_recipe.entries[RECIPE_COMPUTE][3] = damaged_recipe.entries[RECIPE_COMPUTE][0];
}
static void recipe_incomplete(Program *program)
{
    give_recipe(program);
    damaged_recipe.counts[RECIPE_COMPUTE]--;
}
static void recipe_backwards(Program *program)
{
    give_recipe(program);
    damaged_recipe.entries[RECIPE_COMPUTE][1].pass = RECIPE_W;
    damaged_recipe.entries[RECIPE_COMPUTE][2].pass = RECIPE_B;
}
static void recipe_circle(Program *program)
{
    give_recipe(program);
    damaged_recipe.entries[RECIPE_COMM][0].pass = RECIPE_F;
    damaged_recipe.entries[RECIPE_COMM][1].pass = RECIPE_B;
}
static void recipe_computes_in_comm(Program *program)
{
    give_recipe(program);
    damaged_recipe.entries[RECIPE_COMM][1].component = RECIPE_MLP;
}
static void recipe_of_all(Program *program)
{
    give_recipe(program);
    damaged_recipe.share = 132;
}
static void recipe_unknown(Program *program)
{
    give_recipe(program);
    damaged_recipe.entries[RECIPE_COMPUTE][1].component = RECIPE_COMPONENTS;
}
static ChunkRecipe chunk_recipes[2];
/* Gives the F&Bs of chunk 0 with chunk 0, and those of chunks `first` and `second`, the good recipe of give_recipe.
   There is no common recipe. */
static void give_chunk_recipes(Program *program, uint8_t first, uint8_t second)
{
    give_recipe(program);
    chunk_recipes[0] = (ChunkRecipe){.recipe = damaged_recipe};
    chunk_recipes[1] = (ChunkRecipe){first, second, damaged_recipe};
    program->recipes = (Recipes){.own = chunk_recipes, .count = 2};
}
static void chunk_recipes_same(Program *program) { give_chunk_recipes(program, 0, 0); }
static void chunk_recipe_unknown(Program *program) { give_chunk_recipes(program, 0, 1); }
static void chunk_recipe_incomplete(Program *program)
{
    give_chunk_recipes(program, 1, 0);
    chunk_recipes[1].recipe.counts[RECIPE_COMPUTE]--;
}
static void chunk_recipe_of_forwards(Program *program)
{
    give_chunk_recipes(program, 1, 0);
    chunk_recipes[1].recipe =
        (Recipe){.entries = {{{RECIPE_MLP, RECIPE_FIRST}, {RECIPE_MLP, RECIPE_SECOND}}}, .counts = {2}};
}

static Program *overlapped(Arena *arena)
{
    return generate(arena, (Shape){.ranks = 2,
                                   .stages = 4,
                                   .pipes = 1,
                                   .microbatches = 6,
                                   .placement = PLACE_V,
                                   .preference = PREFER_ANY,
                                   .overlap = 100,
                                   .seed = 5});
}

/* Returns an F&B whose two stages are neither the first nor the last, so its halves have all inputs and outputs. */
static Instruction *overlap(Program *program)
{
    for (uint32_t r = 0; r < program->rank_count; r++)
        for (uint32_t i = 0; i < program->ranks[r].instruction_count; i++) {
            Instruction *instruction = &program->ranks[r].instructions[i];
            if (instruction->second && instruction->y != SLOT_NONE && instruction->x != SLOT_NONE &&
                instruction->second->dx != SLOT_NONE && instruction->second->dy != SLOT_NONE)
                return instruction;
        }
    fail_msg("no F&B in the middle");
    return NULL;
}

static void overlap_of_one(Program *program) { overlap(program)->second = NULL; }
static void forward_of_two(Program *program) { overlap(program)->opcode = OP_FORWARD; }
static void overlap_with_weight(Program *program) { overlap(program)->second->opcode = OP_BACKWARD_WEIGHT; }
static void overlap_of_three(Program *program)
{
    static Instruction third;
    third = *overlap(program)->second;
    overlap(program)->second->second = &third;
}
static void overlap_of_another_chunk(Program *program) { overlap(program)->second->chunk = 9; }
static void overlap_fills_one_slot(Program *program) { overlap(program)->second->dx = overlap(program)->y; }
static void overlap_fills_what_it_reads(Program *program) { overlap(program)->second->dx = overlap(program)->x; }
static void overlap_fills_what_it_takes(Program *program) { overlap(program)->y = overlap(program)->second->dy; }
static void overlap_saves_where_it_takes(Program *program)
{
    overlap(program)->context = overlap(program)->second->context;
}
/* Gives all F&Bs a recipe that defers the W of attention. */
static void give_recipe_after(Program *program)
{
    give_recipe(program);
    damaged_recipe.counts[RECIPE_COMPUTE]--;
    damaged_recipe.entries[RECIPE_AFTER][0] = (RecipeEntry){RECIPE_ATTENTION, RECIPE_W};
    damaged_recipe.counts[RECIPE_AFTER] = 1;
}
static void after_with_another_pass(Program *program)
{
    give_recipe_after(program);
    damaged_recipe.entries[RECIPE_AFTER][0].pass = RECIPE_B;
}
/* Makes every F&B an F&I that defers the weight gradients of `components` (bits). */
static void put_off(Program *program, uint16_t components)
{
    for (uint32_t r = 0; r < program->rank_count; r++)
        for (uint32_t i = 0; i < program->ranks[r].instruction_count; i++) {
            Instruction *second = program->ranks[r].instructions[i].second;
            if (!second)
                continue;
            second->opcode = OP_BACKWARD_INPUT;
            second->put_off = components;
        }
}
static void put_off_without_weight(Program *program)
{
    give_recipe_after(program);
    put_off(program, 1u << RECIPE_ATTENTION);
}
static void put_off_others(Program *program)
{
    give_recipe_after(program);
    put_off(program, 1u << RECIPE_MLP);
}
static void put_off_without_recipe(Program *program) { put_off(program, 1u << RECIPE_MLP); }
static void weight_put_off_alone(Program *program)
{
    at(program, 0, OP_BACKWARD_WEIGHT, 0)->put_off = 1u << RECIPE_ATTENTION;
}
static void input_put_off_alone(Program *program)
{
    at(program, 0, OP_BACKWARD_INPUT, 0)->put_off = 1u << RECIPE_ATTENTION;
}
static void overlap_dependent(Program *program)
{
    /* the last stage may run the F and the B of one microbatch one after the other, but they cannot be an F&B */
    static Instruction backward;
    const uint32_t i = find(program, 1, OP_BACKWARD_INPUT, 0);
    backward = program->ranks[1].instructions[i];
    drop(program, 1, i);
    Instruction *forward = at(program, 1, OP_FORWARD, 0);
    forward->opcode = OP_OVERLAP;
    forward->second = &backward;
}

TEST(faults_of_pairs_are_named)
{
    static const Fault faults[] = {
        {two_ranks, recipe_twice, "the recipe of F&B: |attention(F) is given twice"},
        {two_ranks, recipe_incomplete, "attention(W) is missing"},
        {two_ranks, recipe_backwards, "the recipe of F&B: |mlp(W) needs mlp(B), which comes after it"},
        {two_ranks, recipe_circle,
         "wait for each other: compute at mlp(B) for combine(B), comm at combine(F) for mlp(F)"},
        {two_ranks, recipe_computes_in_comm, "the recipe of F&B: |mlp computes"},
        {two_ranks, recipe_of_all, "comm takes 132 of 132"},
        {two_ranks, recipe_unknown, "no component 5"},
        {bidirectional, chunk_recipes_same, "F0&B0 has two recipes"},
        {two_ranks, chunk_recipe_unknown, "the recipe of F0&B1 names a chunk that no rank has"},
        {bidirectional, chunk_recipe_incomplete, "the recipe of F1&B0: |attention(W) is missing"},
        {bidirectional, chunk_recipe_of_forwards, "some recipes are of F&Bs and others of F&Fs"},
        {two_ranks, overlap_dependent, "rank 1|`F m0|& I m0|of one microbatch"},
        {two_ranks, after_with_another_pass, "the recipe of F&B: |cannot come after the pair"},
        {two_ranks, weight_put_off_alone, "rank 0|`W m0|after=attention|only an F&B puts weight gradients off"},
        {two_ranks, input_put_off_alone, "rank 0|`I m0|after=attention|only an F&B puts weight gradients off"},
        {overlapped, give_recipe_after,
         "& B|the recipe of this F&B puts weight gradients off, so the second half must be an I"},
        {overlapped, put_off_without_weight, "so their W must be the next pass"},
        {overlapped, put_off_others, "& I|after=mlp`|puts off other weight gradients than its recipe"},
        {overlapped, put_off_without_recipe, "& I|puts off other weight gradients than its recipe"},
        {overlapped, overlap_of_one, "an F&B or F&F must have two halves, and no other instruction may"},
        {overlapped, forward_of_two, "an F&B or F&F must have two halves, and no other instruction may"},
        {overlapped, overlap_with_weight, "& W|the second half of an F&B must be a B or an I"},
        {overlapped, overlap_of_three, "the second half of an F&B must be a B or an I"},
        {overlapped, overlap_of_another_chunk, "there is no chunk 9: the rank has 2 chunks"},
        {overlapped, overlap_fills_one_slot, "slot y|holds the gradient made by|but must be free"},
        {overlapped, overlap_fills_what_it_reads, "slot dx|holds the activation made by|but must be free"},
        {overlapped, overlap_fills_what_it_takes, "slot y|holds the gradient made by|but must be free"},
        {overlapped, overlap_saves_where_it_takes, "slot c|holds the context of|but must be free"},
    };
    assert_faults_named(faults, sizeof faults / sizeof *faults);
}

int main(void) { return test_program("pair_faults", NULL, NULL); }
