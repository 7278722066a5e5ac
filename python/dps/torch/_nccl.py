"""Messages and sums through NCCL, from GPU to GPU.

NCCL has no tags: the operations of a communicator run in the order in which they are posted, each when all its
processes have posted it. So each directed pair of processes has a communicator for its messages, and a rank posts
messages and sums in the order of its program; it does not post receives early. A proven program completes even if each
post blocks until the other processes arrive (program_verify in program/program.h). So it also completes if the
GPU, or a call of CUDA, waits for all operations posted before. Only the kernels of NCCL, one of each communicator, must
fit on the GPU together. The stream on which stages compute waits for the end of an operation (_order.py)."""

import os
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

_LOOK = 0.1  # seconds between two looks at the store: have the other processes completed the step?
_CLOSE = 5.0  # seconds that a process waits at most until its communicators are closed
_LIMIT = 600  # PyTorch ends the process if an operation takes this many seconds longer than the deadline


class Communicator:
    """A communicator of NCCL. Tests without a GPU put another class in its place.

    group   what posts operations: send(), recv(), allreduce() of a ProcessGroupNCCL"""

    @staticmethod
    def serves(device, group):
        """Whether tensors on `device` can go through NCCL: it is a GPU, and the user has initialized `group` (None:
        torch.distributed) with nccl for GPUs."""
        if device.type != "cuda":
            return False
        backend = str(getattr(dist, "get_backend_config", dist.get_backend)(group))
        return backend == "nccl" or "cuda:nccl" in backend

    def __init__(self, store, place, size, seconds):
        self.group = dist.ProcessGroupNCCL(store, place, size, timedelta(seconds=seconds))

    def is_lost(self):
        """Whether an operation has failed because its other process has ended. An old PyTorch does not say."""
        error = getattr(self.group, "get_error", None)
        return error is not None and error().name != "SUCCESS"

    def close(self):
        """Aborts all operations that have not finished. Where PyTorch has no call for this, the
        group's destructor does it."""
        group, self.group = self.group, None
        end = getattr(group, "abort", None) or getattr(group, "_shutdown", None)
        if end:
            end()


class Group:
    """Posts operations of one communicator, with the interface of a gloo group as far as this package uses it.

    store   a store of this group alone
    place   the number of this process in the group, which has `size` processes; in a pair the sender is 0
    order   what waits for operations (dps.torch._order.Streams)
    other   the other processes in words, for errors"""

    def __init__(self, store, place, size, order, other):
        self.store, self.place, self.order, self.other = store, place, order, other
        self.communicator = Communicator(store.part("nccl").raw, place, size, order.limit + _LIMIT)

    def send(self, tensors, _peer, _tag):
        return self._posted("send", bytes_of(*tensors), 1 - self.place, 0)

    def recv(self, tensors, _peer, _tag):
        return self._posted("recv", bytes_of(*tensors), 1 - self.place, 0)

    def allreduce(self, tensors):
        return self._posted("allreduce", *tensors)

    def _posted(self, name, tensor, *where):
        group = self.communicator.group
        if group is None:
            raise RuntimeError("connection closed")
        return _Work(self, getattr(group, name)([tensor], *where) if tensor.numel() else None)

    def close(self):
        """Aborts all operations that have not finished. Processes that wait for one of them learn from the store that
        the group is closed."""
        _add(self.store, "closed", 1)
        self.communicator.close()

    def is_closed(self):
        """Whether another process has closed the group, or NCCL has lost the connection to it."""
        return self.communicator.is_lost() or bool(_add(self.store, "closed", 0))


class _Work:
    """An operation that is posted. work: its work of torch.distributed; None: there is nothing to wait for."""

    __slots__ = ("group", "work")

    def __init__(self, group, work):
        self.group, self.work = group, work

    def wait(self, *_timeout):
        if self.work is not None:
            self.group.order.wait(self.work, self.group)
            self.work = None

    def is_completed(self):
        return self.work is None


def bytes_of(tensor):
    """The bytes of a contiguous tensor, in the same memory: NCCL and sums do not know all dtypes."""
    return tensor.detach().view(-1).view(torch.uint8)


def _add(store, key, number):
    """Adds to a number in the store. Returns the sum; None if the store is gone, with the process that held it."""
    try:
        return store.add(key, number)
    except RuntimeError:
        return None


class Steps:
    """How many steps each process of a group has completed. An operation may be over for a process and not yet for
    another one. So a process that is done with its communicators first waits until all others have completed as
    many steps.

    store   a store for this purpose alone"""

    def __init__(self, store, place, size):
        self.store, self.place, self.others = store, str(place), [str(i) for i in range(size) if i != place]
        self.ended = 0

    def end(self):
        self.ended += 1
        _add(self.store, self.place, 1)

    def give_up(self):
        """Tells the other processes not to wait for this one, which will complete no more steps."""
        _add(self.store, self.place, 1 << 30)

    def wait(self, until):
        """Waits until all others have completed as many steps as this process, or have given up; at most until the time
        `until`. Does not wait if the store is gone."""
        while self._others_are_behind() and time.monotonic() < until:
            time.sleep(_LOOK)

    def _others_are_behind(self):
        counts = [_add(self.store, other, 0) for other in self.others]
        return None not in counts and min(counts) < self.ended


def leave(groups, steps, seconds, process):
    """Closes the groups of a pipeline that is not needed any more. Waits for other processes at most `seconds`. Does
    nothing in a forked copy of the process that made the pipeline. process: the os.getpid() of that process"""
    if os.getpid() != process:
        return
    until = time.monotonic() + seconds
    for each in steps:
        each.wait(until)
    close(groups)


def close(groups):
    """Closes groups at the same time. NCCL frees memory when it aborts the operations of one, and that waits for the
    GPU; the GPU may wait for operations of another one. Waits at most _CLOSE seconds: after a process has died, an
    abort of NCCL may block, and the error that names this process must be raised."""
    threads = [threading.Thread(target=group.close, daemon=True) for group in groups]
    until = time.monotonic() + _CLOSE
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


# A communicator is made by its first operation, which blocks until all its processes arrive. The functions below post
# this operation, so that no step does. order.end() waits for it.

def connect(store, place, routes, serves, order, names):
    """Makes the groups for messages. Returns ({receiver: Group}, {sender: Group}) for those peers that also use NCCL.
    All processes of the pipeline must call this. Processes are numbers in the group of the pipeline.

    store    a store for this purpose alone
    place    this process
    routes   {(sender, receiver)} of its messages
    serves   whether this process uses NCCL (Communicator.serves)
    names    for each process, its name in errors"""
    store.set(str(place), str(int(serves)))
    outgoing, incoming = {}, {}
    for sender, receiver in sorted(routes):  # in one order on all processes, so that none waits forever
        peer = receiver if place == sender else sender
        if serves and store.get(str(peer)) == b"1":
            group = Group(store.part(f"{sender} {receiver}"), int(place == receiver), 2, order, names[peer])
            greeting = torch.zeros(1, dtype=torch.uint8, device=order.device)
            (group.send if place == sender else group.recv)([greeting], peer, 0).wait()
            (outgoing if place == sender else incoming)[peer] = group
    return outgoing, incoming


def connect_sum(store, place, size, serves, order, other):
    """Makes the group for a sum. Returns None if not all of its processes use NCCL. All of them must call this."""
    store.set(str(place), str(int(serves)))
    if not all(store.get(str(other)) == b"1" for other in range(size)):
        return None
    group = Group(store, place, size, order, other)
    group.allreduce([torch.zeros(1, device=order.device)]).wait()
    return group
