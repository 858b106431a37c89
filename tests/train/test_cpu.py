"""Training on a CPU: oneDNN's products have the numbers of float64, freed memory is kept."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from regard.model.batch import Batch
from regard.model.config import ModelConfig
from regard.model.model import Model
from regard.model.presets import gpt2, llama, transformer
from regard.train.cpu import OneDNNLinear, use_onednn
from regard.train.objectives import token_loss

MODELS = {
    "gpt2": gpt2(32, 2, 4, vocab=50, length=16),
    "llama": llama(32, 2, 4, 2, 48, 50),
    "transformer": transformer(32, 2, 4, vocab=50),
}


def batch(config: ModelConfig) -> Batch:
    ids = torch.randint(0, 50, (2, 3, 12), generator=torch.Generator().manual_seed(1))
    return Batch(ids[0]) if config.target is None else Batch(ids[0], ids[1])


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("shape", [(7, 24), (3, 5, 24), (1, 1, 24)])
def test_a_product_and_its_gradients(shape: tuple[int, ...], biased: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    x, weight = torch.randn(shape, generator=draw), torch.randn(40, 24, generator=draw)
    bias = torch.randn(40, generator=draw) if biased else None
    given = [t for t in (x, weight, bias) if t is not None]
    wide = [t.double().requires_grad_() for t in given]
    low = [t.clone().requires_grad_() for t in given]
    made, right = OneDNNLinear.product(*low), F.linear(*wide)
    torch.testing.assert_close(made.double(), right, rtol=1e-5, atol=1e-5)
    pull = torch.randn(*shape[:-1], 80, generator=draw)[..., 20:60]  # a part, as of joined maps
    made.backward(pull)
    right.backward(pull.double())
    for mine, theirs in zip(low, wide, strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-5, atol=1e-5)


def test_a_frozen_weight_gets_no_gradient() -> None:
    x, weight = torch.randn(4, 8, requires_grad=True), torch.randn(8, 8)
    OneDNNLinear.product(x, weight).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(4, 8))
    assert weight.grad is None


def test_a_second_derivative_is_refused() -> None:
    x, weight = torch.randn(4, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    loss = OneDNNLinear.product(x, weight).square().sum()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_the_same(name: str) -> None:
    plain = Model.fresh(MODELS[name]).train()
    fast = copy.deepcopy(plain)
    maps = [m for m in fast.modules() if type(m) is torch.nn.Linear and m is not fast.head.out]
    assert use_onednn(fast) == len(maps) and all(type(m) is OneDNNLinear for m in maps)
    assert fast.state_dict().keys() == plain.state_dict().keys()
    given = batch(MODELS[name])
    for model in (plain, fast):
        token_loss(model, given, given.ids).sum.backward()
    for (path, mine), theirs in zip(fast.named_parameters(), plain.parameters(), strict=True):
        assert theirs.grad is not None
        scale = float(theirs.grad.abs().max())
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-5 * scale, msg=path)


def test_outside_training_nothing_changes() -> None:
    plain = Model.fresh(MODELS["gpt2"])
    fast = copy.deepcopy(plain)
    use_onednn(fast)
    given = batch(MODELS["gpt2"])
    assert torch.equal(fast(given), plain(given))


def test_only_float32_is_given_to_it() -> None:
    assert use_onednn(Model.fresh(MODELS["gpt2"]).double()) == 0
