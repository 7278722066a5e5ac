"""Where the communicating components of F&Bs run beside the computing ones: in a thread."""

import threading
import weakref
from _thread import allocate_lock
from contextlib import nullcontext
from queue import SimpleQueue

import torch

from ._failure import MessageFailed

_LOOK = 0.5  # seconds after which a rank that waits for its thread looks whether the pipeline has failed
IDENTS = set()  # the threads that communicate


def _autocast():
    """The autocast of this thread for the CPU, for use in another one."""
    if hasattr(torch, "get_autocast_dtype"):
        enabled, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    else:
        enabled, dtype = torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()
    return torch.autocast("cpu", dtype=dtype) if enabled else nullcontext()


class _Work:
    """A function that a thread runs. wait() returns its result, or raises its error."""

    def __init__(self, function, failures):
        self.function, self.failures, self.autocast = function, failures, _autocast()
        self.result = self.error = None
        self.running = allocate_lock()
        self.running.acquire()

    def run(self):
        try:
            with self.autocast:
                self.result = self.function()
        except BaseException as error:  # wait() raises it where the step can end
            self.error = error
        self.function = None
        self.running.release()

    def wait(self):
        while not self.running.acquire(timeout=_LOOK):
            if self.failures.words:
                raise MessageFailed("another rank", "connection closed")
        if self.error is not None:
            raise self.error
        return self.result


def _serve(posted):
    IDENTS.add(threading.get_ident())
    for work in iter(posted.get, None):
        work.run()
        del work  # until the next one comes, nothing may keep its tensors
    IDENTS.discard(threading.get_ident())


class Thread:
    """Runs what is posted, in this order, in a thread of its own, which starts at the first post."""

    def __init__(self, failures):
        self._failures, self._posted = failures, None

    def post(self, function):
        """Starts function(). Returns an object whose wait() returns its result."""
        if self._posted is None:
            self._posted = SimpleQueue()
            threading.Thread(target=_serve, args=(self._posted,), daemon=True).start()
            weakref.finalize(self, self._posted.put, None)
        work = _Work(function, self._failures)
        self._posted.put(work)
        return work
