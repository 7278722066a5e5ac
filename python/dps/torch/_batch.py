"""Cuts batches into microbatches, and joins outputs."""

import torch

from .._errors import UsageError


def cut(value, count, dimension, what):
    """The list of the parts of a tensor, one for each of `count` microbatches, cut along `dimension`. A list or tuple
    of that many parts is not cut. For None, each part is None."""
    if value is None:
        return [None] * count
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise UsageError(f"{what} is a list of {len(value)} parts; this rank needs {count}, one for each "
                             "microbatch")
        return list(value)
    if value.dim() <= dimension or value.shape[dimension] < count:
        raise UsageError(f"{what} has shape {list(value.shape)}, which dimension {dimension} does not cut into {count} "
                         "microbatches")
    return list(value.tensor_split(count, dim=dimension))


def inputs_of(values, numbers, dimension):
    """{microbatch: tuple of its inputs} for the microbatches `numbers`; values: the inputs of all of them together."""
    parts = [cut(value, len(numbers), dimension, f"input {i}") for i, value in enumerate(values)]
    return dict(zip(numbers, zip(*parts)))


def targets_of(target, numbers, dimension):
    values = target if isinstance(target, tuple) else (target,)
    if not numbers or not values:
        return {number: () for number in numbers}
    parts = [cut(value, len(numbers), dimension, "target") for value in values]
    return dict(zip(numbers, zip(*parts)))


def arguments_of(arguments, count, dimension):
    """For each of `count` microbatches, the dict of its keyword arguments: tensors and lists are cut into microbatches,
    other values are the same for all."""
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
