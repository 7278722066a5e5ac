# Give `schedule` to JAX's mpmd as its pipeline schedule. Number the stages from 0 and the calls of each by microbatch.

import re

from shardy.integrations.python.jax.mpmd.types import (
    FragmentInfo, FragmentMergeRule, FragmentScheduleRule, PipelineSchedule, SplitFragmentType)

ROWS = [[[(int(stage), kind, int(microbatch)) for stage, kind, microbatch in re.findall(r"(\d+)([FBIW])(\d+)", cell)]
         for cell in row.split(",")] for row in ORDER.splitlines()]
SPLIT = any(kind == "I" for row in ROWS for cell in row for _, kind, _ in cell)


def key(fragment):
    """(stage, pass, microbatch) of a fragment; None: it is no pass of a stage."""
    counts = {origin.transpose_count for origin in fragment.origins}
    if fragment.stage_id is None or fragment.call_counter is None or counts not in ({0}, {1}):
        return None
    weight = fragment.split_type is SplitFragmentType.DROP_TRANSFERRED
    return fragment.stage_id, "F" if counts == {0} else "W" if weight else "I", fragment.call_counter


def rules(fragments, context):
    """The rules of the mesh that these fragments are of."""
    if context.num_meshes != len(ROWS):
        raise ValueError(f"this order has {len(ROWS)} ranks, but there are {context.num_meshes} meshes")
    found = {key(fragment): fragment for fragment in fragments if key(fragment)}
    here = {stage for stage, _, _ in found}
    row, = [row for row in ROWS if {stage for cell in row for stage, _, _ in cell} == here]
    order, merges = [], []
    for cell in row:
        parts = [(stage, part, microbatch) for stage, kind, microbatch in cell
                 for part in (("I", "W") if kind == "B" else kind)]
        # a backward that is not split has no W
        cell = [found.pop(part) for part in parts if part[1] != "W" or part in found]
        order += cell
        if len({fragment.stage_id for fragment in cell}) > 1 or "F" in parts[0] and len(cell) > 1:
            origins = tuple(dict.fromkeys(origin for fragment in cell for origin in fragment.origins))
            target = FragmentInfo(origins=origins, mesh_name=cell[0].mesh_name)
            merges.append(FragmentMergeRule(sources=tuple(cell), target=target))
    if found:
        raise ValueError(f"this order does not have {sorted(found)[0]} (stage, pass, microbatch)")
    return [FragmentScheduleRule(ordered_fragments=order)], merges


schedule = PipelineSchedule(schedule_merge_rule_builders=[rules],
                            required_mpmd_options={"mpmd_split_bwd_fragments": True} if SPLIT else {})
