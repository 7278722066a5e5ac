"""Experts on GPUs."""

import ctypes
from typing import List, NamedTuple

from . import _library as c
from ._errors import UsageError, session


class Balance(NamedTuple):
    """Where the replicas of the experts are. The balance of a layer is the mean load of a GPU over the largest."""

    placement: List[List[int]]  # of each layer: the expert of each physical expert, GPU after GPU
    before: List[float]  # balance of each layer where experts are in their order, or in `current`
    after: List[float]
    bound: List[float]  # no placement has a higher balance
    moves: List[int]  # experts that come to a GPU that did not hold them before


def _rows(table, length, what):
    rows = [list(row) for row in table]
    for number, row in enumerate(rows):
        if len(row) != length:
            raise UsageError(f"layer {number} has {len(row)} {what}, not {length}")
    return [value for row in rows for value in row]


def balance(loads, *, replicas, gpus, groups=1, nodes=1, method="best", current=None, moves=None, threshold=0.0,
            distinct=False) -> Balance:
    """Places the replicas of the experts of each layer on GPUs, so that the fullest GPU has the least load.

    loads           of each layer, the loads of its experts (a list of lists, or an array)
    replicas, gpus  physical experts of a layer, and the GPUs that they are on
    groups, nodes   of neighbouring experts and GPUs: if groups is a multiple of nodes, all replicas of an expert are on
                    one node
    method          "best", or "eplb": exactly the algorithm of DeepSeek's EPLB
    current         the placement in force, as Balance.placement; then at most `moves` experts of a layer come to a GPU
                    that does not hold them, and a layer whose balance would rise by less than `threshold` stays
    distinct        no expert twice on a GPU"""
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
