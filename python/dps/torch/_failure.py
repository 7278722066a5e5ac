"""Failures of a stage, a rank or the network. The step fails on all ranks, and each rank says what happened.

A rank that fails writes the reason to the store that the ranks share, and then closes its connections. So the ranks
that wait for its messages fail at once. They find the reason in the store and close their own connections, and so on.
Ranks that wait for others find it when their watch (_watch.py) next looks at the store."""

import threading
import time

from .._errors import Error
from ._limit import store_says

# Seconds in which a rank that fails writes the reason. If its connection closed and there is no reason after this time,
# the rank has died.
_GRACE = 2.0


class PipelineError(Error, RuntimeError):
    """Another rank failed, ended or is stopped, this rank waited for a message for too long, or an earlier step of this
    pipeline failed on any rank."""


class MessageFailed(Exception):
    """A message was not received or not sent, or a sum failed: the connection closed, or its limit is over.

    other    the other rank in words, such as "rank 2" or "another rank that sums stage 3"
    action   the action of the step that waited for it; None: the one that has begun last"""

    def __init__(self, other, error, action=None):
        super().__init__(str(error))
        self.other, self.action = other, action


class Failures:
    """What the ranks of a pipeline tell each other about failures.

    store   a store of this pipeline alone
    close   a weak reference to a function that closes the connections of this rank
    words   why the pipeline has failed; None: it has not"""

    def __init__(self, store, rank, close):
        self.store, self.rank, self.close = store, rank, close
        self.words = None
        self._lock = threading.Lock()

    def fail(self, find):
        """Ends the pipeline, unless it has failed already, and returns the reason. Closes the connections of this rank.
        find: a function that returns the reason in words, or raises RuntimeError if the store fails"""
        with self._lock:
            if self.words is None:
                try:
                    self.words = find()
                except RuntimeError as error:
                    self.words = store_says(error)
                close = self.close()
                if close is not None:
                    close()
            return self.words

    def tell(self, words):
        """Writes the reason of the failure, unless another rank has written one before. Returns that which was written
        first."""
        return self.store.first("failure", words)

    def told(self):
        """The reason that a rank has written; None: there is none."""
        return self.store.get("failure").decode() if self.store.add("failure is set", 0) else None

    def stage_raised(self, where, error):
        """Tells the other ranks that an action of this rank, such as a pass, has raised `error`."""
        words = f"rank {self.rank} failed in {where}: {type(error).__name__}: {error}"

        def find():
            try:
                return self.tell(words)
            except RuntimeError:  # the store is gone, with the process that held it
                return words
        self.fail(find)

    def message_failed(self, where, other, error):
        """Finds out why a message of this rank has failed: the reason that another rank has written or, if there is
        none, a new reason. Returns a PipelineError with it.

        where   the action in which this rank was; other: the rank at the other end, in words"""
        late = "timed out" in str(error).lower()
        at = f"while rank {self.rank} was at {where}"

        def find():
            try:
                return self._await_told(0.0 if late else _GRACE) or self.tell(
                    f"no message from {other} or to it came through {at}" if late
                    else f"{other} has ended: its connection closed {at}")
            except RuntimeError as wrong:  # `other` may have held the store, or left because the store is gone
                return f"{store_says(wrong)}; the connection with {other} {'timed out' if late else 'closed'} {at}"
        return PipelineError(self.fail(find))

    def _await_told(self, seconds):
        """Waits at most `seconds` for a reason that another rank writes. Returns the reason; None if there is none."""
        until, told = time.monotonic() + seconds, self.told()
        while told is None and time.monotonic() < until:
            time.sleep(0.02)
            told = self.told()
        return told


def close_group(group, rank, ranks):
    """Closes all connections of a gloo group. Gloo has no call for this, but closes them when a receive times out. So
    this function starts a receive of a message that nobody sends, with a timeout of 1 ms."""
    from datetime import timedelta

    import torch

    for peer in range(ranks):
        if peer != rank:
            try:
                group.recv([torch.empty(1, device="cpu")], peer, 2**31 - 1).wait(timedelta(milliseconds=1))
            except RuntimeError:
                pass
            return
