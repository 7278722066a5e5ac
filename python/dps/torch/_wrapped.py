"""Stages that bring data parallelism of their own: in DistributedDataParallel, or divided by fully_shard.

Both sum gradients in hooks of each backward; but a stage has many backwards in a step, some in halves, and its
gradients are complete only after the last W. So a pass runs the module inside of DistributedDataParallel, without its
hooks, and GradientSum takes the mean over its processes. fully_shard holds back its sums, and keeps the parameters
whole, until GradientSum asks for them once."""

from torch.nn.parallel import DistributedDataParallel

from .._errors import UsageError
from . import _group

# Classes that cannot hold back their sums, and what to take instead.
_REFUSED = {"FullyShardedDataParallel": "fully_shard, DistributedDataParallel or replicate_group",
            "DDP": "DistributedDataParallel or replicate_group"}  # a base of modules that an older replicate() made


def _is(module, name):
    """Whether a class of this name is a class of the module. Names, because older versions of PyTorch lack some."""
    return any(kind.__name__ == name for kind in type(module).__mro__)


def local(tensor):
    """This process's part of a divided tensor (DTensor); any other tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Wrapped:
    """A stage as it is given to Pipeline. Raises UsageError if its gradients could not be summed once, and all of them.

    name        the stage in errors
    replicas    the processes of replicate_group

    inside      what a pass calls
    processes   the processes of DistributedDataParallel, over which gradients become a mean; None without it"""

    def __init__(self, module, name, replicas):
        self.inside, self.processes, self._root, self._divided = module, None, None, []
        self._wrapper, self._name = None, name
        if not hasattr(module, "named_modules"):
            return
        if isinstance(module, DistributedDataParallel):
            self._wrapper, self.inside = module, module.module
            self.processes = _group.global_ranks(module.process_group)
        for path, part in self.inside.named_modules():
            self._check(path, part)
        self._divided = [part for part in self.inside.modules() if _is(part, "FSDPModule")]
        if self._divided:
            self._root = getattr(self.inside, "_orig_mod", self.inside)  # that of torch.compile
            if self._root is not self._divided[0]:
                path = next(path for path, part in self.inside.named_modules() if part is self._divided[0])
                self._refuse(f"fully_shard has divided only parts of it (`{path}`): call it on the whole stage, too")
        self._check_groups(replicas)

    def _refuse(self, words):
        raise UsageError(f"{self._name}: {words}")

    def _check(self, path, part):
        if isinstance(part, DistributedDataParallel):
            self._refuse(f"it has DistributedDataParallel inside (`{path}`): wrap the whole stage instead")
        for kind, instead in _REFUSED.items():
            if _is(part, kind):
                self._refuse(f"it is in {kind}, which sums in each backward: take {instead}")

    def _check_groups(self, replicas):
        summed = set(self.processes or [])
        for mesh in {p.device_mesh for p in self.inside.parameters() if hasattr(p, "device_mesh")}:
            summed.update(mesh.mesh.flatten().tolist())
        if len(summed.intersection(replicas)) > 1:
            self._refuse("its gradients would be summed twice: leave out replicate_group, or the wrapper")
        self._check_options()

    def _check_options(self):
        """Raises UsageError if DistributedDataParallel has been told to do more than the mean of gradients."""
        if self._wrapper is None:
            return
        for what, is_there in (("a communication hook", self._wrapper._get_ddp_logging_data().get("comm_hook")),
                               ("mixed_precision", getattr(self._wrapper, "mixed_precision", None)),
                               ("parameters to ignore", self._wrapper.parameters_to_ignore)):
            if is_there:
                self._refuse(f"its DistributedDataParallel has {what}, which a pipeline does not support")

    def begin(self):
        """Call it before the first F of a step that trains. Divided parameters then stay whole, and their gradients are
        not summed."""
        self._check_options()
        if self._root is not None:
            self.divide()
            self._let_sum(False)
            self._root.set_reshard_after_forward(False)

    # --- fully_shard ---

    @property
    def is_divided(self):
        return self._root is not None

    def _let_sum(self, whether):
        root = self._root
        root.set_requires_gradient_sync(whether)
        root.set_reshard_after_backward(whether)
        if hasattr(root, "finalize_backward"):
            if not whether:
                root.set_manual_backward_finalization(True)
        else:
            root.set_is_last_backward(whether)

    def sum(self):
        """Call it after the last W. Each process then has its part of the mean of the divided gradients, and of the
        parameters."""
        if self._root is None:
            return
        self._let_sum(True)
        if hasattr(self._root, "finalize_backward"):  # PyTorch 2.15
            self._root.finalize_backward()
            self._root.set_manual_backward_finalization(False)
            return
        state = self._root._get_fsdp_state()
        for part in state._state_ctx.all_states:
            if part._fsdp_param_group:
                part._fsdp_param_group.post_backward()
        state._root_post_backward_final_callback()

    def divide(self):
        """Leaves each process only its part of divided parameters."""
        for part in self._divided:
            part.reshard()
