"""A fake of what dps.torch needs of CUDA and NCCL, on the CPU: a stream, its events, and communicators made of gloo.

A pass computes when it is launched, as always on the CPU. What is fake is when the others see it. The operations of the
stream end later, one after the other. A message begins when what was launched before it has ended, and its
communicator's earlier messages have. A receive fills its buffer with 0xff when it is posted. The data comes as late as
MODE says. A pass that reads a received tensor waits for those messages for which the stream waits, and for no others:
so a read that is not ordered after its message gives other bits. What is sent must not change before it is sent.

MODE      operations of the stream last      a message takes
blocks    no time                            no time, and the host waits for it when it is posted
early     no time                            no time
late      0.2 ms                             until a pass, or the host, waits for it; at most 5 ms
random    mostly no time, or up to 2 ms      the same"""

import contextlib
import functools
import os
import random
import threading
import time
import types
import unittest.mock
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist

from dps.torch import _actions, _nccl, _order
from dps.torch._failure import close_group
from dps.torch._stage import Stage

LATE, _LATEST = 2e-4, 5e-3
mode = "early"
lateness = random.Random(0)
unread = []  # messages for which the stream waits, since the last pass
waited = [0, 0]  # receives that had not come when the stream was told to wait for them; all receives
changed = []  # sends whose tensors changed after they were posted


def _delay():
    if mode == "random":
        return lateness.choice((0, 0, 0, lateness.uniform(0, 2e-3)))
    return LATE if mode == "late" else 0


class _Stream:
    """The stream of this process: `last` is the newest of its operations."""

    lock = threading.Lock()
    last = None
    waits = []  # messages for which the next operation waits


class _Operation:
    def __init__(self):
        self.previous, self.waits, self.launched, self.delay = _Stream.last, _Stream.waits, time.monotonic(), _delay()
        self.end = None
        _Stream.last, _Stream.waits = self, []

    def ends(self):
        """When it ends; None: that depends on a message that has not come yet."""
        if self.end is None:
            begins = [self.launched, self.previous.ends() if self.previous else 0, *[w.came for w in self.waits]]
            if None in begins:
                return None
            self.end, self.previous, self.waits = max(begins) + self.delay, None, []
        return self.end

    def has_ended(self):
        with _Stream.lock:
            return self.ends() is not None and self.end <= time.monotonic()

    def demand(self):
        """The host waits for this operation."""
        with _Stream.lock:
            operation = self
            while operation is not None and operation.end is None:
                for work in operation.waits:
                    work.demanded.set()
                operation = operation.previous


class Event:
    def record(self, _stream):
        with _Stream.lock:
            self.operation = _Operation()

    def query(self):
        if threading.current_thread() is threading.main_thread():  # the thread that looks after other ranks only asks
            self.operation.demand()
        return self.operation.has_ended()

    def synchronize(self):
        while not self.query():
            time.sleep(1e-5)

    def elapsed_time(self, other):
        self.synchronize()
        other.synchronize()
        return (other.operation.end - self.operation.end) * 1000


class Cuda:
    serves = staticmethod(lambda _device: True)
    stream = staticmethod(lambda _device: types.SimpleNamespace(device=torch.device("cpu")))
    on = staticmethod(lambda _device: contextlib.nullcontext())
    captures = staticmethod(lambda: False)
    event = Event


class _Work:
    """A message or a sum. came: when it ended; None: it has not."""

    def __init__(self, run, close, is_sum=False, is_receive=False):
        self.run, self.is_sum, self.is_receive, self.came = run, is_sum, is_receive, None
        self.demanded, self.ended, self.closed = threading.Event(), threading.Event(), close
        with _Stream.lock:
            self.after, self.waits = _Stream.last, list(_Stream.waits)

    def __call__(self):
        """In the thread of its communicator. If it fails, it never ends before the communicator is closed."""
        for work in self.waits:
            work.ended.wait()
        while self.after is not None and not self.after.has_ended():
            if self.closed.is_set():
                return
            time.sleep(5e-5)
        if mode == "late" and self.is_receive:
            self.demanded.wait(_LATEST)
        time.sleep(_delay() if mode == "random" else 0)
        try:
            self.run()
        except RuntimeError:
            self.closed.wait()
        self.end()

    def end(self):
        if self.came is None:
            self.came = time.monotonic()
            self.ended.set()

    def wait(self):
        if self.is_receive:
            waited[0] += self.came is None
            waited[1] += 1
        with _Stream.lock:
            _Stream.waits.append(self)
        if self.is_sum:  # its caller reads it at once
            self.ended.wait()
        else:
            unread.append(self)


def read():
    """A pass begins: it reads the messages for which the stream waits."""
    for work in unread:
        work.demanded.set()
    while unread:
        unread.pop(0).ended.wait()


class Communicator:
    """In place of _nccl.Communicator. One operation runs at a time, and ends only when the other processes have posted
    it too. As with NCCL, an operation that fails does not end before this process closes the communicator."""

    @staticmethod
    def serves(_device, _group):
        return True

    def __init__(self, store, place, size, seconds):
        self.gloo = dist.ProcessGroupGloo(store, place, size, timedelta(seconds=seconds))
        self.place, self.size, self.group = place, size, self
        self.thread, self.works, self.closed = ThreadPoolExecutor(1), [], threading.Event()

    def send(self, tensors, peer, tag):
        before = tensors[0].clone()

        def send():
            if not tensors[0].equal(before):
                changed.append(tensors)
            self.gloo.send(tensors, peer, tag).wait()
        return self._posted(send)

    def recv(self, tensors, peer, tag):
        came = tensors[0].clone()
        tensors[0].fill_(255)

        def receive():
            self.gloo.recv([came], peer, tag).wait()
            tensors[0].copy_(came)
        return self._posted(receive, is_receive=True)

    def allreduce(self, tensors):
        return self._posted(lambda: self.gloo.allreduce(tensors).wait(), is_sum=True)

    def _posted(self, run, **kind):
        work = _Work(run, self.closed, **kind)
        self.works = [each for each in self.works if each.came is None] + [work]
        self.thread.submit(work)
        if mode == "blocks":
            work.demanded.set()
            work.ended.wait()
        return work

    def is_lost(self):
        return False  # as an old PyTorch

    def close(self):
        self.closed.set()
        close_group(self.gloo, self.place, self.size)
        self.thread.shutdown(wait=False)
        for work in self.works:
            work.end()


def _reading(function):
    @functools.wraps(function)
    def run(*arguments):
        read()
        return function(*arguments)
    return run


def install(how):
    """From now on, pipelines send messages and sums as through NCCL, and stages compute as on a GPU."""
    global mode
    mode = how
    if _order.Cuda is Cuda:
        return
    _order.Cuda, _nccl.Communicator = Cuda, Communicator
    for name in ("forward", "backward", "backward_input"):
        setattr(Stage, name, _reading(getattr(Stage, name)))
    _actions.run_overlapped = _reading(_actions.run_overlapped)


def host_stays_near():
    """The host starts at most _AHEAD actions that the GPU has not finished."""
    with unittest.mock.patch.multiple(_order, Cuda=Cuda), unittest.mock.patch.dict(globals(), mode="late"):
        order, marks = _order.Streams(None, 10, unittest.mock.Mock(words=None)), []
        mark = order.begin()
        for _ in range(3 * _order._AHEAD):
            marks.append(mark())
            assert sum(not each.operation.has_ended() for each in marks) <= _order._AHEAD


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


def closes_in_time():
    """A group that cannot be closed does not keep a process from closing the others and going on."""
    stuck, groups = threading.Event(), [unittest.mock.Mock() for _ in range(3)]
    groups[0].close = stuck.wait
    with unittest.mock.patch.object(_nccl, "_CLOSE", 0.05):
        _nccl.close(groups)
    stuck.set()
    assert all(group.close.call_count == 1 for group in groups[1:])
