/* The mlp model: perceptrons on noise, as in the example of DualPipe's authors. */

#include "runtime/model/spec.h"

const ModelSpec model_mlp = {
    .name = "mlp",
    .defaults = {.model = &model_mlp,
                 .hidden = 256,
                 .heads = 1,
                 .sequence = 64,
                 .microbatch_size = 1,
                 .vocabulary = 256,
                 .seed = 1,
                 .learning_rate = 1e-3,
                 .warmup_steps = 20,
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .epsilon = 1e-8,
                 .weight_decay = 0.01,
                 .clip_norm = 1},
    .first = &component_rows,
    .layer = {&component_perceptron},
    .last = &component_squared_error,
    .data = &data_noise,
};
