"""Writes the trace of a run in the form of dpc and dprun (program/times/trace.h), and costs from it.

dpc's predicted trace of the same program has all events, with names and arrows between ranks. The measured trace
repeats them for each step, with measured times instead of predicted ones. It leaves out the events of instructions that
the step did not run."""

import json
import re
from collections import defaultdict

_ALL_TO_ALLS, _COMPONENTS = 3, 5  # lanes
_NANOSECOND = 0.001  # in microseconds
_PASS = re.compile(r"(?:p\d+:)?(\d+)([FIWB])\d+")


class _Rank:
    """Turns the events of a rank in the predicted trace into measured events of one step.

    spans         {number of an instruction: (start, middle, end)} in microseconds; middle: the end of the first half of
                  an F&B or F&F; None if it was not timed, and for other instructions
    step          number of the step, from 1
    first_arrow   added to the ids of arrows, so that each step has ids of its own
    latest        the measured event of the last span (instruction with a duration) of the predicted trace so far; None
                  if the step did not run its instruction"""

    def __init__(self, plan, spans, step, first_arrow):
        self.plan, self.spans, self.step, self.first_arrow = plan, spans, step, first_arrow
        self.makers = {}  # {name of a pass, with B in place of I: number of its instruction}
        self.sums = {}  # {stage: [number of its REDUCE, number of its WAIT_REDUCE]}
        for action in plan.training:
            for name in action.name.split("&"):
                self.makers[re.sub(r"[BI](?=\d+$)", "B", name)] = action.index
            if action.instruction.opcode in ("REDUCE", "WAIT_REDUCE"):
                self.sums.setdefault(action.instruction.stage, []).append(action.index)
        self.latest, self.held = None, 0

    def event(self, event):
        """The measured event for an event of the predicted trace; None if this step did not run its instruction."""
        made = dict(event, args=dict(event.get("args", {})))
        if event["ph"] == "X":
            return self._span(made)
        if event["ph"] in "be":
            return self._sum(made)
        if self.latest is None:
            return None
        start, _, end = self.spans[self.latest["args"]["instruction"]]
        if event["ph"] == "C":
            begins, self.held = made["args"]["held"] > self.held, made["args"]["held"]
            made["ts"] = start if begins else end
        else:
            made["id"] += self.first_arrow
            made["ts"] = start if event["ph"] == "f" else self._made()
        return made

    def _span(self, made):
        instruction = made["args"]["instruction"]
        if instruction not in self.spans:
            self.latest = None
            return None
        start, middle, end = self.spans[instruction]
        made.update(ts=start, dur=end - start)
        made["args"]["step"] = self.step
        if middle is not None:
            made["args"]["halves"] = [middle - start, end - middle]
        self.latest = made
        return made

    def _made(self):
        """When an arrow begins, for the message that the latest span sends. This is 1 ns before the end of the pass
        that computed the message, so that the arrow begins inside the pass."""
        maker = self.makers[self.latest["args"]["message"].replace("SEND_", "")]
        start, _, end = self.spans[maker]
        return max(start, end - _NANOSECOND)

    def _sum(self, made):
        post, wait = self.sums[int(made["name"].split()[1])]
        if post not in self.spans or wait not in self.spans:
            return None
        (first, _, posted), (waits, _, end) = self.spans[post], self.spans[wait]
        made["ts"] = first if made["ph"] == "b" else end
        made["args"].update(step=self.step, waited=posted - first + end - waits)
        return made


def _components(plan, rank, step, parts, origin, first_of):
    """The events of the components inside the passes of a step. parts: rows of Pipeline._components_of(); first_of:
    {stage: the number in the model of its first layer}."""
    for index, stage, layer, name, letter, start, end, *beside in parts:
        passes, direction = plan.training[index].name.split("&"), letter.replace("A", "B")
        args = dict(step=step, instruction=index, line=plan.training[index].instruction.line,
                    layer=first_of[stage] + layer, component=name, direction=direction,
                    **{"pass": passes[0 if letter == "F" else -1]})
        made = dict(name=f"{name}({direction}) of layer {args['layer']}", cat="component", ph="X", pid=rank,
                    tid=_COMPONENTS, ts=(start - origin) * 1e6, dur=(end - start) * 1e6, args=args)
        if letter == "A":
            args["whole"] = True
        yield made
        if beside:
            posted, waits, goes_on = beside
            arrived = goes_on if end > waits else end
            yield dict(made, cat="all-to-all", tid=_ALL_TO_ALLS, ts=(posted - origin) * 1e6,
                       dur=(arrived - posted) * 1e6, args=dict(args, waited=(goes_on - waits) * 1e6))


def _first_layers(stages, parts):
    """{stage: the number in the model of its first layer}, of all components of a run."""
    depth = defaultdict(int)
    for _, stage, layer, *_ in parts:
        depth[stage] = max(depth[stage], layer + 1)
    return {stage: sum(depth[before] for before in range(stage)) for stage in range(stages + 1)}


def merge(program, plans, steps_of_ranks):
    """The measured trace of all ranks, as a dict. steps_of_ranks[rank][step] is {number of an instruction: (start,
    middle, end)} in seconds, and the rows of Pipeline._components_of(); all ranks have the same clock."""
    model = json.loads(program.trace())
    origin = min(span[0] for steps in steps_of_ranks for spans, _ in steps for span in spans.values())
    first_of = _first_layers(program.stages, [part for steps in steps_of_ranks for _, parts in steps for part in parts])
    by_rank, arrows = defaultdict(list), 2 * program.stages * program.microbatches
    for event in model["traceEvents"]:
        by_rank[event["pid"]].append(event)
    events = []
    for rank, steps in enumerate(steps_of_ranks):
        events += [event for event in by_rank[rank] if event["ph"] == "M"]
        for number, (spans, parts) in enumerate(steps):
            shifted = {index: tuple(None if t is None else round((t - origin) * 1e6, 3) for t in span)
                       for index, span in spans.items()}
            writer = _Rank(plans[rank], shifted, number + 1, number * arrows)
            made = (writer.event(event) for event in by_rank[rank] if event["ph"] != "M")
            events += [event for event in made if event is not None]
            events += _components(plans[rank], rank, number + 1, parts, origin, first_of)
    other = dict(model["otherData"], layers=first_of[program.stages], unit=0, message_bytes=0, processors=0)
    return dict(model, otherData=other, traceEvents=events)


def costs(trace):
    """The text of a cost file for `dpc --cost @FILE`: for each kind of pass and stage, the median time in ms over all
    steps of the trace but the first. Leaves out the passes of an F&B or F&F whose halves were not timed."""
    # imported here, because the import takes 10 ms, and most programs never call costs()
    from statistics import median

    found, parts = defaultdict(list), defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["cat"] == "component" and event["args"]["step"] > 1:
            args = event["args"]
            parts[args["component"], args["direction"], "whole" not in args].append(event["dur"] / 1000)
        if event["ph"] == "X" and event["cat"] == "compute" and event["args"]["step"] > 1:
            names = event["args"]["pass"].split("&")
            times = [event["dur"]] if len(names) == 1 else event["args"].get("halves", [])
            for name, time in zip(names, times):
                stage, letter = _PASS.match(name).groups()
                found[letter, int(stage)].append(time / 1000)
    lines = ["unit = 1e-3 # seconds: times are in milliseconds", f"stages = {trace['otherData']['stages']}"]
    lines += [f"{letter}[{stage}] = {median(times):.6g} # median of {len(times)} passes"
              for (letter, stage), times in sorted(found.items())]
    if parts:
        lines.append(f"model_layers = {trace['otherData']['layers']}")
    lines += [f"{name}.{letter} = {median(times):.6g} # median of {len(times)} runs"
              for (name, letter, apart), times in sorted(parts.items())
              if apart or (name, letter, True) not in parts]
    return "\n".join(lines) + "\n"
