"""Strict mode's parts; its promise is tested in tests/properties/test_batch_proof.py."""

from __future__ import annotations

import pytest
import torch

from regard.errors import UsageError
from regard.model.batch import Batch
from regard.model.strict import TILE, StrictCache, sequences, strict_logits
from tests.properties.small_models import example, random_ids, small_kit


def test_sequences_are_rows_without_padding_or_documents():
    real = torch.tensor([[False, True, True], [True, True, False]])
    found = [(s.row, s.document, s.columns.tolist()) for s in sequences(2, 3, real, None)]
    assert found == [(0, 0, [1, 2]), (1, 0, [0, 1])]
    document = torch.tensor([[7, 3, 7], [3, 3, 3]])
    found = [(s.row, s.document, s.columns.tolist()) for s in sequences(2, 3, real, document)]
    assert found == [(0, 3, [1]), (0, 7, [2]), (1, 3, [0, 1])]
    assert sequences(1, 2, torch.zeros(1, 2, dtype=torch.bool), None) == []


def test_padding_gives_zeros():
    kit = small_kit("gpt2")
    mask = torch.tensor([[False, True, True]])
    logits = kit.logits(torch.ones(1, 3, dtype=torch.long), mask=mask, strict=True)
    assert (logits[0, 0] == 0).all() and (logits[0, 1:] != 0).all()


def test_every_run_of_a_decoder_has_the_shape_of_a_tile():
    kit, seen = small_kit("gpt2"), []
    kit.model.decoder.at.embed.fn = lambda x: seen.append(tuple(x.shape)) or x
    kit.logits(random_ids(TILE + 3, 1)[None].expand(2, -1), strict=True)
    assert seen == [(1, TILE, 32)] * 4


def test_a_position_has_its_row_of_the_tile_however_it_came():
    """On some machines the bits of a row depend on its place among the rows."""
    kit, seen = small_kit("gpt2"), []
    kit.model.decoder.at.embed.fn = lambda x: seen.append(x[0]) or x
    ids = random_ids(TILE + 5, 1)[None]
    kit.logits(ids, strict=True)
    whole = seen[1]
    cache = kit.cache(1, 40, strict=True)
    for part in ids.split([TILE + 2, 1, 2], dim=1):
        kit.logits(part, cache=cache, strict=True)
    *_, one, two = seen
    assert torch.equal(one[2], whole[2]) and torch.equal(two[3:5], whole[3:5])


def test_a_strict_cache_is_whole_tiles_and_says_when_it_is_full():
    kit = small_kit("llama")
    cache = kit.cache(1, 33, strict=True)
    assert isinstance(cache, StrictCache) and cache.size == 2 * TILE
    kit.logits(random_ids(60, 1)[None], cache=cache, strict=True)
    with pytest.raises(UsageError, match=r"65 tokens in row 0[\s\S]*at most 64"):
        kit.logits(random_ids(5, 2)[None], cache=cache, strict=True)


def test_nothing_but_padding_gives_zeros() -> None:
    kit = small_kit("gpt2")
    batch = Batch(torch.ones(1, 2, dtype=torch.long), mask=torch.zeros(1, 2, dtype=torch.bool))
    logits = strict_logits(kit.model, batch)
    assert logits.shape == kit.model(batch).shape and not logits.any()


def test_the_source_is_encoded_once():
    kit, calls = small_kit("transformer"), []
    kit.model.encoder.at.final.fn = lambda x: calls.append(1) or x
    one = example(kit, 6, 1, 9)
    cache = kit.cache(1, 6, strict=True)
    for part in one.target.split(2):
        kit.logits(one.inputs[None], part[None], cache=cache, strict=True)
    assert len(calls) == 1


def test_caches_and_modes_must_agree():
    kit = small_kit("gpt2")
    ids = random_ids(4, 1)[None]
    with pytest.raises(UsageError, match="strict=True and a Cache"):
        kit.logits(ids, cache=kit.cache(1, 4), strict=True)
    with pytest.raises(UsageError, match="strict=False and a StrictCache"):
        kit.logits(ids, cache=kit.cache(1, 4, strict=True))
