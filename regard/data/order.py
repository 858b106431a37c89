"""A shuffle that can resume anywhere: its whole state is (seed, epoch, position).

The order is a keyed permutation computed per index: a Feistel network on the bits of the next
power of two, walked until it falls inside (Black and Rogaway 2002). Nothing of size n is stored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Bits = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
ROUNDS = 12


def mix(x: Bits) -> Bits:
    """SplitMix64's finaliser (Steele 2014); multiplication wraps around."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@lru_cache(256)
def key(*counters: int) -> Bits:
    """One 64-bit number (1,) from a seed and counters, each of them mixed in."""
    state = np.zeros(1, np.uint64)
    for counter in counters:
        step = (counter + 1) * int(GOLDEN) % 2**64  # as an int: a NumPy scalar warns of wrapping
        state = mix(state + np.array([step], np.uint64))
    state.flags.writeable = False  # shared by all callers
    return state


def uniform(keys: Bits, counters: NDArray[Any]) -> NDArray[np.float64]:
    """One number in [0, 1) per counter; keys (1,) or one per counter."""
    bits = mix(keys + (counters.astype(np.uint64) + np.uint64(1)) * GOLDEN)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def shuffled(
    positions: NDArray[Any], n: int, seed: int | None, epoch: int, stream: int = 0
) -> Counts:
    """Which of n items stands at each position of this epoch's order; no seed, no shuffle."""
    x = np.asarray(positions).astype(np.uint64)
    if seed is None or n < 2:
        return x.astype(np.int64)
    bits = (n - 1).bit_length()
    keys = [key(seed, epoch, stream, r) for r in range(ROUNDS)]
    x = network(x, bits, keys)
    outside = np.flatnonzero(x >= n)
    while len(outside):  # fewer than half of the numbers lie outside, so this soon ends
        x[outside] = network(x[outside], bits, keys)
        outside = outside[x[outside] >= n]
    return x.astype(np.int64)


def network(x: Bits, bits: int, keys: list[Bits]) -> Bits:
    """A permutation of the numbers below 2**bits: each round adds a hash of one half to the other.

    The halves may differ in size by one bit; a round is undone by repeating it.
    """
    half = np.uint64(bits // 2)
    low = (np.uint64(1) << half) - np.uint64(1)
    high = (np.uint64(1) << np.uint64(bits)) - np.uint64(1) - low
    for number, k in enumerate(keys):
        kept, changed = (low, high) if number % 2 == 0 else (high, low)
        x = x ^ (mix((x & kept) * GOLDEN + k) >> np.uint64(3) & changed)
    return x
