"""Searches in one call of C against the same searches step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import nn

from regard.core.tap import taps
from regard.decode import loop, native_search
from regard.decode.beam import BeamConfig, length_penalty
from regard.decode.loop import run_search
from regard.decode.native_search import search_natively
from regard.decode.sampling import Ends
from regard.decode.shortlist import Shortlist
from regard.decode.step import Hypothesis
from regard.model import presets
from regard.model.batch import Batch, pad_rows
from regard.model.model import Model
from regard.model.precision import set_precision
from regard.native.inference import find_native, library

pytestmark = pytest.mark.skipif(library() is None, reason=f"no native kernels: {find_native().why}")
VOCAB = 203
ENDS = Ends([1, 7, 30])
SEARCHES = [
    None,
    BeamConfig(1),
    BeamConfig(4),
    BeamConfig(5, 3, length_penalty("length", 1.0)),
    BeamConfig(2, 2, length_penalty("none")),
]


def small_translator(seed: int = 0, act: str = "relu") -> Model:
    """A model whose scores are not all alike, in int8."""
    config = presets.transformer(64, 2, 4, VOCAB, pre=True)
    if act != "relu":
        from dataclasses import replace

        stack = config.encoder
        assert stack is not None
        config = replace(config, encoder=replace(stack, block=replace(stack.block, act=act)))
    model = Model.fresh(config, seed)
    draw = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=draw)
            weight.mul_(3) if weight.dim() > 1 else weight.add_(0.1 * noise)
    set_precision(model, "int8")
    return model


def batch_of(lengths: Sequence[int], left: bool = False) -> Batch:
    """Random sources, padded on the right or on the left."""
    draw = np.random.default_rng(0)
    rows = [draw.integers(2, VOCAB, n).tolist() for n in lengths]
    ids, real = pad_rows(rows, 0)
    if left and real is not None:
        ids, real = (
            torch.stack([x[m.argsort(stable=True)] for x, m in zip(part, real, strict=True)])
            for part in (ids, real)
        )
    return Batch(ids, torch.zeros(len(rows), 1, dtype=torch.long), source_mask=real)


def drawn_list() -> Shortlist:
    draw, always = np.random.default_rng(0), np.array([0, 1, 5, 7, 9, 20, 30, 44, 90])
    rest = np.setdiff1d(np.arange(VOCAB), always)
    lists = [np.sort(draw.choice(rest, 3, replace=False)) for _ in range(VOCAB)]
    return Shortlist(always, np.concatenate(lists), np.arange(VOCAB + 1) * 3, VOCAB)


@pytest.fixture
def by_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[Hypothesis]]]:
    """`run_search` without the call of C."""

    def run(*arguments: object, **options: object) -> list[list[Hypothesis]]:
        with monkeypatch.context() as patch:
            patch.setattr(loop, "search_natively", lambda *given: None)
            return run_search(*arguments, **options)  # type: ignore[arg-type]

    return run


@pytest.mark.parametrize("how", SEARCHES)
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("lengths", [[1], [5, 5], [3, 40, 1, 17, 9, 2, 30]])
def test_bits_of_the_search_step_by_step(
    how: BeamConfig | None,
    listed: bool,
    lengths: list[int],
    by_steps: Callable[..., list[list[Hypothesis]]],
) -> None:
    model, batch = small_translator(), batch_of(lengths)
    shortlist = drawn_list() if listed else None
    limits = [4 + 3 * n for n in range(len(lengths))]
    found = search_natively(model, batch, limits, how, ENDS.eos, shortlist)
    wanted = by_steps(model, batch, limits, how, ENDS, shortlist=shortlist)
    assert found == wanted and all(found)
    assert found == run_search(model, batch, limits, how, ENDS, shortlist=shortlist)


def test_rows_alone_and_on_either_side_of_their_padding() -> None:
    model, lengths = small_translator(1), [3, 40, 1, 17]
    batch, other = batch_of(lengths), batch_of(lengths, left=True)
    for how in (None, BeamConfig(4, 2)):
        together = search_natively(model, batch, [20] * 4, how, [1], None)
        assert together == search_natively(model, other, [20] * 4, how, [1], None)
        assert together is not None and batch.source_mask is not None
        for n, real in enumerate(batch.source_mask):
            alone = Batch(batch.inputs[n, real][None], torch.zeros(1, 1, dtype=torch.long))
            assert search_natively(model, alone, [20], how, [1], None) == [together[n]]


@pytest.mark.parametrize("how", [None, BeamConfig(4), BeamConfig(3, 2)])
@pytest.mark.parametrize("block", [0, -1])
def test_notes_of_what_was_read_and_seen(how: BeamConfig | None, block: int) -> None:
    """Encoder output and cross-attention, of ended and of cut answers, against a forward pass."""
    model, batch, limits = small_translator(2), batch_of([3, 40, 1, 17]), [20, 5, 9, 30]
    noted = search_natively(model, batch, limits, how, ENDS.eos, drawn_list(), block)
    assert noted is not None and batch.source_mask is not None and model.decoder is not None
    tap = taps(model)[f"decoder.blocks.{block % len(model.decoder.blocks)}.cross.pattern"]
    for n, real in enumerate(batch.source_mask):
        ids, seen = batch.inputs[n, real][None], list[torch.Tensor]()
        for answer in noted[n]:
            tap.fn = lambda x, seen=seen: seen.append(x) or x
            target = torch.tensor([[0, *answer.tokens[:-1]]])
            with torch.no_grad():
                memory = model.encode(Batch(ids))
                model.decode(Batch(target), memory)
            tap.fn = None
            assert answer.memory is not None and answer.attention is not None
            np.testing.assert_allclose(answer.memory, memory.x[0], atol=1e-5)
            np.testing.assert_allclose(answer.attention, seen.pop()[0].mean(0), atol=1e-4)
        alone = Batch(ids, torch.zeros(1, 1, dtype=torch.long))
        again = search_natively(model, alone, limits[n : n + 1], how, ENDS.eos, drawn_list(), block)
        assert again is not None and again[0] == noted[n]
        for one, other in zip(again[0], noted[n], strict=True):
            assert one.attention is not None and one.memory is not None
            assert np.array_equal(one.attention, other.attention)  # type: ignore[arg-type]
            assert np.array_equal(one.memory, other.memory)  # type: ignore[arg-type]


def test_attention_is_noted_where_it_is_asked_for() -> None:
    model, batch = small_translator(), batch_of([3, 5])
    for block in (None, 2, 7):  # of two blocks
        (answer,), _ = run_search(model, batch, 6, None, ENDS, block=block)
        assert answer.attention is None
    (answer,), _ = run_search(model, batch, 6, None, ENDS, block=1)
    assert answer.attention is not None and answer.attention.shape == (len(answer.tokens), 3)


def test_answers_that_cannot_be() -> None:
    """More beams than words, and a list that holds nothing but the end."""
    model, batch, always = small_translator(), batch_of([3]), np.array([1])
    only = Shortlist(always, np.zeros(0, np.int64), np.zeros(VOCAB + 1, np.int64), VOCAB)
    found = search_natively(model, batch, [9], BeamConfig(3, 3), [1], only)
    assert found is not None and [h.tokens for h in found[0]] == [[1]]
    wide = search_natively(model, batch, [1], BeamConfig(VOCAB + 9, 2), [1], None)
    assert wide is not None and len(wide[0]) == 2


def test_what_is_left_to_others() -> None:
    model, batch = small_translator(), batch_of([3, 5])

    def fits(
        model: Model = model, batch: Batch = batch, how: object = None, limit: int = 4
    ) -> bool:
        return search_natively(model, batch, [limit] * 2, how, [1], None) is not None

    assert fits()
    assert not fits(how=BeamConfig(4, groups=2)) and not fits(how=object())
    assert not fits(limit=native_search.Sinusoidal.held + 1)
    assert not fits(small_translator(act="gelu"))
    for ids in (batch.inputs + VOCAB, batch.inputs - 9):
        assert not fits(batch=Batch(ids, batch.target, source_mask=batch.source_mask))
    assert batch.source_mask is not None and batch.target is not None
    empty = Batch(batch.inputs, batch.target, source_mask=batch.source_mask & False)
    assert not fits(batch=empty)
    begun = Batch(batch.inputs, batch.target.repeat(1, 2), source_mask=batch.source_mask)
    assert not fits(batch=begun)
    assert model.decoder is not None
    block = model.decoder.blocks[0]
    block.residual = False
    assert not fits()
    block.residual = True
    assert fits()
    set_precision(model, None)
    assert not fits()


def test_a_listener_hears_every_step() -> None:
    model, batch, heard = small_translator(), batch_of([3, 5]), list[int]()
    tap = taps(model)["decoder.blocks.1.mlp.post"]
    plain = run_search(model, batch, 6, None, ENDS)
    tap.fn = lambda x: heard.append(len(x)) or x  # type: ignore[func-returns-value]
    assert run_search(model, batch, 6, None, ENDS) == plain and len(heard) > 1
    tap.fn = lambda x: 0 * x
    assert run_search(model, batch, 6, None, ENDS) != plain


def test_weights_that_change() -> None:
    model, batch = small_translator(), batch_of([3, 5])
    before = run_search(model, batch, 6, None, ENDS)
    assert model.decoder is not None
    norm = model.decoder.norm
    assert isinstance(norm, nn.LayerNorm)
    with torch.no_grad():
        norm.weight.mul_(-1)  # in place, and as another parameter
        turned = run_search(model, batch, 6, None, ENDS)
        norm.weight = nn.Parameter(-norm.weight, requires_grad=False)
    assert turned != before and run_search(model, batch, 6, None, ENDS) == before
