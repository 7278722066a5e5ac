"""One rank of a program that is written for DeepSeek's DualPipe and DualPipeV. Its layers defer their weight gradients,
and it has its own F&B. Losses equal those without a pipeline to the bit, gradients to 1e-13."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from dps.torch import DualPipe, DualPipeV, WeightGradStore, set_p2p_tensor_dtype, set_p2p_tensor_shapes
from models import in_turn
from near import is_near

WIDTH, CHUNKS, ROWS = 16, 8, 3
calls = {"together": 0, "put off": 0}


class PutOff(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(context, dy):
        x, weight = context.saved_tensors
        weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad

        def gradient_of_weight():
            weight.grad += dy.t() @ x
        if WeightGradStore.enabled:
            calls["put off"] += 1
            WeightGradStore.put(gradient_of_weight)
        else:
            gradient_of_weight()
        return dy @ weight, None


class Linear(nn.Linear):
    def forward(self, x):
        return PutOff.apply(x, self.weight)


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = Linear(WIDTH, 2 * WIDTH, bias=False), Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))

    @classmethod
    def overlapped_forward_backward(cls, *arguments):
        calls["together"] += 1
        return in_turn(*arguments)


def criterion(y, label):
    return F.mse_loss(y, label).clone()


def compare(kind, stages, placed, x, label, both_ways):
    """placed: the stages of this rank. x, label: functions of a tensor of the whole batch. x gives what is this rank's
    input, label gives the labels, losses or outputs of this rank; None if there is nothing. both_ways: each stage has
    two copies."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = nn.Sequential(*[Stage().double() for _ in range(stages)])
    full_x, full_label = torch.randn(2, CHUNKS * ROWS, WIDTH, dtype=torch.float64)
    losses, outputs = [], model(full_x).detach()
    for part, goal in zip(full_x.chunk(CHUNKS), full_label.chunk(CHUNKS)):
        loss = criterion(model(part), goal)
        loss.backward()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    mine = nn.ModuleList(copy.deepcopy(model[s]) for s in placed)
    mine.zero_grad(set_to_none=True)
    calls.update({"together": 0, "put off": 0})
    set_p2p_tensor_shapes([(ROWS, WIDTH)])
    set_p2p_tensor_dtype(torch.float64)
    pipe = kind(mine)
    given, goal = x(full_x), label(full_label)
    loss, nothing = pipe.step(given, num_chunks=CHUNKS, criterion=criterion, labels=(goal,), return_outputs=False)
    assert nothing is None and (loss is None) == (goal is None)
    assert loss is None or torch.equal(loss, label(losses)), (loss, label(losses))
    assert calls["together"] > 0 and calls["put off"] > 0, calls
    if both_ways:
        sum_copies(mine, rank, ranks)
    for got, want in zip(mine.parameters(), (p for s in placed for p in model[s].parameters())):
        assert is_near(got.grad, want.grad)
    with torch.no_grad():
        loss, made = pipe.step(given, num_chunks=CHUNKS, criterion=criterion, labels=(goal,), return_outputs=True)
    assert loss is None or torch.equal(loss, label(losses)) and is_near(made, label(outputs))


def other_sizes():
    """The program says other shapes, then another dtype, between steps of one DualPipeV."""
    rank, pipe = dist.get_rank(), DualPipeV(nn.ModuleList(nn.Tanh() for _ in range(2)))
    for rows, dtype in ((3, torch.float32), (5, torch.float32), (5, torch.float64), (3, torch.float64)):
        set_p2p_tensor_shapes([(rows, WIDTH)])
        set_p2p_tensor_dtype(dtype)
        x = torch.randn(CHUNKS * rows, WIDTH, dtype=dtype) if rank == 0 else None
        for _ in range(2):
            loss, made = pipe.step(x, num_chunks=CHUNKS, criterion=criterion, labels=(x,), return_outputs=True)
            assert rank or torch.equal(made, x.tanh().tanh().tanh().tanh())


def sum_copies(mine, rank, ranks):
    """Sums the gradients of both copies of each stage, which DualPipe leaves to its caller. The other copy of a rank's
    first stage is the second stage of the opposite rank."""
    for first, second in zip(mine[0].parameters(), mine[1].parameters()):
        gathered = [torch.stack([torch.empty_like(p) for _ in range(ranks)]) for p in (first, second)]
        for all_of, p in zip(gathered, (first, second)):
            dist.all_gather(list(all_of.unbind()), p.grad)
        first.grad += gathered[1][ranks - 1 - rank]
        second.grad += gathered[0][ranks - 1 - rank]


def main():
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    half = {0: 0, ranks - 1: 1}.get(rank)
    compare(DualPipe, ranks, (rank, ranks - 1 - rank), lambda t: None if half is None else t.chunk(2)[half],
            lambda t: None if half is None else t.chunk(2)[1 - half], True)
    compare(DualPipeV, 2 * ranks, (rank, 2 * ranks - 1 - rank), lambda t: t if rank == 0 else None,
            lambda t: t if rank == 0 else None, False)
    other_sizes()


main()
