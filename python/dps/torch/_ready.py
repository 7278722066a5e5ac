"""What the ranks of a pipeline tell each other before they connect: that they are ready, or why they are not. So an
error in the constructor of Pipeline on one rank raises an error in it on all ranks, and no rank waits for a connection
that nobody makes."""

import hashlib
import json
import time

from .._errors import UsageError
from ._failure import PipelineError
from ._limit import store_says
from ._ties import Weight, tie_of

_LOOK = 0.02  # most seconds between two looks at the store


class Ready:
    """A `with` block in which this process prepares what it needs to connect. If the block raises an error, the store
    gets the reason, and wait() of the other processes raises it.

    store      a dps.torch._limit.Store whose keys only this pipeline uses
    place      the number of this process in the group of the pipeline, which has `count` processes
    is_rank    whether the number of each process is its rank in the program, so that errors may name ranks"""

    def __init__(self, store, place, count, is_rank):
        self.store, self.place = store, place
        self.names = [f"rank {p}" if is_rank else f"process {p} of the group" for p in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        if error is not None:
            try:
                self.store.first("refusal", f"{self.names[self.place]} made no Pipeline: {type(error).__name__}: "
                                            f"{error}")
            except RuntimeError:  # the store cannot be reached; this process raises `error` all the same
                pass

    def wait(self, program, weights):
        """Waits until all processes are ready with the same program. weights: those of this process that may be tied
        (dps.torch._ties). Raises PipelineError if the block of a process has raised an error, if a process is not ready
        after store.patience seconds, or if the store fails; UsageError if programs differ, or weights seem to be
        tied."""
        try:
            self.store.set(f"weights {self.place}", json.dumps(weights))
            self._wait(hashlib.sha256(bytes(program)).digest())
            self._find_ties()
        except PipelineError:
            raise
        except RuntimeError as error:
            raise PipelineError(store_says(error)) from None

    def _wait(self, mine):
        self.store.set(f"program {self.place}", mine)
        self.store.add(f"ready {self.place}", 1)
        self.store.add("ready", 1)
        until, pause = time.monotonic() + self.store.patience, 0.001
        while self.store.add("ready", 0) < len(self.names):
            if self.store.add("refusal is set", 0):
                raise PipelineError(self.store.get("refusal").decode())
            if time.monotonic() > until:
                raise PipelineError(self._late())
            time.sleep(pause)
            pause = min(2 * pause, _LOOK)
        for place, name in enumerate(self.names):
            if self.store.get(f"program {place}") != mine:
                raise UsageError(f"{self.names[self.place]} and {name} have different programs: compile the same "
                                 "schedule for the same ranks, microbatches, parameters and costs on all ranks")

    def _find_ties(self):
        if self.place == 0:
            ranks = [[Weight(*weight) for weight in json.loads(self.store.get(f"weights {place}").decode())]
                     for place in range(len(self.names))]
            self.store.set("tie", " and ".join(f"`{weight.name}` of stage {weight.stage} on {self.names[place]}"
                                               for place, weight in tie_of(ranks) or ()))
        found = self.store.get("tie").decode()
        self.store.add("told", 1)
        if found:
            until = time.monotonic() + self.store.deadline
            while self.place == 0 and self.store.add("told", 0) < len(self.names) and time.monotonic() < until:
                time.sleep(_LOOK)  # this process may hold the store, and end now
            raise UsageError(f"{found} begin with the same random numbers, as tied weights do. If they are one weight, "
                             "give their ranks tied=[(parameter, group)], or let the stages share the parameter if one "
                             "rank has both; if not, give all ranks tied=[]")

    def _late(self):
        late = [name for place, name in enumerate(self.names) if self.store.add(f"ready {place}", 0) == 0]
        return (f"{' and '.join(late)} made no Pipeline within {self.store.patience:g} s (Pipeline(patience="
                f"{self.store.patience:g}) of {self.names[self.place]})")
