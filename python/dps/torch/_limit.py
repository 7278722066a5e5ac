"""The store that processes share, with a limit for each call: it answers to nobody while the process that holds it is
stopped."""

import os
import threading
from datetime import timedelta

import torch.distributed as dist


class Silent(RuntimeError):
    """A call has not returned in time."""


def within(seconds, function, *arguments):
    """Returns function(*arguments). Raises Silent if that takes more than `seconds`: it runs in a thread of its own,
    which is then left."""
    ended = []

    def run():
        try:
            ended.append((function(*arguments), None))
        except BaseException as error:  # the caller raises it
            ended.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not ended:
        raise Silent(f"no answer within {seconds:g} s")
    result, error = ended[0]
    if error is not None:
        raise error
    return result


def store_says(error):
    """What an error of a store says about it, in words."""
    holder = "that of torchrun" if "TORCHELASTIC_RUN_ID" in os.environ else "rank 0, unless another one was given"
    state = "is stopped or cannot be reached" if isinstance(error, Silent) else "has ended"
    return f"the process that holds the store of torch.distributed ({holder}) {state}: {error}"


class Store:
    """A part of a store of torch.distributed. Its calls raise RuntimeError if the store fails or does not answer.

    raw       the store of torch.distributed
    deadline  most seconds for an answer
    patience  most seconds for which get() waits until the key is there"""

    def __init__(self, raw, deadline, patience):
        self.raw, self.deadline, self.patience = raw, deadline, patience

    def part(self, name):
        return Store(dist.PrefixStore(name, self.raw), self.deadline, self.patience)

    def set(self, key, value):
        within(self.deadline, self.raw.set, key, value)

    def add(self, key, number):
        """Adds to a number, which is 0 at first. Returns the sum."""
        return within(self.deadline, self.raw.add, key, number)

    def get(self, key):
        """Waits until the key has a value, and returns it."""
        def get():
            self.raw.wait([key], timedelta(seconds=self.patience))
            return self.raw.get(key)
        return within(self.patience + self.deadline, get)

    def first(self, key, text):
        """Sets a text, unless a process has set it before. Returns the text that was set first."""
        if self.add(f"{key} is set", 1) == 1:
            self.set(key, text)
            return text
        return self.get(key).decode()
