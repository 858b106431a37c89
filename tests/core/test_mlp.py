"""MLP: plain and gated, each neuron in view (MISSION #47)."""

import pytest
import torch
from torch.nn import functional as F

from regard.core.config import BlockConfig
from regard.core.mlp import ACTIVATIONS, MLP, activation
from regard.errors import UsageError


def build(act="relu", gated=False, bias=("mlp",)):
    torch.manual_seed(0)
    return MLP(BlockConfig(6, 2, 10, act=act, gated=gated, bias=bias))


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_plain(act):
    mlp, x = build(act), torch.randn(2, 3, 6)
    up, down = mlp.up, mlp.down
    hidden = ACTIVATIONS[act](x @ up.weight.T + up.bias)
    torch.testing.assert_close(mlp(x), hidden @ down.weight.T + down.bias)


def test_gated():
    mlp, x = build("silu", gated=True, bias=()), torch.randn(2, 3, 6)
    hidden = F.silu(x @ mlp.gate.weight.T) * (x @ mlp.up.weight.T)
    torch.testing.assert_close(mlp(x), hidden @ mlp.down.weight.T)
    assert mlp.up.bias is None and mlp.gate.bias is None and mlp.down.bias is None


def test_activations_by_name():
    x = torch.linspace(-3, 3, 50)
    assert activation("gelu") is F.gelu
    torch.testing.assert_close(activation("gelu_tanh")(x), F.gelu(x, approximate="tanh"))
    assert (activation("gelu_tanh")(x) != F.gelu(x)).any()
    with pytest.raises(UsageError, match=r"'gelu_tan'[\s\S]*did you mean gelu_tanh"):
        activation("gelu_tan")


@pytest.mark.parametrize("gated", [False, True])
def test_a_neuron_is_addressable(gated):
    """pre is what the activation reads, post what the last map reads."""
    mlp, x, seen = build("silu", gated), torch.randn(1, 2, 6), {}
    for name in ("pre", "post", "out"):
        getattr(mlp.at, name).fn = lambda value, name=name: seen.setdefault(name, value)
    out = mlp(x)
    pre = mlp.gate(x) if gated else mlp.up(x)
    assert torch.equal(seen["pre"], pre) and torch.equal(seen["out"], out)
    assert torch.equal(seen["post"], F.silu(pre) * (mlp.up(x) if gated else 1))

    def silence(value):
        return torch.where(torch.arange(10) == 4, 0.0, value)

    mlp.at.pre.fn, mlp.at.post.fn, mlp.at.out.fn = None, silence, None
    lost = seen["post"][..., 4:5] * mlp.down.weight[:, 4]
    torch.testing.assert_close(mlp(x), out - lost)
