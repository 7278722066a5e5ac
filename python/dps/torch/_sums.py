"""Gradients summed over the copies of a stage and over replicas of the pipeline."""

import torch


def owned_parameters(modules, order):
    """Of each chunk, the parameters whose gradients it sums: all that need one, without twins. A parameter that is in
    several chunks of a rank belongs to the one whose sum is posted last, when the gradient is complete."""
    owner = {}
    for chunk in order:
        for parameter in _parameters(modules[chunk]):
            owner[parameter] = chunk
    return [[p for p in _parameters(module) if owner.get(p, chunk) == chunk] for chunk, module in enumerate(modules)]


def _parameters(module):
    return [p for p in module.parameters() if p.requires_grad] if hasattr(module, "parameters") else []


class GradientSum:
    """The sum of a chunk's gradients over the processes of a group: posted, and waited for later.

    group   a gloo group (dps.torch._group.connect); None: the chunk is alone, and its gradient is the sum"""

    def __init__(self, parameters, group):
        self.parameters, self.group = parameters, group
        self.flying = []

    def post(self):
        if self.group is None:
            return
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for dtype in sorted({p.dtype for p in self.parameters}, key=str):
            gradients = [p.grad for p in self.parameters if p.dtype == dtype]
            flat = torch.cat([g.reshape(-1) for g in gradients])
            self.flying.append((self.group.allreduce([flat]), flat, gradients))

    def wait(self, timeout):
        for work, flat, gradients in self.flying:
            work.wait(timeout)
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients])):
                gradient.copy_(part.view_as(gradient))
        self.flying = []
