"""The norm of the gradient of the whole pipeline."""

from functools import partial

import torch
import torch.distributed as dist

from . import _group
from ._sums import Sum


def counted_parameters(program, rank, chunks, modules, tied):
    """The parameters whose gradients this rank adds to the norm. A parameter counts only on the rank of the first copy
    of its stage; if several stages of this rank share a parameter, its stage is the one with the lowest number. A tied
    parameter counts only on the process of its group with the smallest global rank."""
    deciding = {}
    for number in sorted(range(len(chunks)), key=lambda number: chunks[number].stage, reverse=True):
        if isinstance(modules[number], torch.nn.Module):
            deciding.update(dict.fromkeys(modules[number].parameters(), number))
    elsewhere = {p for p, group in tied if dist.get_rank() != min(_group.global_ranks(group), default=None)}
    return [p for p, number in deciding.items() if p not in elsewhere and _is_first(program, rank, number, chunks)]


def _is_first(program, rank, number, chunks):
    group = chunks[number].group
    return group is None or program.group(group)[0] == (rank, number)


def sum_of_squares(parameters):
    """The sum of the squares of all gradients of these parameters, as a tensor of one float64. Of divided gradients
    (DTensor) each process has a part: their squares are summed over the processes that have the other parts."""
    totals = {(): torch.zeros(1, dtype=torch.float64, device="cpu")}
    for gradient in [p.grad.detach() for p in parameters if p.grad is not None]:
        groups = ()
        if hasattr(gradient, "placements"):
            if any(placement.is_partial() for placement in gradient.placements):
                gradient = gradient.full_tensor()
            else:
                groups = tuple(gradient.device_mesh.get_group(number)
                               for number, placement in enumerate(gradient.placements) if not placement.is_replicate())
                gradient = gradient.to_local()
        kind = torch.promote_types(gradient.dtype, torch.float32)
        square = torch.linalg.vector_norm(gradient, dtype=kind).double() ** 2
        totals[groups] = totals[groups] + square.to(totals[groups].device) if groups in totals else square.reshape(1)
    for groups, total in totals.items():
        for group in groups:
            Sum(total, partial(dist.all_reduce, group=group, async_op=True)).wait()
    return sum(total.cpu() for total in totals.values())
