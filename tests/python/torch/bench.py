"""Measures what dps.torch costs if the stages do nothing: processor time per action (an F, I, W or B with its
messages), with 2 ranks on gloo. Prints a name, a value, a unit and, for some, a goal on each line. `bench.py` starts
the ranks itself."""

import os
import sys
import time

from launch import launch

STEPS, MICROBATCHES, ROUNDS = 20, 20, 5


def actions(pipeline):
    """Number of passes of this rank in a step."""
    passes = {"FORWARD": 1, "BACKWARD": 1, "BACKWARD_INPUT": 1, "BACKWARD_WEIGHT": 1, "OVERLAP": 2}
    return sum(passes.get(action.instruction.opcode, 0) for action in pipeline.plan.training)


def messages_alone(group, peer):
    """Sends as many messages as 1f1b has, by gloo alone."""
    import torch

    x = torch.zeros(1, 4)
    for m in range(MICROBATCHES):
        for post in (group.send, group.recv) if peer == 1 else (group.recv, group.send):
            post([x], peer, m).wait()


def best_of(function):
    """The least processor time of a step, in us, over some rounds: of the process, and of this thread."""
    best = {}
    for _ in range(ROUNDS):
        for clock in (time.process_time, time.thread_time):
            started = clock()
            for _ in range(STEPS):
                function()
            spent = (clock() - started) / STEPS * 1e6
            best[clock] = min(spent, best.get(clock, spent))
    return best[time.process_time], best[time.thread_time]


def one_rank():
    import torch
    import torch.distributed as dist

    import dps
    import dps.torch

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in ("1f1b", "zb-h1", "dualpipe"):
        program = dps.compile(dps.schedule(name), ranks=2, microbatches=MICROBATCHES)
        stages = [torch.nn.Identity() for _ in program.rank(dist.get_rank()).chunks]
        pipeline = dps.torch.Pipeline(program, stages, loss_fn=lambda y: y.sum())
        inputs = [torch.zeros(MICROBATCHES, 4, requires_grad=True)] if pipeline.plan.given else []
        pipeline.step(*inputs, target=())
        process, thread = best_of(lambda: pipeline.step(*inputs, target=()))
        count = actions(pipeline)
        report(f"{name}_action_processor_time", f"{process / count:.1f} us goal 20")
        report(f"{name}_action_of_the_python_thread", f"{thread / count:.1f} us")
    group = dps.torch._group.connect([0, 1], dps.torch._group.store_of([0, 1], "bench"), 60)
    process, thread = best_of(lambda: messages_alone(group, 1 - dist.get_rank()))
    report("gloo_two_messages_processor_time", f"{process / MICROBATCHES:.1f} us")
    report("gloo_two_messages_of_the_python_thread", f"{thread / MICROBATCHES:.1f} us")


def report(name, value):
    if os.environ["RANK"] == "0":
        print(name, value)


def main():
    if "RANK" in os.environ:
        return one_rank()
    results = launch(os.path.abspath(__file__), 2, seconds=300)
    for status, output in results:
        sys.stdout.write(output)
    return next((status or 1 for status, _ in results if status != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
