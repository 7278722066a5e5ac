"""PyTorch modules under a proven schedule.

    import dps, dps.torch

    program = dps.compile(dps.schedule("dualpipe"), ranks=2, microbatches=8)
    pipeline = dps.torch.Pipeline(program, [first, second], loss_fn=torch.nn.functional.mse_loss)
    losses, _ = pipeline.step(inputs, target=targets)
"""

from ._failure import PipelineError
from ._pipeline import Pipeline
from ._store import WeightGradStore

__all__ = ["Pipeline", "PipelineError", "WeightGradStore"]
