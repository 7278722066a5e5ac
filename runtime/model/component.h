#ifndef MODEL_COMPONENT_H
#define MODEL_COMPONENT_H

/* A part of a stage with its own F, I and W. To add one: a row in runtime/base/parts.h, a file that
   fills in a ComponentKind, and its place in a ModelSpec (spec.h).

   When its stage is opened, a component appends the operations of its passes to lists. PassAddresses says where its
   operands will be: x is its input and y its output, wherever they live; context, stash, gradient and parameters are
   its parts of the stage's. x and dy are there until its W. dx has no base where nobody before it learns. */

#include "runtime/device/operation.h"
#include "runtime/model/model.h"

enum { COMPONENT_PARAMETERS = 8, COMPONENT_KERNELS = 4 };

/* What W counts in the place of a parameter's gradient. The optimizer does not see it. */
typedef enum Tally {
    TALLY_NONE,  /* nothing: it is a gradient */
    TALLY_LOADS, /* the tokens of each expert; after the step the parameter, a bias, moves towards equal ones */
    TALLY_SUM    /* a sum that is reported; the parameter stays 0 */
} Tally;

typedef struct Parameter {
    const char *name;
    size_t elements;
    bool is_matrix;   /* decays (Loshchilov & Hutter, 2019) */
    double deviation; /* starts normally distributed about 0; 0: starts as `constant` */
    double constant;
} Parameter;

typedef struct Component Component;

/* The fields of PassBuffers as addresses: base n is its n-th field. */
typedef struct PassAddresses {
    Address parameters, parameter_gradients, x, y, dx, dy, context, stash, gradient, workspace;
    Address inputs, targets, outputs, loss;
} PassAddresses;

enum { PASS_BASES = sizeof(PassBuffers) / sizeof(void *) };

typedef struct ComponentKind {
    ModelPart part; /* its name and its costs: runtime/base/parts.h */
    /* Fills in parameters, sizes and kernels; config, device and place are there. */
    Status (*open)(Component *component, Error *error);
    /* Append the operations of F, I and W; NULL: it has none. */
    void (*forward)(const Component *component, const PassAddresses *at, OpList *list);
    void (*backward_input)(const Component *component, const PassAddresses *at, OpList *list);
    void (*backward_weight)(const Component *component, const PassAddresses *at, OpList *list);
    /* Belongs to a block with the component before it: all addresses but those of its parameters are the block's. x and
       dx are of the block's first component, which has its sizes; y and dy are of its last. */
    bool continues;
} ComponentKind;

struct Component {
    const ComponentKind *kind;
    ModelConfig config;
    Device *device;
    uint32_t place;    /* in the whole model: the starting weights depend on it */
    double loss_scale; /* the gradient is that of loss_scale * loss */
    size_t rows;       /* tokens of a microbatch */
    Parameter parameters[COMPONENT_PARAMETERS];
    Tally tallies[COMPONENT_PARAMETERS]; /* of each parameter */
    size_t parameter_count;
    size_t context, stash, gradient, workspace; /* elements */
    size_t data_bytes; /* of a microbatch's inputs (the first component of a model) or targets (the last one) */
    size_t outputs;    /* the last component: elements of the model's output */
    const Kernel *kernels[COMPONENT_KERNELS];
};

/* For `open`. */
void component_parameter(Component *component, Parameter parameter);
/* A parameter that starts as 0, and what W counts in the place of its gradient. */
void component_tally(Component *component, const char *name, size_t elements, Tally tally);
/* GPT-2's 0.02 at its width of 768, and the same variance of outputs at every other width. */
double component_deviation(const Component *component);
/* The same for what adds to the residual path: divided by the root of the number of such layers, as in GPT-2. */
double component_residual_deviation(const Component *component);
/* For the passes. Elements from the component's first parameter to the `index`-th; behind the last one, the size of
   all. */
size_t component_offset(const Component *component, size_t index);
Address component_weights(const Component *component, const PassAddresses *at, size_t index);
Address component_weight_gradients(const Component *component, const PassAddresses *at, size_t index);
/* `offset` elements, or masters, behind `address`; no base stays none. */
Address component_at(const Component *component, Address address, size_t offset);
Address component_master_at(const Component *component, Address address, size_t offset);

/* Parts begin on a cache line whenever the buffer does. */
size_t component_round(size_t elements);

extern const ComponentKind component_embedding, component_attention, component_mlp, component_head;
extern const ComponentKind component_rows, component_perceptron, component_squared_error; /* experts.h has more */

#endif
