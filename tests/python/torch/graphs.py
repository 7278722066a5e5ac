"""Tests that I and W of ordinary modules compute the gradients of B, however layers are called and graphs change."""

import warnings

import torch
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

from dps.torch._stage import Stage, run_backward
from halves import SPLITTERS
from near import is_near

WIDTH = 4


class Scaled(nn.Module):
    """A layer whose input is scaled, if `scales`, by a parameter that belongs to no layer."""

    def __init__(self, scales=True):
        super().__init__()
        self.scale, self.linear, self.scales = nn.Parameter(torch.randn(WIDTH)), nn.Linear(WIDTH, WIDTH), scales

    def forward(self, x):
        return self.linear(x * self.scale if self.scales else x)


class Keyword(Scaled):
    def forward(self, x):
        return self.linear(input=x * self.scale)


class ScaledOutput(nn.Module):
    """A hook scales the output of a layer."""

    def __init__(self):
        super().__init__()
        self.scale, self.linear = nn.Parameter(torch.randn(WIDTH)), nn.Linear(WIDTH, WIDTH)
        self.linear.register_forward_hook(lambda _layer, _inputs, output: output * self.scale)

    def forward(self, x):
        return self.linear(x)


class ComputedBias(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.given = nn.Linear(WIDTH, WIDTH, bias=False), nn.Parameter(torch.randn(WIDTH))
        del self.linear.bias

    def forward(self, x):
        self.linear.bias = 2 * self.given
        return self.linear(x)


def between(layer):
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), layer, nn.Tanh(), nn.Linear(WIDTH, WIDTH))


KINDS = {
    "keyword": Keyword, "positional": Scaled, "scaled output": ScaledOutput, "computed bias": ComputedBias,
    "orthogonal": lambda: between(parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH))),
    "spectral": lambda: between(parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))).eval(),
    "old spectral": lambda: between(nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH))).eval(),
    "weight norm": lambda: between(weight_norm(nn.Linear(WIDTH, WIDTH))),
}


def stage_of(module, splitter):
    return Stage(module, "stage", False, splitter(module, "stage", run_backward))


def compare(what, stage):
    """Runs one microbatch through the stage with B, and then with I and W. Compares the
    gradients."""
    module, (x, dy) = stage.module, torch.randn(2, 3, WIDTH, dtype=torch.float64)
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    module.zero_grad(set_to_none=True)
    module(one).backward(dy)
    expected = [p.grad for p in module.parameters()]
    module.zero_grad(set_to_none=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that I computes gradients of weights
        held, _ = stage.forward((two,), {}, None, True)
        dx, = stage.backward_input(held, (dy,))
        stage.backward_weight(held)
    assert is_near(dx, one.grad), what
    for (name, parameter), wanted in zip(module.named_parameters(), expected):
        assert (parameter.grad is None) == (wanted is None), f"{what}: {name}: {parameter.grad}, not {wanted}"
        assert wanted is None or is_near(parameter.grad, wanted), f"{what}: {name}"


def each_kind():
    for splitter in SPLITTERS:
        for what, kind in KINDS.items():
            torch.manual_seed(1)
            compare(what, stage_of(kind().double(), splitter))


def changed_graphs():
    """The layers that run stay the same, and the rest of the graph changes."""
    for splitter in SPLITTERS:
        stage = stage_of(Scaled(scales=False).double(), splitter)
        for scales in (False, True, False):
            stage.module.scales = scales
            compare(f"scales: {scales}", stage)
        stage = stage_of(Scaled().double(), splitter)
        for trains in (False, True, False):
            stage.module.scale.requires_grad_(trains)
            compare(f"trains: {trains}", stage)
