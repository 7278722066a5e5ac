"""Sums gradients over the copies of a stage and over replicas of the pipeline, and lets these copies begin equal."""

import json
import time
from datetime import timedelta
from itertools import zip_longest

import torch

from .._errors import UsageError
from ._failure import STORE_ENDED, MessageFailed
from ._links import HOST
from ._nccl import bytes_of

_EMPTY = torch.empty(0, device=HOST)


def owned_parameters(modules, order):
    """For each chunk of this rank, the list of the parameters whose gradients the sum of the chunk contains, if they
    require one. Each parameter is in one list. If several chunks share a parameter, it is in the list of the
    chunk whose sum is posted last, because its gradient is complete only then.

    order   the chunks, in the order in which their sums are posted"""
    owner = {}
    for chunk in order:
        for parameter in _parameters(modules[chunk]):
            owner[parameter] = chunk
    return [[p for p in _parameters(module) if owner.get(p, chunk) == chunk] for chunk, module in enumerate(modules)]


def _parameters(module):
    return list(module.parameters()) if hasattr(module, "parameters") else []


def _tensors(module):
    """The parameters and buffers of a module by name. Those of lazy modules do not exist yet."""
    if not isinstance(module, torch.nn.Module):
        return {}
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor for name, tensor in named.items()
            if tensor.layout == torch.strided and not torch.nn.parameter.is_lazy(tensor)}


def check_copies(module, stage, store, names, place, deadline):
    """Raises UsageError unless the copies of a stage have parameters and buffers of the same shapes and dtypes. Raises
    RuntimeError if another process does not call this within `deadline` seconds.

    stage   the name of the stage in errors
    store   a store for this purpose alone
    names   the names of the processes that have a copy; this process is names[place]"""
    mine = [(name, list(t.shape), str(t.dtype)) for name, t in _tensors(module).items()]
    store.set(str(place), json.dumps(mine))
    begun = time.monotonic()
    try:
        store.wait([str(other) for other in range(len(names))], timedelta(seconds=deadline))
    except RuntimeError as error:
        if time.monotonic() - begun < deadline / 2:
            raise RuntimeError(f"{STORE_ENDED}: {error}") from None
        others = " and ".join(name for other, name in enumerate(names) if other != place)
        raise RuntimeError(f"{stage} is also on {others}; not all made a Pipeline within {deadline:g} s") from None
    for other in range(len(names)):
        theirs = [tuple(tensor) for tensor in json.loads(store.get(str(other)).decode())]
        for here, there in zip_longest(mine, theirs):
            if here is None or there is None or here[1:] != there[1:]:
                raise UsageError(f"{stage} has {_described(here)} on {names[place]}, and {_described(there)} on "
                                 f"{names[other]}: copies of a stage need the same parameters and buffers")


def _described(tensor):
    return f"`{tensor[0]}` of shape {tensor[1]} and {tensor[2]}" if tensor else "no further tensor"


@torch.no_grad()
def begin_equal(module, group, is_first):
    """Copies the parameters and buffers of a module from the first process of the group to the others, to the bit. The
    group sums bytes, which all others set to 0, since it cannot send and does not know all dtypes."""
    for tensor in _tensors(module).values():
        if tensor.numel():
            data = bytes_of(tensor.clone(memory_format=torch.contiguous_format))
            if not is_first:
                data.zero_()
            Sum(data, lambda each: group.allreduce([each])).wait()
            if not is_first:
                tensor.copy_(data.view(tensor.dtype).view(tensor.shape))


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
    """The sum of a chunk's gradients over the processes of a group. begin() must be called before the first backward of
    a step. post() starts the sum; wait() waits for it, and writes it into the gradients.

    group    a gloo group (dps.torch._group.connect), or a dps.torch._nccl.Group; None: this process is the only one, so
             nothing is summed
    size     the number of processes in the group
    others   the name of the other processes of the group in errors"""

    def __init__(self, parameters, group, size, others):
        self.parameters, self.group, self.size, self.others = parameters, group, size, others
        self.trained, self.flying = [], []

    def begin(self):
        if self.group is not None:
            self.trained = [p for p in self.parameters if p.requires_grad]
            divide(self.trained, self.size)

    def post(self):
        if self.group is None:
            return
        fill_gradients(self.trained)
        for dtype in sorted({p.dtype for p in self.trained}, key=str):
            gradients = [p.grad for p in self.trained if p.dtype == dtype]
            flat = torch.cat([g.reshape(-1) for g in gradients])
            self.flying.append((Sum(flat, lambda tensor: self.group.allreduce([tensor])), flat, gradients))

    def wait(self):
        for total, flat, gradients in self.flying:
            try:
                total.wait()
            except RuntimeError as error:
                raise MessageFailed(self.others, error) from None
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients])):
                gradient.copy_(part.view_as(gradient))
        self.flying = []
