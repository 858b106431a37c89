"""Kernels and 8-bit products on a GPU, against the same in float32; skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from regard.errors import UsageError
from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.presets import gpt2
from regard.train.cross_entropy import IGNORE, chunk_loss, linear_cross_entropy
from regard.train.fp8 import Fp8Linear, fits, scale_of, some_columns, some_rows, use_fp8
from regard.train.objectives import Compiling, token_loss

pytestmark = [  # what torch says when a GPU and its compiler are first used
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
on_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9),
    reason="needs a GPU with fp8",
)


def test_fp8_is_refused_where_it_cannot_run() -> None:
    model = Model.fresh(gpt2(32, 1, 2, 64, 16))
    if model.device.type == "cpu":
        with pytest.raises(UsageError, match="--precision bf16"):
            use_fp8(model)


def test_shapes_that_fit() -> None:
    assert fits(torch.empty(32, 48)) and not fits(torch.empty(32, 50))


def test_scale_leaves_room_above_the_sample() -> None:
    x = torch.randn(64, 256)
    most = torch.finfo(torch.float8_e4m3fn).max
    held = x.abs().max() / scale_of(x, torch.float8_e4m3fn, 4)
    torch.testing.assert_close(held, torch.tensor(most / 4))
    assert torch.isfinite(
        torch.zeros(3, 16) / scale_of(torch.zeros(3, 16), torch.float8_e5m2, 64)
    ).all()
    assert some_rows(x).shape == (4, 256)
    assert some_columns(x).numel() == 64 * 32 and some_columns(x[:, :100]).shape == (64, 16)


@on_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("vocab", [7, 4096, 50304])
def test_kernel_is_chunk_loss(
    dtype: torch.dtype, smoothing: float, biased: bool, vocab: int
) -> None:
    from regard.native.triton_kernels import cross_entropy_rows

    torch.manual_seed(0)
    logits = (5 * torch.randn(37, vocab)).to("cuda", dtype)
    bias = torch.randn(vocab, device="cuda") if biased else None
    labels = torch.randint(0, vocab, (37,), device="cuda")
    labels[3:9] = IGNORE
    wanted = chunk_loss(logits, bias, labels, smoothing)
    made = cross_entropy_rows(logits.clone(), bias, labels, smoothing)
    for one, other in zip(made[:2], wanted[:2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)
    loose = 1e-6 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(made[2], wanted[2], rtol=loose, atol=loose)
    assert not made[2][3:9].any()


@on_gpu
@pytest.mark.parametrize("shape", [(16, 16), (128, 4096), (1000, 77)])
def test_transpose_of_bytes(shape: tuple[int, int]) -> None:
    from regard.native.triton_kernels import transpose_bytes

    x = torch.randint(0, 255, shape, device="cuda", dtype=torch.uint8)
    assert torch.equal(transpose_bytes(x), x.t()) and transpose_bytes(x).is_contiguous()


@on_gpu
@pytest.mark.parametrize("rows", [(3, 7), (64, 32)])
def test_fp8_linear_is_near_the_float_one(rows: tuple[int, int]) -> None:
    torch.manual_seed(0)
    plain = torch.nn.Linear(256, 384).cuda()
    low = torch.nn.Linear(256, 384).cuda()
    low.load_state_dict(plain.state_dict())
    low.__class__ = Fp8Linear
    x = torch.randn(*rows, 256, device="cuda")
    back = torch.randn(*rows, 384, device="cuda") * 1e-6  # small, as gradients are
    grads = []
    for linear in (plain, low):
        given = x.clone().requires_grad_()
        out = linear(given)
        out.backward(back.to(out.dtype))
        assert given.grad is not None and linear.weight.grad is not None
        assert linear.bias.grad is not None
        grads.append((out.detach().float(), given.grad, linear.weight.grad, linear.bias.grad))
    for wanted, made in zip(*grads, strict=True):
        assert float((made - wanted).norm() / wanted.norm()) < 0.08


@on_gpu
def test_scores_in_fp8_are_near_the_float_ones() -> None:
    torch.manual_seed(0)
    results = []
    for fp8 in (False, True):
        torch.manual_seed(1)
        x = torch.randn(512, 128, device="cuda", requires_grad=True)
        weight = (0.1 * torch.randn(1024, 128, device="cuda")).requires_grad_()
        bias = torch.randn(1024, device="cuda", requires_grad=True)
        labels = torch.randint(0, 1024, (512,), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            total, plain = linear_cross_entropy(x, weight, bias, labels, 0.1, rows=128, fp8=fp8)
        (total / 512).backward()
        assert x.grad is not None and weight.grad is not None and bias.grad is not None
        results.append((total.detach(), plain, x.grad, weight.grad, bias.grad))
    for wanted, made in zip(*results, strict=True):
        assert float((made - wanted).norm() / wanted.norm()) < 0.08


@on_gpu
@pytest.mark.parametrize("compiled", ["no", "yes", "recorded"])
def test_training_in_fp8_learns_as_in_bf16(compiled: Compiling) -> None:
    ids = torch.randint(0, 128, (8, 64), generator=torch.Generator().manual_seed(0)).cuda()
    last = []
    for fp8 in (False, True):
        model = Model.fresh(gpt2(128, 2, 4, 128, 64)).cuda().train()
        if fp8:
            assert use_fp8(model) == 12  # q, k, v, o, up, down of two blocks
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        for _ in range(30):
            with torch.autocast("cuda", torch.bfloat16):
                loss = token_loss(model, Batch(ids[:, :-1]), ids[:, 1:], 0.0, compiled, fp8)
            (loss.sum / loss.tokens).backward()
            optimizer.step()
            optimizer.zero_grad()
        last.append(float(loss.plain.detach() / loss.tokens))
    assert last[0] < 4.5 and abs(last[0] - last[1]) < 0.1
