#include "runtime/model/component.h"

#include <math.h>

size_t component_round(size_t elements) { return (elements + 15) / 16 * 16; }

double component_deviation(const Component *component) { return 0.02 * sqrt(768.0 / component->config.hidden); }

double component_residual_deviation(const Component *component)
{
    return component_deviation(component) / sqrt(2.0 * component->config.layers);
}

void component_parameter(Component *component, Parameter parameter)
{
    component->parameters[component->parameter_count++] = parameter;
}

size_t component_offset(const Component *component, size_t index)
{
    size_t offset = 0;
    for (size_t i = 0; i < index; i++)
        offset += component_round(component->parameters[i].elements);
    return offset;
}

void *component_at(const Component *component, void *buffer, size_t offset)
{
    return buffer ? (char *)buffer + offset * component->device->run->size[ELEMENTS] : NULL;
}

void *component_master_at(const Component *component, void *buffer, size_t offset)
{
    return buffer ? (char *)buffer + offset * component->device->run->size[MASTERS] : NULL;
}

const void *component_read_at(const Component *component, const void *buffer, size_t offset)
{
    return buffer ? (const char *)buffer + offset * component->device->run->size[ELEMENTS] : NULL;
}

const void *component_weights(const Component *component, const PassBuffers *buffers, size_t index)
{
    return component_read_at(component, buffers->parameters, component_offset(component, index));
}

void *component_weight_gradients(const Component *component, const PassBuffers *buffers, size_t index)
{
    return component_master_at(component, buffers->parameter_gradients, component_offset(component, index));
}
