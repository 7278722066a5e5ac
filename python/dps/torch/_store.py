"""Weight gradients that a user's own layers put off."""


class WeightGradStore:
    """Where a layer with a backward of its own leaves its weight gradient for later, as in DeepSeek's DualPipe.

    A layer looks at `enabled` in its backward. If it is true, the layer passes put() a function that computes the
    weight gradient, instead of computing it. `enabled` is true in every input half (I); the weight half (W) of the same
    stage and microbatch calls the functions."""

    enabled = False
    cache = []
    queue = []

    @classmethod
    def put(cls, func):
        cls.cache.append(func)

    @classmethod
    def take(cls):
        """The functions put since the last call."""
        taken, cls.cache = cls.cache, []
        return taken

    @classmethod
    def flush(cls):
        """Makes what was put so far the next entry of the queue, for pop()."""
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
