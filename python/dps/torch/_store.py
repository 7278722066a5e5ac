"""Deferred weight gradients of the user's own layers."""


class WeightGradStore:
    """Holds the deferred weight gradients of layers with a backward of their own, as in DeepSeek's DualPipe.

    A layer looks at `enabled` in its backward. If it is true, the layer does not compute its weight gradient, but
    passes put() a function that does. `enabled` is true in every input half (I); the weight half (W) of the same stage
    and microbatch calls the functions."""

    enabled = False
    cache = []
    queue = []

    @classmethod
    def put(cls, func):
        cls.cache.append(func)

    @classmethod
    def take(cls):
        """Returns the functions put since the last take() or flush(), and forgets them."""
        taken, cls.cache = cls.cache, []
        return taken

    @classmethod
    def flush(cls):
        """Appends the functions put so far to the queue, as one entry for pop()."""
        cls.queue.append(cls.take())

    @classmethod
    def pop(cls):
        """Calls the functions of the oldest entry of the queue."""
        assert cls.queue, "WeightGradStore.pop() without a flush() before it"
        for func in cls.queue.pop(0):
            func()

    @classmethod
    def clear(cls):
        cls.cache, cls.queue = [], []
