#pragma once

/* A component is a part of a stage with its own F, I and W. To add one: a row in program/parts.h, a file that
   defines its ComponentKind, and an entry in a ModelSpec (spec.h).

   When its stage is opened, a component appends the operations of its passes to lists. PassAddresses says where the
   operands will be: x is the component's input and y its output; context, stash, gradient and parameters are its parts
   of the stage's buffers. x and dy stay valid until the component's W. dx is no address (base 0) if no earlier
   component or stage has parameters to train. */

#include "runtime/device/operation.h"
#include "runtime/model/model.h"

#include <stddef.h>
#include <string.h>

enum { COMPONENT_PARAMETERS = 8, COMPONENT_KERNELS = 4, COMPONENT_EXCHANGES = 3 };

/* What W accumulates in the gradient buffer of a parameter: its gradient, or a tally instead. AdamW skips parameters
   with a tally. */
typedef enum Tally {
    TALLY_NONE, /* a normal gradient */
    /* how many tokens chose each expert. The parameter is the router's bias: after each step the bias of an expert
       rises by ModelConfig.bias_rate if fewer tokens than the mean chose the expert, and falls if more did */
    TALLY_LOADS,
    TALLY_SUM /* a sum over the step that the run reports: the balance loss. The parameter stays 0 */
} Tally;

typedef struct Parameter {
    const char *name;
    size_t elements;
    bool is_matrix; /* has weight decay (Loshchilov & Hutter, 2019) */
    /* standard deviation of the normal distribution with mean 0 of the initial values; 0: all are `constant` */
    double deviation;
    double constant;
} Parameter;

typedef struct Component Component;

/* Where the operations of a component find their operands. Base n of an address is the n-th field of PassBuffers,
   counted from 1. The x of a component in the middle of a stage, for example, is in `stash`. */
typedef struct PassAddresses {
    Address parameters, parameter_gradients, expert_gradients, x, y, dx, dy, context, stash, gradient, workspace;
    Address inputs, targets, outputs, loss;
} PassAddresses;

/* The bases of a pass: the pointers of its buffers. */
enum { PASS_BASES = offsetof(PassBuffers, left_out) / sizeof(void *) };
static inline void pass_bases(const PassBuffers *buffers, void *bases[PASS_BASES])
{
    memcpy(bases, buffers, PASS_BASES * sizeof *bases);
}

typedef struct ComponentKind {
    ModelPart part; /* its name, and which of its passes take time: program/parts.h */
    /* Fills in parameters, sizes, kernels, exchanges and copies. All other fields are already set. */
    Status (*open)(Component *component, Error *error);
    /* Append the operations of F, I and W; NULL: there are none. */
    void (*forward)(const Component *component, const PassAddresses *at, OpList *list);
    void (*backward_input)(const Component *component, const PassAddresses *at, OpList *list);
    void (*backward_weight)(const Component *component, const PassAddresses *at, OpList *list);
    /* true: the component belongs to the same block as the component before it. It then has parameters of its own, but
       shares all other addresses with the block: x and dx are those of the block's first component, y and dy those of
       its last one. The first component's sizes of context, stash and gradient are those of the whole block; those of
       the other components are 0. */
    bool continues;
} ComponentKind;

struct Component {
    const ComponentKind *kind;
    ModelConfig config;
    Device *device;
    uint32_t place; /* index in the whole model; the initial weights depend on it */
    /* index of its layer in the whole model; without meaning if the component is outside the layers */
    uint32_t layer;
    double loss_scale; /* the backward computes the gradient of loss_scale * loss */
    size_t rows;       /* tokens of a microbatch */
    Parameter parameters[COMPONENT_PARAMETERS];
    Tally tallies[COMPONENT_PARAMETERS]; /* of each parameter */
    /* for a parameter of experts, which has one matrix for each expert: the elements of the matrices of all experts of
       the layer; 0 for other parameters. In an expert group each member holds the matrices of its own experts only: all
       physical experts of the layer are divided evenly, in order. Physical expert p starts with the matrix of expert p
       modulo the number of experts */
    size_t of_experts[COMPONENT_PARAMETERS];
    size_t parameter_count;
    size_t context, stash, gradient, workspace; /* elements */
    size_t data_bytes; /* bytes of a microbatch's inputs (first component of a model) or targets (last component) */
    size_t outputs;    /* the last component: elements of the model's output */
    const Kernel *kernels[COMPONENT_KERNELS];
    GroupExchange *exchanges[COMPONENT_EXCHANGES]; /* the component's all-to-alls; the stage frees them */
    /* dispatch: the expert of which each physical expert is a copy; NULL: each expert has one copy that never moves.
       The stage frees it */
    ExpertCopies *copies;
};

/* For ComponentKind.open: adds a parameter. */
void component_parameter(Component *component, Parameter parameter);
/* For ComponentKind.open: adds a parameter that starts at 0, for which W accumulates `tally` instead of a gradient. */
void component_tally(Component *component, const char *name, size_t elements, Tally tally);
/* Standard deviation of initial weights: 0.02 at a width of 768, as in GPT-2. At other widths it is chosen so that
   outputs have the same variance. */
double component_deviation(const Component *component);
/* Standard deviation of initial weights of matrices that add to the residual: component_deviation divided by the square
   root of twice the number of the model's layers, as in GPT-2, where each layer adds twice. */
double component_residual_deviation(const Component *component);
/* The offset of parameter `index` from the component's first parameter, in elements. With index = parameter_count: the
   size of all parameters. */
size_t component_offset(const Component *component, size_t index);
Address component_weights(const Component *component, const PassAddresses *at, size_t index);
Address component_weight_gradients(const Component *component, const PassAddresses *at, size_t index);
/* The address `offset` numbers after `address`: of the compute type (component_at), or of the master type
   (component_master_at). no_address keeps base 0. */
Address component_at(const Component *component, Address address, size_t offset);
Address component_master_at(const Component *component, Address address, size_t offset);

/* Rounds up to a multiple of 16 elements. So if a buffer begins on a cache line, its parts do, too (with bfloat16, at
   multiples of 32 bytes). */
size_t component_round(size_t elements);

extern const ComponentKind component_embedding, component_attention, component_mlp, component_head;
extern const ComponentKind component_rows, component_perceptron, component_squared_error; /* more are in experts.h */
