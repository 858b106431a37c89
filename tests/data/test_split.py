"""Holding out the end of a store: no token on both sides, none lost."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.batch import Windows
from regard.data.bucket import Buckets
from regard.data.split import hold_out
from regard.data.store import Store, Writer
from regard.errors import DataError, UsageError


def make(path, documents, sides=1):
    with Writer(path, 100, {"sides": sides, "sources": []}) as writer:
        writer.add(documents)
    return Store(path)


def test_a_stream_is_cut_at_nine_tenths(tmp_path):
    store = make(tmp_path / "s", [list(range(60)), list(range(60, 99))])
    train, valid = hold_out(store, None, by_tokens=True)
    assert (train.tokens, valid.tokens) == (89, 10)
    assert train.read(0, 89).tolist() == list(range(89))
    assert valid.read(0, 10).tolist() == list(range(89, 99))
    batch = Windows(valid, 4, 8, seed=None).batch(0, 0)
    assert batch.inputs.min() >= 89 - 89 and batch.labels.max() == 98
    assert batch.inputs[0].tolist() == [89, 90, 91, 92] and batch.tokens == 9
    seen = Windows(train, 8, 99, seed=None).batch(0, 0)
    assert int(seen.labels.max()) == 88


def test_pairs_and_lines_are_held_out_whole(tmp_path):
    pairs = make(tmp_path / "p", [[n] for n in range(80)], sides=2)
    train, valid = hold_out(pairs, None, by_tokens=False)
    assert (len(train), len(valid)) == (38, 2)
    held = Buckets(valid, 50, 98, 99, seed=None).batch(0, 0)
    assert sorted(held.inputs[:, 0].tolist()) == [76, 78]
    assert sorted(held.labels[:, 0].tolist()) == [77, 79]
    lines = make(tmp_path / "l", [[n, n] for n in range(20)])
    train, valid = hold_out(lines, 0.25, by_tokens=False)
    assert [valid[n].tolist()[0] for n in range(5)] == [15, 16, 17, 18, 19]
    assert np.diff(train.bounds).tolist() == [2] * 15


def test_shares_and_limits(tmp_path):
    store = make(tmp_path / "s", [[1], [2]])
    assert hold_out(store, 0, by_tokens=True) == (store, None)
    assert len(hold_out(store, 0.01, by_tokens=False)[1]) == 1
    with pytest.raises(UsageError, match="a share of 1"):
        hold_out(store, 1, by_tokens=True)
    with pytest.raises(DataError, match="1 lines"):
        hold_out(make(tmp_path / "t", [[1, 2]]), None, by_tokens=False)
