"""Training on a CPU: products, attention and GELU have the numbers of float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from regard.model.batch import Batch
from regard.model.config import ModelConfig
from regard.model.model import Model
from regard.model.presets import gpt2, llama, transformer
from regard.native import build
from regard.native import training as native
from regard.train.cpu import NativeAttention, NativeMLP, OneDNNLinear, train_on_cpu
from regard.train.objectives import token_loss

MODELS = {
    "gpt2": gpt2(64, 2, 4, vocab=50, length=16),
    "llama": llama(64, 2, 4, 2, 48, 50),
    "transformer": transformer(64, 2, 4, vocab=50),
    "narrow heads": gpt2(32, 2, 4, vocab=50, length=16),  # too narrow for our kernel
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
    assert train_on_cpu(fast) == len(maps) and all(type(m) is OneDNNLinear for m in maps)
    if native.library() is not None and name != "narrow heads":
        kinds = {type(m) for m in fast.modules()}
        assert NativeAttention in kinds and (NativeMLP in kinds) == (name == "gpt2")
    assert fast.state_dict().keys() == plain.state_dict().keys()
    given = batch(MODELS[name])
    for model in (plain, fast):
        token_loss(model, given, given.ids).sum.backward()
    right = {path: theirs.grad for path, theirs in plain.named_parameters()}
    for path, mine in fast.named_parameters():
        # A bias of keys moves no weight: its gradient is zero but for rounding.
        like = right[path.replace("k.bias", "k.weight")]
        scale = float(like.abs().max())
        torch.testing.assert_close(mine.grad, right[path], rtol=0, atol=1e-5 * scale, msg=path)


def test_outside_training_nothing_changes() -> None:
    plain = Model.fresh(MODELS["gpt2"])
    fast = copy.deepcopy(plain)
    train_on_cpu(fast)
    given = batch(MODELS["gpt2"])
    assert torch.equal(fast(given), plain(given))


def test_only_float32_is_given_to_it() -> None:
    assert train_on_cpu(Model.fresh(MODELS["gpt2"]).double()) == 0


def autocast() -> AbstractContextManager[object]:
    return torch.autocast("cpu", torch.bfloat16)


@contextmanager
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "dtype, around",
    [
        (torch.float32, autocast),
        (torch.float32, float64_by_default),
        (torch.float64, nullcontext),
    ],
)
def test_a_prepared_model_can_be_trained_otherwise(
    dtype: torch.dtype, around: Callable[[], AbstractContextManager[object]]
) -> None:
    plain = Model.fresh(MODELS["gpt2"]).train()
    fast = copy.deepcopy(plain)
    train_on_cpu(fast)
    given = batch(MODELS["gpt2"])
    for model in (plain.to(dtype), fast.to(dtype)):
        with around():
            loss = token_loss(model, given, given.ids).sum
        loss.backward()
    for mine, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)


def test_a_prepared_model_can_be_compiled() -> None:
    fast = Model.fresh(MODELS["gpt2"]).train()
    train_on_cpu(fast)
    given = batch(MODELS["gpt2"])
    seen: list[str] = []

    def keep(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    body = torch.compile(fast.forward, backend=keep, fullgraph=True)
    right = fast(given)
    torch.testing.assert_close(body(given), right, rtol=1e-4, atol=1e-4)
    assert seen and not any("mkldnn" in name or "autograd" in name for name in seen)


# Attention and GELU -----------------------------------------------------------------------------

needs_native = pytest.mark.skipif(native.library() is None, reason="no native kernels here")


def opened(how: str, batch: int, queries: int, keys: int) -> torch.Tensor | None:
    """A mask in which every query sees the first key."""
    if how == "all":
        return None
    shape = {"keys": (batch, 1, 1, keys), "pairs": (1, 1, queries, keys)}
    draw = torch.Generator().manual_seed(3)
    mask = torch.rand(shape.get(how, (batch, 1, queries, keys)), generator=draw) > 0.4
    mask[..., 0] = True
    return mask


@needs_native
@pytest.mark.parametrize("how", ["all", "keys", "pairs", "each"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "sizes", [(4, 4, 33, 33, 64), (4, 2, 50, 77, 16), (2, 1, 1, 90, 80), (2, 2, 40, 9, 32)]
)
def test_attention_and_its_gradients(sizes: tuple[int, ...], causal: bool, how: str) -> None:
    heads, groups, queries, keys, width = sizes
    causal = causal and queries <= keys
    draw = torch.Generator().manual_seed(2)
    shapes = (queries, heads), (keys, groups), (keys, groups), (queries, heads)
    q, k, v, pull = (
        torch.randn(2, length, count, width, generator=draw).transpose(1, 2)
        for length, count in shapes
    )
    mask = opened(how, 2, queries, keys)
    low = [x.clone().requires_grad_() for x in (q, k, v)]
    made = native.attend(*low, mask, causal, 0.3)
    assert native.fits(q, k, v, mask, causal)
    made.backward(pull)
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    seen = seen.tril(keys - queries) if causal else seen
    seen = seen if mask is None else seen & mask
    right = F.scaled_dot_product_attention(*wide, seen, scale=0.3, enable_gqa=True)
    right.backward(pull.double())
    torch.testing.assert_close(made.double(), right, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(low, wide, strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-5, atol=2e-5)


@needs_native
def test_attention_has_the_same_bits_with_any_number_of_threads() -> None:
    draw, before = torch.Generator().manual_seed(4), torch.get_num_threads()
    drawn = [torch.randn(3, 4, 40, 32, generator=draw) for _ in range(3)]
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            given = [x.clone().requires_grad_() for x in drawn]
            made = native.attend(*given, None, True, 0.2)
            made.square().sum().backward()
            found.append([made.detach(), *(x.grad for x in given)])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@needs_native
@pytest.mark.parametrize("which", range(3))
def test_nan_in_attention_stays_nan(which: int) -> None:
    given = [torch.ones(1, 1, 4, 16) for _ in range(3)]
    given[which][0, 0, 2, 5] = torch.nan
    made = native.attend(*(x.requires_grad_() for x in given), None, True, 0.2)
    assert made[0, 0, 2, 5].isnan()


@needs_native
def test_what_does_not_fit_the_kernel_is_left_to_torch() -> None:
    x, mask = torch.ones(2, 2, 4, 16), torch.ones(2, 1, 4, 4, dtype=torch.bool)
    less = x[:, :, :3]
    assert native.fits(x, x, x, None, True) and native.fits(x, less, less, None, False)
    assert native.fits(x, x, x, mask, False) and native.fits(x, x, x, mask[:1, :, :1], False)
    for wrong in (
        mask.float(),  # a bias
        mask.expand(2, 2, 4, 4),  # a mask for each head
        *(mask.repeat(2, 1, 1, 1), mask[:, :, :3], mask[..., :3]),  # other sizes
    ):
        assert not native.fits(x, x, x, wrong, False)
    assert not native.fits(x[..., :8], x[..., :8], x[..., :8], None, False)
    assert not native.fits(x.double(), x, x, None, False)
    assert not native.fits(x, x[:1], x[:1], None, False)  # rows that share a source
    assert not native.fits(x, x, less, None, False)  # fewer values than keys
    assert not native.fits(x, less, less, None, True)  # the first query would see nothing
    assert not native.fits(*[x.to("meta")] * 3, None, True)


def test_nothing_is_compiled_for_a_machine_that_cannot_run_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "find_level", lambda: "avx2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert native.library.__wrapped__() is None
    assert not list(tmp_path.iterdir())


@needs_native
@pytest.mark.parametrize("shape", [(1,), (7, 3), (5, 16), (3, 5, 33)])
def test_gelu_and_its_gradient(shape: tuple[int, ...]) -> None:
    x = 4 * torch.randn(shape, generator=torch.Generator().manual_seed(5))
    low, wide = x.clone().requires_grad_(), x.double().requires_grad_()
    made, right = native.gelu_tanh(low), F.gelu(wide, approximate="tanh")
    torch.testing.assert_close(made.double(), right, rtol=1e-5, atol=1e-6)
    pull = torch.randn(shape, generator=torch.Generator().manual_seed(6))
    made.backward(pull)
    right.backward(pull.double())
    torch.testing.assert_close(low.grad.double(), wide.grad, rtol=1e-5, atol=1e-5)


@needs_native
def test_gelu_of_the_ends_of_the_line() -> None:
    ends = torch.tensor([-1e18, -100.0, 0.0, 100.0, 1e18, torch.nan], requires_grad=True)
    made = native.gelu_tanh(ends)
    made.sum().backward()
    assert made[:5].tolist() == [0.0, 0.0, 0.0, 100.0, ends[4].item()] and made[5].isnan()
    assert ends.grad is not None and ends.grad[:5].tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]
