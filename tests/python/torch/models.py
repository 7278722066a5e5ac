"""Models for the tests, each a list of stages, and what they compute without a pipeline."""

import torch
from torch import nn
from torch.nn import functional as F

from torch.utils.checkpoint import checkpoint

from dps.torch import layers, run_backward

WIDTH = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Attention(nn.Module):
    """A transformer layer. nn.MultiheadAttention also has parameters that belong to no layer inside it."""

    def __init__(self):
        super().__init__()
        self.attention, self.block = nn.MultiheadAttention(WIDTH, 2, batch_first=True), Block()

    def forward(self, x):
        return self.block(x + self.attention(x, x, x, need_weights=False)[0])


class First(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.embedding, self.inside = nn.Embedding(11, WIDTH), inside

    def forward(self, tokens):
        return self.inside(self.embedding(tokens))


class Last(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside, self.head = inside, nn.Linear(WIDTH, 11, bias=False)

    def forward(self, x):
        return self.head(self.inside(x))


class Several(nn.Module):
    """Returns three tensors: two of different shapes, and one of integers."""

    def __init__(self):
        super().__init__()
        self.block, self.other = Block(), nn.Linear(4, 4)

    def forward(self, x, z, numbers):
        return self.block(x) + z.sum(-1, keepdim=True), torch.tanh(self.other(z)) + x[..., :4], numbers + 1


class Dropping(nn.Module):
    """Has dropout whose mask depends on a seed that comes with the activation."""

    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x, seed):
        torch.manual_seed(int(seed[0]))
        return F.dropout(self.block(x), 0.5), seed + 1


class Experts(nn.Module):
    """A layer whose components stage() names. They hand on several tensors, a list, and a residual that passes them."""

    def __init__(self, kind):
        """kind: "seeded" or "drops", with dropout and a checkpoint; "dense": only with attention and mlp; or ""."""
        super().__init__()
        self.norm, self.linear, self.block = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), Block()
        self.drops = kind if kind in ("seeded", "drops") else None

    def dropped(self, x):
        return F.dropout(x, 0.5 if self.drops else 0.)

    def attention(self, x):
        if self.drops == "seeded":
            torch.manual_seed(int(1e6 * x.detach().abs().sum()))
        x = x + self.linear(self.dropped(self.norm(x)))
        return x.tanh(), list(reversed(range(x.shape[1]))), x

    def dispatch(self, x, order, residual):
        return x[:, order], order, residual

    def mlp(self, x, order, residual):
        if self.drops:
            return checkpoint(lambda x: self.block(self.dropped(x)), x, use_reentrant=False), order, residual
        return self.block(x), order, residual

    def combine(self, x, order, residual):
        return x[:, order] + residual

    def dense(self, *values):
        return self.combine(*self.mlp(*self.dispatch(*values)))

    def components(self, kind):
        if kind == "dense":
            return {"attention": self.attention, "mlp": self.dense}
        return {name: getattr(self, name) for name in ("attention", "dispatch", "mlp", "combine")}


class Model:
    """Stages, data and loss of one of MODELS (test_torch.py)."""

    def __init__(self, kind, stages, microbatches, rows=2):
        torch.manual_seed(7)
        self.kind, rows = kind, rows * microbatches
        tokens = torch.randint(0, 11, (rows, 5))
        x, z = torch.randn(rows, 5, WIDTH), torch.randn(rows, 5, 4)
        seeds = torch.arange(rows)
        self.inputs = {"tokens": (tokens,), "several": (x, z, seeds), "dropout": (x, seeds)}.get(
            "tokens" if kind in ("transformer", "tied") else kind, (x,))
        self.target = tokens.roll(1, 1) if kind in ("transformer", "tied") else torch.randn(rows, 5, WIDTH)
        self.stages = [self._stage(s, stages).double() for s in range(stages)]
        if kind == "frozen" and stages > 1:
            self.stages[(stages - 1) // 2].requires_grad_(False)
        if kind == "tied":
            self.stages[-1].head.weight = self.stages[0].embedding.weight
        self.inputs = tuple(t.double() if t.is_floating_point() else t for t in self.inputs)
        if self.target.is_floating_point():
            self.target = self.target.double()

    def _stage(self, stage, stages):
        torch.manual_seed(100 + stage)
        if self.kind in ("transformer", "tied"):
            inside = Attention() if self.kind == "transformer" else Block()
            inside = First(inside) if stage == 0 else inside
            return Last(inside) if stage == stages - 1 else inside
        if self.kind.startswith("experts"):
            kind, count = self.kind[8:], 1 + stage % 2
            return layers([Block(), *[Experts(kind).components(kind) for _ in range(count)], Block()])
        return {"several": Several, "dropout": Dropping}.get(self.kind, Block)()

    def loss(self, *outputs_and_target):
        *outputs, target = outputs_and_target
        if target.is_floating_point():
            return F.mse_loss(outputs[0], target)
        return F.cross_entropy(outputs[0].flatten(0, 1), target.flatten())

    def plain(self, microbatches):
        """Runs the model without a pipeline, microbatch by microbatch. Returns the losses and the first output of the
        model. If gradients are enabled, adds those of the mean loss to the parameters of the stages."""
        losses, outputs = [], []
        for m in range(microbatches):
            y = tuple(t.tensor_split(microbatches)[m] for t in self.inputs)
            for stage in self.stages:
                y = stage(*y)
                y = y if isinstance(y, tuple) else (y,)
            loss = self.loss(*y, self.target.tensor_split(microbatches)[m])
            if torch.is_grad_enabled():
                (loss / microbatches).backward()
            losses.append(loss.detach())
            outputs.append(y[0].detach())
        return torch.stack(losses), torch.cat(outputs)


def in_turn(module0, inputs0, criterion0, labels0, module1, loss1, outputs1, dys1):
    """DualPipe's overlapped_forward_backward with the two halves one after the other."""
    outputs0 = [module0(*inputs0)]
    loss0 = criterion0(*outputs0, *labels0) if criterion0 is not None else None
    if loss1 is not None:
        loss1.backward()
        loss1.detach_()
    else:
        run_backward(outputs1, dys1)
    return outputs0, loss0
