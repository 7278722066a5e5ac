"""Trains PyTorch modules under a proven schedule.

    import dps, dps.torch

    program = dps.compile(dps.schedule("dualpipe"), ranks=2, microbatches=8)
    pipeline = dps.torch.Pipeline(program, make_stage, loss_fn=torch.nn.functional.mse_loss)
    x, y = pipeline.share(batch, targets)
    losses, _ = pipeline.step(x, target=y)

docs/pytorch.md explains all of it.
"""

from ._all_to_all import all_to_all
from ._batch import Whole
from ._check import check
from ._dualpipe import DualPipe, DualPipeV, run_backward, set_p2p_tensor_dtype, set_p2p_tensor_shapes
from ._failure import PipelineError
from ._layers import layers
from ._memory import ChunkMemory
from ._pipeline import Pipeline
from ._start import start
from ._store import WeightGradStore

__all__ = ["ChunkMemory", "DualPipe", "DualPipeV", "Pipeline", "PipelineError", "WeightGradStore", "Whole",
           "all_to_all", "check", "layers", "run_backward", "set_p2p_tensor_dtype", "set_p2p_tensor_shapes", "start"]
