"""Measures how many bytes the microbatches of a rank hold, in the first training step.

A microbatch holds tensors from its forward to its backward: those that autograd saves for the backward, and what the
rank keeps for it, such as received inputs. One microbatch of each chunk is measured, after its F and after its I. Its
graph is walked then. Later steps measure nothing.

saved_tensors_hooks, which are on during a forward, would change what a program computes: under them a
torch.autograd.Function does not get back the weight that it has saved, but a copy, whose .grad is another (DualPipe's
layers set .grad); and transforms of functions (torch.func) fail. So hooks are set after the forward, on what the
operations of PyTorch have saved. What a torch.autograd.Function saves is seen when it calls save_for_backward. What
has hooks of its own, as in non-reentrant checkpoints, is not held in the graph, and does not count.

Each storage counts once. Storages that no backward frees do not count: weights, buffers and other tensors of modules;
inputs, targets and keyword arguments of the step, which its caller holds; and losses."""

import contextlib
import weakref
from functools import partial
from types import FunctionType
from typing import NamedTuple

import torch
from torch.autograd.function import BackwardCFunction, FunctionCtx
from torch.multiprocessing.reductions import StorageWeakRef

from ._plan import halves_of


class ChunkMemory(NamedTuple):
    """The memory that the microbatches of a chunk hold, in bytes.

    The sum of at_peak over the chunks of a rank is the most that the microbatches of the rank hold at once."""

    stage: int
    saved: int  # what a microbatch holds from the end of its F to the end of its I or B
    kept: int  # the part of `saved` that it holds until the end of its W; 0 if its I is a full backward
    gradients: int  # the gradients that it holds from its I to its W, because W needs them
    microbatches: int  # the most microbatches of the chunk that are alive at once, from F to W or B, by the plan
    at_peak: int  # what all microbatches of the chunk hold when the rank holds most


class Bytes(NamedTuple):
    """The measured part of ChunkMemory."""

    saved: int
    kept: int = 0
    gradients: int = 0


# --- tensors and their storages ---

def storage_of(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def _storages(tensors):
    """{address of a storage: the storage} of all these tensors, also of the tensors inside sparse tensors and inside
    tensors of subclasses. An address is unique while the storage lives, or a StorageWeakRef of it."""
    found, ahead = {}, list(tensors)
    while ahead:
        tensor = ahead.pop()
        if hasattr(tensor, "__tensor_flatten__"):
            inner = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
            ahead += [part for part in inner if isinstance(part, torch.Tensor)]
        elif tensor.layout == torch.strided:
            storage = storage_of(tensor)
            found[storage._cdata] = storage
        elif tensor.layout == torch.sparse_coo:
            ahead += [tensor._indices(), tensor._values()]
    return found


def _tensors(value):
    """The tensors in a value made of tuples, lists, dicts and functions. Those of a function are in its closure and in
    its default values; those of a partial are the tensors of its function and those in its arguments."""
    found, seen, ahead = [], set(), [value]
    while ahead:
        value = ahead.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            ahead += value
        elif isinstance(value, dict):
            ahead += value.values()
        elif isinstance(value, partial):
            ahead += [value.func, value.args, value.keywords]
        elif isinstance(value, FunctionType):
            ahead += [_content(cell) for cell in value.__closure__ or ()]
            ahead += value.__defaults__ or ()
    return found


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:  # the cell is empty
        return None


def _tensors_of_modules(modules):
    """The parameters, the buffers and the other attributes of modules that are tensors."""
    parts = [part for module in modules if isinstance(module, torch.nn.Module) for part in module.modules()]
    return [value for part in parts for members in (part._parameters, part._buffers, vars(part))
            for value in members.values() if isinstance(value, torch.Tensor)]


# --- what a graph keeps ---

class _Packed:
    """What the graph keeps in place of a saved tensor. It lives as long as the graph keeps the saved tensor."""

    __slots__ = ("tensor", "__weakref__")

    def __init__(self, tensor):
        self.tensor = tensor.detach()


def _unpack(packed):
    return packed.tensor


def _nodes(roots):
    """All nodes of the graph that ends at these tensors."""
    found = {root.grad_fn for root in roots if root.grad_fn is not None}
    ahead = list(found)
    while ahead:
        for node, _ in ahead.pop().next_functions:
            if node is not None and node not in found:
                found.add(node)
                ahead.append(node)
    return found


def _pack_saved(nodes):
    """Replaces the tensors that nodes of PyTorch have saved by _Packed objects, and returns these. Leaves out those of
    torch.autograd.Functions, and those that have hooks already."""
    made = []  # weak references, because the graph holds pack()

    def pack(tensor):
        packed = _Packed(tensor)
        made.append(weakref.ref(packed))
        return packed
    for node in nodes:
        names = [] if isinstance(node, BackwardCFunction) else dir(node)
        raw = [getattr(node, name) for name in names if name.startswith("_raw_saved_")]
        for saved in [part for value in raw for part in (value if isinstance(value, (tuple, list)) else (value,))]:
            # register_hooks refuses tensors that have hooks already, and places without a tensor
            with contextlib.suppress(RuntimeError):
                saved.register_hooks(pack, _unpack)
    return [packed for packed in (reference() for reference in made) if packed is not None]


class _Guard(NamedTuple):
    """A storage that must not be kept alive. While the weak reference exists, no other storage gets the address."""

    weak: StorageWeakRef
    address: int
    size: int


def _guards(storages):
    return [_Guard(StorageWeakRef(storage), address, storage.nbytes()) for address, storage in storages.items()]


@contextlib.contextmanager
def _functions_saving(guards):
    """While it is on, the storages of what torch.autograd.Functions save are added to `guards`."""
    save = FunctionCtx.save_for_backward

    def save_for_backward(context, *tensors):
        guards.extend(_guards(_storages(_tensors(tensors))))
        return save(context, *tensors)
    FunctionCtx.save_for_backward = save_for_backward
    try:
        yield
    finally:
        FunctionCtx.save_for_backward = save


# --- measuring ---

class _Microbatch:
    """The storages that a measured microbatch holds after its F.

    sizes   {address of a storage: its bytes}
    packed  [(weak reference to a _Packed, addresses of its storages)]
    guards  the _Guard of each storage in `sizes`: a weak reference, so that the storage can be freed
    own     addresses of storages that torch.autograd.Functions have saved"""

    def __init__(self, packed, of_functions, others, left_out):
        """packed: the _Packed objects that the graph keeps; of_functions: the _Guards of what torch.autograd.Functions
        have saved; others: other tensors that are held; left_out: addresses of storages that do not count."""
        self.packed = [(weakref.ref(one), tuple(_storages([one.tensor]))) for one in packed]
        live = [guard for guard in of_functions if not guard.weak.expired()]
        guards = live + _guards(_storages([one.tensor for one in packed] + others))
        self.guards = [guard for guard in guards if guard.address not in left_out]
        self.sizes = {guard.address: guard.size for guard in self.guards}
        self.own = {guard.address for guard in live}

    def in_graph(self, elsewhere):
        """The addresses of the storages that the graph still keeps. elsewhere: addresses of storages that something
        else than the graph also keeps alive."""
        found = {address for one, addresses in self.packed if one() is not None for address in addresses}
        live = {guard.address for guard in self.guards if not guard.weak.expired()}
        return found.union((live & self.own).difference(elsewhere))


def _measured_passes(plan, overlapped_of):
    """{chunk: the microbatch that is measured}. The most important is that its backward has halves, then that its F
    runs in no user's function for F&Bs, then that its F is no part of an F&B. Of several, the first is measured."""
    best = {}
    for action in plan.training:
        half = action.instruction
        if half.opcode in ("FORWARD", "OVERLAP"):
            rank = (half.chunk, half.microbatch) in plan.split, overlapped_of(half) is None, half.second is None
            if half.chunk not in best or rank > best[half.chunk][0]:
                best[half.chunk] = rank, half.microbatch
    return {chunk: microbatch for chunk, (_, microbatch) in best.items()}


class Meter:
    """Measures one microbatch of each chunk of a Pipeline. It lives during the first training step.

    found       {chunk: Bytes}
    _of_number  {number of a microbatch in the step: addresses of the storages counted for it, over all chunks}. Two
                stages on one rank share the tensor that one gives to the other"""

    def __init__(self, pipeline):
        self.found = {}
        self.plan, self.modules, self.stages = pipeline.plan, pipeline.modules, pipeline._stages
        self.held, self.step, self.slots = pipeline._held, pipeline._step, pipeline._slots
        self._measured = _measured_passes(pipeline.plan, pipeline._overlapped_of)
        self._microbatches, self._of_number = {}, {}

    def functions(self, actions, functions):
        """The functions of the actions of a step, with those of the measured passes replaced by functions that
        measure."""
        return [self._measuring(action.instruction, function) for action, function in zip(actions, functions)]

    def _measuring(self, instruction, function):
        for half in halves_of(instruction):
            if half.opcode in ("FORWARD", "OVERLAP") and self._measured[half.chunk] == half.microbatch:
                function = partial(self._forward, half, function)
            elif half.opcode == "BACKWARD_INPUT" and self._measured[half.chunk] == half.microbatch:
                function = partial(self._input_half, half, function)
        return function

    def _forward(self, half, function):
        of_functions = []
        with _functions_saving(of_functions):
            function()
        held, number = self.held[half.chunk, half.microbatch], half.number
        nodes, inputs = _nodes(held.roots), _tensors([held.inputs, held.units])
        known = {id(x) for x in inputs}
        weights = [node.variable for node in nodes if hasattr(node, "variable") and id(node.variable) not in known]
        others = inputs + [root for root in held.roots if root is not held.loss]
        counted = self._of_number.setdefault(number, set())
        left_out = counted.union(self._left_out(half), _storages(weights))
        made = self._microbatches[half.chunk] = _Microbatch(_pack_saved(nodes), of_functions, others, left_out)
        counted.update(made.sizes)
        self.found[half.chunk] = Bytes(sum(made.sizes.values()))

    def _left_out(self, half):
        """The addresses of the storages that no backward frees."""
        step, number, held = self.step, half.number, self.held[half.chunk, half.microbatch]
        given = [step.inputs.get(number), step.targets.get(number), step.arguments[number], held.loss]
        return set(_storages(_tensors([given, _tensors_of_modules(self.modules)])))

    def _input_half(self, half, function):
        function()
        if self.stages[half.chunk].has_checkpoint:  # later backwards are not split
            return
        microbatch, held = self._microbatches[half.chunk], self.held[half.chunk, half.microbatch]
        sizes, deferred = microbatch.sizes, _storages(_tensors(held.deferred))
        in_graph = microbatch.in_graph(_storages(_tensors([self._sent(), self.step.outputs])))
        kept = sizes.keys() & in_graph.union(deferred)
        left_out = self._left_out(half).union(sizes, self._of_number[half.number])
        gradients = sum(storage.nbytes() for address, storage in deferred.items() if address not in left_out)
        saved = self.found[half.chunk].saved
        self.found[half.chunk] = Bytes(saved, sum(sizes[address] for address in kept), gradients)

    def _sent(self):
        """The tensors in message slots, and those that gloo or NCCL is sending."""
        return [getattr(slot, "sent", slot) for slot in self.slots]


# --- what follows from the measured bytes ---

def report(plan, found):
    """A list with the ChunkMemory of each chunk of a rank. found: {chunk: Bytes}."""
    count = len(plan.chunks)
    alive, most, held, at_peak = ([0] * count for _ in range(4))
    for action in plan.training:
        for half in halves_of(action.instruction):
            change, begun = _change(half, found)
            if begun is not None:
                held[half.chunk] += change
                alive[half.chunk] += begun
                most[half.chunk] = max(most[half.chunk], alive[half.chunk])
                at_peak = max(at_peak, list(held), key=sum)
    return [ChunkMemory(plan.chunks[chunk].stage, *found[chunk], most[chunk], at_peak[chunk]) for chunk in range(count)]


def _change(half, found):
    """(how a pass changes the bytes of its chunk, how it changes the number of its chunk's live microbatches); (0,
    None) for an instruction that is no pass."""
    if half.opcode not in ("FORWARD", "OVERLAP", "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT"):
        return 0, None
    saved, kept, gradients = found[half.chunk]
    return {"FORWARD": (saved, 1), "OVERLAP": (saved, 1), "BACKWARD": (-saved, -1),
            "BACKWARD_INPUT": (kept + gradients - saved, 0), "BACKWARD_WEIGHT": (-kept - gradients, -1)}[half.opcode]


def costs_of(plan, found):
    """A list of (stage, bytes of memory_I, bytes of memory_W) of the chunks of a rank, for costs(). memory_W is None if
    no backward of the chunk has halves."""
    has_halves = {chunk for chunk, _ in plan.split}
    return [(plan.chunks[chunk].stage, saved, kept + gradients if chunk in has_halves else None)
            for chunk, (saved, kept, gradients) in found.items()]


def costs(ranks):
    """The lines of a cost file with the bytes of each stage: memory_I until the end of I or B, memory_W from then to
    the end of W. If copies of a stage differ, the largest counts. ranks: the results of costs_of() of all ranks."""
    largest = {}
    for stage, first, second in (row for rows in ranks for row in rows):
        for name, value in (("memory_I", first), ("memory_W", second)):
            if value is not None:
                largest[name, stage] = max(value, largest.get((name, stage), 0))
    return "".join(f"{name}[{stage}] = {value} # bytes\n" for (name, stage), value in sorted(largest.items()))
