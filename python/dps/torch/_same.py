"""What the ranks of a pipeline tell each other before a step that learns shapes, and before the first steps: how the
batch is divided into microbatches, which only ranks with inputs know, and digests of what each rank was given."""

import hashlib
from ctypes import string_at

import torch

from .._errors import UsageError
from ._nccl import bytes_of

_STEPS = 3  # steps before which digests are compared
_MOST = 32  # values of a rank that are compared


def digest_of(tensors):
    """A number that differs if shapes or bytes differ. None if one is no ordinary tensor with values."""
    digest = hashlib.blake2b(digest_size=8)
    for t in tensors:
        if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout != torch.strided or t.device.type == "meta":
            return None
        digest.update(repr(tuple(t.shape)).encode())
        if t.numel():
            data = bytes_of(t.detach().cpu().contiguous())
            digest.update(string_at(data.data_ptr(), data.numel()))
    return int.from_bytes(digest.digest(), "big", signed=True)


class Given:
    """What this rank gives for a step: values with names, of which those with one name must be equal on all ranks."""

    def __init__(self):
        self.digests = {}  # {name: digest}

    def add(self, name, value):
        """value: a tensor, or a list with the parts of a batch; other values are not compared."""
        tensors = [value] if isinstance(value, torch.Tensor) else value if isinstance(value, list) else []
        if tensors and len(self.digests) < _MOST:
            digest = digest_of(tensors)
            if digest is not None:
                self.digests[name, type(value).__name__, str(tensors[0].dtype)] = digest


class Agreement:
    """Compares what the ranks of a pipeline are given.

    sum_over   sums a tensor over the ranks, in place
    sizes      {mode: a list with the size of each microbatch in the dimension in which batches are cut; -1: unknown}"""

    def __init__(self, rank, ranks, microbatches, sum_over):
        self.rank, self.ranks, self.microbatches, self.sum_over = rank, ranks, microbatches, sum_over
        self.sizes, self.steps = {}, 0

    @property
    def compares(self):
        """Whether digests are compared before the next step."""
        return self.steps < _STEPS

    def begin(self, mode, sizes, given):
        """Call it before each step, on all ranks. sizes: {microbatch: its size; -1: unknown} of those whose first stage
        this rank runs. given: a function that makes a Given. Returns the sizes of all microbatches.
        Raises UsageError on all ranks if ranks were given different values of one name."""
        if mode in self.sizes and not self.compares:
            return self.sizes[mode]
        names = list(given().digests.items()) if self.compares else []
        self.steps += 1
        row = [sizes.get(m, 0) for m in range(self.microbatches)]
        for name, digest in names + [(None, 0)] * (_MOST - len(names)):
            row += [0 if name is None else _number(name), digest]
        table = torch.zeros(self.ranks, len(row), dtype=torch.int64, device="cpu")
        table[self.rank] = torch.tensor(row, device="cpu")
        self.sum_over(table)
        self._compare(table[:, self.microbatches:].tolist(), {_number(name): name[0] for name, _ in names})
        self.sizes[mode] = table[:, :self.microbatches].sum(0).tolist()
        return self.sizes[mode]

    @staticmethod
    def _compare(rows, names):
        seen = {}
        for rank, row in enumerate(rows):
            for number, digest in zip(row[::2], row[1::2]):
                other, first = seen.setdefault(number, (rank, digest))
                if number and digest != first:
                    what = names.get(number, "an argument of step() or share()")
                    raise UsageError(f"rank {other} and rank {rank} were given different values for {what}: all ranks "
                                     "need the same batches, so give loaders and generators one seed")


def _number(name):
    return int.from_bytes(hashlib.blake2b(repr(name).encode(), digest_size=8).digest(), "big", signed=True) or 1
