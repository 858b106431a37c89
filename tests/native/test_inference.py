"""Native kernels against the same in float64; and everything without them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.decode.beam import BeamConfig
from regard.kit import Kit
from regard.model import presets
from regard.model.int8 import find_kernel
from regard.model.model import Model
from regard.model.precision import set_precision
from regard.native import build, inference
from regard.native.build import NativeLibrary
from regard.native.inference import (
    NativeMap,
    attend,
    continuations,
    find_native,
    normalise,
    reorder,
    row_summary,
)

needs_kernels = pytest.mark.skipif(
    inference.library() is None, reason=f"no native kernels: {find_native().why}"
)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exact_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """In float64; k and v (B, G, S, K) are repeated for beams and heads."""
    beams, share = len(q) // len(k), q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(beams, 0).repeat_interleave(share, 1) for x in (k, v))
    scores = scale * q.double() @ k.transpose(-1, -2)
    if mask is not None:
        each = mask.expand(len(q) // beams, -1, -1, -1).repeat_interleave(beams, 0)
        scores = scores.masked_fill(~each, -torch.inf)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + k.shape[2] - q.shape[2])
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1) @ v


def parts_of_attention(
    sources: int, beams: int, count: int, span: int, width: int, layout: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries as a part of a joint product, keys and values as parts of a longer cache."""
    heads, groups = 8, 2
    q = randn(sources * beams, count, 3, heads, width)[:, :, 1].transpose(1, 2)
    shape = (sources, span + 5, groups, width)
    k, v = (3 * randn(*shape, seed=n)[:, :span].transpose(1, 2) for n in (1, 2))
    return (q, k.contiguous(), v.contiguous()) if layout == "heads" else (q, k, v)


SHAPES = [(1, 1, 1, 1), (2, 1, 1, 2), (2, 3, 1, 3), (2, 1, 1, 4), (3, 4, 1, 17), (3, 1, 6, 21)]


@needs_kernels
@pytest.mark.parametrize("masked", [None, "each", "one", "query"])
@pytest.mark.parametrize("sources,beams,count,span", SHAPES)
@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("layout", ["slots", "heads"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(
    sources: int,
    beams: int,
    count: int,
    span: int,
    width: int,
    layout: str,
    masked: str | None,
    causal: bool,
) -> None:
    q, k, v = parts_of_attention(sources, beams, count, span, width, layout)
    causal = causal and beams == 1
    mask = None
    if masked is not None:
        shape = (1 if masked == "one" else sources, 1, count if masked == "query" else 1, span)
        mask = randn(*shape, seed=3) > -0.5
        mask[..., 0] = True
    found = attend(q, k, v, mask, causal, 0.3)
    assert found is not None and found.shape == q.shape
    wanted = exact_attention(q, k, v, mask, causal, 0.3)
    torch.testing.assert_close(found.double(), wanted, rtol=2e-6, atol=2e-5)
    one = attend(q[:1], k[:1], v[:1], None if mask is None else mask[:1], causal, 0.3)
    assert one is not None and torch.equal(one[0], found[0])  # the same bits alone


@needs_kernels
def test_padding_changes_no_bit() -> None:
    q, k, v = parts_of_attention(2, 1, 7, 40, 32, "slots")
    for span in (1, 15, 16, 17, 31, 40):
        alone = attend(q, k[:, :, :span], v[:, :, :span], None, False, 0.2)
        mask = (torch.arange(40) < span).expand(2, 1, 1, 40)
        padded = attend(q, k, v, mask, False, 0.2)
        assert alone is not None and padded is not None and torch.equal(alone, padded)
    for count in (2, 3, 4, 6):  # fewer queries beside it
        few = attend(
            q[:, :, :count].transpose(1, 2).contiguous().transpose(1, 2), k, v, None, False, 1.0
        )
        many = attend(q, k, v, None, False, 1.0)
        assert few is not None and many is not None and torch.equal(few, many[:, :, :count])


@needs_kernels
def test_attention_that_does_not_fit_is_left_to_others() -> None:
    q, k, v = parts_of_attention(2, 1, 2, 5, 16, "heads")
    assert attend(q, k, v, None, False, 1.0) is not None
    assert attend(q[..., :8], k[..., :8], v[..., :8], None, False, 1.0) is None  # half a vector
    assert attend(q, k, v, randn(2, 1, 1, 5), False, 1.0) is None  # a bias
    assert attend(q, k, v, torch.ones(3, 1, 1, 5).bool(), False, 1.0) is None  # of more rows
    assert attend(q.double(), k.double(), v.double(), None, False, 1.0) is None
    assert attend(q, k[:1], v[:1], None, False, 1.0) is None  # two rows of two queries share one


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
@pytest.mark.parametrize(("prefixes", "vocab", "count"), [(1, 5, 8), (4, 300, 8), (3, 64, 1)])
def test_the_best_continuations_come_in_order(prefixes: int, vocab: int, count: int) -> None:
    sources = 3
    logits = randn(sources * prefixes, vocab + 2)[:, :vocab].mul(8).round().div(4)  # many equals
    sofar = randn(sources, prefixes + 1, seed=1)[:, :prefixes].round()  # not contiguous
    sofar[1, prefixes - 1] = -torch.inf
    logits[0, ::2] = -torch.inf
    made = row_summary(logits, 64)
    assert made is not None
    norm, _, maxima = made
    norm = norm.round()  # so that sums are equal too
    value, parent, token = continuations(logits, norm, maxima, sofar, 64, count)
    for a in range(sources):
        rows = range(a * prefixes, (a + 1) * prefixes)
        possible = [
            (float(logits[r, v] - norm[r] + sofar[a, p]), p, v)
            for p, r in enumerate(rows)
            for v in range(vocab)
        ]
        wanted = sorted((x for x in possible if x[0] > -math.inf), key=lambda x: (-x[0], *x[1:]))
        wanted = (wanted + [(-math.inf, 0, 0)] * count)[:count]
        parts = (value[a].tolist(), parent[a].tolist(), token[a].tolist())
        assert list(zip(*parts, strict=True)) == wanted


@needs_kernels
def test_rows_of_a_cache_move_inside_their_group() -> None:
    before = [randn(6, 9, 2, 16, seed=n) for n in range(4)]
    for rows in ([0, 0, 2, 4, 4, 3], [0, 1, 2, 3, 4, 5], [2, 0, 1, 5, 5, 5]):
        now = [tensor.clone() for tensor in before]
        assert reorder(now, torch.tensor(rows), 3, 5)
        for old, new in zip(before, now, strict=True):
            assert torch.equal(new[:, :5], old[rows][:, :5]) and torch.equal(new[:, 5:], old[:, 5:])
    for rows, group in (([3, 1, 2, 0, 4, 5], 3), ([3, 4, 5, 0, 1, 2], 3), ([*range(6)], 4)):
        assert not reorder(now, torch.tensor(rows), group, 5)
    for other in (randn(6, 10, 2, 16), randn(6, 9, 16, 2).transpose(2, 3)):  # not alike
        mixed = [before[0].clone(), other.clone()]
        assert not reorder(mixed, torch.tensor([0, 0, 2, 4, 4, 3]), 3, 5)
        assert torch.equal(mixed[0], before[0]) and torch.equal(mixed[1], other)


@needs_kernels
def test_groups_of_a_cache_are_dropped_in_place() -> None:
    before = [randn(8, 9, 2, 16, seed=n) for n in range(2)]
    cases = (
        ([4, 5, 6, 6], 2),
        ([1, 0, 7, 6], 2),
        ([2, 3, 5], 1),
        ([7], 1),
        ([2, 2, 5, 4, 7, 7], 2),
    )
    for rows, group in cases:
        now = [tensor.clone() for tensor in before]
        assert reorder(now, torch.tensor(rows), group, 5)
        for old, new in zip(before, now, strict=True):
            assert torch.equal(new[: len(rows), :5], old[rows][:, :5])
    for rows, group in (([5, 3, 6], 1), ([2, 4], 2), ([*range(8), 7], 1), ([3, 3], 1)):
        assert not reorder(now, torch.tensor(rows), group, 5)


@needs_kernels
def test_threads_change_no_bit() -> None:
    weight, rows = (10 * randn(700, 512)).to(torch.int8), randn(65, 512, seed=1)
    run, before = NativeMap(weight, torch.ones(700), None), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(run(rows))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def look_again() -> None:
    find_native.cache_clear()


@pytest.fixture
def afresh() -> Iterator[None]:
    """Look for the kernels again, and once more afterwards."""
    look_again()
    yield
    look_again()


@pytest.mark.usefixtures("afresh")
@pytest.mark.skipif(build.find_level() != "avx512", reason="no AVX-512 VNNI to compare with")
def test_both_kinds_of_vectors_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, lists = 3 * randn(13, 112), []
    rows[1] = 0
    rows[2] = rows[2].abs()  # one sign: the largest sums
    rows[3, 5] = torch.inf
    rows[4, 5] = torch.nan
    weight = (60 * randn(77, 112)).clamp(-127, 127).to(torch.int8)
    weight[3], weight[4] = 127, -127
    q, k, v = parts_of_attention(2, 1, 7, 21, 32, "slots")
    mask = torch.arange(21).expand(2, 1, 1, 21) < torch.tensor([20, 9])[:, None, None, None]
    logits = 9 * randn(5, 131)
    logits[0, 7:90] = -torch.inf
    for level in ("avx512", "avx2"):
        monkeypatch.setenv("REGARD_NATIVE", level)
        look_again()
        assert build.find_level() == level
        assert find_kernel() is NativeMap
        many, one = attend(q, k, v, mask, False, 0.3), attend(q[:, :, :1], k, v, mask, False, 0.3)
        norm, summary = normalise(rows, rows[0], rows[5], 1e-5), row_summary(logits, 64)
        assert many is not None and one is not None and norm is not None and summary is not None
        product = NativeMap(
            weight, torch.rand(77, generator=torch.Generator().manual_seed(1)), rows[0, :77]
        )
        lists.append([product(rows), many, one, norm, *summary])
    for first, second in zip(*lists, strict=True):
        assert torch.equal(first.nan_to_num(7), second.nan_to_num(7))


@pytest.mark.usefixtures("afresh")
@pytest.mark.skipif(not build.find_level(), reason="no vectors that kernels are written for")
def test_files_of_a_wheel_need_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if build.compile_source("inference.c", build.find_level(), tmp_path / "built") is None:
        pytest.skip("no compiler to make them with")
    monkeypatch.setattr(build, "BUILT", tmp_path / "built")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_native().library is not None and not (tmp_path / "cache").exists()


def test_levels_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed = tmp_path / "cpuinfo"
    monkeypatch.setattr(build, "CPU", listed)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.delenv("REGARD_NATIVE", raising=False)
    assert build.find_level() == ""  # no such file
    wide = "avx512f avx512bw avx512vl avx512dq avx512_vnni"
    for flags, level in (("fma", ""), ("fma avx2", "avx2"), (f"fma avx2 {wide}", "avx512")):
        listed.write_text(f"model name: a CPU\nflags : sse2 {flags}\n")
        assert build.find_level() == level
    monkeypatch.setenv("REGARD_NATIVE", "avx2")
    assert build.find_level() == "avx2"
    listed.write_text("flags : sse2\n")
    assert build.find_level() == ""  # what is asked for must be there
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert build.find_level() == ""


@pytest.mark.usefixtures("afresh")
def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "find_level", lambda: "avx2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_native() == NativeLibrary(None, "no C compiler (cc) on this machine")
    with pytest.raises(RuntimeError):
        NativeMap(torch.zeros(1, 4, dtype=torch.int8), torch.ones(1), None)
    one = randn(1, 1, 1, 16)
    assert attend(one, one, one, None, False, 1.0) is None


@pytest.mark.usefixtures("afresh")
def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(build, "find_level", lambda: "avx2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = find_native()
    assert found.library is None and "failed" in found.why
    assert not list(tmp_path.glob("regard/*"))  # nothing half made is left


@pytest.mark.usefixtures("afresh")
def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setattr(build, "find_level", lambda: "avx2")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    found = find_native()
    assert found.library is None and "home" in found.why


@needs_kernels
def test_two_processes_may_compile_at_once(tmp_path: Path) -> None:
    code = "from regard.native.inference import library; raise SystemExit(library() is None)"
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    both = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    assert [file.suffix for file in (tmp_path / "regard").iterdir()] == [".so"]


@needs_kernels
@pytest.mark.parametrize("how", [None, BeamConfig(4)])
def test_an_int8_translation_has_the_same_bits_in_any_company(how: BeamConfig | None) -> None:
    """Alone and among longer ones: every part of the model gives a row what it gives it alone."""
    model = Model.fresh(presets.transformer(64, 3, 4, 200, pre=True), seed=1)
    with torch.no_grad():
        for parameter in model.parameters():  # scores that are not all alike
            parameter.mul_(3) if parameter.dim() > 1 else parameter.add_(
                0.1 * randn(*parameter.shape)
            )
    set_precision(model, "int8")
    kit = Kit(model)
    draw = torch.Generator().manual_seed(0)
    sources = [torch.randint(2, 200, (n,), generator=draw).tolist() for n in (2, 3, 17, 31, 40, 8)]
    together = kit.search(kit.batch(sources), 12, how)
    for source, found in zip(sources, together, strict=True):
        (alone,) = kit.search(kit.batch([source]), 12, how)
        assert [(h.tokens, h.logprob) for h in alone] == [(h.tokens, h.logprob) for h in found]


@needs_kernels
def test_strict_is_the_ordinary_way_where_bits_are_kept_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refuse:
        def __init__(self, *given: object) -> None:
            raise AssertionError("the slow way")

    def made(model: Model, precision: str | None) -> Kit:
        set_precision(model, precision)
        return Kit(model)

    monkeypatch.setattr("regard.decode.step.StrictCache", Refuse)
    plain = presets.transformer(64, 1, 4, 50)
    kit = made(Model.fresh(plain), "int8")
    batch = kit.batch([[3, 4, 5], [6, 7]])
    found = kit.search(batch, 5, strict=True)
    assert [h[0].logprob for h in found] == [h[0].logprob for h in kit.search(batch, 5)]
    for other in (
        made(Model.fresh(plain), None),
        made(Model.fresh(presets.transformer(64, 1, 8, 50)), "int8"),  # heads of 8 do not fit
        made(Model.fresh(presets.t5(64, 1, 4, 64, 16, 50)), "int8"),  # a bias on the scores
    ):
        with pytest.raises(AssertionError, match="the slow way"):
            other.search(other.batch([[3, 4, 5], [6, 7]]), 5, strict=True)
