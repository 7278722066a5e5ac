"""An all-to-all of rows with a backward, for components that send tokens to their experts and back."""

import torch
import torch.distributed as dist

from .._errors import UsageError


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(context, rows, given, taken, group):
        context.sizes = given, taken, group
        made = rows.new_empty((sum(taken), *rows.shape[1:]))
        dist.all_to_all_single(made, rows.contiguous(), taken, given, group=group)
        return made

    @staticmethod
    def backward(context, gradient):
        given, taken, group = context.sizes
        return _Rows.apply(gradient, taken, given, group), None, None, None


def all_to_all(rows, given=None, taken=None, group=None):
    """Sends the first given[0] rows of a tensor to process 0 of the group, the next given[1] to process 1, and so on.
    Returns (the rows received, in the order of the processes, a list with how many come from each). The gradient goes
    back in the same way.

    given    how many rows go to each process; None: the same number to each
    taken    how many rows come from each process; None: they are not known, and one more all-to-all learns them
    group    the processes; None: all

    As a component of dps.torch.layers() it runs beside the computation of an F&B:
    rows, taken = all_to_all(rows, given, group=experts), and back rows, _ = all_to_all(rows, taken, given, experts)"""
    count = dist.get_world_size(group)
    if given is None:
        if rows.shape[0] % count:
            raise UsageError(f"all_to_all: {rows.shape[0]} rows cannot be divided among {count} processes: say how "
                             "many go to each (given=)")
        given = [rows.shape[0] // count] * count
    if len(given) != count or sum(given) != rows.shape[0] or min(given) < 0:
        raise UsageError(f"all_to_all: given={list(given)} must say for each of {count} processes how many of the "
                         f"{rows.shape[0]} rows go there")
    if taken is None:
        sizes = torch.tensor(given, device=rows.device)
        found = torch.empty_like(sizes)
        dist.all_to_all_single(found, sizes, group=group)
        taken = found.tolist()
    return _Rows.apply(rows, list(given), list(taken), group), taken
