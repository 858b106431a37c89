"""FixedCache: rows of a source ask together, each sees its own past, and nothing is moved."""

from __future__ import annotations

import pytest
import torch

from regard.core.cache import FixedCache
from regard.errors import UsageError
from regard.model.batch import Batch
from tests.properties.small_models import DECODERS, random_ids, small_kit


def cache_of(model, batch, width, size):
    config = model.decoder.config
    return FixedCache(config, batch, width, size)


def near(found, expected):
    assert (found - expected).abs().max() <= 2e-5 * expected.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("padded", [False, True])
def test_each_row_is_what_its_own_tokens_make_of_it(name, padded):
    """Two sources, three rows each, which go on from one another at each step."""
    model = small_kit(name).model
    cache = cache_of(model, 2, 3, 64)
    ids = torch.stack([random_ids(5, 1), random_ids(5, 2)])
    real = torch.tensor([[0, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool() if padded else None
    model(Batch(ids, mask=real), cache)
    cache.start(real)
    prompts = [row if real is None else row[real[n]] for n, row in enumerate(ids)]
    rows = [prompts[0]] * 3 + [prompts[1]] * 3
    orders = ([0, 1, 2, 3, 4, 5], [2, 2, 0, 3, 5, 4], [1, 0, 0, 5, 5, 5], [0, 1, 2, 4, 3, 4])
    for n, order in enumerate(orders):
        cache.select(torch.tensor(order))
        new = random_ids(6, 10 + n)
        rows = [torch.cat((rows[row], new[at : at + 1])) for at, row in enumerate(order)]
        cache.grow((16, 16, 64, 64)[n])
        found = model(Batch(new[:, None]), cache)[:, 0]
        for row, logits in zip(rows, found, strict=True):
            near(logits, model(Batch(row[None]))[0, -1])


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_smaller_cache_takes_rows_over(name):
    model = small_kit(name).model
    source = torch.stack([random_ids(8, n) for n in (3, 4)])
    memory = None
    caches = cache_of(model, 2, 2, 64), cache_of(model, 1, 2, 64)
    ids = torch.stack([random_ids(3, 1), random_ids(3, 2)])
    if model.encoder is not None:
        memory = model.encode(source)
        held = {}
        for block in model.decoder.blocks:
            fresh = [block.cross.k(memory.x), block.cross.v(memory.x)]
            held[block.cross.layer] = tuple(
                part.unflatten(-1, (4, 8)).transpose(1, 2) for part in fresh
            )
        caches[0].remember(held, torch.ones(2, 8).bool())
    model.decode(ids, memory, cache=caches[0])
    caches[0].start(None)
    rows = [ids[0], ids[0], ids[1], ids[1]]

    def step(cache, new):
        cache.grow(32)
        batch = Batch(new[:, None]) if memory is None else Batch(new[:, None], new[:, None])
        return model(batch, cache)[:, 0]

    new = random_ids(4, 7)
    step(caches[0], new)
    rows = [torch.cat((row, new[n : n + 1])) for n, row in enumerate(rows)]
    caches[1].take(caches[0], torch.tensor([3, 2]))
    new = random_ids(2, 8)
    found = step(caches[1], new)
    for n, row in enumerate((rows[3], rows[2])):
        row = torch.cat((row, new[n : n + 1]))
        batch = Batch(row[None]) if memory is None else Batch(source[1:], row[None])
        near(found[n], model(batch)[0, -1])


@torch.no_grad()
def test_listening_to_the_pattern_changes_nothing():
    """The explicit path lays the rows apart that the fused one asks together."""
    kit = small_kit("alibi")
    model, found = kit.model, []
    for listen in (False, True):
        cache = cache_of(model, 2, 3, 64)
        model(Batch(torch.stack([random_ids(5, 1), random_ids(5, 2)])), cache)
        cache.start(None)
        tap = kit.hooked.taps["decoder.blocks.0.attn.pattern"]
        tap.fn = (lambda x: x) if listen else None
        cache.grow(16)
        model(Batch(random_ids(6, 3)[:, None]), cache)
        cache.select(torch.tensor([1, 0, 2, 3, 3, 3]))
        cache.grow(16)
        found.append(model(Batch(random_ids(6, 4)[:, None]), cache))
    tap.fn = None
    near(found[1], found[0])


def test_documents_are_refused():
    model = small_kit("gpt2").model
    with pytest.raises(UsageError, match="documents"):
        cache = cache_of(model, 1, 1, 64)
        model(Batch(random_ids(4, 1)[None], documents=torch.zeros(1, 4).long()), cache)
