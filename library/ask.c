/* Queries: what is in a program. */

#include "library/internal.h"

#include "program/operands.h"

/* NULL: the handle is NULL. */
static const Program *program_of(const dps_program *program) { return program ? program->compilation.program : NULL; }

static bool has_rank(const Program *program, uint32_t rank) { return program && rank < program->rank_count; }

dps_status dps_get_program_info(const dps_program *handle, dps_program_info *info)
{
    const Program *program = program_of(handle);
    if (!program)
        return DPS_BAD_USAGE;
    const dps_program_info found = {.schedule = program->schedule,
                                    .source = program->source,
                                    .ranks = program->rank_count,
                                    .stages = program->stages,
                                    .pipes = program->pipe_count,
                                    .microbatches = program->microbatches,
                                    .is_forward_only = program->forward_only,
                                    .is_asynchronous = program->asynchronous};
    return STRUCT_OUT(info, &found) ? DPS_OK : DPS_BAD_USAGE;
}

dps_status dps_get_rank_info(const dps_program *handle, uint32_t rank, dps_rank_info *info)
{
    const Program *program = program_of(handle);
    if (!has_rank(program, rank))
        return DPS_BAD_USAGE;
    const RankProgram *own = &program->ranks[rank];
    dps_rank_info found = {
        .chunks = own->chunk_count, .instructions = own->instruction_count, .peak_activations = own->peak_activations};
    _Static_assert((int)DPS_SLOT_CLASSES == SLOT_CLASSES && (int)DPS_SLOT_WEIGHTS == SLOT_WEIGHTS &&
                       (int)DPS_SLOT_CONTEXT == SLOT_CONTEXT && (int)DPS_SLOT_STASH == SLOT_STASH,
                   "slot classes are those of programs");
    for (int class = 0; class < SLOT_CLASSES; class ++)
        found.slots[class] = own->slots[class];
    for (uint32_t i = 0; i < own->instruction_count; i++) {
        const uint8_t opcode = own->instructions[i].opcode;
        found.messages_sent += opcode == OP_SEND_FORWARD || opcode == OP_SEND_BACKWARD;
        found.messages_received += opcode == OP_RECEIVE_FORWARD || opcode == OP_RECEIVE_BACKWARD;
    }
    return STRUCT_OUT(info, &found) ? DPS_OK : DPS_BAD_USAGE;
}

dps_status dps_get_pipe_info(const dps_program *handle, uint32_t pipe, dps_pipe_info *info)
{
    const Program *program = program_of(handle);
    if (!program || pipe >= program->pipe_count)
        return DPS_BAD_USAGE;
    const dps_pipe_info found = {.microbatches = program->pipes[pipe].microbatches,
                                 .first = program->pipes[pipe].first};
    return STRUCT_OUT(info, &found) ? DPS_OK : DPS_BAD_USAGE;
}

/* The index of the group that the copies of a stage form; -1: the stage has one copy. */
static int32_t group_of(const Program *program, uint32_t stage)
{
    const Group *group = program_group(program, stage);
    return group ? (int32_t)(group - program->groups) : -1;
}

dps_status dps_get_chunk_info(const dps_program *handle, uint32_t rank, uint32_t chunk, dps_chunk_info *info)
{
    const Program *program = program_of(handle);
    if (!has_rank(program, rank) || chunk >= program->ranks[rank].chunk_count)
        return DPS_BAD_USAGE;
    const Chunk *own = &program->ranks[rank].chunks[chunk];
    const dps_chunk_info found = {.stage = own->stage, .pipe = own->pipe, .group = group_of(program, own->stage)};
    return STRUCT_OUT(info, &found) ? DPS_OK : DPS_BAD_USAGE;
}

dps_status dps_get_group_member(const dps_program *handle, uint32_t group, uint32_t member, dps_group_member *info)
{
    const Program *program = program_of(handle);
    if (!program || group >= program->group_count || member >= program->groups[group].member_count)
        return DPS_BAD_USAGE;
    const Home *home = &program->groups[group].members[member];
    const dps_group_member found = {.rank = home->rank, .chunk = home->chunk};
    return STRUCT_OUT(info, &found) ? DPS_OK : DPS_BAD_USAGE;
}

/* --- instructions --- */

#define OPCODE(name, text, operands, what) \
    _Static_assert((int)DPS_##name == OP_##name, "opcodes are those of programs");
#include "program/opcodes.def"

/* The member of `found` for an operand that is a slot. A few kinds of operands have a member of their own. For all
   others operand->slot selects the member: x, y, dx, ... */
static int32_t *slot_member(dps_instruction *found, uint8_t opcode, const Operand *operand)
{
    switch ((OperandKind)operand->kind) {
    case OPERAND_POST_SEND:
    case OPERAND_POST_RECEIVE:
    case OPERAND_SETTLE: return &found->message;
    case OPERAND_NEWEST: return &found->weights;
    case OPERAND_NEXT: return &found->next_weights;
    default: break;
    }
    const bool is_forward = opcode_is_forward(opcode);
    int32_t *const members[SLOT_OPERANDS] = {&found->x,       is_forward ? &found->y : &found->dx,
                                             &found->context, &found->stash,
                                             &found->dy,      &found->gradient,
                                             &found->weights};
    return members[operand->slot];
}

static void take_operand(dps_instruction *found, const Instruction *half, const Operand *operand)
{
    switch ((OperandKind)operand->kind) {
    case OPERAND_CHUNK: found->chunk = half->chunk; break;
    case OPERAND_MICROBATCH: found->microbatch = (int32_t)half->microbatch; break;
    case OPERAND_COUNT: found->count = (int32_t)half->microbatch; break;
    case OPERAND_PEER: found->peer = half->peer; break;
    case OPERAND_PUT_OFF: break;
    default:
        *slot_member(found, half->opcode, operand) =
            half->slot[operand->slot] == SLOT_NONE ? -1 : half->slot[operand->slot];
    }
}

dps_instruction instruction_half(const Program *program, uint32_t rank, const Instruction *whole, uint32_t half)
{
    const RankProgram *own = &program->ranks[rank];
    const Instruction *asked = half ? whole->second : whole;
    dps_instruction found = {.size = sizeof found,
                             .opcode = asked->opcode,
                             .halves = whole->second ? 2 : 1,
                             .line = (int32_t)asked->line,
                             .chunk = -1,
                             .stage = -1,
                             .pipe = -1,
                             .microbatch = -1,
                             .peer = -1,
                             .group = -1,
                             .count = -1,
                             .message = -1,
                             .x = -1,
                             .y = -1,
                             .dx = -1,
                             .dy = -1,
                             .context = -1,
                             .stash = -1,
                             .gradient = -1,
                             .weights = -1,
                             .next_weights = -1,
                             .number = -1,
                             .index = -1};
    for (const Operand *operand = opcode_table[asked->opcode].operands; operand->kind; operand++)
        take_operand(&found, asked, operand);
    if (found.chunk >= 0) {
        found.stage = own->chunks[found.chunk].stage;
        found.pipe = own->chunks[found.chunk].pipe;
        if (found.opcode == DPS_REDUCE || found.opcode == DPS_WAIT_REDUCE)
            found.group = group_of(program, (uint32_t)found.stage);
    }
    if (found.microbatch >= 0)
        found.number = (int32_t)program->pipes[found.pipe].first + found.microbatch;
    return found;
}

dps_status dps_get_instruction(const dps_program *handle, uint32_t rank, uint32_t index, uint32_t half,
                               dps_instruction *instruction)
{
    const Program *program = program_of(handle);
    if (!has_rank(program, rank) || index >= program->ranks[rank].instruction_count)
        return DPS_BAD_USAGE;
    const Instruction *whole = &program->ranks[rank].instructions[index];
    if (half > 1 || (half && !whole->second))
        return DPS_BAD_USAGE;
    dps_instruction found = instruction_half(program, rank, whole, half);
    found.index = (int32_t)index;
    return STRUCT_OUT(instruction, &found) ? DPS_OK : DPS_BAD_USAGE;
}

dps_status dps_get_component(const dps_program *handle, uint32_t rank, uint32_t index, uint32_t first_layers,
                             uint32_t second_layers, uint32_t at, dps_component *component)
{
    const Program *program = program_of(handle);
    if (!has_rank(program, rank) || index >= program->ranks[rank].instruction_count)
        return DPS_BAD_USAGE;
    const Instruction *pair = &program->ranks[rank].instructions[index];
    const Recipe *recipe = pair->second ? recipes_of_pair(&program->recipes, pair->chunk, pair->second->chunk) : NULL;
    RecipeEntry entry;
    uint32_t layer;
    if (!recipe)
        return DPS_BAD_USAGE;
    RecipeWalk walk = recipe_walk(recipe, first_layers, second_layers);
    do
        if (!recipe_walk_next(&walk, &entry, &layer))
            return DPS_BAD_USAGE;
    while (at--);
    const dps_component found = {.name = part_names[entry.component],
                                 .pass = entry.pass >= RECIPE_FIRST ? 'F' : part_pass_letters[entry.pass],
                                 .half = recipe_half(entry.pass),
                                 .layer = (int32_t)layer,
                                 .communicates = recipe_communicates[entry.component]};
    return STRUCT_OUT(component, &found) ? DPS_OK : DPS_BAD_USAGE;
}

int dps_instruction_text(const dps_program *handle, uint32_t rank, uint32_t index, char *text, size_t size)
{
    const Program *program = program_of(handle);
    if (!has_rank(program, rank) || index >= program->ranks[rank].instruction_count)
        return -1;
    if (!text && size)
        return -1;
    return program_instruction_text(program, rank, &program->ranks[rank].instructions[index], text, size);
}
