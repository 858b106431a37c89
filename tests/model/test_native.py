"""Native kernels against the same in float64; and everything without them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.model import native
from regard.model.native import (
    Native,
    attend,
    find_native,
    pack_native,
    reorder,
    row_summary,
)

needs_kernels = pytest.mark.skipif(
    native.library() is None, reason=f"no native kernels: {find_native().why}"
)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exact_attention(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float
) -> Tensor:
    """In float64; k and v (B, G, S, K) are repeated for beams and heads."""
    beams, share = len(q) // len(k), q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(beams, 0).repeat_interleave(share, 1) for x in (k, v))
    scores = scale * q.double() @ k.transpose(-1, -2)
    if allowed is not None:
        each = allowed.expand(len(q) // beams, -1, -1, -1).repeat_interleave(beams, 0)
        scores = scores.masked_fill(~each, -torch.inf)
    return scores.softmax(-1) @ v


@needs_kernels
@pytest.mark.parametrize("masked", [None, "each", "one"])
@pytest.mark.parametrize("sources,heads,groups,span", [(1, 2, 2, 1), (3, 8, 2, 17)])
@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("layout", ["slots", "heads"])
def test_attention_of_single_queries(
    sources: int, heads: int, groups: int, span: int, width: int, layout: str, masked: str | None
) -> None:
    for beams in (1, 4):
        rows = sources * beams
        q = randn(rows, 3, heads, width)[:, 1:2].transpose(1, 2)  # as a part of a joint product
        shape = (sources, span + 5, groups, width)
        k, v = (3 * randn(*shape, seed=n)[:, :span].transpose(1, 2) for n in (1, 2))
        if layout == "heads":
            k, v = k.contiguous(), v.contiguous()
        allowed = None
        if masked is not None:
            allowed = randn(sources if masked == "each" else 1, 1, 1, span, seed=3) > -0.5
            allowed[..., 0] = True
        found = attend(q, k, v, allowed, 0.3)
        assert found is not None and found.shape == (rows, heads, 1, width)
        wanted = exact_attention(q, k, v, allowed, 0.3)
        torch.testing.assert_close(found.double(), wanted, rtol=2e-6, atol=2e-5)
        one = attend(q[:1], k[:1], v[:1], None if allowed is None else allowed[:1], 0.3)
        assert one is not None and torch.equal(one[0], found[0])  # the same bits alone


@needs_kernels
def test_attention_that_does_not_fit_is_left_to_others() -> None:
    q, k = randn(2, 4, 1, 16), randn(2, 4, 5, 16)
    assert attend(q, k, k, None, 1.0) is not None
    assert attend(randn(2, 4, 2, 16), k, k, None, 1.0) is None  # two queries
    assert attend(q[..., :8], k[..., :8], k[..., :8], None, 1.0) is None  # half a vector
    assert attend(q, k, k, randn(2, 1, 1, 5), 1.0) is None  # a bias
    assert attend(q.double(), k.double(), k.double(), None, 1.0) is None


@needs_kernels
@pytest.mark.parametrize("rows,vocab", [(1, 1), (3, 63), (2, 64), (5, 65), (4, 16000)])
def test_summary_of_scores(rows: int, vocab: int) -> None:
    logits = 5 * randn(rows, vocab + 3)[:, :vocab]  # rows with a gap between them
    logits[:, vocab // 2] = logits.amax(-1)  # an equal later, or earlier, than the largest
    logits[0, : vocab // 3] = -torch.inf
    made = row_summary(logits, 64)
    assert made is not None
    norm, best, maxima = made
    torch.testing.assert_close(norm.double(), logits.double().logsumexp(-1), rtol=1e-6, atol=1e-6)
    first = [(row == row.max()).nonzero()[0, 0].item() for row in logits]
    assert best.tolist() == first
    padded = torch.nn.functional.pad(logits, (0, -vocab % 64), value=-torch.inf)
    assert torch.equal(maxima, padded.unflatten(1, (-1, 64)).amax(-1))


@needs_kernels
def test_rows_of_a_cache_move_inside_their_group() -> None:
    before = [randn(6, 9, 2, 16, seed=n) for n in range(4)]
    for rows in ([0, 0, 2, 4, 4, 3], [0, 1, 2, 3, 4, 5], [2, 0, 1, 5, 5, 5]):
        now = [tensor.clone() for tensor in before]
        assert reorder(now, torch.tensor(rows), 3, 5)
        for old, new in zip(before, now, strict=True):
            assert torch.equal(new[:, :5], old[rows][:, :5]) and torch.equal(new[:, 5:], old[:, 5:])
    for rows, group in (([3, 1, 2, 0, 4, 5], 3), ([0, 1, 2], 3), ([0, 1, 2, 3, 4, 5], 4)):
        assert not reorder(now, torch.tensor(rows), group, 5)


@needs_kernels
def test_threads_change_no_bit() -> None:
    weight, rows = (10 * randn(700, 512)).to(torch.int8), randn(65, 512, seed=1)
    run, before = pack_native(weight, torch.ones(700), None, 127), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(run(rows))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.fixture
def afresh() -> Iterator[None]:
    """Look for the kernels again, and once more afterwards."""
    find_native.cache_clear()
    yield
    find_native.cache_clear()


@pytest.mark.usefixtures("afresh")
def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "suits", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_native() == Native(None, "no C compiler (cc) on this machine")
    with pytest.raises(RuntimeError):
        pack_native(torch.zeros(1, 4, dtype=torch.int8), torch.ones(1), None, 127)
    assert attend(randn(1, 1, 1, 16), randn(1, 1, 1, 16), randn(1, 1, 1, 16), None, 1.0) is None


@pytest.mark.usefixtures("afresh")
def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(native, "suits", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = find_native()
    assert found.library is None and "failed" in found.why
    assert not list(tmp_path.glob("regard/*"))  # nothing half made is left


@needs_kernels
def test_two_processes_may_compile_at_once(tmp_path: Path) -> None:
    code = "from regard.model.native import library; raise SystemExit(library() is None)"
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    both = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    assert [file.suffix for file in (tmp_path / "regard").iterdir()] == [".so"]
