"""The shuffle: a permutation, even, and the same from wherever it is asked."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.order import key, mix, shuffled, uniform
from regard.decode import sampling as decode_random


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 700), st.integers(0, 2**63), st.integers(0, 1000))
def test_it_is_a_permutation(n, seed, epoch):
    order = shuffled(np.arange(n), n, seed, epoch)
    assert sorted(order.tolist()) == list(range(n))


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 10**12), st.integers(0, 99), st.data())
def test_any_part_alone_is_the_part_of_the_whole(n, seed, data):
    places = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=8, unique=True))
    together = shuffled(np.array(places), n, seed, 3)
    alone = [int(shuffled(np.array([place]), n, seed, 3)[0]) for place in places]
    assert together.tolist() == alone and len(set(alone)) == len(alone)
    assert together.min() >= 0 and together.max() < n


def test_no_seed_is_no_shuffle_and_epochs_and_streams_differ():
    places = np.arange(50)
    assert shuffled(places, 50, None, 4).tolist() == places.tolist()
    keys = [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1)]
    orders = [shuffled(places, 50, *k).tolist() for k in keys]
    assert len({tuple(order) for order in orders}) == 4


def chi_square(counts):
    expected = counts.mean()
    return ((counts - expected) ** 2 / expected).sum()


def test_all_orders_of_four_are_as_likely():
    number = {p: n for n, p in enumerate(permutations(range(4)))}
    counts = np.zeros(24)
    for seed in range(2400):
        counts[number[tuple(shuffled(np.arange(4), 4, seed, 0).tolist())]] += 1
    assert chi_square(counts) < 49.7  # 23 degrees of freedom, one in a thousand


def test_each_item_goes_everywhere_and_neighbours_part():
    n, counts, steps = 1000, np.zeros((10, 10)), np.zeros(10)
    for seed in range(300):
        order = shuffled(np.arange(n), n, seed, 5)
        np.add.at(counts, (np.arange(n) * 10 // n, order * 10 // n), 1)
        np.add.at(steps, (np.diff(order) % n) * 10 // n, 1)
    assert chi_square(counts) < 126.1  # 81 degrees of freedom
    assert chi_square(steps) < 35  # 9 degrees and a little: a step of 0 cannot be


def test_the_mixer_is_the_one_of_decoding():
    values = np.array([0, 1, 2**63 - 1, -1, 12345], np.int64)
    ours = mix(values.astype(np.uint64)).astype(np.int64)
    assert ours.tolist() == decode_random.mix(torch.from_numpy(values)).tolist()


def test_uniform_numbers():
    numbers = uniform(key(1, 2, 3), np.arange(10_000))
    assert 0 <= numbers.min() and numbers.max() < 1
    assert chi_square(np.bincount((numbers * 20).astype(int))) < 43.8  # 19 degrees
    assert uniform(key(1, 2, 3), np.array([77]))[0] == numbers[77]
