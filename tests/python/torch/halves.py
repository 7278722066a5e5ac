"""Tests that I and W of ordinary modules together run the operations of B, each once, and that they free memory."""

import gc
import warnings
import weakref
from collections import Counter

import torch
from torch import nn

from dps.torch._graph import GraphSplitter, is_supported
from dps.torch._split import Splitter
from dps.torch._stage import Stage, run_backward
from models import Attention
from near import is_near

# The ways to split B into I and W: by layers, and by the graph if PyTorch supports that.
SPLITTERS = [Splitter] + [GraphSplitter] * is_supported(run_backward)
# The operations that the tests count. They do not count views, copies and sums into .grad.
COUNTED = {"aten::mm", "aten::bmm", "aten::addmm", "aten::gelu_backward", "aten::threshold_backward", "aten::sum",
           "aten::convolution_backward", "aten::embedding_dense_backward"}


class Mixed(nn.Module):
    """Has several kinds of layers, an in-place activation, and a residual connection."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.linear = nn.Embedding(5, 8), nn.LayerNorm(8), nn.Linear(8, 8)
        self.conv, self.plain = nn.Conv1d(8, 8, 3, padding=1), nn.Linear(8, 8, bias=False)

    def forward(self, x, tokens):
        x = x + self.embedding(tokens)
        x = torch.relu_(self.linear(self.norm(x))) + x
        return self.plain(nn.functional.gelu(self.conv(x.transpose(1, 2)).transpose(1, 2)))


class Direct(Mixed):
    """Also uses the weight of a layer directly, a weight that belongs to no layer, and a layer twice."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x, tokens):
        return self.linear(super().forward(x, tokens) @ self.plain.weight * self.scale)


def counted(function):
    with torch.autograd.profiler.profile() as profile:
        result = function()
    return result, Counter(event.name for event in profile.function_events if event.name in COUNTED)


def halves(kind, splitter, *others):
    """Runs the backward of a module whole and in halves. Returns the operations of B, I and W, and the parameters that
    have a gradient after I. `others` are inputs without gradient."""
    torch.manual_seed(1)
    module = kind().double()
    x, dy = torch.randn(2, 3, 4, 8, dtype=torch.float64)
    whole = Stage(module, "whole", False, None)
    split = Stage(module, "split", False, splitter(module, "split", run_backward))
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    held, _ = whole.forward((one, *others), {}, None, False)
    (dx,), of_b = counted(lambda: whole.backward(held, (dy,)))
    expected = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad(set_to_none=True)
    held, _ = split.forward((two, *others), {}, None, True)
    (dx_split,), of_i = counted(lambda: split.backward_input(held, (dy,)))
    after_i = {name for name, p in module.named_parameters() if p.grad is not None}
    _, of_w = counted(lambda: split.backward_weight(held))
    assert torch.equal(dx, dx_split)
    for name, parameter in module.named_parameters():
        assert is_near(parameter.grad, expected[name]), name
    return of_b, of_i, of_w, after_i


def once(of_b, of_i, of_w):
    """Whether I and W together run the operations of B, each as often as B does. One convolution_backward of B
    computes both gradients; I and W have one call each."""
    both = of_i + of_w
    return all(both[name] == of_b[name] for name in {*both, *of_b} - {"aten::convolution_backward"})


def products(counts):
    return counts["aten::mm"] + counts["aten::bmm"] + counts["aten::addmm"]


def warned(function):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return function(), [str(warning.message) for warning in said]


def computes_nothing_twice():
    tokens = torch.randint(0, 5, (3, 4))
    for splitter in SPLITTERS:
        of_b, of_i, of_w, after_i = halves(Mixed, splitter, tokens)
        assert not after_i, after_i
        assert once(of_b, of_i, of_w), (of_b, of_i, of_w)
        assert products(of_i) == 2 and products(of_w) == 2, (of_i, of_w)
    (_, _, _, after_i), said = warned(lambda: halves(Direct, Splitter, tokens))
    assert after_i == {"plain.weight", "scale", "linear.weight", "linear.bias"}, after_i
    assert len(said) == 1 and "linear.bias, linear.weight, plain.weight, scale" in said[0], said


def any_module_by_the_graph():
    """By the graph, I defers the gradients of all weights, except of those that are used twice, one
    use after the other."""
    (of_b, of_i, of_w, _), said = warned(lambda: halves(Attention, GraphSplitter))
    assert once(of_b, of_i, of_w) and not said, (of_b, of_i, of_w, said)
    assert products(of_w) == 4, of_w  # two products of the attention, two of the block
    (of_b, of_i, of_w, _), said = warned(lambda: halves(Direct, GraphSplitter, torch.randint(0, 5, (3, 4))))
    assert once(of_b, of_i, of_w), (of_b, of_i, of_w)
    assert len(said) == 1 and "weight gradients of linear.bias, linear.weight, plain.weight, which" in said[0], said


def frees():
    """The memory of an output is free after its message is sent, and all memory after the weight half has run."""
    for splitter in SPLITTERS:
        frees_with(splitter)


def storage_of(tensor):
    return (tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()).data_ptr()


def frees_with(splitter):
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    stage = Stage(module, "stage", False, splitter(module, "stage", run_backward))
    x = torch.randn(64, 64, requires_grad=True)
    held, (y,) = stage.forward((x,), {}, None, True)
    storage = storage_of(y)
    held_pointers = {storage_of(t) for t in gc.get_objects() if type(t) is torch.Tensor and t is not y}
    assert storage not in held_pointers, "the graph's end still has the data of the output"
    graph = weakref.ref(held.roots[0])
    stage.backward_input(held, (torch.ones(64, 64),))
    stage.backward_weight(held)
    assert graph() is None, "the graph lives after the weight half"
