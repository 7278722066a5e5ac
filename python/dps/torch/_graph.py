"""Runs the backward of any module in halves: I, the gradients of its inputs, and W, those of its parameters.

The trunk of a microbatch's graph is the nodes through which gradients flow to the inputs. All other nodes lead only to
parameters. A fork is a node of the trunk with an edge out of the trunk; the matrix product of a Linear is one. I runs
the trunk and keeps the gradient that arrives at each fork. W starts at the forks with these gradients, and asks for the
parameters that they lead to. Autograd computes only what is asked for. So only forks can run in both halves, and
a fork computes different gradients in each half.

In two cases I computes gradients of parameters, and W only adds them up. One is a torch.autograd.Function, which always
computes all of its gradients. The other is a parameter that is used at two forks, one later in the forward than the
other: from the later fork W would run through the trunk to the earlier one.

A stage with checkpoints or with code of torch.compile is not split: I is a full backward, and W is empty. Non-reentrant
checkpoints are noticed in the first backward, which is still split.

Embeddings belong to the trunk, too. If no input of a stage requires a gradient, the trunk begins at embeddings and at
the floating-point inputs. So I and W of such a stage, too, take the time that the plan gives them.

torch.distributed.pipelining splits graphs by the same idea. The code here is the project's own."""

import threading
from collections import defaultdict
from functools import lru_cache, partial
from typing import NamedTuple, Tuple

import torch
from torch.autograd import graph
from torch.nn.modules.module import register_module_forward_pre_hook

from ._lane import IDENTS
from ._split import UNSPLIT, Halves, Splitter
from ._stage import Stage

_Function = torch.autograd.function.BackwardCFunction


def splitter_of(module, name, run_backward):
    """The object that runs the backwards of a stage in two halves: a GraphSplitter or, if PyTorch is too old for that,
    a Splitter."""
    return (GraphSplitter if is_supported(run_backward) else Splitter)(module, name, run_backward)


@lru_cache(None)
def is_supported(run_backward):
    """Whether run_backward, the function of _stage.py, can start a backward at a node of the graph. An old PyTorch
    cannot."""
    if not hasattr(graph, "get_gradient_edge"):
        return False
    with torch.enable_grad():
        x = torch.ones(1, requires_grad=True)
        try:
            run_backward((graph.get_gradient_edge(2 * x),), (torch.ones(1),), False, (x,), False)
        except TypeError:
            return False
        return True


def _replace(number, gradient, gradients):
    return tuple(gradient if i == number else given for i, given in enumerate(gradients))


class _Fork(NamedTuple):
    """A place where the graph leaves the trunk.

    node     the node of the trunk with edges out of the trunk; None: the fork has no node, and contains all outputs of
             the stage whose nodes are outside of the trunk
    starts   the edges that lead to `node`, or to the nodes of these outputs. I computes the gradients of these edges,
             and W starts with them
    exits    the edges from `node` to nodes outside of the trunk; without a node, the same edges as `starts`"""

    starts: Tuple
    exits: Tuple
    node: object


class _Group:
    """Forks that reach the same nodes outside of the trunk, such as two uses of one parameter. W runs one backward from
    all forks of a group.

    nodes   all nodes outside of the trunk that the forks reach"""

    def __init__(self, fork, nodes):
        self.forks, self.nodes = [fork], nodes

    def join(self, other):
        self.forks, self.nodes = other.forks + self.forks, self.nodes | other.nodes


def _closure(nodes, following):
    """The set of `nodes` and of all nodes that are reached from them. following(node): the next nodes after a node."""
    found = set(nodes)
    ahead = list(found)
    while ahead:
        for node in following(ahead.pop()):
            if node not in found:
                found.add(node)
                ahead.append(node)
    return found


class _Graph:
    """The graph of one microbatch.

    A node is the backward of an operation. An edge (node, number) leads to `node`: it carries the gradient of output
    `number` of the operation, which is input `number` of the backward.

    next_edges   {node: the edges that leave it, in the direction of the backward}
    uses         {node: the numbers of the edges that lead to it}
    parents      {node: the nodes from which edges lead to it}
    trunk        the set of the nodes of the trunk"""

    def __init__(self, roots, sources):
        self.roots = [graph.get_gradient_edge(root) for root in roots]
        self.next_edges, self.uses, self.parents = {}, defaultdict(set), defaultdict(list)
        self.embeddings = []
        self._walk()
        self.trunk = self._with_above([node for node in sources if node in self.next_edges] + self.embeddings)

    def _walk(self):
        for edge in self.roots:
            self.uses[edge.node].add(edge.output_nr)
        ahead = [edge.node for edge in self.roots]
        while ahead:
            node = ahead.pop()
            if node in self.next_edges:
                continue
            edges = self.next_edges[node] = [edge for edge in node.next_functions if edge[0] is not None]
            if node.name().startswith("Embedding"):
                self.embeddings.append(node)
            for child, number in edges:
                self.uses[child].add(number)
                self.parents[child].append(node)
                ahead.append(child)

    def _with_above(self, sources):
        return _closure(sources, lambda node: self.parents[node])

    def reached(self, edges):
        """All nodes that the backward reaches through these edges."""
        return _closure((node for node, _ in edges), lambda node: (child for child, _ in self.next_edges[node]))

    def forks(self):
        outside = tuple(edge for edge in self.roots if edge.node not in self.trunk)
        if outside:
            yield _Fork(outside, tuple((edge.node, edge.output_nr) for edge in outside), None)
        for node, edges in self.next_edges.items():
            exits = tuple(edge for edge in edges if edge[0] not in self.trunk) if node in self.trunk else ()
            if exits:
                yield _Fork(tuple(graph.GradientEdge(node, number) for number in self.uses[node]), exits, node)

    def groups(self):
        group_of = {}
        for fork in self.forks():
            group = _Group(fork, self.reached(fork.exits))
            for other in {group_of[node] for node in group.nodes if node in group_of}:
                group.join(other)
            group_of.update(dict.fromkeys(group.nodes, group))
        return list(dict.fromkeys(group_of.values()))

    def can_start(self, group):
        """Whether W can start at the forks of the group: no fork is a torch.autograd.Function, and the backward does
        not reach one fork from another."""
        nodes = {fork.node for fork in group.forks} - {None}
        if any(isinstance(node, _Function) for node in nodes):
            return False
        return len(nodes) < 2 or all(nodes.isdisjoint(self.reached(self.next_edges[node])) for node in nodes)

    def parameters(self):
        """Two lists: the groups at whose forks W starts; and, for the other groups, the edges to their parameters,
        whose gradients I computes."""
        late, ends = [], []
        for group in self.groups():
            if self.can_start(group):
                late.append(group)
            else:
                ends += [graph.GradientEdge(node, 0) for node in group.nodes if hasattr(node, "variable")]
        return late, ends

    def keep_gradients(self, starts, gradient_of):
        """Makes W start with exactly the gradients that I has computed. I calls the tensor hooks of every start, even
        of one whose node it does not run. W would call the hooks of such a node again, so a hook added here replaces
        their result by the gradient from I.

        starts        the edges at which W starts
        gradient_of   {edge: the gradient that I has computed}"""
        run = self._with_above([parent for edge in gradient_of for parent in self.parents[edge.node]])
        for start in starts:
            if start.node not in run:
                start.node.register_prehook(partial(_replace, start.output_nr, gradient_of[start]))

    def unsplit(self):
        """What makes a node of this graph that cannot be split (UNSPLIT). None: there is no such node."""
        return next((UNSPLIT[node.name()] for node in self.next_edges if node.name() in UNSPLIT), None)


class GraphSplitter(Halves):
    """Runs the backwards of one stage in two halves, split at the forks of the graph."""

    def __init__(self, module, name, run_backward):
        super().__init__(module, name, run_backward)
        # Whether the stage uses non-reentrant checkpoints: an I finds that out. None: it is not known.
        self.has_checkpoint = None

    def of_part(self):
        return GraphSplitter(self.module, self.name, self.run_backward)

    def begin(self, inputs):
        """Call it before a forward. Returns the inputs for the forward, and a list of nodes at which the trunk begins,
        besides embeddings. The list is empty if an input requires a gradient: then the trunk begins at such inputs."""
        if any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
            return inputs, []
        leaves = [x.detach().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else None
                  for x in inputs]
        # A module may change its input in place, which PyTorch forbids if the input is a leaf that requires a gradient.
        # So the module gets a tensor that is no leaf, with the same memory.
        traced = [x if leaf is None else torch.ops.aten._unsafe_view(leaf, leaf.shape)
                  for x, leaf in zip(inputs, leaves)]
        return traced, [graph.get_gradient_edge(leaf).node for leaf in leaves if leaf is not None]

    def end(self):
        """Does nothing: only Splitter, which replaces this class under an old PyTorch, needs a call after a forward."""

    def backward_input(self, held, gradients):
        """Returns the gradients of the inputs, and the functions that compute the deferred gradients of parameters. A
        stage with checkpoints or compiled code runs a full backward instead: the list of functions is then empty."""
        inputs = {x: graph.get_gradient_edge(x) for x in held.inputs if isinstance(x, torch.Tensor) and x.requires_grad}
        made = _Graph(held.roots, [edge.node for edge in inputs.values()] + held.units)
        unsplit = "non-reentrant checkpoints" if self.has_checkpoint else made.unsplit()
        if unsplit:
            halves = self.full_backward(held, gradients)
            self.report_unsplit(unsplit)
            return halves
        late, ends = made.parameters()
        starts = [start for group in late for fork in group.forks for start in fork.starts]
        leaves = {x: edge for x, edge in inputs.items() if x.is_leaf}
        gradient_of = self._run_trunk(held.roots, gradients, starts + ends + list(leaves.values()))
        for x, edge in leaves.items():
            if gradient_of[edge] is not None:
                x.grad = gradient_of[edge] if x.grad is None else x.grad + gradient_of[edge]
        made.keep_gradients(starts, gradient_of)
        return Stage.input_gradients(held), self._weight_half(late, ends, gradient_of)

    def _run_trunk(self, roots, gradients, edges):
        """Runs I and returns {edge: its gradient} for `edges`. The first run also finds out whether the backward runs
        forwards of modules again, as non-reentrant checkpoints do. Such a stage is not split in later backwards: each
        start of W would run these forwards once more."""
        if not edges:
            return {}
        called = []
        hook = self.has_checkpoint is None and register_module_forward_pre_hook(
            lambda *_: called.append(True) if threading.get_ident() not in IDENTS else None)
        try:
            return dict(zip(edges, self.run_backward(roots, gradients, True, tuple(edges), False)))
        finally:
            if hook:
                hook.remove()
                self.has_checkpoint = bool(called)

    def _weight_half(self, late, ends, gradient_of):
        functions = []
        for group in late:
            starts = [start for fork in group.forks for start in fork.starts if gradient_of[start] is not None]
            parameters = tuple(node.variable for node in group.nodes if hasattr(node, "variable"))
            if starts and parameters:
                functions.append(partial(self.run_backward, tuple(starts), tuple(gradient_of[s] for s in starts), False,
                                         parameters))
        ends = [end for end in ends if gradient_of[end] is not None]
        if ends:
            functions.append(partial(self.run_backward, tuple(ends), tuple(gradient_of[end] for end in ends)))
            self.report_early([end.node.variable for end in ends], "a torch.autograd.Function or at several places")
        return functions
