#include "program/parts.h"

#include <string.h>

#define PART(number, name, role, passes) [number] = name,
const char *const part_names[MODEL_PARTS] = {MODEL_PART_LIST};
#undef PART
#define PART(number, name, role, passes) [number] = role,
const PartRole part_roles[MODEL_PARTS] = {MODEL_PART_LIST};
#undef PART
const char part_pass_letters[RECIPE_HALVES] = {'F', 'B', 'W', 'U', '0', '1'};

ModelPart part_named(const char *name, size_t length)
{
    ModelPart part = 0;
    while (part < MODEL_PARTS && (strncmp(part_names[part], name, length) != 0 || part_names[part][length]))
        part++;
    return part;
}
