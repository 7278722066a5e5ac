#include "runtime/base/parts.h"

#define PART(number, name, role, passes) [number] = name,
const char *const part_names[MODEL_PARTS] = {MODEL_PART_LIST};
#undef PART
#define PART(number, name, role, passes) [number] = role,
const PartRole part_roles[MODEL_PARTS] = {MODEL_PART_LIST};
#undef PART
const char part_pass_letters[RECIPE_HALVES] = {'F', 'B', 'W', 'U', '0', '1'};
