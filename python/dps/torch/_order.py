"""How the actions of a step are ordered and timed: by the host or, on a GPU, by the stream on which stages compute.

On a GPU the host only starts work. At a message or sum of NCCL it makes the stream wait and goes on, so the GPU needs
no help from the host when a late message arrives. A GPU whose message never comes would wait forever, and with it each
call of CUDA that waits for the GPU. So the host is at most _AHEAD actions ahead, and at the end of a step it waits
until all messages and sums have ended. While it waits it looks whether the pipeline has failed; and the thread that
looks after the other ranks (_watch.py) asks where the GPU waits. A failure aborts the communicators, so the GPU goes
on."""

import time
from collections import deque
from typing import NamedTuple

import torch

from ._failure import MessageFailed

_AHEAD = 32  # most actions that the host has started and the GPU has not finished
_PAUSE = 20e-6  # seconds between two looks at the GPU
_LOOK = 0.1  # seconds between two looks at the store: has another process closed the group?


class Cuda:
    """What is needed of CUDA. Tests without a GPU put another class in its place."""

    @staticmethod
    def serves(device):
        return device.type == "cuda"

    @staticmethod
    def stream(device):
        """The stream on which stages now compute."""
        return torch.cuda.current_stream(device)

    @staticmethod
    def on(device):
        """A context for another thread, whose calls of CUDA would otherwise take memory of the first GPU."""
        return torch.cuda.device(device)

    @staticmethod
    def captures():
        """Whether the user captures a CUDA graph: then nothing may ask an event."""
        return torch.cuda.is_current_stream_capturing()

    @staticmethod
    def event():
        return torch.cuda.Event(enable_timing=True)


def order_of(device, limit, failures):
    """The order of a rank that computes on `device`.

    limit      the longest wait for a message, in seconds
    failures   the rank's dps.torch._failure.Failures"""
    return Streams(device, limit, failures) if Cuda.serves(device) else Host()


class Host:
    """The order of a rank on the CPU: an action has ended when its function returns.

    A mark stands for a time: here it is the time itself.
    waiting    the action at which the GPU waits for another rank; None: it does not
    captures   whether the step is captured as a CUDA graph. It then makes no marks"""

    waiting, captures = None, False
    mark = staticmethod(time.perf_counter)

    def begin(self):
        """Begins a step, whose actions are counted from 0. Returns the function that is to be called now and after each
        action; it returns a mark."""
        return time.perf_counter

    def end(self):
        """Ends the step: waits until all messages and sums have ended."""

    def seconds(self, marks):
        """The times of marks of one step, in seconds of time.perf_counter()."""
        return marks


class Others(NamedTuple):
    """The other processes of a group of the user, in words."""

    other: str

    def is_closed(self):
        return False


class _Waited(NamedTuple):
    """An operation of NCCL for which the stream waits: after the event `before`, until the event `after`."""

    action: int
    group: object
    before: object
    after: object


class Streams:
    """The order of a rank on a GPU. A mark is an event of CUDA."""

    def __init__(self, device, limit, failures):
        self.device, self.limit, self.failures = Cuda.stream(device).device, limit, failures
        self._waited = deque()  # the operations that may not have ended, the oldest first
        self._ahead = deque()  # a mark of each action that the GPU may not have finished
        self._action = -1

    @property
    def captures(self):
        return Cuda.captures()

    def mark(self):
        if self.captures:
            return None
        event = Cuda.event()
        event.record(Cuda.stream(self.device))
        return event

    def begin(self):
        self._action = -2
        return self.mark if self.captures else self._next

    def _next(self):
        mark = self.mark()
        self._action += 1
        self._ahead.append(mark)
        if len(self._ahead) > _AHEAD:
            self._await(self._ahead.popleft())
        return mark

    def wait(self, work, group):
        """Makes the stream wait for `work`, an operation of `group` (dps.torch._nccl.Group, or Others)."""
        before = self.mark()
        work.wait()
        self._waited.append(_Waited(self._action + 1, group, before, self.mark()))

    def end(self):
        if self._waited:
            self._await(self._waited[-1].after)

    @property
    def waiting(self):
        """Another thread asks, so this only looks."""
        with Cuda.on(self.device):
            first = next((each for each in tuple(self._waited) if not each.after.query()), None)
            return first.action if first and first.before.query() else None

    def _first(self):
        """The oldest operation that has not ended; None: there is none."""
        while self._waited and self._waited[0].after.query():
            self._waited.popleft()
        return self._waited[0] if self._waited else None

    def _await(self, event):
        """Waits until the GPU has come to `event`. Raises MessageFailed if it waits too long for one message, or the
        pipeline fails."""
        first, until, look = None, None, time.monotonic() + _LOOK
        while not event.query():
            now, oldest = time.monotonic(), self._first()
            if oldest is not first or oldest is None or not oldest.before.query():
                first, until = oldest, now + self.limit
            elif now > until:
                self._fail(first, "timed out")
            if now >= look:
                look = now + _LOOK
                if first and first.group.is_closed():
                    self._fail(first, "connection closed")
            self._check(first)
            time.sleep(_PAUSE)
        self._check(self._first())

    def _check(self, first):
        """After a failure, operations end although they have not received."""
        if self.failures.words:
            self._fail(first, "connection closed")

    def _fail(self, first, error):
        other, action = (first.group.other, first.action) if first else ("another rank", None)
        raise MessageFailed(other, error, action)

    def seconds(self, marks):
        now = self.mark()
        now.synchronize()
        begun = time.perf_counter() - marks[0].elapsed_time(now) / 1000
        return [begun + marks[0].elapsed_time(mark) / 1000 for mark in marks]
