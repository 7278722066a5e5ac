"""One of four ranks. Gradients equal those without a pipeline in further ways to call Pipeline and step(): a function
runs F&Bs, batches are cut along another dimension or into parts of several sizes, stages compute the loss, there are
several targets, and other processes run the ranks. Sums of gradients overlap with the passes that follow."""

import copy
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import dps
import dps.torch
from models import Model, in_turn
from near import is_near

AFTER = pathlib.Path(__file__).resolve().parents[2] / "library/after.dps"


def check_gradients(pipeline, stages):
    for chunk, module in zip(pipeline.plan.chunks, pipeline.modules):
        for got, want in zip(module.parameters(), stages[chunk.stage].parameters()):
            assert is_near(got.grad, want.grad), (pipeline.program.schedule, chunk.stage, got.grad, want.grad)


def train(path, **options):
    """Trains a model of Blocks for one step. Returns the pipeline; `prepare` is called with it before the step."""
    prepare = options.pop("prepare", lambda pipeline: None)
    program = dps.compile(path, ranks=4, microbatches=8)
    model = Model("mlp", program.stages, 8)
    pipeline = dps.torch.Pipeline(program, lambda stage: copy.deepcopy(model.stages[stage]), model.loss, **options)
    prepare(pipeline)
    given, target = pipeline.share(model.inputs[0], model.target)
    losses, _ = pipeline.step(*[given] if given else [], target=target)
    expected, _ = model.plain(8)
    assert (losses is None) == (target is None)
    assert losses is None or is_near(losses, expected[pipeline.plan.ends])
    check_gradients(pipeline, model.stages)
    return pipeline


# --- a function runs both halves of an F&B ---

def pairs_by_a_function(path):
    """Pipeline calls the function `overlapped` once for each F&B."""
    calls = []

    def overlapped(*arguments):
        module0, _, _, _, module1, *_ = arguments
        calls.append((module0, module1))
        return in_turn(*arguments)

    pipeline = train(path, overlapped=overlapped)
    pairs = [action.instruction for action in pipeline.plan.training if action.instruction.opcode == "OVERLAP"]
    modules = [(pipeline.modules[i.chunk], pipeline.modules[i.second.chunk]) for i in pairs if i.second]
    assert calls == modules and calls, (path, len(calls), len(modules))


# --- sums and passes ---

class Recorded:
    """A group that sums, or a sum that it has started. `seen` gets the names of its calls."""

    def __init__(self, inside, seen, chunk):
        self.inside, self.seen, self.chunk = inside, seen, chunk

    def allreduce(self, tensors):
        self.seen.append(f"post {self.chunk}")
        return Recorded(self.inside.allreduce(tensors), self.seen, self.chunk)

    def wait(self):
        self.seen.append(f"wait {self.chunk}")
        self.inside.wait()

    def is_completed(self):
        return self.inside.is_completed()


PASSES = {"FORWARD": "forward", "OVERLAP": "forward", "BACKWARD": "backward", "BACKWARD_INPUT": "backward_input",
          "BACKWARD_WEIGHT": "backward_weight"}


def planned(pipeline):
    """The names of the passes, posts of sums and waits for sums, as texts in the order of the plan. An F&B gives the
    names of both its passes."""
    for action in pipeline.plan.training:
        first = action.instruction
        for i in (first,) if first.second is None else (first, first.second):
            if i.opcode in PASSES:
                yield PASSES[i.opcode]
            elif i.opcode in ("REDUCE", "WAIT_REDUCE"):
                yield f"{'post' if i.opcode == 'REDUCE' else 'wait'} {i.chunk}"


def sums_and_passes(name):
    """Passes run between the start of a sum and the wait for it, where the plan has that."""
    seen = []

    def record(pipeline):
        for chunk, total in enumerate(pipeline._sums):
            total.group = Recorded(total.group, seen, chunk)
        for stage in pipeline._stages:
            for kind in set(PASSES.values()):
                setattr(stage, kind, recorded(getattr(stage, kind), kind))

    def recorded(function, kind):
        def run(*arguments):
            seen.append(kind)
            return function(*arguments)
        return run

    pipeline = train(dps.schedule(name), prepare=record)
    assert seen == list(planned(pipeline)), (name, seen)
    between = [set(seen[seen.index(f"post {c}"):seen.index(f"wait {c}")]) for c in range(len(pipeline.modules))]
    assert any(found & set(PASSES.values()) for found in between), (name, seen)


# --- shapes, losses, targets and ranks ---

class Two(nn.Module):
    """Gives two outputs."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, y=0):
        return self.linear(x), y + 2 * x


class Loss(nn.Linear):
    """A last stage that computes the loss."""

    def forward(self, x):
        return super().forward(x).square().mean()


def parts_of(value, dimension):
    return value.tensor_split(4, dimension) if isinstance(value, torch.Tensor) else value


def compare(name, kinds, x, targets, loss_fn=None, dimension=0, **options):
    """Compares losses, outputs and gradients of a pipeline of four microbatches with those without. kinds: the type of
    each stage. x and each of targets: a batch, or a list of its parts."""
    torch.manual_seed(5)
    stages = [kind(4, 4).double() if issubclass(kind, nn.Linear) else kind().double() for kind in kinds]
    program = dps.compile(dps.schedule(name), ranks=options.pop("ranks", 4), microbatches=4)
    pipeline = dps.torch.Pipeline(program, lambda stage: copy.deepcopy(stages[stage]), loss_fn, batch_dim=dimension,
                                  **options)
    expected, outputs = [], []
    for given, *goals in zip(*(parts_of(value, dimension) for value in (x, *targets))):
        made = (given,)
        for stage in stages:
            made = stage(*made)
            made = made if isinstance(made, tuple) else (made,)
        loss = loss_fn(*made, *goals) if loss_fn else made[0]
        (loss / 4).backward()
        expected.append(loss.detach())
        outputs.append([y.detach() for y in made])
    is_first, is_last = bool(pipeline.plan.given), bool(pipeline.plan.ends)
    losses, made = pipeline.step(*[x] if is_first else [], target=tuple(targets) if is_last and targets else None,
                                 return_outputs=True)
    check_gradients(pipeline, stages)
    assert (losses is not None) == (made is not None) == is_last
    if is_last:
        assert is_near(losses, torch.stack(expected)), (losses, expected)
        for got, parts in zip(made if isinstance(made, tuple) else (made,), zip(*outputs)):
            assert is_near(got, torch.cat(parts, dimension) if parts[0].dim() else torch.stack(parts)), (got, parts)
    return pipeline


def of_both(y, z, goal, other):
    return F.mse_loss(y, goal) + F.mse_loss(z, other)


def mapped(x, target):
    """Ranks 0, 1 and 2 of the program are the processes 3, 1 and 2, in an order that is not that of the group."""
    group, mapping = dist.new_group([1, 2, 3]), [1, 2, 0]
    if dist.get_rank() == 0:
        return
    pipeline = compare("zb-h1", 3 * [nn.Linear], x, [target], F.mse_loss, ranks=3, group=group, rank_mapping=mapping)
    assert pipeline.rank == mapping[dist.get_rank() - 1], pipeline.rank


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for path in (dps.schedule("dualpipe"), dps.schedule("dualpipev"), AFTER):
        pairs_by_a_function(path)
    for name in ("dualpipe", "bitpipe"):
        sums_and_passes(name)
    torch.manual_seed(1)
    x, y, z = torch.randn(3, 3, 7, 4, dtype=torch.float64)
    compare("zb-h1", 3 * [nn.Linear] + [Loss], x, [], dimension=1)
    compare("zb-h1", 4 * [Two], x, [y, z], of_both, dimension=1)
    parts, goals = (t.flatten(0, 1)[:14].split([1, 3, 8, 2]) for t in (x, y))
    compare("zb-h1", 4 * [nn.Linear], parts, [goals], F.mse_loss)
    mapped(x.flatten(0, 1), y.flatten(0, 1))


main()
