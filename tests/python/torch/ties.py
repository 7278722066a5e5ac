"""Which stages seem to share a weight. Each case is the modules of each rank, as {stage: module}, and the two places of
the weight; None: no weight is shared, or the rank that has both stages shares it."""

import copy
from types import SimpleNamespace

import torch
from torch import nn

from dps.torch._ties import tie_of, weights_of
from models import Block, First, Last


def seeded(number, make):
    torch.manual_seed(number)
    return make()


def gpt(stages=4):
    """The stages of a model with a tied embedding."""
    torch.manual_seed(1)
    made = [First(Block()), *[Block() for _ in range(stages - 2)], Last(Block())]
    made[-1].head.weight = made[0].embedding.weight
    return made


class Named(nn.Module):
    """A stage whose weights have their names in the whole model, as in stages of torch's tracer."""

    def __init__(self, **weights):
        super().__init__()
        for name, weight in weights.items():
            self.register_parameter(name, weight)


class Scan(nn.Module):
    """A layer with a table that is equal in all layers."""

    def __init__(self):
        super().__init__()
        self.inside, self.table = nn.Linear(8, 8), nn.Parameter(torch.arange(1.0, 9).repeat(64, 1).log())


class Around(nn.Module):
    def __init__(self, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)


def cases():
    yield "apart", [{s: copy.deepcopy(m)} for s, m in enumerate(gpt())], ("embedding.weight", 0, "head.weight", 3)
    first, *inner, last = gpt()
    yield "one rank shares it", [{0: first, 3: last}, dict(enumerate(inner, 1))], None
    yield "one rank has it twice", [{0: copy.deepcopy(first), 3: last}, dict(enumerate(inner, 1))], (
        "embedding.weight", 0, "head.weight", 3)
    yield "two copies of all stages", 2 * [{0: first, 1: last}], None
    frozen = copy.deepcopy(first).requires_grad_(False)
    yield "frozen", [{0: frozen}, {1: copy.deepcopy(last)}], None
    head = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 11, bias=False))
    head[1].weight = first.embedding.weight
    yield "only a head", [{0: first}, {1: copy.deepcopy(head)}], ("embedding.weight", 0, "1.weight", 1)
    yield "equal seeds", [{s: seeded(0, Block)} for s in range(3)], None
    yield "equal seeds, more layers", [{0: seeded(0, lambda: First(Block()))}, {1: seeded(0, Block)},
                                       {2: seeded(0, lambda: Last(Block()))}], None
    yield "equal seeds, other names", [{0: seeded(0, lambda: Around(up=nn.Linear(8, 8)))},
                                       {1: seeded(0, lambda: Around(head=nn.Linear(8, 8), more=nn.Linear(8, 8)))}], None
    layer = Block()
    yield "copies of a layer", [{0: First(layer)}, {1: nn.Sequential(copy.deepcopy(layer), copy.deepcopy(layer))},
                                {2: Last(copy.deepcopy(layer))}], None
    yield "copies with full names", [{0: Around(start=nn.Linear(8, 8), h0=layer)},
                                     {1: Around(h1=copy.deepcopy(layer), end=nn.Linear(8, 8))}], None
    yield "a table in each layer", [{s: Scan()} for s in range(2)], None
    tied, *others = (nn.Parameter(torch.randn(8, 8)) for _ in range(3))
    clone = nn.Parameter(tied.detach().clone())
    yield "one full name", [{0: Named(wte=tied, h0=others[0])}, {1: Named(h1=others[1], wte=clone)}], (
        "wte", 0, "wte", 1)
    yield "two full names", [{0: Named(wte=tied, h0=others[0])}, {1: Named(h1=others[1], head=clone)}], (
        "wte", 0, "head", 1)
    yield "only a head with full names", [{0: Named(wte=tied, h0=others[0], head=nn.Parameter(tied.detach().clone()))},
                                          {1: Named(head=clone)}], ("wte", 0, "head", 1)


def each_case():
    for name, ranks, expected in cases():
        weights = [weights_of([SimpleNamespace(stage=stage) for stage in held], held.values()) for held in ranks]
        found = tie_of(weights)
        got = found and tuple(value for _, weight in found for value in (weight.name, weight.stage))
        assert got == expected, (name, got)
