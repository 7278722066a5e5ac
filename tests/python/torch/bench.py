"""Measures what dps.torch costs if the stages do nothing: processor time per action (an F, I, W or B with its
messages), with 2 ranks on one machine. dps.torch sends these messages through shared memory. Beside it is the time of

- dps.torch with all messages through gloo,
- dps.torch with messages that do nothing,
- the same modules, backwards and messages called directly in the same order, through gloo; through the shared
  memory of dps.torch; and without messages,
- the messages of these calls alone: what gloo costs at least.

Also measures what precedes the first action: import dps, compile dualpipe for 8 ranks, and make the plan of a rank.
Prints a name, a value, a unit and, for some, a goal on each line. `bench.py` starts the ranks itself.
"""

import compileall
import importlib.util
import os
import sys
import time
from functools import cache, partial

from launch import launch

STEPS, MICROBATCHES = 200, 20


def actions(pipeline):
    """Number of passes of this rank in a training step. An F&B counts as two."""
    passes = {"FORWARD": 1, "BACKWARD": 1, "BACKWARD_INPUT": 1, "BACKWARD_WEIGHT": 1, "OVERLAP": 2}
    return sum(passes.get(action.instruction.opcode, 0) for action in pipeline.plan.training)


class Direct:
    """A step of a pipeline's rank as direct calls of PyTorch, without slots, checks of shapes, and times."""

    def __init__(self, pipeline, group):
        import torch

        self.group, self.peer, self.module = group, 1 - pipeline.rank, torch.nn.Identity()
        self.posted, self.losses = {}, []
        self.run_backward, self.empty = torch.autograd.Variable._execution_engine.run_backward, torch.empty
        self.x, self.dy, self.one = torch.zeros(1, 4, requires_grad=True), torch.zeros(1, 4), torch.ones(())
        self.last = pipeline.program.stages - 1
        order, _ = pipeline._runs[True]
        self.calls = [call for action in order for call in self.calls_of(action.instruction)]
        self.messages = [call for action in order if action.instruction.message is not None
                         for call in self.calls_of(action.instruction)]

    def calls_of(self, i):
        kind, slot = i.opcode, i.message
        if kind in ("FORWARD", "OVERLAP"):
            yield self.forward_with_loss if i.stage == self.last else self.forward
        if kind == "OVERLAP":
            yield from self.calls_of(i.second)
        elif kind in ("BACKWARD", "BACKWARD_INPUT"):
            yield self.backward_from_loss if i.stage == self.last else self.backward
        elif kind.startswith(("SEND", "RECEIVE")):
            tag = 4 * i.microbatch + 2 * i.pipe + kind.endswith("FORWARD")
            yield partial(self.send if kind.startswith("SEND") else self.receive, slot, tag)
        elif kind == "WAIT":
            yield lambda: self.posted.pop(slot).wait()

    def forward(self):
        self.module(self.x).detach()

    def forward_with_loss(self):
        self.losses.append(self.module(self.x).sum())

    def backward(self):
        self.run_backward((self.x,), (self.dy,), False, False, (), True, True)

    def backward_from_loss(self):
        self.run_backward((self.losses.pop(),), (self.one,), False, False, (), True, True)

    def send(self, slot, tag):
        self.posted[slot] = self.group.send([self.dy], self.peer, tag)

    def receive(self, slot, tag):
        self.posted[slot] = self.group.recv([self.empty((1, 4))], self.peer, tag)

    def step(self):
        for call in self.calls:
            call()

    def only_messages(self):
        for call in self.messages:
            call()


class NoMessages:
    """In place of a gloo group: nothing is sent, and received tensors have any values."""

    def send(self, tensors, peer, tag):
        return self

    recv = send

    def wait(self):
        pass


class Near:
    """In place of a gloo group: messages go over a link, the shared memory of dps.torch."""

    def __init__(self, link):
        import torch

        from dps.torch._links import Receiver, Sender

        form = [((1, 4), torch.float32, False)]
        self.sender, self.receiver = (cache(partial(kind, link, form=form)) for kind in (Sender, Receiver))

    def send(self, tensors, peer, tag):
        return self.sender(number=tag)(tensors)

    def recv(self, tensors, peer, tag):
        return self.receiver(number=tag)()


def silence(pipeline):
    """From now on the pipeline's links (shared memory) carry no message: received tensors have any values."""
    for link in pipeline._links.values():
        link.send = link.receive = lambda *_: None


def least_of(functions):
    """Calls the functions in turn. Returns the least processor time of each, in us: of the process, of this thread."""
    clocks = (time.process_time, time.thread_time)
    least = [[float("inf")] * len(clocks) for _ in functions]
    for _ in range(STEPS):
        for times, function in zip(least, functions):
            began = [clock() for clock in clocks]
            function()
            times[:] = [min(time, (clock() - start) * 1e6) for time, clock, start in zip(times, clocks, began)]
    return least


def prepared(program, near):
    """A Pipeline whose stages do nothing, and a function that runs a step of it. One step has been run already. near:
    messages go over the links (shared memory); otherwise through gloo."""
    import torch
    import torch.distributed as dist

    import dps.torch

    stages = [torch.nn.Identity() for _ in program.rank(dist.get_rank()).chunks]
    pipeline = dps.torch.Pipeline(program, stages, loss_fn=lambda y: y.sum())
    if not near:
        pipeline._links.clear()
    inputs = [[torch.zeros(1, 4, requires_grad=True) for _ in pipeline.plan.given]] if pipeline.plan.given else []
    step = partial(pipeline.step, *inputs, target=())
    step()
    return pipeline, step


def one_rank():
    import torch
    import torch.distributed as dist

    began = time.process_time()
    import dps
    import dps.torch

    dps.torch._plan.Plan(dps.compile(dps.schedule("dualpipe"), ranks=8, microbatches=20), 0)
    report("import_compile_plan_processor_time", f"{(time.process_time() - began) * 1e3:.0f} ms goal 50")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    group = dps.torch._group.connect([0, 1], dps.torch._group.store_of([0, 1], "bench"), 60)
    for name in ("1f1b", "zb-h1", "dualpipe"):
        program = dps.compile(dps.schedule(name), ranks=2, microbatches=MICROBATCHES)
        (pipeline, step), (_, through_gloo) = prepared(program, True), prepared(program, False)
        direct, near = Direct(pipeline, group), Direct(pipeline, Near(next(iter(pipeline._links.values()))))
        found = least_of((step, through_gloo, direct.step, direct.only_messages, near.step))
        silence(pipeline)
        direct.group = NoMessages()
        found += least_of((step, direct.step))
        kinds = (("action", " goal 20"), ("action_through_gloo", ""), ("direct_calls_through_gloo", ""),
                 ("gloo_alone", ""), ("direct_calls_over_links", ""), ("action_without_messages", ""),
                 ("direct_calls_without_messages", ""))
        for (kind, goal), times in zip(kinds, found):
            process, thread = (time / actions(pipeline) for time in times)
            report(f"{name}_{kind}_processor_time", f"{process:.1f} us{goal}, of the Python thread {thread:.1f} us")


def report(name, value):
    if os.environ["RANK"] == "0":
        print(name, value, flush=True)


def main():
    if "RANK" in os.environ:
        return one_rank()
    compileall.compile_dir(os.path.dirname(importlib.util.find_spec("dps").origin), quiet=1)  # as after a first import
    results = launch(os.path.abspath(__file__), 2, seconds=3000)
    for status, output in results:
        sys.stdout.write(output)
    return next((status or 1 for status, _ in results if status != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
