"""Failures of a stage, a rank or the network. The step fails on all ranks, and each rank says what happened.

A rank that fails writes the reason to the store that the ranks share, and then closes its connections. So the ranks
that wait for its messages fail at once, not only at the deadline. They find the reason in the store and close their own
connections, and so on. Without NCCL no rank has to look at the store while all is well."""

import time
from datetime import timedelta

from .._errors import Error

# Seconds in which a rank that fails writes the reason. If its connection closed and there is no reason after this time,
# the rank has died. Also the most seconds in which ranks write, after the deadline, that they wait (_who_hangs).
_GRACE = 2.0

STORE_ENDED = ("the process that holds the store of torch.distributed has ended (process 0, unless torchrun started "
               "the processes)")


class PipelineError(Error, RuntimeError):
    """Another rank failed or ended, this rank waited for a message longer than the deadline, or an earlier step of this
    pipeline failed on any rank."""


class MessageFailed(Exception):
    """A message was not received or not sent, or a sum failed: the connection closed, or the deadline is over.

    other   the other rank in words, such as "rank 2" or "another rank that sums stage 3" """

    def __init__(self, other, error):
        super().__init__(str(error))
        self.other = other


class Failures:
    """What the ranks of a pipeline tell each other about failures, through the store of torch.distributed.

    store   a store of this pipeline alone
    close   closes the connections of this rank
    is_silent   True: if a rank dies, other ranks may not notice that its connections closed"""

    def __init__(self, store, rank, ranks, close, is_silent):
        self.store, self.rank, self.ranks, self.close, self.is_silent = store, rank, ranks, close, is_silent
        self.words = None  # why the pipeline has failed

    def _count(self, key, add=0):
        return self.store.add(key, add)

    def _tell(self, words):
        """Writes `words` as the reason of the failure, unless another rank has written a reason before. Returns the
        reason that was written first."""
        if self._count("failures", 1) == 1:
            self.store.set("failure", words)
            return words
        return self.store.get("failure").decode()

    def stage_raised(self, where, error):
        """Tells the other ranks that an action of this rank, such as a pass, has raised `error`. Closes the
        connections of this rank."""
        self.words = f"rank {self.rank} failed in {where}: {type(error).__name__}: {error}"
        try:
            self.words = self._tell(self.words)
        except Exception:  # the store is gone, with the process that held it
            pass
        self.close()

    def message_failed(self, where, other, deadline, error):
        """Finds out why a message of this rank has failed: the reason that another rank has written or, if there is
        none, a new reason, which this rank writes for the others. Closes the connections of this rank.
        Returns a PipelineError with the reason.

        where   the action in which this rank was; other: the rank at the other end, in words"""
        late = "timed out" in str(error).lower()
        waited = f"rank {self.rank} was at {where}"
        try:
            self.words = self._told(0.0 if late else _GRACE) or self._tell(
                self._who_hangs(waited, deadline) if late
                else f"{other} has ended: its connection closed while {waited}")
        except Exception:  # the store is gone: `other` may have held it, or closed its connections because it is gone
            self.words = f"{STORE_ENDED}; {waited} when its connection with {other} {'timed out' if late else 'closed'}"
        self.close()
        return PipelineError(self.words)

    def _told(self, seconds):
        """Waits at most `seconds` for a reason that another rank writes. Returns the reason; None if there is none."""
        until = time.monotonic() + seconds
        while self._count("failures") == 0:
            if time.monotonic() >= until:
                return None
            time.sleep(0.02)
        return self.store.get("failure").decode()

    def _who_hangs(self, waited, deadline):
        """Returns the reason, in words, when a wait of this rank has passed the deadline. Each rank with such a
        wait writes this to the store. The ranks that do not write it are stuck in a pass, or have not called step(); if
        self.is_silent, they may also have ended. waited: what this rank was doing, in words."""
        self._count(f"late {self.rank}", 1)
        time.sleep(min(_GRACE, deadline / 4))
        stuck = [rank for rank in range(self.ranks) if self._count(f"late {rank}") == 0]
        names = " and ".join(f"rank {rank}" for rank in stuck)
        where = "stuck in a pass, not in step(), or ended" if self.is_silent else "stuck in a pass, or not in step()"
        reason = f"{names} did not wait: {where}" if stuck else "all ranks waited"
        return f"{waited} for {deadline:g} s, which is the deadline; {reason}"


def close_group(group, rank, ranks):
    """Closes all connections of a gloo group. Gloo has no call for this, but closes them when a receive times out. So
    this function starts a receive of a message that nobody sends, with a timeout of 1 ms."""
    import torch

    for peer in range(ranks):
        if peer != rank:
            try:
                group.recv([torch.empty(1, device="cpu")], peer, 2**31 - 1).wait(timedelta(milliseconds=1))
            except RuntimeError:
                pass
            return
