"""One stage of the model on this rank: its forward, and its backward, full or in two halves."""

import torch
from torch.autograd import Variable

from .._errors import UsageError
from ._store import WeightGradStore

_SMALL = 1 << 12  # outputs with fewer elements keep their data: freeing it early takes more time than it is worth


def run_backward(tensors, gradients, keep_graph=False, inputs=(), accumulate=True):
    """Runs a backward from `tensors` with their `gradients`. accumulate True: adds gradients to .grad of all leaves or,
    if `inputs` are given, of these alone. accumulate False: returns the gradients of `inputs`. Calls the engine of
    autograd without the checks of torch.autograd.backward, which take longer than a small stage."""
    if tensors:
        return Variable._execution_engine.run_backward(tuple(tensors), tuple(gradients), keep_graph, False, inputs,
                                                       True, accumulate)
    return (None,) * len(inputs)


class Held:
    """What a stage keeps of a microbatch from its forward to its backward or, if that is split, to its W."""

    __slots__ = ("inputs", "roots", "units", "deferred", "loss")


def _as_tuple(outputs):
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


class Stage:
    """A module, with the functions that run its forward and its backward.

    splitter  runs backwards in two halves (GraphSplitter or Splitter). None: the program does not split backwards of
              this stage, or the module is no nn.Module with parameters; then I is a full backward"""

    def __init__(self, module, name, is_last, splitter):
        self.module, self.name, self.is_last, self.splitter = module, name, is_last, splitter
        # the last stage calls loss_fn(*outputs, *targets); None: in training the stage itself returns the loss
        self.loss_fn = None
        self.loss_scale = 1.0  # the step computes the gradient of loss_scale x the sum of all losses
        # the gradient at which backwards start: loss_scale in the shape of the loss; None: not made yet in this step
        self.loss_gradient = None
        # whether no loss of this step required a gradient, although the outputs did
        self.is_constant = True
        self.is_inside = False  # whether this is a component, whose outputs go to another one of the same stage
        self.parts = (self,)  # a stage that names its components has a Stage for each (dps.torch._layers)

    @property
    def has_checkpoint(self):
        """Whether an I has found non-reentrant checkpoints: then later backwards are not split."""
        return getattr(self.splitter, "has_checkpoint", False)

    # --- forward ---

    def forward(self, inputs, arguments, targets, split):
        """Runs the forward. Returns what the backward needs (Held), and the outputs. Outputs for a next stage are
        detached from the graph. split: the backward will run in two halves."""
        held = Held()
        held.inputs, held.units, held.deferred = inputs, None, None
        if split and self.splitter is not None:
            inputs, held.units = self.splitter.begin(inputs)
            try:
                outputs = self.module(*inputs, **arguments)
            finally:
                self.splitter.end()
        else:
            outputs = self.module(*inputs, **arguments)
        return self.keep(held, _as_tuple(outputs), targets)

    def keep(self, held, outputs, targets, loss=None):
        """Stores in `held` the loss (None on earlier stages) and the tensors at which the backward starts. loss: the
        loss if the caller has computed it already, else None. Returns `held`, and the outputs as forward() does."""
        if self.is_last:
            held.loss = self.loss_of(outputs, targets) if loss is None else loss
            if held.loss is not None and not isinstance(held.loss, torch.Tensor):
                raise UsageError(f"{self.name}: the loss is a {type(held.loss).__name__}; it must be a tensor")
            held.roots = (held.loss,) if held.loss is not None and held.loss.requires_grad else ()
            if held.roots or not any(getattr(y, "requires_grad", False) for y in outputs):
                self.is_constant = False
            return held, outputs
        held.loss = None
        held.roots, given = self._roots(outputs)
        return held, given

    def loss_of(self, outputs, targets):
        if self.loss_fn is not None:
            loss = self.loss_fn(*outputs, *targets) if targets is not None else None
            if loss is None and targets is not None:
                raise UsageError(f"{self.name}: loss_fn returned None: does it lack a return? The loss of a microbatch "
                                 "without targets is a constant, such as torch.zeros([])")
            return loss
        if len(outputs) == 1 and isinstance(outputs[0], torch.Tensor) and outputs[0].dim() == 0:
            return outputs[0]
        if torch.is_grad_enabled():
            raise UsageError(f"{self.name} is the last stage, but does not return just the loss, a tensor of shape []: "
                             "give Pipeline a loss_fn")
        return None

    def _roots(self, outputs):
        """Returns (roots, given). roots: the tensors at which the backward starts. given: the outputs for the next
        stage, detached from the graph. The root of a large output does not keep its data. So the memory of the output
        is free as soon as `given` is sent, unless the graph has saved the output."""
        roots, given = [], []
        for y in outputs:
            if not isinstance(y, torch.Tensor):
                if self.is_inside:
                    given.append(y)
                    continue
                raise UsageError(f"an output of {self.name} is a {type(y).__name__}; a stage must return tensors")
            given.append(y.detach())
            if y.requires_grad:
                given[-1].requires_grad_()
                if y.numel() >= _SMALL and not y.is_leaf:
                    y = torch.ops.aten._unsafe_view(y, y.shape)
                    y.data = y.new_empty(0)
                roots.append(y)
        return roots, tuple(given)

    # --- backward ---

    def gradients_of(self, held, dy):
        """The gradients of held.roots, at which the backward starts. On the last stage this is loss_scale, the gradient
        of the loss; empty if the loss requires no gradient. On other stages it is dy, which came from the next one."""
        if held.loss is None:
            return dy
        if self.loss_gradient is None or self.loss_gradient.shape != held.loss.shape:
            if held.loss.numel() != 1:
                raise UsageError(f"{self.name}: the loss of a microbatch must be one number; this one has shape "
                                 f"{list(held.loss.shape)}")
            self.loss_gradient = torch.full_like(held.loss, self.loss_scale, requires_grad=False)
        return (self.loss_gradient,) if held.roots else ()

    @staticmethod
    def input_gradients(held):
        """After the backward, the gradients of those inputs that are leaves and require a gradient; zeros for an input
        that the backward did not reach."""
        return tuple([x.grad if x.grad is not None else torch.zeros_like(x) for x in held.inputs
                      if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf])

    def backward(self, held, dy):
        run_backward(held.roots, self.gradients_of(held, dy))
        return self.input_gradients(held)

    def backward_input(self, held, dy):
        """Runs the input half (a full backward if the forward was not split) and returns the gradients of the inputs.
        Stores in held.deferred the functions that the weight half calls, and empties the rest of `held`."""
        WeightGradStore.enabled = True
        try:
            if held.units is None:
                dx, deferred = self.backward(held, dy), []
            else:
                dx, deferred = self.splitter.backward_input(held, self.gradients_of(held, dy))
        finally:
            WeightGradStore.enabled = False
        held.deferred = deferred + WeightGradStore.take()
        held.roots = held.inputs = held.units = held.loss = None
        return dx

    @staticmethod
    def backward_weight(held):
        for function in held.deferred:
            function()
        held.deferred = None
