"""Batches: padding by hand, and refusals before any kernel runs (MISSION #36)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import regard
from regard.errors import DataError, UsageError
from regard.model.batch import Batch, check_batch, check_ids, pad_rows
from regard.model.config import HeadConfig
from tests.properties.small_models import CONFIGS, VOCAB

IDS = torch.arange(6).view(2, 3)


def test_rows_are_padded_on_the_right():
    ids, mask = pad_rows([[1, 2, 3], [4]], pad=9)
    assert ids.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert mask.tolist() == [[True, True, True], [True, False, False]]


def test_equal_rows_need_no_mask():
    ids, mask = pad_rows([[1, 2], [3, 4]])
    assert ids.dtype == torch.long and mask is None
    assert pad_rows([[]])[0].shape == (1, 0)


def test_the_last_stack_reads_the_target():
    assert Batch(IDS).ids is IDS
    assert Batch(IDS, IDS + 1).ids.tolist() == (IDS + 1).tolist()


def test_to_moves_every_tensor_and_keeps_none():
    moved = Batch(IDS, mask=IDS > 1).to(torch.device("meta"))
    assert moved.inputs.device.type == moved.mask.device.type == "meta"
    assert moved.target is None and moved.documents is None


@pytest.mark.parametrize("wrong", [VOCAB, VOCAB + 5, -1])
def test_an_id_outside_the_vocabulary_is_named_with_its_place_and_the_limit(wrong):
    ids = IDS.clone()
    ids[1, 2] = wrong
    with pytest.raises(DataError) as failure:
        check_batch(Batch(ids), CONFIGS["gpt2"])
    message = str(failure.value)
    assert f"id {wrong} at row 1, position 2 of the input" in message
    assert f"0 to {VOCAB - 1}" in message and "tokenizer" in message


def test_source_and_target_are_told_apart():
    config = CONFIGS["t5"]
    with pytest.raises(DataError, match="row 0, position 0 of the source"):
        check_batch(Batch(IDS + VOCAB, IDS), config)
    with pytest.raises(DataError, match="row 0, position 0 of the target"):
        check_batch(Batch(IDS, IDS + VOCAB), config)
    with pytest.raises(DataError, match="2 sources and 1 targets"):
        check_batch(Batch(IDS, IDS[:1]), config)
    check_batch(Batch(IDS, IDS), config)


@pytest.mark.parametrize("ids", [torch.arange(3), torch.zeros(1, 2), torch.zeros(1, 1, 1).long()])
def test_ids_of_another_shape_or_kind(ids):
    with pytest.raises(DataError, match=r"integers of shape \(batch, length\)"):
        check_ids(ids, CONFIGS["gpt2"].front, "input")


@pytest.mark.parametrize("name", ["mask", "documents", "segments"])
def test_a_mask_of_another_shape(name):
    given = torch.ones(2, 4, dtype=torch.bool if name == "mask" else torch.long)
    with pytest.raises(DataError, match=rf"{name} of shape \(2, 4\)[\s\S]*\(2, 3\)"):
        check_batch(Batch(IDS, **{name: given}), CONFIGS["bert"])


def test_masks_of_a_pair_belong_to_their_side():
    config, target = CONFIGS["t5"], torch.ones(2, 5).long()
    check_batch(Batch(IDS, target, mask=target > 0, source_mask=IDS >= 0), config)
    with pytest.raises(DataError, match=r"source_mask of shape \(2, 5\)"):
        check_batch(Batch(IDS, target, source_mask=target > 0), config)
    with pytest.raises(DataError, match=r"mask of shape \(2, 3\)"):
        check_batch(Batch(IDS, target, mask=IDS >= 0), config)


@pytest.mark.parametrize("dtype", [torch.long, torch.float32])
def test_a_mask_of_another_dtype(dtype):
    with pytest.raises(DataError, match=rf"mask of {dtype}[\s\S]*True at real tokens"):
        check_batch(Batch(IDS, mask=torch.ones(2, 3, dtype=dtype)), CONFIGS["gpt2"])


def test_one_answer_per_row_and_several_documents_do_not_go_together():
    config = replace(CONFIGS["bert"], head=HeadConfig(3, take="first"))
    with pytest.raises(DataError, match="one answer per row"):
        check_batch(Batch(IDS, documents=IDS), config)


# One-hot (row 3) ----------------------------------------------------------------------------------


def test_onehot_rows_sum_to_one_dense_and_sparse():
    dense = regard.onehot([2, 0, 2], 4)
    assert dense.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0]]
    sparse = regard.onehot(torch.tensor([2, 0, 2]), 4, sparse=True)
    assert sparse.is_sparse and torch.equal(sparse.to_dense(), dense)
    assert torch.equal(sparse @ torch.arange(8.0).view(4, 2), dense @ torch.arange(8.0).view(4, 2))
    assert regard.onehot([[1, 0], [0, 1]], 2).shape == (2, 2, 2)
    assert regard.onehot([], 3).shape == (0, 3)


@pytest.mark.parametrize(
    ("ids", "size", "words"),
    [
        ([1, 2, 0, 7], 5, "id 7 at position 3, vocabulary has 5"),
        ([[1, 2], [-1, 0]], 5, "id -1 at row 1, position 0, vocabulary has 5"),
        ([0.5], 5, "float"),
        ("cat", 5, "str"),
        ([[1, 2], [3]], 5, "list"),
        ([0], 0, "size = 0"),
        ([0], 2.5, "size = 2.5"),
    ],
)
def test_onehot_names_what_is_wrong(ids, size, words):
    with pytest.raises((DataError, UsageError), match=words):
        regard.onehot(ids, size)
