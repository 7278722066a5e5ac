"""Tests I and W, mostly by the graph (GraphSplitter), where modules are not plain chains of layers."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dps.torch._graph import GraphSplitter
from dps.torch._stage import Stage, run_backward
from halves import SPLITTERS, counted, products, warned
from near import is_near

WIDTH = 4


class Squared(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return x @ weight * 2

    @staticmethod
    def backward(context, dy):
        Squared.calls += 1
        x, weight = context.saved_tensors
        return 2 * dy @ weight.t(), 2 * x.t() @ dy


class Own(nn.Module):
    """A layer with a torch.autograd.Function of its own, which computes both gradients at once."""

    def __init__(self):
        super().__init__()
        self.weight, self.linear = nn.Parameter(torch.randn(WIDTH, WIDTH)), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return Squared.apply(self.linear(x), self.weight)


class LowRank(nn.Module):
    """Has a weight that is computed from two parameters (LoRA), and a bias that two branches
    use."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Parameter(torch.randn(WIDTH, 2)), nn.Parameter(torch.randn(2, WIDTH))
        self.bias, self.last = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x):
        weight = torch.eye(WIDTH, dtype=x.dtype) + self.down @ self.up
        left, right = (x + self.bias) @ weight, (x - self.bias).tanh()
        return left * right + self.last.exp()


class Parallel(nn.Module):
    """Cuts one weight into two, for two parallel branches."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, 2 * WIDTH))

    def forward(self, x):
        first, second = self.weight.chunk(2, dim=1)
        return (x @ first).tanh() * (x @ second)


class Tokens(nn.Module):
    """A first stage. A hook doubles the gradient of its embedding's output."""

    def __init__(self):
        super().__init__()
        self.embedding, self.rest = nn.Embedding(5, WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), LowRank())

    def forward(self, tokens):
        x = self.embedding(tokens)
        if x.requires_grad:
            x.register_hook(lambda gradient: 2 * gradient)
        return self.rest(x)


class InPlace(nn.Module):
    """A first stage that changes its input in place."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        return self.layers(x.mul_(2))


class Recomputed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.layers, self.reentrant = InPlace().layers, reentrant

    def forward(self, x):
        return checkpoint(self.layers, x, use_reentrant=self.reentrant)


class Compiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layers = nn.LayerNorm(WIDTH), InPlace().layers
        self.compiled = torch.compile(lambda x: x + self.layers(x), backend="aot_eager")

    def forward(self, x):
        return self.compiled(self.norm(x))


class TwoOutputs(nn.Module):
    """The second output depends on a parameter alone."""

    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(3, WIDTH))

    def forward(self, x):
        return self.linear(x * self.scale), self.scale.tanh()


def halves(module, inputs, *dy, splitter=GraphSplitter):
    """Checks that I and W together give the gradients of a whole backward; returns the operations of each."""
    results = []
    for kind in (None, splitter):
        module.zero_grad(set_to_none=True)
        stage = Stage(module, "stage", False, kind and kind(module, "stage", run_backward))
        given = tuple(x.clone().requires_grad_(x.requires_grad) for x in inputs)
        held, _ = stage.forward(given, {}, None, kind is not None)
        if kind is None:
            dx = stage.backward(held, dy)
        else:
            dx, of_i = counted(lambda: stage.backward_input(held, dy))
            _, of_w = counted(lambda: stage.backward_weight(held))
        results.append((dx, [p.grad for p in module.parameters()]))
    (dx, expected), (dx_again, found) = results
    assert len(dx) == len(dx_again) and all(is_near(b, a) for a, b in zip(dx, dx_again))
    for (name, _), a, b in zip(module.named_parameters(), expected, found):
        assert is_near(b, a), f"{name}: {b}, not {a}"
    return of_i, of_w


def each_shape():
    torch.manual_seed(1)
    x, dy = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    tokens, inner = torch.tensor([1, 3, 3]), x.clone().requires_grad_()
    (of_i, of_w), said = warned(lambda: halves(LowRank().double(), (inner,), dy))
    # W also computes the gradients of the two factors from that of their product.
    assert (products(of_i), products(of_w)) == (1, 3) and not said, (of_i, of_w, said)
    (of_i, of_w), said = warned(lambda: halves(Parallel().double(), (inner,), dy))
    assert (products(of_i), products(of_w)) == (2, 2) and not said, (of_i, of_w, said)
    (of_i, of_w), said = warned(lambda: halves(Tokens().double(), (tokens,), dy))
    assert (products(of_i), products(of_w)) == (2, 4) and not said, (of_i, of_w, said)
    (of_i, of_w), said = warned(lambda: halves(TwoOutputs().double(), (inner,), dy, dy))
    assert (products(of_i), products(of_w)) == (1, 1) and not said, (of_i, of_w, said)
    (of_i, of_w), said = warned(lambda: halves(InPlace().double(), (x,), dy))
    assert (products(of_i), products(of_w)) == (1, 2) and not said, (of_i, of_w, said)


def own_functions():
    """The backward of a user's torch.autograd.Function runs once, in I."""
    torch.manual_seed(1)
    x, dy = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    Squared.calls = 0
    _, said = warned(lambda: halves(Own().double(), (x.requires_grad_(),), dy))
    assert Squared.calls == 2, Squared.calls  # once in B, once in I
    assert len(said) == 1 and "gradients of weight, which enter through a torch.autograd.Function" in said[0], said


def compiled():
    """I of a stage with compiled code is a full backward. Once a full backward has compiled it, a backward that keeps
    the graph would raise."""
    torch.manual_seed(1)
    x, dy = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    for splitter in SPLITTERS:
        (_, of_w), said = warned(lambda: halves(Compiled().double(), (x.requires_grad_(),), dy, splitter=splitter))
        assert not of_w and len(said) == 1 and "it uses torch.compile" in said[0], (of_w, said)


def checkpoints():
    """I of a stage with checkpoints is a full backward, so that nothing is recomputed more than once. With
    non-reentrant checkpoints this holds from the second microbatch on: the first backward, which notices them, is still
    split."""
    for reentrant in (True, False):
        module, calls = Recomputed(reentrant).double(), []
        module.layers[0].register_forward_hook(lambda *_: calls.append(1))
        stage = Stage(module, "stage", False, GraphSplitter(module, "stage", run_backward))
        said = []
        for microbatch in range(3):
            x = torch.randn(3, WIDTH, dtype=torch.float64, requires_grad=True)
            held, _ = stage.forward((x,), {}, None, True)
            calls.clear()
            _, words = warned(lambda: stage.backward_input(held, (torch.ones(3, WIDTH, dtype=torch.float64),)))
            stage.backward_weight(held)
            said += words
            assert len(calls) == 1 or microbatch == 0, calls
        assert len(said) == 1 and "reentrant checkpoints, so I is a full backward" in said[0], said
