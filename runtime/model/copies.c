/* The physical experts of a stage's layers, for a host that moves them between the members of an expert group. */

#include "runtime/model/experts.h"
#include "runtime/model/stage.h"

/* Among the parts of the stage with a component of this kind, the one at `index`; NULL: the stage has fewer. */
static const Part *part_of(const Stage *stage, const ComponentKind *kind, size_t index)
{
    for (size_t i = 0; i < stage->part_count; i++)
        if (stage->parts[i].component.kind == kind && index-- == 0)
            return &stage->parts[i];
    return NULL;
}

ExpertCopies *stage_copies(const Stage *stage, size_t index)
{
    const Part *part = part_of(stage, &component_dispatch, index);
    return part ? part->component.copies : NULL;
}

/* The bytes of one expert's matrix in the component's parameter `index`. */
static size_t matrix_bytes(const Component *component, size_t index)
{
    return component->of_experts[index] / component->config.experts * component->device->run->size[COMPUTE_TYPE];
}

size_t stage_expert_bytes(const Stage *stage)
{
    const Part *part = part_of(stage, &component_experts, 0);
    size_t bytes = 0;
    for (size_t p = 0; part && p < part->component.parameter_count; p++)
        bytes += matrix_bytes(&part->component, p);
    return bytes;
}

Status stage_copy_expert(const Stage *stage, size_t index, uint32_t slot, void *parameters, void *block, bool take,
                         Error *error)
{
    const Part *part = part_of(stage, &component_experts, index);
    const DeviceTable *run = stage->device->run;
    char *piece = block;
    for (size_t p = 0; p < part->component.parameter_count; p++) {
        const size_t bytes = matrix_bytes(&part->component, p);
        char *const first =
            (char *)parameters + (part->parameters + component_offset(&part->component, p)) * run->size[COMPUTE_TYPE];
        char *const matrix = first + slot * bytes;
        TRY(run->copy(stage->device, bytes, take ? matrix : piece, take ? piece : matrix, error));
        piece += bytes;
    }
    return STATUS_OK;
}
