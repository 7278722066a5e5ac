"""Deferred weight gradients of the user's own layers."""

from queue import Queue


class WeightGradStore:
    """Holds the deferred weight gradients of layers with a backward of their own, with the interface of DeepSeek's
    DualPipe.

    Such a layer reads `enabled` in its backward. If it is true, the layer does not compute its weight gradient, but
    passes put() a function that computes it. `enabled` is true during every input half (I). The weight half (W) of the
    same stage and microbatch calls the functions.

    cache         the functions put since the last take() or flush()
    funcs_queue   for flush() and pop(): lists of functions"""

    enabled = False
    cache = []
    funcs_queue = Queue()

    @classmethod
    def put(cls, func):
        cls.cache.append(func)

    @classmethod
    def take(cls):
        """Empties `cache` and returns its functions."""
        taken, cls.cache = cls.cache, []
        return taken

    @classmethod
    def flush(cls):
        """Moves the functions of `cache` to the end of the queue, as one entry for pop()."""
        cls.funcs_queue.put(cls.take())

    @classmethod
    def pop(cls):
        """Removes the oldest entry of the queue and calls its functions."""
        assert not cls.funcs_queue.empty(), "WeightGradStore.pop() without a flush() before it"
        for func in cls.funcs_queue.get():
            func()

    @classmethod
    def clear(cls):
        cls.cache, cls.funcs_queue = [], Queue()
