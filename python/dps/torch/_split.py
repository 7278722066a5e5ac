"""Runs the backward of an ordinary module in halves: I, the gradients of its inputs, and W, those of its parameters.

The gradient of a parameter is deferred to W if the parameter is used only by one call of a layer of _LAYERS, and the
call has positional inputs. I computes the gradient of the layer's output on its way; W starts with this gradient, and
computes only the gradients of the layer's parameters. Autograd computes only the gradients that are asked for, so the
halves do no work twice. I computes the gradients of all other parameters, unless their layers defer them through
WeightGradStore. A stage with reentrant checkpoints or with code of torch.compile is not split: I is a full backward,
and W is empty.

To start a backward at the output of a layer, autograd needs the output tensor itself. A forward hook keeps this tensor,
and gives the next operation another tensor with the same data. The hook frees the data of the kept tensor, unless the
layer has other forward hooks: these may keep the tensor too, and read it."""

import warnings
from collections import Counter
from functools import partial
from typing import NamedTuple, Tuple

import torch
from torch import nn

from ._stage import Stage
from ._store import WeightGradStore

_LAYERS = {layer.forward for layer in (nn.Linear, nn.Embedding, nn.LayerNorm, nn.GroupNorm, nn.Conv1d, nn.Conv2d,
                                       nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)}

# The names of graph nodes whose backward cannot be split, and what makes such nodes. Compiled code computes all its
# gradients in one backward, which may free the tensors that the forward saved.
UNSPLIT = {"CheckpointFunctionBackward": "reentrant checkpoints", "CompiledFunctionBackward": "torch.compile"}


def _is_layer(module):
    return type(module).forward in _LAYERS and "forward" not in vars(module)


def _accumulate(parameter, gradient):
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad += gradient


class _Call(NamedTuple):
    """One call of a layer.

    output      the output of the layer, whose data is freed unless the layer has other forward hooks
    parameters  the layer's own parameters that require a gradient
    sources     for each tensor among the inputs, its grad_fn or, if it has none, the tensor itself"""

    output: torch.Tensor
    parameters: Tuple
    sources: Tuple


class _Unsplit(Exception):
    """The graph has a node that only a full backward can run. Its argument: what the node comes from (UNSPLIT)."""


def _leaves(nodes, ends):
    """The leaf tensors that require a gradient and that a backward from `nodes` reaches without passing through the
    nodes in `ends`. A node is a grad_fn or a leaf tensor. Raises _Unsplit if the backward reaches a node
    that cannot be split."""
    found, seen, ahead = set(), set(), list(nodes)
    while ahead:
        node = ahead.pop()
        if node is None or node in ends or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.Tensor):
            found |= {node} if node.requires_grad else set()
            continue
        if node.name() in UNSPLIT:
            raise _Unsplit(UNSPLIT[node.name()])
        if hasattr(node, "variable"):
            found.add(node.variable)
        ahead += [edge[0] for edge in node.next_functions]
    return found


def _outside(roots, calls):
    """The leaf tensors (parameters, and inputs of the stage) that the backward reaches outside of the layers, or inside
    a layer that they do not belong to. roots: the tensors at which the backward starts; calls: the layers' _Calls."""
    outputs = {call.output.grad_fn for call in calls}
    sources = {source for call in calls for source in call.sources}
    found = _leaves(sources.union(root.grad_fn for root in roots), outputs)
    ends = outputs | sources
    # Inside a layer, the backward may also reach parameters that are not the layer's own: a parametrization computes
    # the layer's weight from them, or a hook uses them.
    for call in calls:
        inside = [edge[0] for edge in call.output.grad_fn.next_functions]
        found |= _leaves(inside, ends).difference(call.parameters)
    return found


class Halves:
    """What both kinds of splitters share: the backward that is not split, and one warning for each stage about work
    that is not split between the halves. No warning if layers deferred weight gradients through WeightGradStore."""

    def __init__(self, module, name, run_backward):
        self.module, self.name, self.run_backward, self.reported = module, name, run_backward, False

    def of_part(self):
        """The splitter of a component of the stage."""
        return self

    def full_backward(self, held, gradients):
        """Runs a full backward as I. Returns what backward_input() returns: W then has nothing to do."""
        self.run_backward(held.roots, gradients)
        return Stage.input_gradients(held), []

    def report(self, words):
        if not self.reported and not WeightGradStore.cache:
            self.reported = True
            warnings.warn(f"{self.name}: {words}", stacklevel=2)

    def report_unsplit(self, what):
        self.report(f"it uses {what}, so I is a full backward and W is empty")

    def report_early(self, parameters, how):
        known = {parameter: path for path, parameter in self.module.named_parameters()}
        names = sorted(known.get(parameter, "?") for parameter in parameters)
        some = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        self.report(f"the input half (I) also computes the weight gradients of {some}, which enter through {how}. I "
                    "takes longer than predicted, and W less")


class Splitter(Halves):
    """Runs the backwards of one stage in two halves, split at the outputs of its layers."""

    def __init__(self, module, name, run_backward):
        super().__init__(module, name, run_backward)
        self.units = None  # between begin() and end(), the list of the _Calls so far; None at other times
        for layer in module.modules():
            if _is_layer(layer):
                layer.register_forward_hook(self._called)

    def begin(self, inputs):
        """Call it before a forward whose backward runs in two halves. Returns the inputs for the forward, and a list to
        which the forward appends a _Call for each call of a layer."""
        self.units = []
        return inputs, self.units

    def end(self):
        """Call it after a forward."""
        self.units = None

    def _called(self, layer, inputs, output):
        # A forward hook gets positional inputs only. A call without these is not split: its sources are unknown.
        if self.units is None or not inputs or not output.requires_grad:
            return None
        parameters = tuple(p for p in layer.parameters(recurse=False) if p.requires_grad)
        if not parameters:
            return None
        handed_on = torch.ops.aten._unsafe_view(output, output.shape)
        if len(layer._forward_hooks) == 1:  # no other hook may keep this tensor, so its data can be freed
            for tensor in (output, output._base):
                if tensor is not None:
                    tensor.data = tensor.new_empty(0)
        self.units.append(_Call(output, parameters, tuple(x.grad_fn or x for x in inputs if torch.is_tensor(x))))
        return handed_on

    def _together(self, held):
        """The leaf tensors whose gradients the input half must compute. Raises _Unsplit if it must be a full
        backward."""
        uses = Counter(p for call in held.units for p in call.parameters)
        found = _outside(held.roots, held.units)
        # If two calls of layers share a parameter, the weight half of the later call would run on through the graph to
        # the earlier call. So the input half computes the gradient of this parameter.
        return found | {p for p, count in uses.items() if count > 1}

    def backward_input(self, held, gradients):
        """Runs I. Returns the gradients of the inputs, and the functions with which W computes the deferred gradients
        of parameters; no functions if I was a full backward."""
        try:
            together = self._together(held)
        except _Unsplit as error:
            halves = self.full_backward(held, gradients)
            self.report_unsplit(error)
            return halves
        inputs = tuple(x for x in held.inputs if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf)
        put_off = [(call.output, [p for p in call.parameters if p not in together]) for call in held.units]
        put_off = [(output, parameters) for output, parameters in put_off if parameters]
        if not put_off:
            halves = self.full_backward(held, gradients)
            self._report([p for p in self.module.parameters() if p in together])
            return halves
        direct = tuple(together.difference(inputs))
        outputs = tuple(output for output, _ in put_off)
        found = self.run_backward(held.roots, gradients, True, inputs + outputs + direct, False)
        computed = [(p, g) for p, g in zip(direct, found[len(inputs) + len(outputs):]) if g is not None]
        for parameter, gradient in computed:
            _accumulate(parameter, gradient)
        self._report([p for p, _ in computed])
        dx = tuple(torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found))
        return dx, [partial(self.run_backward, (output,), (gradient,), False, tuple(parameters))
                    for (output, parameters), gradient in zip(put_off, found[len(inputs):]) if gradient is not None]

    def _report(self, parameters):
        if parameters:
            self.report_early(parameters, "other operations than layers, or more than once")
