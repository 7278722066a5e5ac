"""One of two ranks. Tests what step() accepts, and what Pipeline and step() refuse, with which message."""

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch


def refused(words, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except dps.UsageError as error:
        assert words in str(error), f"{words!r} is not in: {error}"
    else:
        raise AssertionError(f"not refused: {words}")


def main():
    dist.init_process_group("gloo")
    program = dps.compile(dps.schedule("zb-v"), ranks=2, microbatches=4)
    two = [nn.Linear(4, 4), nn.Linear(4, 4)]
    refused("holds 2 stages", dps.torch.Pipeline, program, two[:1])
    larger = dps.compile(dps.schedule("zb-v"), ranks=4, microbatches=8)
    refused("compile it with ranks=2", dps.torch.Pipeline, larger, two)
    refused("each of the ranks 0 to 1 once", dps.torch.Pipeline, program, two, rank_mapping=[0, 0])
    refused("pipedream updates weights within the step", dps.torch.Pipeline,
            dps.compile(dps.schedule("pipedream"), ranks=2, microbatches=4), two[:1])
    pipeline = dps.torch.Pipeline(program, two, nn.functional.mse_loss)
    x = torch.randn(8, 4)
    if dist.get_rank() == 0:
        refused("needs their inputs", pipeline.step)
        refused("needs their target", pipeline.step, x)
        refused("does not cut into 4 microbatches", pipeline.step, x[:3], target=x)
        refused("is a list of 2 parts; this rank needs 4", pipeline.step, [x, x], target=x)
    losses, _ = pipeline.step(x, target=x)
    assert (losses is None) == (dist.get_rank() == 1)
    forward_only()
    forward_only_in_pairs("decode")
    forward_only_in_pairs("prefill")
    arguments_and_shapes()


class Scaled(nn.Module):
    def forward(self, x, by, power):
        return x * by ** power


def forward_only():
    """A forward-only program gives outputs."""
    source = ("schedule f;\nranks P = 2;\nmicrobatches M = 3;\n"
              "pipe a: P stages, stage s on s, M microbatches;\nnF : M;\n")
    program = dps.compile(source)
    assert program.is_forward_only
    x, last = torch.randn(6, 4), dist.get_rank() == 1
    pipeline = dps.torch.Pipeline(program, [lambda x: x + 1])
    losses, outputs = pipeline.step(*[x][last:], return_outputs=True)
    assert losses is None and (outputs.shape == x.shape if last else outputs is None)


def forward_only_in_pairs(schedule):
    """A forward-only schedule with F&Fs gives outputs and losses, with gradients enabled and without. The number of
    microbatches is odd, so one forward runs alone."""
    program, rank = dps.compile(dps.schedule(schedule), ranks=2, microbatches=5), dist.get_rank()
    assert any(i.opcode == "OVERLAP_FORWARD" for i in program.instructions(rank))
    x, target = torch.arange(20.0).reshape(10, 2), torch.ones(10, 2)
    wanted = 2 * x + 1
    pipeline = dps.torch.Pipeline(program, [lambda x: x + 1 if rank else 2 * x], nn.functional.mse_loss)
    given, targets = pipeline.share(x, target)
    for grad in (False, True, False):
        with torch.set_grad_enabled(grad):
            losses, outputs = pipeline.step(given, target=targets, return_outputs=True)
        if rank == 0:
            assert losses is None and outputs is None
        else:
            means = [((part - 1) ** 2).mean() for part in wanted.tensor_split(5)]
            assert torch.equal(outputs, wanted) and torch.allclose(losses, torch.stack(means)), (outputs, losses)


def arguments_and_shapes():
    """Keyword arguments go to all stages, microbatches may differ in size, and shapes may change if all ranks agree."""
    program = dps.compile(dps.schedule("gpipe"), ranks=2, microbatches=3)
    pipeline = dps.torch.Pipeline(program, [Scaled()], lambda y, target: (y - target).sum())
    torch.manual_seed(0)
    for rows in (7, 7, 9):
        x, by = torch.randn(rows, 2, requires_grad=True), torch.randn(rows, 1)
        if rows == 9:
            pipeline.forget_shapes()
        given, target = pipeline.share(x, torch.zeros(rows, 2))
        losses, _ = pipeline.step(given, target=target, by=by, power=2)
        if losses is not None:
            wanted = [part.sum() for part in (x * by ** 4).tensor_split(3)]
            assert torch.allclose(losses, torch.stack(wanted)), (losses, wanted)


main()
