"""Notices weights that two stages share in the user's model, but not in the pipeline: nobody would sum their gradients.

Each rank has modules of its own, so only values and names tell. Weights that begin at random are compared. Equal values
alone mean little: stages often begin with one seed, or layers are copies of one layer. So the two must also be an
embedding and no embedding, or two layers of one stage; or their layers have different names, besides numbers, or theirs
is the only name that two stages have in common, while the two stages do not begin with the same random weight, as they
do after equal seeds."""

import re
from typing import NamedTuple

import torch

from ._same import digest_of
from ._wrapped import local

_SAMPLE, _LEAST = 1024, 8  # how many numbers of a weight are compared, at most and at least


class Weight(NamedTuple):
    """digest: None: the weight is not compared. place: a number for each tensor of the rank."""

    stage: int
    name: str
    kind: str  # the class of its layer
    digest: object
    place: int


def weights_of(chunks, modules):
    """A list with the Weights of this rank."""
    found, places = [], {}
    for chunk, module in zip(chunks, modules):
        for path, layer in module.named_modules() if isinstance(module, torch.nn.Module) else ():
            for name, weight in layer.named_parameters(path, recurse=False):
                digest = _digest_of(weight) if weight.requires_grad else None
                found.append(Weight(chunk.stage, name, type(layer).__name__, digest,
                                    places.setdefault(weight, len(places))))
    return found


def _digest_of(weight):
    """The digest of a sample of a weight. None if it has few numbers, or the numbers do not look as if from a random
    generator: most of them occur often, as in a constant or a table that all layers have."""
    if torch.nn.parameter.is_lazy(weight) or weight.device.type == "meta":
        return None
    numbers = local(weight.detach()).reshape(-1)
    numbers = numbers[::max(1, numbers.numel() // _SAMPLE)].cpu()
    if len(numbers) < _LEAST or len(numbers.float().unique()) < len(numbers) / 4:
        return None
    return digest_of([numbers])


def tie_of(ranks):
    """Two places (rank, Weight) of a weight that is probably tied, and that no rank shares between its stages. None:
    there are none. ranks: the Weights of each rank."""
    first, names, seen = {}, {}, {}
    for rank, weight in [(rank, weight) for rank, weights in enumerate(ranks) for weight in weights]:
        names.setdefault(weight.stage, set()).add(weight.name)
        if weight.digest is not None:
            first.setdefault(weight.stage, weight.digest)
            seen.setdefault(weight.digest, []).append((rank, weight))
    for places in seen.values():
        pairs = [(one, two) for one in places for two in places if one[1].stage < two[1].stage]
        shared = {(a.stage, b.stage) for (rank, a), (other, b) in pairs if rank == other and a.place == b.place}
        roles = {(weight.stage, _role(weight)) for _, weight in places}
        is_twice = len(roles) > len({stage for stage, _ in roles})
        for one, two in pairs:
            a, b = one[1], two[1]
            if (a.stage, b.stage) not in shared and (
                    is_twice or ("mbedding" in a.kind) != ("mbedding" in b.kind) or first[a.stage] != first[b.stage]
                    and (_role(a) != _role(b) or names[a.stage] & names[b.stage] == {a.name, b.name})):
                return one, two
    return None


def _role(weight):
    """The names of a weight and of its layer, without numbers."""
    return re.sub(r"\d", "", ".".join(weight.name.split(".")[-2:]))
