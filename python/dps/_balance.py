"""Experts on GPUs."""

import ctypes
from typing import List, NamedTuple

from . import _library as c
from ._errors import UsageError, session


class Balance(NamedTuple):
    """The result of balance(). The balance of a layer is the mean load of its GPUs, divided by the largest."""

    placement: List[List[int]]  # for each layer, the expert of each physical expert, GPU after GPU
    before: List[float]  # balance of each layer in `current`; without it, with experts 0, 1, 2, ... in order
    after: List[float]
    bound: List[float]  # upper bound of the balance of each layer in any placement
    # for each layer, how many physical experts are on a GPU that does not hold them in `current`; without it, with
    # experts 0, 1, 2, ... in order
    moves: List[int]


def _rows(table, length, what):
    rows = [list(row) for row in table]
    for number, row in enumerate(rows):
        if len(row) != length:
            raise UsageError(f"layer {number} has {len(row)} {what}, not {length}")
    return [value for row in rows for value in row]


def balance(loads, *, replicas, gpus, groups=1, nodes=1, method="best", current=None, moves=None, threshold=0.0,
            distinct=False) -> Balance:
    """Places the replicas of the experts of each layer on GPUs, so that the fullest GPU has the least load.

    loads           for each layer, the loads of its experts (a list of lists, or an array)
    replicas, gpus  numbers of physical experts of a layer, and of GPUs that hold them
    groups, nodes   numbers of groups of neighbouring experts, and of nodes of neighbouring GPUs. If groups is a
                    multiple of nodes, all replicas of an expert are on one node
    method          "best", or "eplb": exactly the algorithm of DeepSeek's EPLB
    current         the current placement, in the form of Balance.placement. At most `moves` physical experts of a layer
                    then move to a GPU that does not hold the expert (None: any number), and a layer whose balance would
                    rise by less than `threshold` is not changed
    distinct        True: no expert is twice on a GPU"""
    if method not in ("best", "eplb"):
        raise UsageError(f"there is no method {method!r}; there are 'best' and 'eplb'")
    loads = [list(layer) for layer in loads]
    layers, experts = len(loads), len(loads[0]) if loads else 0
    flat = _rows(loads, experts, "loads")
    request = c.Experts(layers=layers, experts=experts, replicas=replicas, gpus=gpus, groups=groups, nodes=nodes,
                        loads=(ctypes.c_double * len(flat))(*flat), threshold=threshold, distinct=distinct,
                        eplb=method == "eplb", limit_moves=moves is not None, most_moves=moves or 0)
    if current is not None:
        placed = _rows(current, replicas, "physical experts")
        request.current = (ctypes.c_uint32 * len(placed))(*placed)
    doubles, numbers = ctypes.c_double * layers, ctypes.c_uint32 * layers
    slots = (ctypes.c_uint32 * (layers * replicas))()
    before, after, bound, moved = doubles(), doubles(), doubles(), numbers()
    result = c.Placement(placement=slots, before=before, after=after, bound=bound, moves=moved)
    with session() as s:
        s.call("dps_balance", ctypes.byref(request), ctypes.byref(result))
    return Balance([slots[i * replicas:(i + 1) * replicas] for i in range(layers)], list(before), list(after),
                   list(bound), list(moved))
