"""One of two ranks. Tests what step() accepts, and what Pipeline and step() refuse, with which message."""

import contextlib
import copy
import warnings

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch
from models import Model

FORWARDS = ("schedule f;\nranks P = 2;\nmicrobatches M = 3;\npipe a: P stages, stage s on s, M microbatches;\n"
            "nF : M;\n")


def refused(words, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except (dps.UsageError, dps.torch.PipelineError) as error:  # a PipelineError has the refusal of another rank
        assert words in str(error), f"{words!r} is not in: {error}"
    else:
        raise AssertionError(f"not refused: {words}")


def main():
    dist.init_process_group("gloo")
    program = dps.compile(dps.schedule("zb-v"), ranks=2, microbatches=4)
    two = [nn.Linear(4, 4), nn.Linear(4, 4)]
    refused("holds 2 stages", dps.torch.Pipeline, program, two[:1])
    refused("not a Linear", dps.torch.Pipeline, program, two[0])
    refused("is a NoneType", dps.torch.Pipeline, program, lambda number: None)
    refused("dps.compile() makes one", dps.torch.Pipeline, "zb-v", two)
    larger = dps.compile(dps.schedule("zb-v"), ranks=4, microbatches=8)
    refused("compile it with ranks=2", dps.torch.Pipeline, larger, two)
    refused("each of the ranks 0 to 1 once", dps.torch.Pipeline, program, two, rank_mapping=[0, 0])
    refused("pipedream updates weights within the step", dps.torch.Pipeline,
            dps.compile(dps.schedule("pipedream"), ranks=2, microbatches=4), two[:1])
    x = torch.randn(8, 4)
    for words, given, target in (
            ("needs their inputs", (), None), ("needs their target", (x,), None),
            ("input 0 has shape [3, 4]: the size of dimension 0 must be at least 4, 1 for each microbatch whose first "
             "stage is on this rank", (x[:3],), x),
            ("input 0 is a list of length 2; it must have length 4, a part for each microbatch whose first stage",
             ([x, x],), x),
            ("input 0 is a dict; it must be a tensor, or a list or tuple", ({"x": x},), x)):
        pipeline = dps.torch.Pipeline(program, two, nn.functional.mse_loss)
        if dist.get_rank() == 0:
            refused(words, pipeline.step, *given, target=target)
        else:
            failed(pipeline.step)
    for name in ("deadline", "patience"):
        refused("must be above 0 seconds", dps.torch.Pipeline, program, two, **{name: float("nan")})
    pipeline = dps.torch.Pipeline(program, two, nn.functional.mse_loss)
    refused("trace() needs 1 step", pipeline.trace, "t.json")
    losses, _ = pipeline.step(x, target=x)
    assert (losses is None) == (dist.get_rank() == 1)
    refused("profile() needs 2 steps that trained; this pipeline has run 1", pipeline.profile, "costs")
    groups_of_the_wrong_processes()
    loss_of_many_numbers()
    small_messages()
    on_another_device()
    forward_only()
    forward_only_in_pairs("decode")
    forward_only_in_pairs("prefill")
    arguments_and_shapes()
    cut_by_the_batch()
    different_batches()
    unnoticed_ties()
    autocast()
    accumulated("dualpipe", tied=False)
    accumulated("1f1b", tied=True)
    replaced_parameters()


def groups_of_the_wrong_processes():
    """A process gives no group that does not contain it, and a replicate_group of processes that run its rank."""
    program, alone = dps.compile(dps.schedule("1f1b"), ranks=2, microbatches=4), dist.new_group([0])
    refused("two ranks have a process in common", dps.torch.Pipeline, program, [nn.Linear(4, 4)],
            replicate_group=dist.group.WORLD)
    if dist.get_rank() == 1:
        refused("not in the torch.distributed group that it gives", dps.torch.Pipeline, program, [nn.Linear(4, 4)],
                group=alone)


def loss_of_many_numbers():
    """A loss of several numbers is refused: the gradient of their sum would not be that of a mean."""
    program, rank = dps.compile(dps.schedule("1f1b"), ranks=2, microbatches=4), dist.get_rank()
    pipeline = dps.torch.Pipeline(program, [nn.Linear(4, 4)], lambda y, target: (y - target) ** 2)
    x = torch.randn(8, 4)
    if rank == 1:
        refused("the loss of a microbatch must be one number; this one has shape [2, 4]", pipeline.step, target=x)
    else:
        failed(lambda: pipeline.step(x))
    for words, module, loss in (("must be a tensor", nn.Linear(4, 4), lambda y, target: 1.5),
                                ("does not return just the loss", lambda x: (x, 1.5)[rank], None),
                                ("loss_fn returned None: does it lack a return?", nn.Linear(4, 4),
                                 lambda y, target: y.mean() if len(calls) < 2 else None)):
        calls = []
        pipeline = dps.torch.Pipeline(program, [module], loss and (lambda *both: (calls.append(1), loss(*both))[1]))
        if rank == 1:
            refused(words, pipeline.step, target=x)
        else:
            failed(lambda: pipeline.step(x))
    constant = dps.torch.Pipeline(program, [nn.Linear(4, 4)],
                                  lambda y, target: y.mean() if target.any() else y.detach().mean())
    for target, times in ((torch.eye(8)[:, :4], 0), (torch.zeros(8, 4), rank)):  # two losses have no graph, or all
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            constant.step(*[x][rank:], target=target if rank else None)
        assert len([w for w in said if "no loss of this step requires a gradient" in str(w.message)]) == times, said


def on_another_device():
    """A rank may compute on another device than the CPU: here on meta, whose tensors have no values."""
    program, rank = dps.compile(FORWARDS), dist.get_rank()
    x = torch.randn(6, 4)
    given = [x] if rank == 0 else []
    pipeline = dps.torch.Pipeline(program, [lambda x: x + 1], device="meta" if rank else None)
    has_default = hasattr(torch, "set_default_device")  # from PyTorch 2.0
    with torch.device("meta") if has_default else contextlib.nullcontext():
        for _ in range(2):  # the messages of the first step go through gloo, those of the second over links
            _, outputs = pipeline.step(*given, return_outputs=True)
            assert rank == 0 or (outputs.device.type == "meta" and outputs.shape == x.shape), outputs
    with_parameters = dps.torch.Pipeline(program, [nn.Linear(4, 4, device="meta")])
    assert with_parameters.device.type == "meta"
    pipeline = dps.torch.Pipeline(program, [lambda x: x.to("meta")])
    if rank == 0:
        refused("the stage returns a tensor on meta, but this rank computes on cpu", pipeline.step, *given)
    else:
        failed(pipeline.step)


def failed(function):
    try:
        function()
    except dps.torch.PipelineError:
        return
    raise AssertionError("no failure")


class Scaled(nn.Module):
    def forward(self, x, by, power):
        return x * by ** power


def small_messages():
    """From the second step on, messages of at most LARGEST bytes go through shared memory (_ring.py), and others
    through gloo."""
    program, rank = dps.compile(dps.schedule("1f1b"), ranks=2, microbatches=4), dist.get_rank()
    width = dps.torch._ring.LARGEST // 4
    for rows, posts in ((1, 0), (2, 8)):
        pipeline = dps.torch.Pipeline(program, [lambda x: 2 * x], lambda y: y.sum())
        x = torch.ones(4 * rows, width, requires_grad=True)
        given = [x] if rank == 0 else []
        pipeline.step(*given, target=())
        counted = [0]
        pipeline._exchanges[True].group = Counted(pipeline._messages, counted)
        pipeline.step(*given, target=())
        assert counted == [posts], (rows, counted)
        assert rank == 1 or torch.equal(x.grad, torch.full_like(x, 2))


class Counted:
    """A gloo group; counts[0] is the number of sends and receives."""

    def __init__(self, group, counts):
        self.group, self.counts = group, counts

    def send(self, *arguments):
        self.counts[0] += 1
        return self.group.send(*arguments)

    def recv(self, *arguments):
        self.counts[0] += 1
        return self.group.recv(*arguments)


def forward_only():
    """A forward-only program gives outputs."""
    program = dps.compile(FORWARDS)
    assert program.is_forward_only
    x, last = torch.randn(6, 4), dist.get_rank() == 1
    pipeline = dps.torch.Pipeline(program, [lambda x: x + 1])
    losses, outputs = pipeline.step(*[x][last:], return_outputs=True)
    assert losses is None and (outputs.shape == x.shape if last else outputs is None)
    refused("a forward-only program does not train", pipeline.memory)
    for stage, words in (
            (lambda x: (x, None), "an output of stage 0 of f on rank 0 is a NoneType; a stage must return tensors"),
            (lambda x: x.to_sparse(), "a tensor of layout torch.sparse_coo; a stage can return only dense tensors")):
        pipeline = dps.torch.Pipeline(program, [stage])
        if last:
            failed(pipeline.step)
        else:
            refused(words, pipeline.step, x)


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
    """Keyword arguments go to all stages, microbatches may differ in size, and shapes may change if all ranks call
    forget_shapes() first."""
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
    program = dps.compile(dps.schedule("dualpipe"), ranks=2, microbatches=4)
    pipeline = dps.torch.Pipeline(program, [Scaled(), Scaled()], lambda y, target: (y - target).sum(),
                                  overlapped=lambda *_: None)
    x = torch.randn(4, 2)
    refused("by, power: a function that runs both halves of an F&B takes no", pipeline.step, x, target=x, by=x, power=2)


def cut_by_the_batch():
    """Of keyword arguments, tensors with the size of the batch are cut, as the first input is. Others are refused,
    unless they are given as Whole or as a list. Targets may have a multiple of that size."""
    program, rank = dps.compile(dps.schedule("1f1b"), ranks=2, microbatches=4), dist.get_rank()
    torch.manual_seed(0)
    x, by, table, target = (torch.randn(rows, 2) for rows in (8, 8, 2, 8))

    def train(by, parts=None, flat=False):
        pipeline = dps.torch.Pipeline(program, [Scaled()], lambda y, t: (y - t.view(y.shape)).square().sum())
        losses, _ = pipeline.step(*[parts or x][rank:], target=(target.flatten() if flat else target) if rank else None,
                                  by=by, power=2)
        return losses

    sizes = [1, 3, 2, 2]
    whole, tables, uneven = ([(a * b ** 4 - t).square().sum() for a, b, t in zip(x.split(s), bs, target.split(s))]
                             for s, bs in ((2, by.split(2)), (2, [table] * 4), (sizes, by.split(sizes))))
    for losses, wanted in ((train(by), whole), (train(by, flat=True), whole), (train([table] * 4), tables),
                           (train(dps.torch.Whole(table)), tables), (train(by, list(x.split(sizes))), uneven),
                           (train(by, list(x.split(sizes)), flat=True), uneven)):
        assert losses is None or torch.allclose(losses, torch.stack(wanted)), (losses, wanted)
    ways = r"Give dps.torch.Whole(by) if each microbatch gets all of it, or a list"
    for wrong in (table, torch.ones(4, 1), torch.ones(3, 8, 2), torch.ones(16, 2)):
        words = f"by has shape {list(wrong.shape)}, and the size of the batch is 8: "
        refused(words, train, wrong)
        refused(ways, train, wrong)
    refused("the size of the batch is unknown", train, by, [1, 2, 3, 4])

    def scaled():
        return dps.torch.Pipeline(program, [lambda x, *by: x * by[0] if by else x], lambda y, t: (y - t).sum())

    refused("input 1 has shape [4, 2], and the size of the batch is 8", scaled().step,
            *[x, x[:4]] if rank == 0 else [], target=target if rank else None)
    losses, _ = scaled().step(*[x, dps.torch.Whole(table)] if rank == 0 else [], target=target if rank else None)
    wanted = [(a * table - t).sum() for a, t in zip(x.split(2), target.split(2))]
    assert losses is None or torch.allclose(losses, torch.stack(wanted))


def unnoticed_ties():
    """Two ranks whose stages begin with one random embedding need `tied`, or an explicit no."""
    program, rank = dps.compile(dps.schedule("1f1b"), ranks=2, microbatches=4), dist.get_rank()
    model = Model("tied", 2, 4)
    stage = copy.deepcopy(model.stages[rank])
    refused("`embedding.weight` of stage 0 on rank 0 and `head.weight` of stage 1 on rank 1 begin with the same random",
            dps.torch.Pipeline, program, [stage], model.loss)
    dps.torch.Pipeline(program, [stage], model.loss, tied=[])


def different_batches():
    """Before the first steps, what several ranks are given must be the same on all of them."""
    program, rank = dps.compile(dps.schedule("1f1b"), ranks=2, microbatches=4), dist.get_rank()

    def made():
        return dps.torch.Pipeline(program, [Scaled()], lambda y, target: (y - target).sum())

    x, mine = torch.ones(8, 2), torch.full((8, 2), float(rank))
    for first in ((mine, x), (x, mine)):
        pipeline = made()
        given, target = pipeline.share(*first)
        what = "inputs" if first[0] is mine else "targets"
        refused(f"rank 0 and rank 1 were given different values for the {what} of share(): all ranks need the same",
                pipeline.step, given, target=target, by=x, power=1)
    refused("different values for input 0", made().step, mine, target=x, by=x, power=1)
    refused("different values for by", made().step, x, target=x, by=mine, power=1)
    made().step(x, target=x, by=x, power=dps.torch.Whole(1 + rank))


def autocast():
    """Under autocast, losses and gradients equal those without a pipeline. Stages then exchange bfloat16."""
    program, rank = dps.compile(dps.schedule("zb-v"), ranks=2, microbatches=4), dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(program.stages)])
    modules = [copy.deepcopy(model[chunk.stage]) for chunk in program.rank(rank).chunks]
    pipeline = dps.torch.Pipeline(program, modules, lambda y, target: nn.functional.mse_loss(y.float(), target))
    x, target = torch.randn(2, 8, 4)
    given, targets = pipeline.share(x, target)
    with torch.autocast("cpu", torch.bfloat16):
        losses, _ = pipeline.step(given, target=targets)
        wanted = []
        for a, b in zip(x.chunk(4), target.chunk(4)):
            wanted.append(nn.functional.mse_loss(model(a).float(), b))
            (wanted[-1] / 4).backward()
    assert losses is None or torch.equal(losses, torch.stack(wanted).detach()), (losses, wanted)
    for chunk, module in zip(program.rank(rank).chunks, modules):
        for mine, other in zip(module.parameters(), model[chunk.stage].parameters()):
            assert torch.equal(mine.grad, other.grad), (mine.grad, other.grad)


def accumulated(schedule, tied):
    """Several steps without zero_grad() add up their gradients, also those of copies of a stage and of tied weights. A
    parameter may be frozen when the Pipeline is made, and trained later."""
    program, rank = dps.compile(dps.schedule(schedule), ranks=2, microbatches=4), dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(program.stages)]).double()
    modules = [copy.deepcopy(model[chunk.stage]) for chunk in program.rank(rank).chunks]
    if tied:
        model[1].weight = model[0].weight
        modules[0].weight = copy.deepcopy(model[0].weight)
    modules[0].requires_grad_(False)
    pipeline = dps.torch.Pipeline(program, modules, nn.functional.mse_loss,
                                  tied=[(modules[0].weight, dist.group.WORLD)] if tied else [])
    modules[0].requires_grad_()
    for _ in range(3):
        x, target = torch.randn(2, 8, 4, dtype=torch.float64)
        given, targets = pipeline.share(x, target)
        pipeline.step(given, target=targets)
        nn.functional.mse_loss(model(x), target).backward()
    for chunk, module in zip(program.rank(rank).chunks, modules):
        for mine, other in zip(module.parameters(), model[chunk.stage].parameters()):
            assert torch.allclose(mine.grad, other.grad, rtol=1e-13), (schedule, mine.grad, other.grad)


class Adapted(nn.Module):
    """A Linear with an adapter (LoRA), which begins at random."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down, self.up = (nn.Linear(a, b, bias=False, dtype=torch.float64) for a, b in ((4, 2), (2, 4)))

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


class Negative(nn.Module):
    def forward(self, x):
        return -x


def replaced_parameters():
    """Parameters that replace others after the constructor begin equal in all copies, and are summed."""
    program, rank = dps.compile(dps.schedule("dualpipe"), ranks=2, microbatches=4), dist.get_rank()
    torch.manual_seed(rank)
    modules = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()).double() for _ in range(2)]
    pipeline = dps.torch.Pipeline(program, modules, nn.functional.mse_loss)
    first, second = (modules[[c.stage for c in pipeline.plan.chunks].index(stage)] for stage in range(2))
    for turn in range(3):
        if turn == 1:
            first[0] = Adapted(first[0])
        if turn == 2:
            nn.utils.parametrize.register_parametrization(second[0], "weight", Negative())
            first.requires_grad_()
        for parameter in pipeline.parameters():
            parameter.grad = None
        x, target = torch.randn(2, 8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(turn))
        given, targets = pipeline.share(x, target)
        pipeline.step(given, target=targets)
        model = copy.deepcopy(nn.Sequential(first, second))
        model.zero_grad()
        nn.functional.mse_loss(model(x), target).backward()
        wanted = [p.grad for p in model.parameters() if p.requires_grad]
        for mine, other in zip([p for p in (*first.parameters(), *second.parameters()) if p.requires_grad], wanted):
            assert torch.allclose(mine.grad, other, rtol=1e-13), (turn, mine.grad, other)
        found = [None] * 2
        dist.all_gather_object(found, [p.tolist() for p in (*first.parameters(), *second.parameters())])
        assert found[0] == found[1], (turn, found)
    pipeline._sums[0].copies.store.patience = 2
    if rank == 0:
        first[1] = nn.Linear(4, 4).double()
    try:
        pipeline.step(given, target=targets)
    except (RuntimeError, dps.torch.PipelineError) as error:
        assert "rank 0 failed in the start of step()" in str(error) if rank else (
            "which has not replaced its parameters within 2 s" in str(error)), error
    else:
        raise AssertionError("no failure")
    lost = nn.Parameter(torch.zeros(3))
    refused("a parameter of shape [3] that this rank's modules and loss_fn do not have", dps.torch.Pipeline, program,
            [nn.Linear(4, 4), nn.Linear(4, 4)], tied=[(lost, dist.group.WORLD)])


if __name__ == "__main__":
    main()
