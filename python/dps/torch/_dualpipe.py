"""DualPipe and DualPipeV with the signatures of DeepSeek's classes (github.com/deepseek-ai/DualPipe, commit 3da1bbe). A
program that uses these classes changes an import and nothing else. The orders are those of schedules/dualpipe.dps and
schedules/dualpipev.dps."""

import torch
from torch import nn

from . import _group, _stage
from ._pipeline import Pipeline
from ._start import start


def run_backward(tensors, grad_tensors):
    """Runs a backward from `tensors` with their gradients `grad_tensors`. Adds gradients to .grad of all leaves."""
    _stage.run_backward(tensors, grad_tensors)


_messages = {"shapes": None, "dtype": None}  # what the program has said of the tensors of its messages


def set_p2p_tensor_shapes(shapes):
    """Lets the next step learn the forms of messages anew if the shapes are others than before. All ranks must call
    this, as in DeepSeek's program."""
    _messages["shapes"] = [tuple(shape) for shape in shapes]


def set_p2p_tensor_dtype(dtype):
    """The same for the dtype."""
    _messages["dtype"] = dtype


class _TwoStages(nn.Module):
    """Two stages on each rank. Microbatches that move away from rank 0 run modules[0], those that move towards rank 0
    run modules[1]."""

    schedule = None

    def __init__(self, modules, batch_dim=0, process_group=None, rank_mapping=None):
        super().__init__()
        self.module = nn.ModuleList(modules)
        self.batch_dim, self.group, self.rank_mapping = batch_dim, process_group, rank_mapping
        self._pipelines = {}  # {number of microbatches: its Pipeline}
        self._learnt = {}  # {number of microbatches: `_messages` in the last step}

    def _pipeline(self, num_chunks):
        import dps

        if num_chunks not in self._pipelines:
            start()
            ranks = len(_group.global_ranks(self.group))
            program = dps.compile(dps.schedule(self.schedule), ranks=ranks, microbatches=num_chunks)
            rank = _group.program_rank(program, _group.global_ranks(self.group), self.rank_mapping)
            stages = [self.module[int(chunk.stage != rank)] for chunk in program.rank(rank).chunks]
            self._pipelines[num_chunks] = Pipeline(program, stages, None, self.group, self.rank_mapping, loss_scale=1.0,
                                                   batch_dim=self.batch_dim, sum_copies=False, tied=[])
        return self._pipelines[num_chunks]

    def step(self, *inputs, num_chunks=0, criterion=None, labels=(), return_outputs=False):
        """Runs a step of `num_chunks` microbatches: training, or under torch.no_grad() the forwards alone.

        inputs     only on ranks that run the first stage; each input is cut along batch_dim into the microbatches that
                   begin on this rank
        criterion  called as criterion(*outputs, *labels) by the last stage, for each microbatch
        labels     only on ranks that run the last stage

        Returns (loss, outputs) on the ranks that run the last stage, (None, None) on others. loss: the loss of each
        microbatch that ends on this rank; None if no loss was computed. outputs: with return_outputs the outputs of
        these microbatches, otherwise None. Gradients are those of the sum of the losses. They are not summed over the
        two copies that DualPipe has of each stage."""
        pipeline = self._pipeline(num_chunks)
        if self._learnt.setdefault(num_chunks, dict(_messages)) != _messages:
            pipeline.forget_shapes()
            self._learnt[num_chunks] = dict(_messages)
        pipeline.loss_fn = criterion
        labels = (labels,) if isinstance(labels, torch.Tensor) else tuple(labels)
        return pipeline.step(*inputs, target=labels, return_outputs=return_outputs)


class DualPipe(_TwoStages):
    """Both directions at once: rank r of P has stages r (modules[0]) and P - 1 - r (modules[1]). The first half of the
    microbatches begins on rank 0, and its losses are on rank P - 1; the second half goes the other way."""

    schedule = "dualpipe"


class DualPipeV(_TwoStages):
    """One direction in a V: rank r of P has stages r (modules[0]) and 2P - 1 - r (modules[1]). Rank 0 has the inputs,
    the labels and the losses."""

    schedule = "dualpipev"
