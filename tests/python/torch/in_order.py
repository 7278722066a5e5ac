"""A communicator with the order of NCCL, for tests without a GPU: of gloo, on the CPU, all messages with tag 0."""

import os
import unittest.mock
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch.distributed as dist

from dps.torch import _nccl
from dps.torch._failure import close_group


class Communicator:
    """In place of _nccl.Communicator. One operation runs at a time, and ends only when the other processes have posted
    it too. As with NCCL, an operation that fails never ends."""

    posts_block = False  # True: each post blocks until the operation has ended

    @staticmethod
    def serves(_device, _group):
        return True

    def __init__(self, store, place, size, _device, seconds):
        self.gloo = dist.ProcessGroupGloo(store, place, size, timedelta(seconds=seconds))
        self.place, self.size, self.group = place, size, self
        self.thread = ThreadPoolExecutor(1)

    def send(self, tensors, peer, tag):
        return self._posted(self.gloo.send, tensors, peer, tag)

    def recv(self, tensors, peer, tag):
        return self._posted(self.gloo.recv, tensors, peer, tag)

    def allreduce(self, tensors):
        return self._posted(self.gloo.allreduce, tensors)

    def _posted(self, post, *arguments):
        work = self.thread.submit(lambda: post(*arguments).wait())
        if self.posts_block:
            work.result()
        return work

    def ended(self, work):
        return lambda: work.done() and not work.exception()

    def computed(self):
        return lambda: True

    def close(self):
        close_group(self.gloo, self.place, self.size)
        self.thread.shutdown(wait=False)


def install(posts_block):
    """From now on, pipelines send messages and sums as through NCCL."""
    Communicator.posts_block = posts_block
    _nccl.Communicator = Communicator


def ends_steps():
    """A process waits for those that have ended fewer steps, but not for those that have given up."""
    store = dist.HashStore()
    one, other = (_nccl.Steps(store, place, 2) for place in (0, 1))
    one.end()
    assert one._others_are_behind() and not other._others_are_behind()
    other.end()
    assert not one._others_are_behind()
    one.end()
    other.give_up()
    assert not one._others_are_behind()


def leaves_once():
    """A pipeline closes its groups where it was made, not in a copy of the process that ends earlier."""
    class Counted:
        closed = 0

        def close(self):
            self.closed += 1

    group = Counted()
    _nccl.leave([group], [], 0, os.getpid() + 1)
    assert group.closed == 0
    _nccl.leave([group], [], 0, os.getpid())
    assert group.closed == 1


def leaves_in_time():
    """A pipeline waits at most the given seconds for processes that are behind, however many groups it has."""
    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

    behind = _nccl.Steps(dist.HashStore(), 0, 2)
    behind.end()
    with unittest.mock.patch.object(_nccl, "time", Clock()) as clock:
        _nccl.leave([], [behind] * 3, 10, os.getpid())
    assert 10 <= clock.now < 11, clock.now
