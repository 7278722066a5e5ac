#pragma once

/* oneDNN with the interface of version 3.0. For oneDNN 2.x, this header defines the functions of 3.0 that the CPU
   device uses, by functions of 2.x. In 2.x a memory descriptor is a structure, not a handle that has to be freed, and a
   primitive needs a separate descriptor of its operation. */

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR < 3

typedef const dnnl_memory_desc_t *const_dnnl_memory_desc_t;

static inline dnnl_status_t dnnl_memory_desc_create_with_tag(dnnl_memory_desc_t *memory, int axes,
                                                             const dnnl_dims_t sizes, dnnl_data_type_t type,
                                                             dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(memory, axes, sizes, type, tag);
}

static inline dnnl_status_t dnnl_memory_desc_destroy(dnnl_memory_desc_t memory)
{
    (void)memory;
    return dnnl_success;
}

static inline dnnl_status_t dnnl_eltwise_forward_primitive_desc_create(
    dnnl_primitive_desc_t *described, dnnl_engine_t engine, dnnl_prop_kind_t kind, dnnl_alg_kind_t algorithm,
    dnnl_memory_desc_t source, dnnl_memory_desc_t result, float alpha, float beta,
    const_dnnl_primitive_attr_t attributes)
{
    dnnl_eltwise_desc_t operation;
    (void)result; /* oneDNN 2.x takes one descriptor, that of the source; the result has the same */
    const dnnl_status_t status = dnnl_eltwise_forward_desc_init(&operation, kind, algorithm, &source, alpha, beta);
    return status != dnnl_success ? status
                                  : dnnl_primitive_desc_create(described, &operation, attributes, engine, NULL);
}

static inline dnnl_status_t dnnl_eltwise_backward_primitive_desc_create(
    dnnl_primitive_desc_t *described, dnnl_engine_t engine, dnnl_alg_kind_t algorithm,
    dnnl_memory_desc_t source_gradient, dnnl_memory_desc_t gradient, dnnl_memory_desc_t source, float alpha, float beta,
    const_dnnl_primitive_desc_t forward, const_dnnl_primitive_attr_t attributes)
{
    dnnl_eltwise_desc_t operation;
    (void)source_gradient; /* oneDNN 2.x takes one descriptor for both gradients */
    const dnnl_status_t status =
        dnnl_eltwise_backward_desc_init(&operation, algorithm, &gradient, &source, alpha, beta);
    return status != dnnl_success ? status
                                  : dnnl_primitive_desc_create(described, &operation, attributes, engine, forward);
}

static inline dnnl_status_t dnnl_softmax_forward_primitive_desc_create(
    dnnl_primitive_desc_t *described, dnnl_engine_t engine, dnnl_prop_kind_t kind, dnnl_alg_kind_t algorithm,
    dnnl_memory_desc_t source, dnnl_memory_desc_t result, int axis, const_dnnl_primitive_attr_t attributes)
{
    dnnl_softmax_v2_desc_t operation;
    const dnnl_status_t status = dnnl_softmax_v2_forward_desc_init(&operation, kind, algorithm, &source, &result, axis);
    return status != dnnl_success ? status
                                  : dnnl_primitive_desc_create(described, &operation, attributes, engine, NULL);
}

#endif
