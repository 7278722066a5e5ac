"""The norm of the gradient of the whole pipeline."""

import torch
import torch.distributed as dist

from . import _group


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
    """The sum of the squares of all gradients of these parameters, as a tensor of one float64."""
    total = torch.zeros(1, dtype=torch.float64, device="cpu")
    for parameter in parameters:
        if parameter.grad is not None:
            kind = torch.promote_types(parameter.grad.dtype, torch.float32)
            total += torch.linalg.vector_norm(parameter.grad.detach(), dtype=kind).double().cpu() ** 2
    return total
