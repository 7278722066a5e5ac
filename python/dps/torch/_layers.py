"""Stages that say which components their layers have, so that F&Bs run in the order of the schedule's recipe.

Each component is a dps.torch._stage.Stage of its own: its graph begins at detached inputs, and its backward, full or in
halves, gives the gradients of these to the component before it. So F, B and W of components run in any order that keeps
their needs, and so do those of two microbatches. libdps gives the order (Program.components)."""

import inspect
from collections.abc import Mapping
from functools import partial
from types import MethodType
from typing import NamedTuple, Optional

import torch
from torch import nn

from .._errors import UsageError
from ._graph import splitter_of
from ._stage import Stage, _as_tuple, run_backward


class _Component(NamedTuple):
    """layer: the number of its layer in the stage; None: it is outside the layers."""

    layer: Optional[int]
    name: str
    function: object

    def __str__(self):
        return self.name if self.layer is None else f"{self.name} of layer {self.layer}"


def _module_of(function):
    """The module whose weights a component uses: itself, or that of its method; None: a function without weights."""
    while isinstance(function, partial):
        function = function.func
    function = function.__self__ if isinstance(function, MethodType) else function
    return function if isinstance(function, nn.Module) else None


class Layers(nn.Module):
    """A stage of components: a module that calls them one after the other (see layers())."""

    def __init__(self, parts):
        super().__init__()
        self.components, self.names = [], []
        for place, part in enumerate(parts):
            is_layer = isinstance(part, Mapping)
            functions = dict(part) if is_layer else {type(part).__name__: part}
            layer = len(self.names) if is_layer else None
            for name, function in functions.items():
                if not callable(function) and not (is_layer and function is None):
                    raise UsageError(f"{name} of part {place} of dps.torch.layers() is a {type(function).__name__}; it "
                                     "must be a module, a method of a module, a function or, if the layer has no such "
                                     "component, None")
            self.components += [_Component(layer, *item) for item in functions.items() if item[1] is not None]
            if is_layer:
                self.names.append(set(functions))
            self._register(str(place), functions)
        if not self.components:
            raise UsageError("dps.torch.layers() needs a component")

    def _register(self, place, functions):
        modules = {name: _module_of(function) for name, function in functions.items()}
        modules = {name: module for name, module in modules.items() if module is not None}
        if modules:
            is_one = len(set(modules.values())) == 1
            self.add_module(place, next(iter(modules.values())) if is_one else nn.ModuleDict(modules))

    def forward(self, *inputs, **arguments):
        for component in self.components:
            outputs = component.function(*inputs, **arguments)
            inputs = _as_tuple(outputs)
        return outputs


def layers(parts):
    """A stage that says which components its layers have, for Pipeline. The F&Bs of the schedule then run component by
    component, those of both microbatches in the order of its recipe (`overlap F&B { ... }`), and the components that
    communicate beside those that compute. In all other passes the components run one after the other.

    parts    a list with a mapping for each layer, {"attention": module, "dispatch": function, ...}, whose names are
             those of the recipe. It may have other modules before, between and after the layers

    A component is a module, a method of a module, or a function without weights. It is called with what the one before
    it has returned: a tensor, or a tuple of tensors and any other values, such as sizes. It must not change a tensor
    that it is given in place. A component that returns a tensor which it was given, such as a residual, passes it by. A
    layer that has no such component says so: {"dispatch": None}. Keyword arguments of step() go to every component."""
    return Layers(parts)


class _Held:
    """What such a stage keeps of a microbatch: the Held of each component, None after a full backward of it."""

    def __init__(self, count):
        self.parts = [None] * count

    def _all(self, name):
        return [getattr(part, name) for part in self.parts if part is not None and getattr(part, name) is not None]

    loss = property(lambda self: self.parts[-1] and self.parts[-1].loss)
    inputs = property(lambda self: self._all("inputs"))
    units = property(lambda self: self._all("units"))
    deferred = property(lambda self: self._all("deferred"))
    roots = property(lambda self: [root for roots in self._all("roots") for root in roots])


class Times:
    """The times of the components in the pass that runs now, in marks of dps.torch._order.

    rows    (number of the component, letter F, B, W, or A for a full backward, start, end)
    waits   {(half of the F&B, number): (start of a component that ran beside others, start and end of the wait for
            it)}"""

    def __init__(self, mark):
        self.mark = mark
        self.begin()

    def begin(self):
        self.rows, self.waits = [], {}

    def call(self, number, letter, function, *arguments):
        start = self.mark()
        made = function(*arguments)
        self.rows.append((number, letter, start, self.mark()))
        return made


class LayeredStage(Stage):
    """A stage made by layers(). parts: a Stage for each component."""

    def __init__(self, module, name, is_last, has_halves, times):
        splitter = splitter_of(module, name, run_backward) if has_halves else None
        super().__init__(module, name, is_last, None)
        self.times, self.parts, self._bound = times, [], set()
        for component in module.components:
            owner = _module_of(component.function)
            has_weights = owner is not None and any(True for _ in owner.parameters())
            part = Stage(component.function, f"{component} of {name}", False,
                         splitter.of_part() if has_weights and splitter else None)
            part.is_inside = True
            self.parts.append(part)
        self.parts[-1].is_last, self.parts[-1].is_inside = is_last, False

    @property
    def has_checkpoint(self):
        return any(part.has_checkpoint for part in self.parts)

    # --- parts of passes: functions (number of a component, what it gets) that return what the next one gets ---

    def forwards(self, held, arguments, targets, split):
        def run(k, inputs):
            part = self.parts[k]
            if k not in self._bound:
                self._bind(k, inputs, arguments)
            held.parts[k], outputs = self.times.call(k, "F", part.forward, inputs, arguments, targets, split)
            return outputs
        return run

    def _bind(self, k, inputs, arguments):
        """Before the first call of a component, refuses what it does not take."""
        function, component = self.parts[k].module, self.module.components[k]
        try:
            takes = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
        except ValueError:  # some functions of C have no signature
            takes = None
        try:
            if takes:
                takes.bind(*inputs, **arguments)
        except TypeError as error:
            giver = f"{self.module.components[k - 1]} returns" if k else "the stage gets"
            what = ", ".join(f"a tensor of shape {list(x.shape)}" if isinstance(x, torch.Tensor) else
                             f"a {type(x).__name__}" for x in inputs)
            raise UsageError(f"{self.name}: {component} takes {takes}, but {giver} {len(inputs)} "
                             f"value{'s'[:len(inputs) != 1]} ({what}): {error}") from None
        self._bound.add(k)

    def backwards(self, held, apart):
        """apart: the numbers of the components whose weight half comes later."""
        def run(k, dy):
            part, kept = self.parts[k], held.parts[k]
            if k not in apart:
                held.parts[k] = None
                return self.times.call(k, "A", part.backward, kept, dy)
            inputs = kept.inputs if k else ()
            dx = self.times.call(k, "B", part.backward_input, kept, dy)
            for x in inputs:
                if isinstance(x, torch.Tensor):
                    x.grad = None
            return dx
        return run

    def weights(self, held, k):
        if held.parts[k] is not None and held.parts[k].deferred:
            self.times.call(k, "W", self.parts[k].backward_weight, held.parts[k])

    # --- passes, as in Stage ---

    def forward(self, inputs, arguments, targets, split):
        held = _Held(len(self.parts))
        run = self.forwards(held, arguments, targets, split)
        for k in range(len(self.parts)):
            inputs = run(k, inputs)
        return held, inputs

    def _backward(self, held, dy, apart):
        run = self.backwards(held, apart)
        for k in reversed(range(len(self.parts))):
            dy = run(k, dy)
        return dy

    def backward(self, held, dy):
        return self._backward(held, dy, ())

    def backward_input(self, held, dy):
        return self._backward(held, dy, range(len(self.parts)))

    def backward_weight(self, held):
        for k in reversed(range(len(self.parts))):
            self.weights(held, k)


# --- F&Bs ---

def _check_names(stage, where, known):
    """Refuses a stage of layers() of which a layer and the recipe do not have the same components."""
    for layer, names in enumerate(stage.names):
        for name in sorted(names - known):
            raise UsageError(f"{where} does not name {name} of layer {layer}; it names {', '.join(sorted(known))}")
        for name in sorted(known - names):
            raise UsageError(f'{where} names {name}, which layer {layer} lacks: give it "{name}": None if it has no '
                             "such component")


class _Half:
    """A half of an F&B, 0 or 1, on its way through the components of its stage."""

    def __init__(self, number, run, value, times):
        self.number, self.run, self.value, self.times, self.work = number, run, value, times, None

    def take(self):
        """What the last component has returned."""
        if self.work is not None:
            k, posted, work = self.work
            before = self.times.mark()
            self.value, self.work = work.wait(), None
            self.times.waits[self.number, k] = posted, before, self.times.mark()
        return self.value

    def go(self, k, lane):
        value, self.value = self.take(), None
        if lane is None:
            self.value = self.run(k, value)
        else:
            self.work = k, self.times.mark(), lane.post(partial(self.run, k, value))


class Recipe:
    """The order in which an F&B runs the components of two stages of layers().

    apart     the numbers of the components of the second stage whose W the order has
    halved    those whose B is an input half if that of the whole F&B is: all but those that run beside others
    _order    [(half, number of the component in its stage, letter, whether it runs beside the others)]"""

    def __init__(self, components, first, second, names, line):
        """components: of Program.components(); first, second: the Layers; names: of both stages, in errors; line: of
        the F&B in its source."""
        self._order, self.apart, modules = [], set(), (first, second)
        at = [0, len(second.components) - 1]
        places = [{(c.layer, c.name): k for k, c in enumerate(each.components)} for each in modules]
        for each, name in zip(modules, names):
            _check_names(each, f"{name}: the recipe of line {line}", {c.name for c in components})

        def until(half, k):
            step = -1 if half else 1
            if (k - at[half]) * step < 0:
                raise UsageError(f"{names[half]}: {modules[half].components[k]} comes later in the recipe of line "
                                 f"{line} than in the layer: list components in the order in which they run")
            while at[half] != k:
                self._order.append((half, at[half], "B" if half else "F", False))
                at[half] += step

        for c in components:
            k = places[c.half].get((len(second.names) - 1 - c.layer if c.half else c.layer, c.name))
            if k is not None and c.letter == "W":
                self.apart.add(k)
            elif k is not None:
                until(c.half, k)
                at[c.half] += -1 if c.half else 1
            if k is not None:
                self._order.append((c.half, k, c.letter, c.communicates))
        until(0, len(first.components))
        until(1, -1)
        self.halved = {k for half, k, _, beside in self._order if half and not beside}

    def run(self, lane, first, second, forward_of, backward_of):
        """As dps.torch._overlap.run_overlapped."""
        inputs, arguments, targets, split = forward_of
        held, dy, is_input_half = backward_of
        kept, times = _Held(len(first.parts)), first.times
        apart = self.halved if is_input_half else self.apart
        halves = (_Half(0, first.forwards(kept, arguments, targets, split), inputs, times),
                  _Half(1, second.backwards(held, apart), dy, times))
        for half, k, letter, beside in self._order:
            if letter == "W":
                second.weights(held, k)
            else:
                halves[half].go(k, lane if beside else None)
        return kept, halves[0].take(), halves[1].take()
