"""The second half of a layer with experts and its gradients, in PyTorch's double precision, by the
equations 12 to 20 of DeepSeek-V3's report (arXiv 2412.19437). Compares them with the results of F,
I and W on the oracle, which tests/model/torch.c writes."""

import sys

import torch
import torch.nn.functional as functional

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def swiglu(rows, wide, narrow):
    gate, up = (rows @ wide).chunk(2, dim=-1)
    return (functional.silu(gate) * up) @ narrow


def check(path):
    given = {}
    for line in open(path):
        name, *values = line.split()
        given[name] = torch.tensor([float(value) for value in values])

    def number(name):
        return given[name].item()

    def size(name):
        return int(number(name))

    tokens, hidden, sequence = size("tokens"), size("hidden"), size("sequence")
    experts, chosen = size("experts"), size("experts_per_token")
    width, shared = size("expert_hidden"), size("shared_experts")
    groups, best_groups = size("expert_groups"), size("groups_per_token")
    shapes = {
        "x": (tokens, hidden), "router.gain": (hidden,), "router.shift": (hidden,), "router.experts": (hidden, experts),
        "experts.wide": (experts, hidden, 2 * width), "experts.narrow": (experts, width, hidden),
        "shared.wide": (hidden, 2 * shared * width), "shared.narrow": (shared * width, hidden),
    }
    inputs = {name: given[name].reshape(shape).requires_grad_() for name, shape in shapes.items() if name in given}

    x = inputs["x"]
    normed = functional.layer_norm(x, (hidden,), inputs["router.gain"], inputs["router.shift"], eps=1e-5)
    logits = normed @ inputs["router.experts"]
    scores = logits.softmax(-1) if size("softmax") else logits.sigmoid()
    biased = (scores + given["router.bias"]).detach()
    if groups > 1:
        by_group = biased.reshape(tokens, groups, -1)
        best = by_group.topk(min(2, by_group.shape[-1]), dim=-1).values.sum(-1).topk(best_groups, dim=-1).indices
        kept = torch.zeros(tokens, groups).scatter(1, best, 1).bool()
        biased = by_group.masked_fill(~kept.unsqueeze(-1), -torch.inf).reshape(tokens, experts)
    indices = biased.topk(chosen, dim=-1).indices
    gates = scores.gather(1, indices)
    gates = gates / (gates.sum(-1, keepdim=True) + 1e-20) * number("gate_factor")

    y = x + (swiglu(normed, inputs["shared.wide"], inputs["shared.narrow"]) if shared else 0)
    for expert in range(experts):
        token, slot = (indices == expert).nonzero(as_tuple=True)
        rows = swiglu(normed[token], inputs["experts.wide"][expert], inputs["experts.narrow"][expert])
        y = y.index_add(0, token, gates[token, slot].unsqueeze(-1) * rows)

    picked = functional.one_hot(indices, experts).sum(1).to(scores.dtype).reshape(-1, sequence, experts)
    frequency = picked.mean(1) * experts / chosen
    share = (scores / scores.sum(-1, keepdim=True)).reshape(-1, sequence, experts).mean(1)
    balance = number("balance_loss") * (frequency * share).sum(-1).mean()

    ((y * given["dy"].reshape(tokens, hidden)).sum() + number("loss_scale") * balance).backward()
    loads = torch.bincount(indices.flatten(), minlength=experts).to(scores.dtype)
    bias = given["router.bias"] + number("bias_rate") * torch.sign(loads.mean() - loads)

    wrong = 0
    expected = {"got.y": y, "got.gates": gates, "got.chosen": indices, "got.balance": balance, "got.loads": loads,
                "got.bias": bias, **{"got." + name: tensor.grad for name, tensor in inputs.items()}}
    for name, tensor in expected.items():
        limit = 1e-7 if name == "got.bias" else 1e-12  # the bias is updated in float32
        difference = (given[name] - tensor.detach().flatten()).abs().max().item()
        largest = max(tensor.abs().max().item(), 1e-3)
        if not difference <= limit * largest:
            print(f"{path}: {name}: off by {difference:.3g} of {largest:.3g}")
            wrong += 1
    if set(name for name in given if name.startswith("got.")) != set(expected):
        print("not everything was compared")
        wrong += 1
    return wrong


sys.exit(sum(check(path) for path in sys.argv[1:]) > 0)
