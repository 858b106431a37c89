"""ModelStep and Cache.select: rows repeated, dropped and re-ordered, a source read once."""

from __future__ import annotations

import pytest
import torch

from regard.decode import step as step_module
from regard.decode.beam import BeamConfig
from regard.decode.loop import run_search
from regard.decode.step import ModelStep, read_sources, take_last
from regard.model.batch import Batch
from tests.properties.small_models import DECODERS, PAIRS, VOCAB, random_ids, small_kit
from tests.properties.threads import one_thread  # noqa: F401


def ragged(lengths, side="right"):
    """Rows of random ids with padding on one side, and each row alone."""
    rows = [random_ids(n, seed) for seed, n in enumerate(lengths)]
    ids, mask = torch.zeros(len(rows), max(lengths)).long(), torch.zeros(len(rows), max(lengths))
    for n, row in enumerate(rows):
        at = slice(0, len(row)) if side == "right" else slice(max(lengths) - len(row), None)
        ids[n, at], mask[n, at] = row, 1
    return rows, ids, mask.bool()


@torch.no_grad()
def last(model, row, source=None):
    """Logits after one row, alone and without a cache."""
    batch = Batch(row[None]) if source is None else Batch(source[None], row[None])
    return model(batch)[0, -1]


def near(found, expected):
    assert (found - expected).abs().max() <= 2e-5 * expected.abs().max()


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("side", ["left", "right", "none"])
def test_rows_of_a_decoder(name, side):
    """After each selection a row is what its own tokens make of it."""
    model = small_kit(name).model
    lengths = (4, 4, 4) if side == "none" else (4, 7, 2)
    rows, ids, mask = ragged(lengths, side)
    step = ModelStep(model, Batch(ids, mask=None if side == "none" else mask), 6)
    found = step(ids)
    for n, row in enumerate(rows):
        near(found[n], last(model, row))
    for round_, picked in enumerate(([2, 0, 1], [1, 1, 0, 2], [3], [0, 0])):
        step.select(torch.tensor(picked))
        new = random_ids(len(picked), 100 + round_)
        rows = [torch.cat((rows[n], new[at : at + 1])) for at, n in enumerate(picked)]
        found = step(new[:, None])
        for n, row in enumerate(rows):
            near(found[n], last(model, row))


@pytest.mark.parametrize("name", PAIRS)
def test_beams_share_a_source(name):
    model = small_kit(name).model
    sources, ids, mask = ragged((5, 8, 3), "left")
    target = torch.tensor([[4], [4], [4]])
    step = ModelStep(model, Batch(ids, target, source_mask=mask), 6)
    found = step(target)
    rows = [torch.tensor([4]) for _ in sources]
    owner = [0, 1, 2]
    for n in range(3):
        near(found[n], last(model, rows[n], sources[n]))
    # Beams of two for each source, re-ordered, then without the second source, then single rows.
    for picked, group in (
        ([0, 0, 1, 1, 2, 2], 2),
        ([1, 0, 2, 2, 5, 4], 2),
        ([1, 1, 5, 4], 2),
        ([3, 0], 1),
    ):
        step.select(torch.tensor(picked), group)
        assert all(len(k) == len(picked) // group for k, _ in step.cache.memory.values())
        new = random_ids(len(picked), sum(picked))
        rows = [torch.cat((rows[n], new[at : at + 1])) for at, n in enumerate(picked)]
        owner = [owner[n] for n in picked]
        found = step(new[:, None])
        for n, row in enumerate(rows):
            near(found[n], last(model, row, sources[owner[n]]))


def test_packed_rows():
    """Rows that hold several documents go on with the last one."""
    model = small_kit("llama").model
    ids, documents = torch.stack([random_ids(9, 1), random_ids(9, 2)]), torch.zeros(2, 9).long()
    documents[0, 4:], documents[1, 7:] = 1, 1
    cache = model.cache(2, 14)
    with torch.no_grad():
        model(Batch(ids, documents=documents), cache)
        cache.select(torch.tensor([1, 0, 1]))
        new = random_ids(3, 3)
        found = model(Batch(new[:, None], documents=torch.ones(3, 1).long()), cache)[:, 0]
    for n, kept in enumerate((ids[1, 7:], ids[0, 4:], ids[1, 7:])):
        near(found[n], last(model, torch.cat((kept, new[n : n + 1]))))


def test_a_copy_is_not_changed_by_a_selection():
    model = small_kit("gpt2").model
    ids = torch.stack([random_ids(3, 1), random_ids(3, 2)])
    cache = model.cache(2, 6)
    with torch.no_grad():
        model(Batch(ids), cache)
        other = cache.copy()
        cache.select(torch.tensor([1, 1]))
        found = model(Batch(torch.tensor([[7], [8]])), other)[:, 0]
    near(found[0], last(model, torch.cat((ids[0], torch.tensor([7])))))


def test_a_source_is_read_and_projected_once(monkeypatch):
    model = small_kit("transformer").model
    count = {"encode": 0, "keys": 0}
    encode = model.encode

    def counted(*given):
        count["encode"] += 1
        return encode(*given)

    def see(*_):
        count["keys"] += 1

    monkeypatch.setattr(model, "encode", counted)
    places = [m for n, m in model.decoder.named_modules() if n.endswith("cross.k")]
    assert len(places) == 2  # one for each block
    for place in places:
        place.register_forward_hook(see)
    sources, target = torch.randint(0, VOCAB, (3, 6)), torch.full((3, 1), 4)
    found = run_search(model, Batch(sources, target), 9, BeamConfig(4))
    assert all(len(row[0].tokens) == 9 for row in found)
    assert count == {"encode": 1, "keys": 2}


@pytest.mark.parametrize("strict", [False, True])
def test_one_token_at_a_time_equals_all_at_once(strict):
    model = small_kit("llama").model
    ids = random_ids(40, 1)[None]  # past a tile of strict mode
    whole, single = ModelStep(model, Batch(ids), 1, strict), None
    once = whole(ids)
    step = ModelStep(model, Batch(ids[:, :1]), 40, strict)
    for n in range(40):
        single = step(ids[:, n : n + 1])
    if strict:
        assert torch.equal(once, single)
    else:
        near(once, single)


def test_take_last():
    x = torch.arange(6).view(2, 3, 1)
    assert take_last(x, None)[:, 0].tolist() == [2, 5]
    mask = torch.tensor([[True, True, False], [False, False, True]])
    assert take_last(x, mask)[:, 0].tolist() == [1, 5]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("tokens", [1, 8, 400])  # read together: one row, two rows, all
@torch.no_grad()
def test_sources_read_apart_are_each_read_alone(side, tokens, monkeypatch):
    monkeypatch.setattr(step_module, "SOURCE_TOKENS", tokens)
    model = small_kit("transformer").model
    rows, ids, mask = ragged((4, 1, 3, 4), side)
    mask[1] = False  # an empty source
    memory = read_sources(model, Batch(ids, ids[:, :1], source_mask=mask))
    assert torch.equal(memory.real, mask)
    for n in (0, 2, 3):
        near(memory.x[n, mask[n]], model.encode(Batch(rows[n][None])).x[0])


def test_who_listens_to_a_search_may_go_on_with_gradients():
    model = small_kit("transformer").model
    batch, heard = Batch(random_ids(5, 0)[None], random_ids(1, 1)[None]), []
    tap = model.decoder.blocks[0].at.resid_post
    tap.fn = lambda x: heard.append(x) or x
    run_search(model, batch, 2)
    tap.fn = None
    scale = torch.ones((), requires_grad=True)
    (heard[0] * scale).sum().backward()
    assert scale.grad == heard[0].sum()
    run_search(model, batch, 2)  # nobody listens: what the model keeps must still serve training
    model(batch).sum().backward()
