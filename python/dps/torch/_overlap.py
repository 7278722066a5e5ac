"""Runs an F&B by a function of the user, with the arguments of DualPipe's overlapped_forward_backward."""

from ._stage import Held, _as_tuple
from ._store import WeightGradStore


def run_overlapped(function, forward, backward, forward_of, backward_of):
    """Runs the forward of one microbatch and the backward of another in one call of `function`.

    forward, backward         the stages of the two passes (dps.torch._stage.Stage)
    forward_of                (inputs, arguments, targets, split) of the forward, without keyword arguments; split: its
                              own backward will run in two halves
    backward_of               (held, dy, is_input_half) of the backward; dy: the gradients of the outputs of its stage

    Returns (held, outputs, dx): what the forward keeps for its own backward, the outputs of the forward, and the
    gradients that the backward computes for the inputs of its stage. `function` runs a full backward. If the backward
    is an input half (I), layers with a backward of their own defer their weight gradients (WeightGradStore)."""
    inputs, _, targets, split = forward_of
    held, dy, is_input_half = backward_of
    kept = Held()
    kept.inputs, kept.units, kept.deferred = inputs, None, None
    loss = None if held.loss is None else held.loss * backward.loss_scale
    if split and forward.splitter is not None:
        inputs, kept.units = forward.splitter.begin(inputs)
    WeightGradStore.enabled = is_input_half
    try:
        criterion = forward.loss_fn if forward.is_last else None
        outputs, made_loss = function(forward.module, list(inputs), criterion, list(targets or ()), backward.module,
                                      loss, [] if held.loss is not None else held.roots,
                                      [] if held.loss is not None else list(dy))
    finally:
        WeightGradStore.enabled = False
        if forward.splitter is not None:
            forward.splitter.end()
    dx = backward.input_gradients(held)
    if is_input_half:
        held.deferred = WeightGradStore.take()
        held.roots = held.inputs = held.units = held.loss = None
    kept, outputs = forward.keep(kept, _as_tuple(outputs), targets, made_loss)
    return kept, outputs, dx

