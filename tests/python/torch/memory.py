"""One of two ranks. Tests Pipeline.memory(): bytes computed by hand, what dpc predicts from them, and that measuring
changes no result. usage: memory.py FOLDER   a folder for cost files"""

import gc
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

import dps
import dps.torch
from dps.torch import _memory
from dps.torch._graph import is_supported
from dps.torch._stage import run_backward
from equal import part

WIDTH, ROWS, MICROBATCHES = 16, 4, 6
ACTIVATION = ROWS * WIDTH * 4  # bytes of the activation of a microbatch


class Layers(nn.Sequential):
    """Pairs of a Linear, which saves its input, and a tanh, which saves its result. The result of each pair but the
    last is also the input of the next, and counts once."""

    def __init__(self, pairs):
        super().__init__(*(part for _ in range(pairs) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))


class Own(torch.autograd.Function):
    """Saves its input, the square of it, and its weight."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, x * x, weight)
        return x * x * weight

    @staticmethod
    def backward(context, dy):
        x, square, weight = context.saved_tensors
        return 2 * x * weight * dy, (dy * square).sum(0)


class PutOff(torch.autograd.Function):
    """Defers its weight gradient, as the layers of DualPipe do: it sets .grad of the weight that it has saved."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(context, dy):
        x, weight = context.saved_tensors

        def gradient_of_weight():
            gradient = (dy * x).sum(0)
            weight.grad = gradient if weight.grad is None else weight.grad + gradient
        if dps.torch.WeightGradStore.enabled:
            dps.torch.WeightGradStore.put(gradient_of_weight)
        else:
            gradient_of_weight()
        return dy * weight, None


class WithFunction(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.function.apply(x, self.weight)


class Checkpointed(Layers):
    def __init__(self, use_reentrant):
        super().__init__(2)
        self.use_reentrant = use_reentrant

    def forward(self, x):
        if not x.requires_grad:  # without such an input a reentrant checkpoint computes no gradients
            x = x.detach().requires_grad_()
        return checkpoint(super().forward, x, use_reentrant=self.use_reentrant)


class Dropping(Layers):
    """Has dropout, a mask that is no buffer, and a weight that enters without a layer."""

    def __init__(self, _):
        super().__init__(2)
        self.mask, self.scale = torch.rand(ROWS, WIDTH), nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return nn.functional.dropout(super().forward(x) * self.mask, 0.5) * self.scale


def trained(schedule, make, steps=2, meter=True):
    """Trains and returns (pipeline, [losses and gradients of each step])."""
    program = dps.compile(dps.schedule(schedule), ranks=2, microbatches=MICROBATCHES)
    torch.manual_seed(5)
    modules = [make(s) for s in range(program.stages)]
    modules = [modules[chunk.stage] for chunk in program.rank(dist.get_rank()).chunks]
    pipeline = dps.torch.Pipeline(program, modules, nn.functional.mse_loss)
    if not meter:
        pipeline._first_run = lambda mode: pipeline._functions(mode, learnt=False)
    x, y = torch.randn(2, MICROBATCHES * ROWS, WIDTH)
    results = []
    for _ in range(steps):
        train(pipeline, x, y, results)
    return pipeline, results


def train(pipeline, x, y, results):
    plan = pipeline.plan
    given = [part(x, plan.given, MICROBATCHES)] if plan.given else []
    losses, _ = pipeline.step(*given, target=part(y, plan.ends, MICROBATCHES))
    results.append([] if losses is None else [losses])
    results[-1] += [p.grad.clone() for p in pipeline.parameters()]


def by_hand(schedule, make, *wanted):
    """wanted: (saved, kept, gradients) of each stage, in activations. Compares them with memory(), and the peak of
    memory() with dpc's prediction."""
    pipeline, _ = trained(schedule, make)
    found, rank = pipeline.memory(), dist.get_rank()
    for chunk in found:
        sizes = tuple(size * ACTIVATION for size in wanted[chunk.stage])
        assert (chunk.saved, chunk.kept, chunk.gradients) == sizes, (schedule, found, wanted)
    costs = pathlib.Path(sys.argv[1], f"{schedule}-{make.__name__}.costs")
    pipeline.profile(costs)
    dist.barrier()
    predicted = pipeline.program.predict(costs=costs).ranks[rank].peak_memory
    assert predicted == sum(chunk.at_peak for chunk in found), (schedule, predicted, found)
    return found


def pairs(stage):
    return Layers(stage + 1)


def linear_and_tanh():
    """Stage s has s + 1 pairs. It saves their results and the received input. The caller holds the first stage's input.
    I frees the result of the last pair, and leaves for W the gradient of the output of each Linear."""
    rank = dist.get_rank()
    one, = by_hand("1f1b", pairs, (1, 0, 0), (3, 0, 0))
    assert (one.microbatches, one.at_peak) == ((2, 2 * ACTIVATION), (1, 3 * ACTIVATION))[rank], one
    one, = by_hand("zb-h1", pairs, (1, 0, 1), (3, 2, 2))
    assert (one.microbatches, one.at_peak) == (2, (2, 8)[rank] * ACTIVATION), one  # rank 1 begins with F I F I
    # with two ranks, only the last backward of stage 0 has halves
    first, last = sorted(by_hand("dualpipe", pairs, (1, 0, 1), (3, 0, 0)))
    assert (first.microbatches, last.microbatches) == (2, 1), (first, last)
    assert (first.at_peak, last.at_peak) == (2 * ACTIVATION, 3 * ACTIVATION), (first, last)


def two_peaks():
    """The chunks of a rank need not hold most at the same time: rank 0 of interleaved-1f1b holds up to 4 microbatches
    of one chunk, but 3 when it also holds 2 of the other."""
    first, second = by_hand("interleaved-1f1b", pairs, (1, 0, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0))
    if dist.get_rank() == 0:
        assert (first.microbatches, second.microbatches) == (4, 2), (first, second)
        assert (first.at_peak, second.at_peak) == (3 * ACTIVATION, 2 * 4 * ACTIVATION), (first, second)
    else:
        assert (first.microbatches, second.microbatches) == (3, 1), (first, second)
        assert (first.at_peak, second.at_peak) == (2 * 3 * ACTIVATION, 5 * ACTIVATION), (first, second)


def one_pair(_):
    return Layers(1)


def shared_by_stages():
    """Stages 1 and 2 of zb-v are on rank 1. The result of stage 1 is the input of stage 2. It counts for stage 1 until
    the I of stage 1 frees it, and not for stage 2."""
    by_hand("zb-v", one_pair, (1, 0, 1), (2, 1, 1), (1, 0, 1), (2, 1, 1))


def checkpointed(_):
    return Checkpointed(True)


def recomputed(_):
    return Checkpointed(False)


def with_function(_):
    return WithFunction(Own)


def putting_off(_):
    return WithFunction(PutOff)


def not_split():
    """The I of a stage with reentrant checkpoints is a full backward. The stage holds its output and the input that it
    received. A torch.autograd.Function computes all gradients in I."""
    one, = by_hand("zb-h1", checkpointed, (1, 0, 0), (2, 0, 0))
    # A PyTorch that cannot split by the graph splits stages with non-reentrant checkpoints by layers. W then needs the
    # gradient of the output of each Linear.
    left = 0 if is_supported(run_backward) else 2
    by_hand("zb-h1", recomputed, (1, 0, left), (2, 0, left))
    one, = trained("1f1b", with_function)[0].memory()
    # the square, the output and, on rank 1, the received input
    assert (one.saved, one.kept, one.gradients) == ((2, 3)[dist.get_rank()] * ACTIVATION, 0, 0), one
    one, = trained("zb-h1", with_function)[0].memory()
    assert one.kept == 0 and one.gradients <= WIDTH * 4, one  # the gradient of the weight may wait for W
    by_hand("zb-h1", putting_off, (1, 0, 1), (2, 1, 1))  # W needs the input and the gradient of the output


def changes_nothing():
    """Losses and gradients are those of steps that are not measured. Only the first step measures, one microbatch of
    each chunk. Storages die after the same pass whether it measures or not, also if no garbage is collected."""
    for schedule, make in (("1f1b", Dropping), ("zb-h1", Dropping), ("zb-v", Dropping), ("dualpipe", Dropping),
                           ("zb-h1", with_function), ("zb-h1", putting_off), ("zb-h1", recomputed),
                           ("zb-v", checkpointed)):
        entered.clear()
        pipeline, measured = trained(schedule, make)
        assert len(entered) == len(pipeline.modules), (schedule, entered)
        _, plain = trained(schedule, make, meter=False)
        for got, want in zip(measured, plain):
            assert len(got) == len(want) and all(torch.equal(a, b) for a, b in zip(got, want)), schedule
        assert lives(schedule, make, True) == lives(schedule, make, False), schedule
    pipeline, _ = trained("1f1b", one_pair)
    before = pipeline.memory()
    pipeline.forget_shapes()
    x = torch.randn(2 * MICROBATCHES * ROWS, WIDTH)
    train(pipeline, x, x, [])
    assert [chunk.saved for chunk in pipeline.memory()] == [2 * chunk.saved for chunk in before], "not measured anew"


entered = []


class CountingMeter(_memory.Meter):
    def _forward(self, half, function):
        entered.append(half.chunk)
        return super()._forward(half, function)


def lives(schedule, make, meter):
    """For each action of the first step, which results of Tanh and WithFunction modules are freed after it, in the
    order in which they were made."""
    made, alive, kinds = [], [], (nn.Tanh, WithFunction)
    pipeline, _ = trained(schedule, make, steps=0, meter=meter)
    for module in [part for whole in pipeline.modules for part in whole.modules() if isinstance(part, kinds)]:
        module.register_forward_hook(lambda _module, _inputs, y: made.append(StorageWeakRef(_memory.storage_of(y))))
    first_run = pipeline._first_run

    def watched(mode):
        actions, functions = first_run(mode)
        return actions, [lambda f=f: (f(), alive.append([one.expired() for one in made])) for f in functions]
    pipeline._first_run = watched
    gc.collect()
    gc.disable()
    try:
        x = torch.randn(MICROBATCHES * ROWS, WIDTH)
        train(pipeline, x, x, [])
    finally:
        gc.enable()
    assert made and all(alive[-1]), "a step leaves memory"
    return alive


def transforms():
    """PyTorch's transforms of functions do not run under saved_tensors_hooks. Such a stage is measured, too."""
    class Transformed(Layers):
        def forward(self, x):
            y = nn.functional.dropout(super().forward(x), 0.5)
            return y + grad(lambda t: (t * t).sum())(torch.ones(WIDTH))
    try:
        from torch.func import grad
    except ImportError:
        from functorch import grad
    pipeline, measured = trained("1f1b", lambda _: Transformed(1))
    _, plain = trained("1f1b", lambda _: Transformed(1), meter=False)
    assert all(torch.equal(a, b) for got, want in zip(measured, plain) for a, b in zip(got, want))
    one, = pipeline.memory()
    assert one.saved >= 2 * ACTIVATION, one


def main():
    dist.init_process_group("gloo")
    _memory.Meter = CountingMeter
    pipeline, _ = trained("1f1b", one_pair, steps=0)
    try:
        pipeline.memory()
    except dps.UsageError as error:
        assert "needs 1 step that trained" in str(error), error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about stages that are not split
        for case in (linear_and_tanh, two_peaks, shared_by_stages, not_split, changes_nothing):
            case()
    transforms()


if __name__ == "__main__":
    main()
