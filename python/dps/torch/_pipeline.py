"""Pipeline: the modules of this rank, run in the order of a proven schedule."""

import json
import os
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from .._errors import UsageError
from .._program import Program
from . import _batch, _group, _links, _memory, _nccl, _order, _trace
from ._actions import Actions
from ._exchange import Exchange
from ._failure import Failures, MessageFailed, PipelineError, close_group
from ._graph import splitter_of
from ._lane import Thread
from ._layers import LayeredStage, Layers, Recipe, Times
from ._norm import counted_parameters, sum_of_squares
from ._plan import Plan, halves_of
from ._ready import Ready
from ._same import Agreement, Given
from ._stage import Stage, run_backward
from ._start import start
from ._sums import Copies, GradientSum, Sum, divide, fill_gradients, owned_parameters, parameters_of
from ._ties import weights_of
from ._watch import Watch
from ._wrapped import Wrapped, local


_LOOK = 0.5  # seconds after which a rank that waits for a sum of the user's group looks whether another rank has failed
_RECORDED = 16  # number of last steps whose times are kept, for trace() and profile()


class _Step:
    """Inputs and results of one call of step()."""

    __slots__ = ("inputs", "targets", "arguments", "losses", "outputs")


class Pipeline(Actions):
    """This rank's part of a pipeline.

    program        a proven schedule (dps.compile or dps.load) of as many ranks as the group has
    stages         this rank's modules, one for each of its chunks (program.rank(r).chunks has the stage of each chunk);
                   or a function that makes the module of a stage from the number of the stage
    loss_fn        called for each microbatch with the outputs of the last stage and the targets of the microbatch;
                   gives one number. None: the output of the last stage is the loss
    group          processes of the pipeline; None: all of torch.distributed. If torch.distributed is not initialized,
                   the environment of torchrun or mpirun says who takes part
    rank_mapping   rank_mapping[i] is the rank of the program that process i of the group runs; None: i
    replicate_group   this process and the processes with the same rank in the other replicas of this pipeline (data
                   parallelism); gradients are summed over the group. None: there are no other replicas
    deadline       seconds for which the process of a rank may give no sign of life while others wait for it: it is
                   stopped, or its machine cannot be reached. Then the step fails on all other ranks
    patience       seconds that a rank waits for others that live, but compute or are not in step(), as during a
                   checkpoint; then the step fails on all ranks. Also for how long the constructor waits for them
    batch_dim      batches are cut along this dimension
    loss_scale     the step computes the gradient of loss_scale x the sum of all losses. None: 1 / (microbatches x
                   replicas), the gradient of their mean. You may set pipeline.loss_scale between steps
    overlapped     a function that runs both halves of an F&B, with the arguments and results of DualPipe's
                   overlapped_forward_backward. If both modules have one type with such a method, that method is called
                   instead. None: without such a method the halves run one after the other
    gradient_ready called with the number of a chunk and its module when the chunk's gradients are complete, except for
                   the sums of tied parameters
    sum_copies     False: gradients are summed over replicas, but not over the copies that a stage has in one pipeline
    tied           (parameter, group) pairs: the gradient of the parameter is summed over the group at the end of a
                   step. None: there are none, and the constructor refuses weights that look tied; []: it does not
    device         where the stages compute; None: where their first parameter is, or the CPU. Give step() tensors on
                   this device. GPUs: if `group` has the backend nccl for them, messages and sums of gradients go
                   through NCCL. Otherwise, if the device is not the CPU, they are copied through the memory of the host

    Passes, messages and sums run in the order of the program. Gradients are summed over the copies of a stage (DualPipe
    has two of each) and over the replicas. These begin equal, so they stay equal: the constructor copies the parameters
    and buffers of the process with the lowest number to the others."""

    _bytes = None  # {chunk: dps.torch._memory.Bytes}, from the first step that trains

    def __init__(self, program, stages, loss_fn=None, group=None, rank_mapping=None, replicate_group=None, deadline=300,
                 *, patience=1800, batch_dim=0, loss_scale=None, overlapped=None, gradient_ready=None, sum_copies=True,
                 tied=None, device=None):
        start()
        if not (deadline > 0 and patience > 0):
            raise UsageError(f"deadline={deadline} and patience={patience} must be above 0 seconds")
        # no wait for a message takes longer. The watch ends the step before
        self.batch_dim, self._limit = batch_dim, deadline + patience
        self.loss_fn, self.gradient_ready, self.overlapped = loss_fn, gradient_ready, overlapped
        self.sum_copies, self.tied = sum_copies, list(tied or ())
        self._processes = _group.global_ranks(group)
        place = _group.place_in(self._processes)
        self._default_store = _group.default_store(deadline, patience)
        self._store = _group.store_of(self._default_store, self._processes, "pipeline")
        with Ready(self._store.part("ready"), place, len(self._processes), rank_mapping is None) as ready:
            self.program = _checked(program)
            self.rank = _group.program_rank(program, self._processes, rank_mapping)
            self._process_of = _inverse(rank_mapping, program.ranks)
            self.plan = Plan(program, self.rank)
            self.modules = _modules(program, self.plan, self.rank, stages)
            replicas = _group.global_ranks(replicate_group) if replicate_group is not None else [dist.get_rank()]
            _group.place_in(replicas)
            self._wrapped = [Wrapped(module, self._name(chunk), replicas) for chunk, module in enumerate(self.modules)]
            self._check_tied()
            self._times, self._components = Times(lambda: self._order.mark()), []
            self._recipes, self._split = self._recipes_of_pairs()
            self._has_overlapped = any(self._overlapped_of(action.instruction) for action in self.plan.training)
            self.loss_scale = 1 / (program.microbatches * len(replicas)) if loss_scale is None else loss_scale
            self._stages = [self._stage(chunk) for chunk in range(len(self.modules))]
            self.device = self._device_of_parameters() if device is None else torch.device(device)
            self._through_nccl = _nccl.Communicator.serves(self.device, group)
            weights = weights_of(self.plan.chunks, [w.inside for w in self._wrapped]) if tied is None else []
        ready.wait(program, weights)
        try:
            self._connect(replicas, deadline, patience)
        except (RuntimeError, OSError, MessageFailed) as error:
            raise PipelineError(f"rank {self.rank} cannot connect to the other ranks: {error}") from error
        self._slots = [None] * program.rank(self.rank).slots["message"]
        self._held = {}
        self._step = _Step()
        # {mode: (actions, functions) of the steps after the one that learns shapes}; mode True: training, False: only
        # forwards
        self._runs = {}
        # {(chunk, microbatch) of the first half, an F, of an F&B or F&F: a mark of its end in the current step}
        self._middles = {}
        # the results of _run() of the last steps that trained (of a forward-only program: of its last steps)
        self._recorded = deque(maxlen=_RECORDED)
        self._traces = 0
        self._agreement = Agreement(self.rank, program.ranks, program.microbatches, self._sum_at_start)
        self._shared = ()  # what share() was given since the last step, if digests are compared

    def _name(self, chunk):
        return f"stage {self.plan.chunks[chunk].stage} of {self.program.schedule} on rank {self.rank}"

    def _stage(self, chunk):
        stage, module, name = self.plan.chunks[chunk].stage, self._wrapped[chunk].inside, self._name(chunk)
        has_halves = any(c == chunk for c, _ in self._split)
        if isinstance(module, Layers):
            return LayeredStage(module, name, stage == self.program.stages - 1, has_halves, self._times)
        has_parameters = isinstance(module, torch.nn.Module) and any(True for _ in module.parameters())
        splitter = splitter_of(module, name, run_backward) if has_halves and has_parameters else None
        return Stage(module, name, stage == self.program.stages - 1, splitter)

    def _recipes_of_pairs(self):
        """({(chunk, microbatch) of the F of an F&B: its Recipe} if both stages are of layers(), and the (chunk,
        microbatch) of each backward that runs in two halves, also within its F&B)."""
        inside, made, of_chunks, split = [w.inside for w in self._wrapped], {}, {}, set(self.plan.split)
        for wrapped, chunk in zip(self._wrapped, range(len(inside))):
            if isinstance(wrapped.inside, Layers) and (wrapped.is_divided or self.overlapped):
                raise UsageError(f"{self._name(chunk)}: a stage of dps.torch.layers() runs neither under fully_shard "
                                 "(take replicate_group) nor with overlapped= (the schedule has the recipe)")
        for index, i, _ in self.plan.training:
            if i.opcode != "OVERLAP" or not all(isinstance(inside[half.chunk], Layers) for half in halves_of(i)):
                continue
            chunks = i.chunk, i.second.chunk
            if chunks not in of_chunks:
                stages = [inside[chunk] for chunk in chunks]
                components = self.program.components(self.rank, index, [len(stage.names) for stage in stages])
                of_chunks[chunks] = components and Recipe(components, *stages, list(map(self._name, chunks)), i.line)
            if of_chunks[chunks]:
                made[i.chunk, i.microbatch] = of_chunks[chunks]
                split.add((i.second.chunk, i.second.microbatch))
        return made, split

    def _device_of_parameters(self):
        return next((parameter.device for parameter in self.parameters()), torch.device("cpu"))

    def parameters(self):
        """A list of the parameters of this rank's modules, each parameter once; for example for an optimizer."""
        modules = [module for module in self.modules if isinstance(module, torch.nn.Module)]
        return list(dict.fromkeys(p for module in modules for p in module.parameters()))

    def share(self, inputs, target):
        """Cuts a whole batch along batch_dim. Returns (input, target) for step() on this rank: lists of the parts of
        its microbatches, or None where the rank needs no input or no target. All ranks must give the same batch."""
        count, plan = self.program.microbatches, self.plan
        if self._agreement.compares:
            self._shared = ("the inputs of share()", inputs), ("the targets of share()", target)
        x, y = (_batch.cut(value, count, self.batch_dim, "the batch") for value in (inputs, target))
        return [x[m] for m in plan.given] or None, [y[m] for m in plan.ends] or None

    # --- the norm of the gradient ---

    def gradient_norm(self):
        """The norm of the gradient of the whole pipeline, after step(): a number, the same on all ranks. All ranks must
        call this. Each parameter counts once, also if several ranks have copies of its stage, or if it is tied."""
        self._check_failed()
        total = sum_of_squares(counted_parameters(self.program, self.rank, self.plan.chunks, self.modules, self.tied))
        self._sum_over_ranks(total, "gradient_norm()")
        return total.sqrt().item()

    def clip_gradients(self, most):
        """If the norm of the gradient of the whole pipeline is above `most`, scales all gradients down to the norm
        `most`. Returns the norm before scaling. All ranks must call this."""
        norm = self.gradient_norm()
        scale = most / (norm + 1e-6)
        if not scale >= 1:  # also true if the norm, and so the scale, is NaN: then all gradients become NaN
            for parameter in self.parameters():
                if parameter.grad is not None:
                    parameter.grad *= scale
        return norm

    # --- connections ---

    def _connect(self, replicas, deadline, patience):
        store = self._store
        # _counts: how many steps have begun, and how often this rank has forgotten the forms of messages
        self._counts = [0, 0]
        self._failures = Failures(store.part("failures"), self.rank, weakref.WeakMethod(self._close))
        self._watch = Watch(store.part("watch"), self._failures, deadline, patience)
        self._order = _order.order_of(self.device, self._limit, self._failures)
        # on a GPU components run on one stream, in the order of the recipe
        self._lane = Thread(self._failures) if self.device.type == "cpu" else None
        self._groups = []
        self._messages = _group.connect(self._processes, store.part("messages"), self._limit)
        self._groups.append((self._messages, self._processes))
        names = {process: f"rank {rank}" for rank, process in enumerate(self._process_of)}
        outgoing, incoming = self._connect_nccl(store.part("nccl"), names)
        self._in_order = [*outgoing.values(), *incoming.values()]
        peers = {self._process_of[peer] for peer in self.plan.peers} - {*outgoing, *incoming}
        self._links = _links.connect(store.part("links"), self._processes.index(dist.get_rank()), peers,
                                     names, self._limit)
        self._exchanges = {mode: Exchange(self._messages, self._links, names, self.device, outgoing, incoming)
                           for mode in (True, False)}
        steps = _nccl.Steps(store.part("steps"), self.rank, self.program.ranks)
        self._steps = [steps] if self._in_order else []
        if not self._in_order:
            steps.give_up()
        self._sums, every = self._make_sums(replicas, store)
        self._order.end()
        self._leave = weakref.finalize(self, _nccl.leave, self._in_order, self._steps, self._limit, os.getpid())
        weakref.finalize(self, self._watch.ended.set)
        others = {**{process: f"process {process}" for process in every},
                  **{self._processes[place]: f"rank {rank}" for rank, place in enumerate(self._process_of)}}
        del others[dist.get_rank()]
        self._watch.start(self.program.ranks, self._default_store.part("dps/alive"), dist.get_rank(), others)

    def _connect_nccl(self, store, names):
        me, routes = self._processes.index(dist.get_rank()), set()
        for action in self.plan.training:
            if action.instruction.peer is not None:
                peer = self._process_of[action.instruction.peer]
                routes.add((me, peer) if action.instruction.opcode.startswith("SEND") else (peer, me))
        return _nccl.connect(store, me, routes, self._through_nccl, self._order, names)

    def _make_sums(self, replicas, store):
        """Returns (sums, the processes of all replicas). sums: for each chunk, its GradientSum over all replicas and,
        with sum_copies, over all copies of its stage. replicas: the processes of replicate_group."""
        every = self._replicas_of_chunks(replicas, store)
        order = [a.instruction.chunk for a in self.plan.training if a.instruction.opcode == "REDUCE"]
        self._owned = partial(owned_parameters, self.modules, order)
        parameters, sums = self._owned(), [None] * len(self.modules)
        for chunk in order:
            group = self.plan.chunks[chunk].group
            copies = self.program.group(group) if group is not None and self.sum_copies else [(self.rank, chunk)]
            members = sorted({process for copy in copies for process in every[copy]})
            name = group if group is not None else f"chunk {chunk}"
            sums[chunk] = self._make_sum(members, name, chunk, parameters[chunk])
        return sums, sorted({process for members in every.values() for process in members})

    def _replicas_of_chunks(self, replicas, store):
        """{(rank, chunk): the processes that run this chunk, one in each replica}, of all ranks."""
        mine = [wrapped.processes or replicas for wrapped in self._wrapped]
        store.set(f"replicas {self.rank}", json.dumps(mine))
        of_rank = [json.loads(store.get(f"replicas {rank}").decode()) for rank in range(self.program.ranks)]
        every = [process for chunks in of_rank for process in set(sum(chunks, []))]
        if len(set(every)) != len(every):
            raise UsageError("replicate_group, or the process_group of DistributedDataParallel, must have the "
                             "processes that run one rank, one in each replica; here two ranks have a process in "
                             "common")
        return {(rank, chunk): members for rank, chunks in enumerate(of_rank) for chunk, members in enumerate(chunks)}

    def _make_sum(self, members, name, chunk, parameters):
        place, size = members.index(dist.get_rank()), len(members)
        store = _group.store_of(self._default_store, members, f"sum {name}")
        copies = Copies(self.modules[chunk], f"stage {self.plan.chunks[chunk].stage}",
                        store.part("copies"), members, place)
        total = GradientSum(self._wrapped[chunk], parameters, copies, None)
        if size == 1:
            return total
        copies.check("made no Pipeline")
        serves = self._through_nccl and all(p.device.type == self.device.type for p in parameters)
        total.group = _nccl.connect_sum(store.part("nccl"), place, size, serves, self._order, copies.others)
        if total.group is not None:
            self._in_order.append(total.group)
            self._steps.append(_nccl.Steps(store.part("steps"), place, size))
        else:
            total.group = _group.connect(members, store, self._limit)
            self._groups.append((total.group, members))
        copies.begin_equal(total.group)
        return total

    def _close(self):
        self._leave.detach()
        for link in self._links.values():
            link.close()
        _nccl.close(self._in_order)
        for steps in self._steps:
            steps.give_up()
        for group, members in self._groups:
            close_group(group, members.index(dist.get_rank()), len(members))

    # --- times ---

    def _measured(self, caller, least):
        """On rank 0, returns the trace of the recorded steps of all ranks; on other ranks, None. All ranks must call
        this. caller: the name of the calling method, which needs at least `least` steps."""
        if len(self._recorded) < least:
            kind = "" if self.program.is_forward_only else " that trained"
            raise UsageError(f"{caller}() needs {least} step{'s'[:least - 1]}{kind}; this pipeline has run "
                             f"{len(self._recorded)}")
        self._traces += 1
        key = f"trace {self._traces} {{}}"
        told = [(self._spans(*step[:3]), self._components_of(step[3])) for step in self._recorded]
        self._store.set(key.format(self.rank), json.dumps(told))
        if self.rank != 0:
            return None
        ranks = range(self.program.ranks)
        recorded = [json.loads(self._store.get(key.format(rank)).decode()) for rank in ranks]
        steps = [[({index: span for index, *span in spans}, parts) for spans, parts in rank] for rank in recorded]
        return _trace.merge(self.program, [Plan(self.program, rank) for rank in ranks], steps)

    def _spans(self, actions, marks, middles):
        """A list with (number of the instruction, start, middle, end) for each action of a step. middle: when the first
        half of an F&B or F&F ended; None for other actions, and if one function ran both halves."""
        times = self._order.seconds([*marks, *middles.values()])
        middles = dict(zip(middles, times[len(marks):]))

        def middle(i):
            return middles.get((i.chunk, i.microbatch)) if i.opcode.startswith("OVERLAP") else None

        return [(action.index, start, middle(action.instruction), end)
                for action, start, end in zip(actions, times, times[1:])]

    def _components_of(self, recorded):
        """The times of components in a step (Times), as a list with (number of the instruction, stage, layer in the
        stage, name, letter, start, end, and if it ran beside others its post, and the start and end of the wait)."""
        marks = [mark for _, rows, waits in recorded for some in ([row[2:] for row in rows], waits.values())
                 for each in some for mark in each]
        times, made = iter(self._order.seconds(marks) if marks else ()), []
        for index, rows, waits in recorded:
            spans = [(next(times), next(times)) for _ in rows]
            waited = {key: (next(times), next(times), next(times)) for key in waits}
            halves = halves_of(self.plan.training[index].instruction)
            for (k, letter, *_), span in zip(rows, spans):
                half = halves[0 if letter == "F" else -1]
                component = self._stages[half.chunk].module.components[k]
                if component.layer is not None:
                    made.append((index, half.stage, component.layer, component.name, letter, *span,
                                 *waited.get((letter != "F", k), ())))
        return made

    def trace(self, path):
        """Writes a trace of the last training steps (of a forward-only program: of its last steps), at most 16. The
        file has Chrome trace events in the form of `dprun --trace`, for `dpc diff`, `dpc calibrate` and
        ui.perfetto.dev, also of the components of stages of layers(). On a GPU the times are those of the GPU. All
        ranks must call this; rank 0 of the program writes the file. The times of different ranks are comparable only if
        the ranks run on one machine."""
        measured = self._measured("trace", 1)
        if measured is not None:
            with open(path, "w") as file:
                json.dump(measured, file)

    def profile(self, path):
        """Writes a cost file from the steps that trace() writes, without the first of them, for `dpc --cost @FILE` and
        dps.compile(costs=pathlib.Path(...)): the median time of each kind of pass of each stage, and the bytes of
        memory(); with stages of layers() also the median time of each component, for `overlap F&B auto` and `dpc
        advise`. All ranks must call this after at least two steps; rank 0 of the program writes the file. It has no
        costs of messages: `dpc calibrate` finds these in a trace."""
        measured = self._measured("profile", 2)
        key = f"memory {self._traces} {{}}"
        self._store.set(key.format(self.rank), json.dumps(_memory.costs_of(self.plan, self._bytes or {})))
        if measured is not None:
            sizes = [json.loads(self._store.get(key.format(rank)).decode()) for rank in range(self.program.ranks)]
            with open(path, "w") as file:
                file.write(_trace.costs(measured) + _memory.costs(sizes))

    # --- memory ---

    def memory(self):
        """What the microbatches of this rank hold, in bytes: a list with a dps.torch.ChunkMemory for each chunk. The
        sum of their `at_peak` is the most that the rank's microbatches hold at once in the order of the program.

        The first training step measures it for one microbatch of each chunk: the tensors that autograd saves, small
        outputs, received inputs, and between I and W the gradients that W needs. These are not counted: weights and
        their gradients, the optimizer, inputs and targets of step(), messages on their way, temporary tensors of a
        pass, and tensors that a torch.autograd.Function keeps without save_for_backward. profile() writes these bytes
        as memory_I and memory_W, from which `dpc --cost` predicts the memory of any schedule."""
        if self._bytes is None:
            raise UsageError("memory() needs a step that trained, and a forward-only program does not train"
                             if self.program.is_forward_only else "memory() needs 1 step that trained")
        return _memory.report(self.plan, self._bytes)

    # --- a step ---

    def forget_shapes(self):
        """Forgets the forms of messages (how many tensors, their shapes and dtypes, and which of them require a
        gradient), which the next step learns again. Call it on all ranks before a step with other forms; freezing or
        unfreezing the parameters of a stage changes them too."""
        self._counts[1] += 1
        self._runs.clear()
        for exchange in self._exchanges.values():
            exchange.forms.clear()
        self._agreement.sizes.clear()

    def step(self, *inputs, target=None, return_outputs=False, **arguments):
        """Runs a step: forward and backward of all microbatches; gradients are summed over replicas and, with
        sum_copies, over copies. Under torch.no_grad(), or if the program is forward-only, it runs only the forwards.

        inputs     inputs of the first stage, for the microbatches self.plan.given; no inputs if `given` is empty
        target     targets for loss_fn, for the microbatches self.plan.ends; None if `ends` is empty. A tuple gives
                   several targets
        arguments  keyword arguments of every stage on this rank: tensors and lists for all microbatches of the step;
                   other values are the same for all microbatches. None are allowed in training steps if one function
                   runs both halves of F&Bs

        Tensors are cut along batch_dim into microbatches; a list must have one part for each microbatch. Only a tensor
        with the size of the batch is cut, which the first input says; dps.torch.Whole(value) goes to each microbatch.

        Returns (losses, outputs). losses: the losses of the microbatches self.plan.ends, in this order; None if this
        rank computed no loss. outputs: with return_outputs, the outputs of these microbatches, joined along batch_dim;
        otherwise, and on ranks without the last stage, None."""
        self._check_failed()
        mode = torch.is_grad_enabled() and not self.program.is_forward_only
        try:
            self._begin(mode, inputs, target, return_outputs, arguments)
        except BaseException as error:
            self._failures.stage_raised("step()", error)
            raise
        actions_and_functions = self._runs.get(mode) or self._first_run(mode)
        with torch.set_grad_enabled(mode):
            recorded = self._run(*actions_and_functions, mode)
        if not mode:
            for wrapped in self._wrapped:
                wrapped.divide()
        if mode not in self._runs:
            self._runs[mode] = self._functions(mode, learnt=True)
        for steps in self._steps:
            steps.end()
        if (mode or self.program.is_forward_only) and not self._order.captures:
            self._recorded.append(recorded)
        return self._results()

    def _check_failed(self):
        if self._failures.words:
            raise PipelineError(f"this pipeline has failed and cannot be used any more: {self._failures.words}")

    def _first_run(self, mode):
        """(actions, functions) of a step that learns shapes. If the step trains, it also measures the memory."""
        actions, functions = self._functions(mode, learnt=False)
        if mode:
            meter = _memory.Meter(self)
            self._bytes, functions = meter.found, meter.functions(actions, functions)
        return actions, functions

    def _begin(self, mode, inputs, target, return_outputs, arguments):
        step, plan = self._step, self.plan
        if self._order.captures:
            self._check_capture(mode)
        if plan.given and (not inputs or inputs[0] is None):
            raise UsageError(f"rank {self.rank} runs the first stage of microbatches {plan.given}: step() needs their "
                             "inputs")
        step.inputs, sizes = _batch.inputs_of(inputs, plan.given, self.batch_dim) if plan.given else ({}, {})
        if mode and plan.ends and self.loss_fn is not None and target is None:
            raise UsageError(f"rank {self.rank} runs the last stage of microbatches {plan.ends}: step() needs their "
                             "targets, and no others (share() makes them from a whole batch)")
        if mode and arguments and self._has_overlapped:
            raise UsageError(f"{', '.join(arguments)}: a function that runs both halves of an F&B takes no keyword "
                             "arguments; make them inputs of step(), which the first stage gets, and let each stage "
                             "return those that the next one needs")
        sizes = self._agreement.begin(mode, sizes, partial(self._given, inputs, target, arguments))
        step.targets = {}
        if target is not None:
            step.targets = _batch.targets_of(target, plan.ends, self.batch_dim, [sizes[m] for m in plan.ends])
        step.arguments = _batch.arguments_of(arguments, self.batch_dim, sizes)
        step.losses, step.outputs = {}, {} if return_outputs else None
        for stage in self._stages:
            last = stage.parts[-1]
            last.loss_fn = self.loss_fn
            last.loss_scale, last.loss_gradient, last.is_constant = self.loss_scale, None, True

    def _check_capture(self, mode):
        if self.program.ranks > 1 or self.tied or any(total.group for total in self._sums):
            raise UsageError("a step with messages or sums cannot be captured as a CUDA graph: while a graph runs, "
                             "nobody can say for which rank the GPU waits")
        if self._agreement.compares or mode not in self._runs:
            raise UsageError("the first three steps, and the first after forget_shapes(), cannot be captured as a CUDA "
                             "graph")

    def _given(self, inputs, target, arguments):
        """What this rank was given for the step (dps.torch._same.Given). A rank that needs only inputs or only targets
        may have been given the others as well, of all microbatches; one that needs neither, anything."""
        given, plan, every = Given(), self.plan, list(range(self.program.microbatches))
        if plan.given or plan.ends:
            for values, name, numbers in ((inputs, "input", plan.given),
                                          (target if isinstance(target, tuple) else [target], "target", plan.ends)):
                where = f" of microbatches {numbers}" if numbers and numbers != every else ""
                for i, value in enumerate(values):
                    given.add(f"{name} {i}{where}", value)
            for name, value in self._shared:
                given.add(name, value)
        for name, value in arguments.items():
            given.add(name, value)
        self._shared = ()
        return given

    def _sum_at_start(self, tensor):
        self._sum_over_ranks(tensor, "the start of step()", self._counts[0] + 1, self._counts[1])

    def _sum_over_ranks(self, tensor, where, step=0, forgotten=0):
        """Sums a tensor over the ranks, in place. step, forgotten: what the watch asks (dps.torch._watch.Watch.at)."""
        now = step, forgotten, time.monotonic(), f"at {where}", True
        self._watch.at = lambda: now
        try:
            Sum(tensor, lambda each: self._messages.allreduce([each])).wait()
        except RuntimeError as error:
            raise self._failures.message_failed(where, "another rank", error) from None
        finally:
            self._watch.at = None

    def _run(self, actions, functions, mode):
        """Calls the functions of the actions one after the other. Returns (actions, marks, self._middles, the times
        of components): marks[0] of the beginning of the step, marks[i + 1] of the end of actions[i]
        (dps.torch._order)."""
        self._middles = {}
        self._components.clear()
        mark, marks = self._order.begin(), []
        self._counts[0] += 1
        self._watch.at = partial(_at, *self._counts, self.program, actions, marks, self._order)
        try:
            if mode:
                self._begin_sums()
            marks.append(mark())
            for function in functions:
                function()
                marks.append(mark())
            if mode:
                self._sum_tied()
            self._order.end()
        except MessageFailed as error:
            where = _where(self.program, actions, len(marks) - 1 if error.action is None else error.action)
            raise self._failures.message_failed(where, error.other, error) from None
        except BaseException as error:
            if self._failures.words and isinstance(error, Exception):  # the pass has computed with what never came
                raise PipelineError(self._failures.words) from error
            self._failures.stage_raised(_where(self.program, actions, len(marks) - 1), error)
            raise
        finally:
            self._watch.at = None
        return actions, marks, self._middles, list(self._components)

    def _begin_sums(self):
        self._check_tied()
        owned = self._owned() if any(total.group for total in self._sums) else [None] * len(self._sums)
        for total, parameters in zip(self._sums, owned):
            total.begin(parameters)
        for parameter, group in self._tied_here():
            divide([parameter], dist.get_world_size(group))

    def _check_tied(self):
        """Raises UsageError if `tied` has a parameter that a module does not have, or does not have any more."""
        if self.tied and all(isinstance(module, torch.nn.Module) for module in self.modules):
            known = {*self.parameters(), *parameters_of(self.loss_fn)}
            for parameter, _ in self.tied:
                if parameter not in known:
                    raise UsageError(f"`tied` has a parameter of shape {list(parameter.shape)} that this rank's "
                                     "modules and loss_fn do not have: if it has been replaced, set pipeline.tied")

    def _tied_here(self):
        """The pairs of `tied` whose group contains this process."""
        return [(parameter, group) for parameter, group in self.tied if dist.get_rank(group) >= 0]

    def _sum_tied(self):
        fill_gradients(parameter for parameter, _ in self.tied)
        for parameter, group in self._tied_here():
            gradient = local(parameter.grad)
            total = Sum(gradient, partial(dist.all_reduce, group=group, async_op=True))
            if gradient.is_cuda and _nccl.Communicator.serves(gradient.device, group):
                self._order.wait(total, _order.Others("another rank that shares a tied parameter"))
            else:
                self._await_tied(total)

    def _await_tied(self, total):
        """Waits for a sum over a group of the user, which _close() does not close. Only gloo can be waited for again
        after a timeout: NCCL ends the communicator, and the process."""
        until = time.monotonic() + self._limit
        while True:
            try:
                return total.wait(timedelta(seconds=_LOOK))
            except RuntimeError as error:
                is_over = self._failures.words or time.monotonic() > until
                if is_over or "timed out" not in str(error).lower():
                    raise MessageFailed("another rank that shares a tied parameter", error) from None

    def _results(self):
        step, ends = self._step, self.plan.ends
        losses = torch.stack([step.losses[m] for m in ends]) if step.losses else None
        if losses is not None and any(stage.is_last and stage.parts[-1].is_constant for stage in self._stages):
            warnings.warn("no loss of this step requires a gradient, so nothing was trained: does loss_fn detach its "
                          "result?", stacklevel=3)
        outputs = _batch.together([step.outputs[m] for m in ends], self.batch_dim) if step.outputs else None
        step.inputs = step.targets = step.arguments = step.outputs = None
        return losses, outputs


def _where(program, actions, at):
    if at < 0:
        return "the start of step()"
    if at == len(actions):
        return "the sum of the gradients of tied parameters"
    return f"{actions[at].name} (line {actions[at].instruction.line} of {program.source})"


def _at(step, forgotten, program, actions, marks, order):
    """What the watch asks (dps.torch._watch.Watch.at)."""
    done, waiting = len(marks) - 1, order.waiting
    at = done if waiting is None else waiting
    waits = waiting is not None or at in (-1, len(actions)) or (
        actions[at].instruction.opcode.startswith(("SEND", "RECEIVE", "WAIT", "REDUCE")))
    return step, forgotten, at, "at " + _where(program, actions, at), waits


def _checked(program):
    """Returns the program; raises UsageError if dps.torch cannot run it."""
    if not isinstance(program, Program):
        raise UsageError(f"a Pipeline runs a program, not a {type(program).__name__}: dps.compile() makes one")
    if program.is_asynchronous:
        raise UsageError(f"{program.schedule} updates weights within the step, which dps.torch does not run: take a "
                         "synchronous schedule (1f1b is pipedream's order), or run this one through libdps")
    return program


def _inverse(rank_mapping, ranks):
    if rank_mapping is None:
        return list(range(ranks))
    return sorted(range(ranks), key=lambda place: rank_mapping[place])


def _modules(program, plan, rank, stages):
    if callable(stages) and not isinstance(stages, torch.nn.Module):
        stages = [stages(chunk.stage) for chunk in plan.chunks]
    if not isinstance(stages, Iterable):
        raise UsageError("stages is a list of this rank's modules, or a function that makes the module of a stage from "
                         f"its number; not a {type(stages).__name__}")
    # a torch.distributed.pipelining.PipelineStage has its module in `submod`
    modules = [getattr(stage, "submod", stage) for stage in stages]
    if len(modules) != len(plan.chunks):
        wanted = ", ".join(str(chunk.stage) for chunk in plan.chunks)
        count = len(plan.chunks)
        raise UsageError(f"rank {rank} of {program.schedule} holds {count} stage{'s'[:count - 1]} ({wanted}, in this "
                         f"order), but you gave {len(modules)} module{'s'[:len(modules) != 1]}")
    for chunk, module in zip(plan.chunks, modules):
        if not callable(module):
            raise UsageError(f"stage {chunk.stage} is a {type(module).__name__}; a stage is a module or a function")
    return modules
