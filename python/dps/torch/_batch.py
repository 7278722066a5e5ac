"""Cuts batches into microbatches, and joins outputs."""

import torch

from .._errors import UsageError


def cut(value, count, dimension, what, which="microbatch"):
    """Cuts a tensor along `dimension` into a list of `count` parts, one for each microbatch. A list or tuple is not
    cut: it must have `count` parts. For None, each part is None. what: the name of the value in errors; which: what
    has a part, in errors."""
    if value is None:
        return [None] * count
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise UsageError(f"{what} is a {type(value).__name__} of length {len(value)}; it must have length {count}, "
                             f"a part for each {which}")
        return list(value)
    if not isinstance(value, torch.Tensor):
        raise UsageError(f"{what} is a {type(value).__name__}; it must be a tensor, or a list or tuple with a "
                         f"part for each {which}")
    if value.dim() <= dimension or value.shape[dimension] < count:
        raise UsageError(f"{what} has shape {list(value.shape)}: the size of dimension {dimension} must be at least "
                         f"{count}, 1 for each {which}")
    return list(value.tensor_split(count, dim=dimension))


def inputs_of(values, numbers, dimension):
    """Returns {microbatch: tuple of its inputs} for the microbatches `numbers`. values: the inputs. Each is one
    batch of all these microbatches, which is cut along `dimension`, or a list with one part for each microbatch."""
    parts = [cut(value, len(numbers), dimension, f"input {i}", "microbatch whose first stage is on this rank")
             for i, value in enumerate(values)]
    return dict(zip(numbers, zip(*parts)))


def targets_of(target, numbers, dimension):
    values = target if isinstance(target, tuple) else (target,)
    if not numbers or not values:
        return {number: () for number in numbers}
    parts = [cut(value, len(numbers), dimension, "target", "microbatch whose last stage is on this rank")
             for value in values]
    return dict(zip(numbers, zip(*parts)))


def arguments_of(arguments, count, dimension):
    """A list with the dict of the keyword arguments of each of `count` microbatches: tensors are cut along `dimension`,
    lists have one part for each microbatch, other values are the same for all."""
    if not arguments:
        return [{}] * count
    parts = {name: cut(value, count, dimension, name) if isinstance(value, (torch.Tensor, list)) else [value] * count
             for name, value in arguments.items()}
    return [{name: part[m] for name, part in parts.items()} for m in range(count)]


def together(outputs, dimension):
    """Joins the outputs of several microbatches along `dimension`, and stacks outputs that lack this dimension.
    outputs: one tuple of tensors for each microbatch. Returns a tuple with one tensor for each output; if a microbatch
    has one output, the tensor itself."""
    joined = tuple(torch.cat(parts, dim=dimension) if parts[0].dim() > dimension else torch.stack(parts)
                   for parts in zip(*outputs))
    return joined[0] if len(joined) == 1 else joined
