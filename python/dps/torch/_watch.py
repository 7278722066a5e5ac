"""Finds ranks that are stopped, or stuck, while others wait for them.

Each rank has a thread that regularly writes to the store that its process lives, and what it does. While the rank waits
in a step, the thread also reads what the others write. A rank that is busy, with a long pass or between steps, still
writes; a rank whose process is stopped does not. So a rank may be busy for much longer than it may be silent."""

import atexit
import json
import threading
import time
import weakref

from ._limit import Silent, store_says

_TICK = 5.0  # most seconds between two looks
_OUTSIDE = 0, 0, 0, "not in step()", False  # what Watch.at() would return between steps

_all = weakref.WeakSet()


@atexit.register
def _stop_all():
    """Ends the threads before the interpreter ends: one that is in a call of the store would abort the process."""
    for watch in list(_all):
        watch.stop()


class Watch:
    """The thread of a rank.

    store      a store for the watches of this pipeline alone
    failures   the rank's dps.torch._failure.Failures
    deadline   seconds for which a process may be silent; patience: seconds for which a rank may wait for others
    at         what the rank does. None between steps; in a step a function that returns (number of the step, how often
               the rank has forgotten shapes before it, how many actions are done, the current action in words, whether
               this action waits for other ranks)"""

    at = None

    def __init__(self, store, failures, deadline, patience):
        self.store, self.failures, self.rank = store, failures, failures.rank
        self.deadline, self.patience = deadline, patience
        self.looked, self.last, self.waited = time.monotonic(), None, 0.0
        self.heard, self.silent = {}, {}
        self.ended, self.thread = threading.Event(), threading.Thread(target=self._run, daemon=True)
        self._write(_OUTSIDE)

    def start(self, ranks, alive, process, others):
        """Starts the thread.

        alive     a store with a number for each process, which its watches count up
        process   this process; others: {process: its name}, the processes of all ranks and of the other replicas"""
        self.ranks = [rank for rank in range(ranks) if rank != self.rank]
        self.alive, self.process, self.others = alive, str(process), others
        if others:
            _all.add(self)
            self.thread.start()

    def stop(self):
        """Ends the thread. Waits for it, unless its store does not answer."""
        self.ended.set()
        if self.thread.ident not in (None, threading.get_ident()):
            self.thread.join(1)

    def _run(self):
        tick = min(_TICK, self.deadline / 8, self.patience / 8)
        while not self.ended.wait(tick) and self.failures.words is None:
            now, begun = self._now(), time.monotonic()
            # a gap in which this process was stopped does not count as silence of others
            passed, self.looked = min(begun - self.looked, 2 * tick), begun
            is_same, self.last = now == self.last and now[-1], now
            self.waited = self.waited + passed if is_same else 0.0
            try:
                self.alive.add(self.process, 1)
                self._write(now)
                words = self.failures.told() or self._look(now, passed)
            except RuntimeError as error:
                # if the store has ended, the others may have ended too because they have completed the step
                is_over = isinstance(error, Silent) or self.waited >= self.deadline
                words = store_says(error) if is_over and now[-1] and self._now() == now else None
            if words is not None:
                self.failures.fail(lambda: words)

    def _now(self):
        at = self.at
        return at() if at else _OUTSIDE

    def _write(self, now):
        self.store.set(str(self.rank), json.dumps(now))

    def _look(self, now, passed):
        """Looks at the other ranks if this rank waits. Returns why the pipeline has failed, in words; None if it has
        not."""
        if not self.waited:
            self.heard, self.silent = {}, {}
            return None
        for process in self.others:
            count = self.alive.add(str(process), 0)
            self.silent[process] = self.silent[process] + passed if self.heard.get(process) == count else 0.0
            self.heard[process] = count
        states = {rank: json.loads(self.store.get(str(rank)).decode()) for rank in self.ranks}
        words = self._silence() or self._forgotten(now, states) or self._patience(now, states)
        return self.failures.tell(words) if words else None

    def _silence(self):
        silent = [name for process, name in self.others.items() if self.silent[process] >= self.deadline]
        if silent:
            return (f"{' and '.join(silent)} gave no sign of life for {self.deadline:g} s (Pipeline(deadline="
                    f"{self.deadline:g})): stopped, ended, on a machine that cannot be reached, or in code that keeps "
                    "the interpreter's lock")
        return None

    def _forgotten(self, now, states):
        """Ranks that wait in the same step must have forgotten shapes equally often."""
        for rank, (step, forgotten, *_) in states.items():
            if step == now[0] and forgotten != now[1]:
                return (f"rank {self.rank} has called forget_shapes() {_times(now[1])} before step {step}, and rank "
                        f"{rank} {_times(forgotten)}: all ranks must call it before the same steps")
        return None

    def _patience(self, now, states):
        if self.waited < self.patience:
            return None
        busy = [f"rank {rank} was {where}" for rank, (*_, where, waits) in states.items() if not waits]
        return (f"rank {self.rank} was {now[3]} for {self.patience:g} s (Pipeline(patience={self.patience:g})); "
                f"{', '.join(busy) or 'all ranks waited'}")


def _times(count):
    return "once" if count == 1 else f"{count} times"
