"""Sums gradients over the copies of a stage and over replicas of the pipeline, and lets these copies begin equal.

A process has a part of each tensor that fully_shard has divided (DTensor): sums and copies are then those of the
parts."""

import json
import time
from itertools import zip_longest
from operator import is_not

import torch

from .._errors import UsageError
from ._failure import MessageFailed
from ._limit import store_says
from ._links import HOST
from ._nccl import bytes_of
from ._wrapped import local

_EMPTY = torch.empty(0, device=HOST)


def owned_parameters(modules, order):
    """For each chunk of this rank, the list of the parameters whose gradients the sum of the chunk contains, if they
    require one. Each parameter is in one list. If several chunks share a parameter, it is in the list of the
    chunk whose sum is posted last, because its gradient is complete only then.

    order   the chunks, in the order in which their sums are posted"""
    owner = {}
    for chunk in order:
        for parameter in parameters_of(modules[chunk]):
            owner[parameter] = chunk
    return [[p for p in parameters_of(module) if owner.get(p, chunk) == chunk] for chunk, module in enumerate(modules)]


def parameters_of(module):
    return list(module.parameters()) if hasattr(module, "parameters") else []


def _tensors(module):
    """The parameters and buffers of a module by name. Those of lazy modules do not exist yet."""
    if not isinstance(module, torch.nn.Module):
        return {}
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor for name, tensor in named.items()
            if tensor.layout == torch.strided and not torch.nn.parameter.is_lazy(tensor)}


class Copies:
    """The processes that have a copy of a stage. Without others, check() and begin_equal() are not called.

    stage     the name of the stage in errors; others: the other processes, in words
    members   the global ranks of these processes; this process is members[place]"""

    def __init__(self, module, stage, store, members, place):
        self.module, self.stage, self.store, self.members, self.place = module, stage, store, members, place
        self.checks, self.others = 0, f"another rank that sums {stage}"

    def check(self, lacks):
        """Raises UsageError unless the copies have parameters and buffers of the same shapes and dtypes. Raises
        RuntimeError if another process does not call this within store.patience seconds; lacks: what it then lacks, in
        words."""
        mine = [(name, list(local(t).shape), str(t.dtype)) for name, t in _tensors(self.module).items()]
        self.checks += 1
        self.store.set(f"{self.checks} {self.members[self.place]}", json.dumps(mine))
        begun, patience = time.monotonic(), self.store.patience
        for other in self.members:
            try:
                theirs = [tuple(tensor) for tensor in json.loads(self.store.get(f"{self.checks} {other}").decode())]
            except RuntimeError as error:
                if time.monotonic() - begun < patience / 2:
                    raise RuntimeError(store_says(error)) from None
                raise RuntimeError(f"{self.stage} is also on process {other}, which {lacks} within {patience:g} s "
                                   f"(Pipeline(patience={patience:g}))") from None
            for here, there in zip_longest(mine, theirs):
                if here is None or there is None or here[1:] != there[1:]:
                    raise UsageError(f"{self.stage} has {_described(here)} on process {self.members[self.place]}, and "
                                     f"{_described(there)} on process {other}: copies of a stage need the same "
                                     "parameters and buffers")

    @torch.no_grad()
    def begin_equal(self, group):
        """Copies the parameters and buffers of the first process to the others, to the bit. The group sums bytes, which
        all others set to 0, since it cannot send and does not know all dtypes."""
        for tensor in map(local, _tensors(self.module).values()):
            if tensor.numel():
                data = bytes_of(tensor.clone(memory_format=torch.contiguous_format))
                if self.place:
                    data.zero_()
                Sum(data, lambda each: group.allreduce([each])).wait()
                if self.place:
                    tensor.copy_(data.view(tensor.dtype).view(tensor.shape))


def _described(tensor):
    return f"`{tensor[0]}` of shape {tensor[1]} and {tensor[2]}" if tensor else "no further tensor"


def fill_gradients(parameters):
    """Gives a gradient of zeros to each parameter that has no gradient: the other processes of a sum may have one."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def divide(parameters, size):
    """Divides gradients of earlier steps, which the caller has not zeroed, by the number of processes whose gradients
    will be summed. These processes have the same gradients of earlier steps, so their sum is what it was before."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.div_(size)


class Sum:
    """The sum of a tensor over processes, in place.

    start   a function that starts the sum of a tensor. It returns an object with wait() and is_completed()

    With gloo, a thread computes the sum, and releases its reference to the tensor some time after wait() has returned.
    If this is the last reference in C++, the thread takes the interpreter's lock to release the Python object as well;
    if the interpreter is just ending, PyTorch then aborts the process. So the thread gets another tensor with the same
    memory: the `grad` of a holder, to which C++ keeps a reference. Holders are used again. A sparse tensor has no
    holder."""

    _idle = []  # holders that no sum uses; their `grad` has no elements

    def __init__(self, tensor, start):
        self.holder = None
        if tensor.layout == torch.strided:
            self.holder = self._idle.pop() if self._idle else _holder()
            self.holder.grad.data = tensor
        self.work = start(self.holder.grad if self.holder is not None else tensor)

    def wait(self, *timeout):
        """Waits for the sum; raises RuntimeError if it has failed, or if the timeout (a timedelta) is over."""
        try:
            self.work.wait(*timeout)
        finally:
            if self.holder is not None and self.work.is_completed():
                self.holder.grad.data = _EMPTY
                self._idle.append(self.holder)


@torch.inference_mode(False)
def _holder():
    holder = torch.empty_like(_EMPTY)
    holder.grad = torch.empty_like(_EMPTY)
    return holder


class GradientSum:
    """The sum of a chunk's gradients over the processes of a group. begin() must be called before the first forward of
    a step. post() starts the sum; wait() waits for it, and writes it into the gradients.

    wrapped  the stage (dps.torch._wrapped.Wrapped); what it divides is summed before the rest of post()
    parameters   those that the sum contains if they require a gradient
    copies   the processes of the group (Copies)
    group    a gloo group (dps.torch._group.connect), or a dps.torch._nccl.Group; None: this process is the only one, so
             nothing is summed"""

    def __init__(self, wrapped, parameters, copies, group):
        self.wrapped, self.parameters, self.copies, self.group = wrapped, parameters, copies, group
        self.mean = len(wrapped.processes or [0])  # how many processes of the group are averaged, not summed
        self.trained, self.flying = [], []

    @property
    def is_needed(self):
        return self.group is not None or self.wrapped.is_divided

    def begin(self, parameters):
        """parameters: those of now. If some have been replaced, all copies must have replaced theirs alike; they begin
        equal again."""
        self.wrapped.begin()
        if self.group is not None:
            if len(parameters) != len(self.parameters) or any(map(is_not, parameters, self.parameters)):
                self.copies.check("has not replaced its parameters")
                self.copies.begin_equal(self.group)
                self.parameters = parameters
            self.trained = [p for p in self.parameters if p.requires_grad]
            divide(self.trained, len(self.copies.members) / self.mean)

    def post(self):
        self.wrapped.sum()
        if self.group is None:
            return
        fill_gradients(self.trained)
        for dtype in sorted({p.dtype for p in self.trained}, key=str):
            gradients = [local(p.grad) for p in self.trained if p.dtype == dtype]
            flat = torch.cat([g.reshape(-1) for g in gradients])
            if self.mean > 1:
                flat /= self.mean
            self.flying.append((Sum(flat, lambda tensor: self.group.allreduce([tensor])), flat, gradients))

    def wait(self):
        for total, flat, gradients in self.flying:
            try:
                total.wait()
            except RuntimeError as error:
                raise MessageFailed(self.copies.others, error) from None
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients])):
                gradient.copy_(part.view_as(gradient))
        self.flying = []
