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

void component_tally(Component *component, const char *name, size_t elements, Tally tally)
{
    component->tallies[component->parameter_count] = tally;
    component_parameter(component, (Parameter){name, elements, false, 0, 0});
}

size_t component_offset(const Component *component, size_t index)
{
    size_t offset = 0;
    for (size_t i = 0; i < index; i++)
        offset += component_round(component->parameters[i].elements);
    return offset;
}

Address component_at(const Component *component, Address address, size_t offset)
{
    return (Address){address.base, address.offset + offset * component->device->run->size[COMPUTE_TYPE]};
}

Address component_master_at(const Component *component, Address address, size_t offset)
{
    return (Address){address.base, address.offset + offset * component->device->run->size[MASTER_TYPE]};
}

Address component_weights(const Component *component, const PassAddresses *at, size_t index)
{
    return component_at(component, at->parameters, component_offset(component, index));
}

Address component_weight_gradients(const Component *component, const PassAddresses *at, size_t index)
{
    const Address gradients = component->of_experts[index] ? at->expert_gradients : at->parameter_gradients;
    return component_master_at(component, gradients, component_offset(component, index));
}
