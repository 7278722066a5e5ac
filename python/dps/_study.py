"""Compares several schedules, finds the best one, and checks orders of other programs."""

import ctypes
import json
import os

from . import _library as c
from ._errors import UsageError, session
from ._program import _array, _options, _path

_ALLOW = {"async": 1, "naive": 2}


def _list(paths):
    return [paths] if isinstance(paths, (str, bytes, os.PathLike)) else list(paths)


def _ask(function, paths, options, *further):
    texts = [_path(path) for path in _list(paths)]
    found, length = ctypes.c_void_p(), ctypes.c_size_t()
    with session() as s:
        s.call(function, _array(ctypes.c_char_p, texts), len(texts), ctypes.byref(options), *further,
               ctypes.byref(found), ctypes.byref(length))
        try:
            return json.loads(ctypes.string_at(found, length.value))
        finally:
            c.library.dps_release(s.handle, found)


def compare(paths, *, ranks=None, microbatches=None, params=None, costs=None, slot_bytes=None, memory_limit=None,
            replicas=None):
    """Compares schedules (a list of paths, or one path) at the same numbers of ranks and microbatches: what
    `dpc compare --json` prints, as a dict. Its "schedules" is a list with a dict for each schedule, the shortest step
    first. Arguments are those of compile(); each schedule takes those of `params` that it has. replicas: the time of a
    step then includes sums of gradients over this many replicas of the pipeline, as far as passes do not hide them;
    `costs` then needs "gradients", the bytes of a stage's gradient."""
    options = _options(ranks, microbatches, params, costs, slot_bytes, memory_limit, replicas=replicas)
    return _ask("dps_compare", paths, options)


def check(paths, *, ranks=None, microbatches=None, params=None, costs=None):
    """Says which communicators the messages of orders need (a list of paths, or one path): what `dpc check --json`
    prints, as a dict. Its "orders" is a list with a dict for each order. "rendezvous", "rank", "pair", "edge" and
    "kind" are models of channels; each is "safe", "swaps" or "deadlocks", with the reason in "edge_why". "weakest" is
    the strictest model that is safe. An order that is wrong under all models has "refused" instead."""
    return _ask("dps_check", paths, _options(ranks, microbatches, params, costs, None, None))


def advise(ranks, microbatches, *, paths=(), params=None, costs=None, slot_bytes=None, memory_limit=None, replicas=None,
           allow=(), seconds=60):
    """Finds the schedule, with its parameters, that takes the least time: what `dpc advise --json` prints, as a dict.
    Its "rows" has a dict for each schedule, the best one first; "left_out" says why other schedules have no row. Tries
    the schedules of this package and those at `paths`, on all cores, for `seconds` at most. replicas: as for compare().
    allow: "async" also tries schedules that update weights within the step, "naive" also those in which one rank works
    at a time; or both in a list."""
    from . import schedule, schedules

    allowed = [allow] if isinstance(allow, str) else list(allow)
    for word in allowed:
        if word not in _ALLOW:
            raise UsageError(f"allow: there is no {word!r}; there are 'async' and 'naive'")
    options = _options(ranks, microbatches, params, costs, slot_bytes, memory_limit, replicas=replicas)
    every = [schedule(name) for name in schedules()] + _list(paths)
    return _ask("dps_advise", every, options, seconds, sum(_ALLOW[word] for word in set(allowed)))
