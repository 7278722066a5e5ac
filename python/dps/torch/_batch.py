"""Cuts batches into microbatches, and joins outputs."""

import torch

from .._errors import UsageError


class Whole:
    """A value that each microbatch gets as it is, whatever its type: step(x, mask=Whole(mask))."""

    def __init__(self, value):
        self.value = value


def cut(value, count, dimension, what, which="microbatch", sizes=None):
    """Cuts a tensor along `dimension` into a list of `count` parts, one for each microbatch. A list or tuple is not
    cut: it must have `count` parts. For None, each part is None; for a Whole, its value. what: the name of the value in
    errors; which: what has a part, in errors. sizes: the size of each part; None: parts are as equal as they can be."""
    if value is None or isinstance(value, Whole):
        return [value and value.value] * count
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise UsageError(f"{what} is a {type(value).__name__} of length {len(value)}; it must have length {count}, "
                             f"a part for each {which}")
        return list(value)
    if not isinstance(value, torch.Tensor):
        raise UsageError(f"{what} is a {type(value).__name__}; it must be a tensor, or a list or tuple with a "
                         f"part for each {which}")
    if sizes is not None:
        size = value.shape[dimension] if value.dim() > dimension else None
        if size != sum(sizes) or min(sizes) < 0:
            batch = "is unknown" if min(sizes) < 0 else f"is {sum(sizes)}"
            raise UsageError(f"{what} has shape {list(value.shape)}, and the size of the batch {batch}: only a tensor "
                             f"with the size of the batch in dimension {dimension} is cut. Give "
                             f"dps.torch.Whole({what.split()[-1]}) if each microbatch gets all of it, or a list with a "
                             f"part for each {which}")
        return list(value.split(sizes, dimension))
    if value.dim() <= dimension or value.shape[dimension] < count:
        raise UsageError(f"{what} has shape {list(value.shape)}: the size of dimension {dimension} must be at least "
                         f"{count}, 1 for each {which}")
    return list(value.tensor_split(count, dim=dimension))


def inputs_of(values, numbers, dimension):
    """Returns {microbatch: tuple of its inputs} for the microbatches `numbers`, and {microbatch: its size, or -1}.
    values: the inputs. Each is one batch of all these microbatches, which is cut along `dimension`, or a list with one
    part for each microbatch. The first input says how large the microbatches are."""
    which = "microbatch whose first stage is on this rank"
    parts = [cut(values[0], len(numbers), dimension, "input 0", which)]
    is_cut = not isinstance(values[0], Whole)
    sizes = [part.shape[dimension] if is_cut and isinstance(part, torch.Tensor) and part.dim() > dimension else -1
             for part in parts[0]]
    parts += [cut(value, len(numbers), dimension, f"input {i}", which, sizes)
              for i, value in enumerate(values[1:], 1)]
    return dict(zip(numbers, zip(*parts))), dict(zip(numbers, sizes))


def targets_of(target, numbers, dimension, sizes):
    """{microbatch: tuple of its targets} for the microbatches `numbers`. sizes: the size of each of them. All targets
    that are cut have one size: that of the batch or, as after flatten(), a multiple of it."""
    values = target if isinstance(target, tuple) else (target,)
    if not numbers or not values:
        return {number: () for number in numbers}
    which = "microbatch whose last stage is on this rank"
    first = cut(values[0], len(numbers), dimension, "target", which)
    if isinstance(values[0], torch.Tensor):
        size, batch = values[0].shape[dimension], sum(sizes)
        if min(sizes) < 0:
            sizes = [part.shape[dimension] for part in first]
        elif batch and size % batch == 0:
            sizes = [size // batch * each for each in sizes]
        first = cut(values[0], len(numbers), dimension, "target", which, sizes)
    others = [cut(value, len(numbers), dimension, "target", which, sizes) for value in values[1:]]
    return dict(zip(numbers, zip(first, *others)))


def arguments_of(arguments, dimension, sizes):
    """A list with the dict of the keyword arguments of each microbatch: tensors are cut along `dimension`, lists have
    one part for each microbatch, other values are the same for all. sizes: the size of each microbatch."""
    if not arguments:
        return [{}] * len(sizes)
    parts = {name: cut(value, len(sizes), dimension, name, sizes=sizes)
             if isinstance(value, (torch.Tensor, list, Whole)) else [value] * len(sizes)
             for name, value in arguments.items()}
    return [{name: part[m] for name, part in parts.items()} for m in range(len(sizes))]


def together(outputs, dimension):
    """Joins the outputs of several microbatches along `dimension`, and stacks outputs that lack this dimension.
    outputs: one tuple of tensors for each microbatch. Returns a tuple with one tensor for each output; if a microbatch
    has one output, the tensor itself."""
    joined = tuple(torch.cat(parts, dim=dimension) if parts[0].dim() > dimension else torch.stack(parts)
                   for parts in zip(*outputs))
    return joined[0] if len(joined) == 1 else joined
