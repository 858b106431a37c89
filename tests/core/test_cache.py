"""Cache: steps, chunks and one call agree; padding and packing leave no trace (MISSION N6)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.cache import Cache, FixedCache
from regard.core.config import BlockConfig, StackConfig
from regard.errors import UsageError
from regard.model.batch import Batch
from regard.model.model import Model
from tests.properties.small_models import (
    CONFIGS,
    DECODERS,
    VOCAB,
    assert_near,
    random_ids,
    small_kit,
)

CONFIG = StackConfig(BlockConfig(8, 4, 8, kv_heads=2, causal=True), 2)


def empty(batch=2, size=6, **options):
    return Cache(CONFIG, batch, size, **options)


def numbered(cache, count):
    """Keys (B, T, G, K) that carry their row and slot, so that misplacing shows."""
    row = torch.arange(cache.batch)[:, None] * 100.0
    return (row + cache.slots)[:, :, None, None].expand(-1, count, 2, 2).contiguous()


# Bookkeeping ----------------------------------------------------------------------------------


def test_shapes_and_memory():
    cache = empty(batch=3, size=5)
    assert len(cache.keys) == len(cache.values) == 2
    assert cache.keys[0].shape == (3, 6, 2, 2)  # one slot more, for padding
    assert empty(dtype=torch.bfloat16).keys[1].dtype == torch.bfloat16


def test_even_rows_are_placed_one_after_the_other():
    cache = empty()
    assert cache.place(None, None, 2).tolist() == [[0, 1], [0, 1]]
    keys, values = cache.append(0, numbered(cache, 2), -numbered(cache, 2))
    assert keys[:, 0, :, 0].tolist() == [[0, 1], [100, 101]] and torch.equal(values, -keys)
    assert cache.place(None, None, 3).tolist() == [[2, 3, 4], [2, 3, 4]]
    keys, _ = cache.append(0, numbered(cache, 3), numbered(cache, 3))
    assert keys[1, 1, :, 1].tolist() == [100, 101, 102, 103, 104]
    assert cache.lengths.tolist() == [5, 5] and cache.used == 5


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_rows_stay_compact_whatever_padding_comes(data):
    """The n-th real token of a row lies in slot n; a query sees the slots up to its own."""
    cache = empty(batch=2, size=12)
    lengths = [0, 0]
    for _ in range(3):
        width = data.draw(st.integers(1, 4))
        real = torch.tensor(
            [data.draw(st.lists(st.booleans(), min_size=width, max_size=width)) for _ in range(2)]
        )
        if not real.any():
            continue
        positions = cache.place(real, None, width)
        keys, _ = cache.append(1, numbered(cache, width), numbered(cache, width))
        allow = cache.allow()
        for row in range(2):
            for column in range(width):
                if real[row, column]:
                    slot = lengths[row]
                    assert int(positions[row, column]) == slot
                    seen = torch.ones(1) if allow is None else allow[row, 0, column]
                    if allow is not None:
                        assert seen.tolist() == [s <= slot for s in range(cache.span)]
                    assert float(keys[row, 0, slot, 0]) == row * 100 + slot
                    lengths[row] += 1
    assert cache.lengths.tolist() == lengths


def test_overflow_is_refused_with_both_numbers():
    cache = empty(size=4)
    cache.place(None, None, 3)
    with pytest.raises(UsageError) as failure:
        cache.place(None, None, 2)
    for part in ("3 tokens held and 2 new ones", "at most 4 in all", "make the cache larger"):
        assert part in str(failure.value)


def test_ragged_rows_may_fill_the_cache_to_the_last_slot():
    """Bounds add up to more than any row holds; only the longest row counts."""
    cache = empty(size=4)
    left, right = torch.tensor([[True, True, True], [True, False, False]]), None
    cache.place(left, None, 3)
    right = torch.tensor([[False, False, False], [True, True, True]])
    assert cache.place(right, None, 3)[1].tolist() == [1, 2, 3]
    with pytest.raises(UsageError):
        cache.place(right, None, 3)


def test_tiles_round_the_span_up_but_not_past_the_size():
    cache = empty(size=10, tile=4)
    for count, span in ((1, 4), (3, 4), (1, 8), (4, 10)):
        cache.place(None, None, count)
        assert cache.span == span
    assert cache.allow() is not None  # slots that hold nothing yet must be masked


def test_slots_that_rows_leave_empty_are_finite():
    """A cache that grows by rows has memory as it was found."""
    for document in (None, torch.tensor([[0, 0], [0, 0], [0, 1]])):
        cache = empty()
        if document is None:
            cache.place(None, None, 1)
            cache.append(0, numbered(cache, 1), numbered(cache, 1))
        cache.select(torch.tensor([0, 0, 1]))
        for held in (*cache.keys, *cache.values):
            held[:, cache.used :] = torch.nan
        real = torch.tensor([[True, True], [True, False], [True, True]])
        cache.place(real, document, 2)
        k, v = cache.append(0, numbered(cache, 2), numbered(cache, 2))
        assert not cache.even and torch.isfinite(k).all() and torch.isfinite(v).all()


def test_a_copy_keeps_its_source_when_rows_move_in_place():
    model = Model.fresh(CONFIGS["transformer"])
    cache = model.cache(3, 4)
    ids = torch.arange(6).view(3, 2)
    model(Batch(ids, ids[:, :1]), cache)
    twin, held = cache.copy(), [part.clone() for part in cache.memory[0]]
    cache.select(torch.tensor([2]))
    assert torch.equal(cache.memory[0][0], held[0][2:])
    assert all(map(torch.equal, twin.memory[0], held))


def test_documents_restart_their_positions_across_calls():
    cache = empty(batch=1, size=8)
    assert cache.place(None, torch.tensor([[0, 1, 0]]), 3).tolist() == [[0, 0, 1]]
    assert cache.place(None, torch.tensor([[1, 0, 2]]), 3).tolist() == [[1, 2, 0]]
    assert cache.positions().tolist() == [[0, 0, 1, 1, 2, 0]]
    allow = cache.allow()[0, 0]
    assert allow.tolist() == [
        [False, True, False, True, False, False],
        [True, False, True, False, True, False],
        [False] * 5 + [True],
    ]
    with pytest.raises(UsageError, match="no documents"):
        cache.place(None, None, 1)


def test_padding_of_a_full_document_needs_no_further_position():
    """A padded column counts no token, so its position stays inside a learned table."""
    cache = empty(batch=1, size=3)
    cache.place(None, torch.tensor([[0, 0, 0]]), 3)
    real = torch.tensor([[False]])
    assert int(cache.place(real, torch.tensor([[0]]), 1).max()) < 3


# In a model -----------------------------------------------------------------------------------


def feed(kit, ids, sizes, **masks):
    """Logits of all columns, some at a time."""
    cache, start, found = kit.cache(len(ids), ids.shape[1]), 0, []
    for size in sizes:
        part = {name: mask[:, start : start + size] for name, mask in masks.items()}
        found.append(kit.logits(ids[:, start : start + size], cache=cache, **part))
        start += size
    return torch.cat(found, 1)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_split_into_calls_gives_the_same(data):
    kit = small_kit("llama")
    ids = torch.randint(0, VOCAB, (2, 9), generator=torch.Generator().manual_seed(1))
    sizes, left = [], 9
    while left:
        sizes.append(data.draw(st.integers(1, left)))
        left -= sizes[-1]
    assert_near(feed(kit, ids, sizes), kit.logits(ids))


def test_ragged_rows_in_the_model():
    kit = small_kit("gpt2")
    ids = torch.randint(0, VOCAB, (3, 8), generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 1, 1, 0], [1] * 8]).bool()
    found = feed(kit, ids, [2, 1, 3, 2], mask=mask)
    for row in range(3):
        assert_near(found[row, mask[row]], kit.logits(ids[row, mask[row]][None])[0])


def test_padding_leaves_no_nan_anywhere():
    """Also where a padded query sees no key at all: packed rows whose slots are all taken."""
    kit = small_kit("llama")
    ids = torch.randint(0, VOCAB, (2, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]).bool()
    documents = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 0, 0]])
    for more in ({}, {"documents": documents}):
        assert kit.logits(ids, mask=mask, **more).isfinite().all()
        for sizes in ([6], [3, 3], [1] * 6):
            assert feed(kit, ids, sizes, mask=mask, **more).isfinite().all()


@pytest.mark.parametrize("explicit", [False, True])
def test_padding_of_a_full_packed_row_is_not_nan(explicit):
    """Row 0 fills its cache; a padded column after that sees no slot of its own."""
    kit = small_kit("llama")
    if explicit:
        for block in kit.model.decoder.blocks:
            block.attn.at.pattern.fn = lambda x: x
    ids = torch.arange(12).view(2, 6)
    mask = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])
    cache = kit.cache(2, 6)
    kit.logits(ids, mask=mask, documents=torch.zeros_like(ids), cache=cache)
    column, real = ids[:, :1], torch.tensor([[False], [True]])
    last = kit.logits(column, mask=real, documents=torch.zeros_like(column), cache=cache)
    assert last.isfinite().all()
    alone = torch.cat([ids[1, :3], ids[1, :1]])[None]
    assert_near(last[1, 0], kit.logits(alone)[0, -1])


def test_memory_is_encoded_and_projected_once():
    """The encoder and the keys of cross-attention run in the first call only."""
    kit, calls = small_kit("transformer"), []
    model = kit.model
    model.encoder.at.final.fn = lambda x: calls.append("encoder") or x
    for block in model.decoder.blocks:
        block.cross.k.register_forward_hook(lambda *_: calls.append("key"))
        block.attn.k.register_forward_hook(lambda *_: calls.append("own"))
    source, target = torch.arange(7)[None], torch.arange(4)[None]
    cache = model.cache(1, 4)
    with torch.no_grad():
        for column in range(4):
            model(Batch(source, target[:, column : column + 1]), cache)
    assert calls.count("encoder") == 1 and calls.count("key") == 2 and calls.count("own") == 8
    assert set(cache.memory) == {0, 1}


def test_a_cache_never_lives_on_the_model():
    kit = small_kit("gpt2")
    ids = torch.arange(5)[None]
    before = kit.logits(ids)
    kit.logits(ids, cache=kit.cache(1, 5))
    assert torch.equal(kit.logits(ids), before)


def test_a_cache_has_the_dtype_of_the_model_and_needs_a_decoder():
    model = Model(CONFIGS["gpt2"]).to(torch.bfloat16)
    assert model.cache(1, 4).keys[0].dtype == torch.bfloat16
    with pytest.raises(UsageError, match="without decoder"):
        Model(CONFIGS["bert"]).cache(1, 4)


def test_tokens_with_and_without_documents_do_not_mix() -> None:
    ids = torch.zeros(1, 2, dtype=torch.long)
    for first, then in ((None, ids), (ids, None)):
        cache = Cache(StackConfig(BlockConfig(8, 2, 8, causal=True), 1), 1, 8)
        cache.place(None, first, 2)
        with pytest.raises(UsageError, match="after tokens with"):
            cache.place(None, then, 2)


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
        memory = model.encode(Batch(source))
        held = {}
        for block in model.decoder.blocks:
            fresh = [block.cross.k(memory.x), block.cross.v(memory.x)]
            held[block.cross.layer] = tuple(
                part.unflatten(-1, (4, 8)).transpose(1, 2) for part in fresh
            )
        caches[0].remember(held, torch.ones(2, 8).bool())
    model.decode(Batch(ids), memory, caches[0])
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
