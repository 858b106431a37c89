"""IBM model 1 in arrays against the same in plain dictionaries."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

from regard.history import ibm1
from regard.history.ibm1 import IBM1, Ragged

Pair = tuple[list[int], list[int]]
NULL = -1


def by_dictionary(pairs: Sequence[Pair], rounds: int) -> tuple[dict[tuple[int, int], float], float]:
    """t after some rounds of EM, and the log-likelihood before the last of them."""
    met = {(s, t) for source, target in pairs for t in target for s in [NULL, *source]}
    sizes = {s: sum(a == s for a, _ in met) for s, _ in met}
    table = {(s, t): 1 / sizes[s] for s, t in met}
    likelihood = 0.0
    for _ in range(rounds):
        count: dict[tuple[int, int], float] = defaultdict(float)
        total: dict[int, float] = defaultdict(float)
        likelihood = 0.0
        for source, target in pairs:
            heard = [NULL, *source]
            for t in target:
                norm = sum(table[s, t] for s in heard)
                likelihood += math.log(norm / len(heard))
                for s in heard:
                    count[s, t] += table[s, t] / norm
                    total[s] += table[s, t] / norm
        table = {(s, t): count[s, t] / total[s] for s, t in met}
    return table, likelihood


def model_of(pairs: Sequence[Pair], sources: int, targets: int) -> IBM1:
    left, right = Ragged.of([s for s, _ in pairs]), Ragged.of([t for _, t in pairs])
    return IBM1(left, right, sources, targets)


def table_of(model: IBM1) -> dict[tuple[int, int], float]:
    """The table with NULL as in the dictionary."""
    last = len(model.bounds) - 2
    found = dict[tuple[int, int], float]()
    for source in range(last + 1):
        targets, t, _ = model.row(source)
        assert targets.tolist() == sorted(set(targets.tolist()))
        name = NULL if source == last else source
        found |= {(name, int(n)): float(p) for n, p in zip(targets, t, strict=True)}
    return found


def drawn(count: int, sources: int, targets: int, seed: int = 0) -> list[Pair]:
    draw = random.Random(seed)

    def ids(vocab: int, least: int) -> list[int]:
        return [draw.randrange(vocab) for _ in range(draw.randint(least, 6))]

    return [(ids(sources, 0), ids(targets, 0)) for _ in range(count)]


@pytest.mark.parametrize("links", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    "pairs", [[([0, 1], [0, 1]), ([0, 2], [0, 2]), ([3], [3, 3]), ([], [1])], drawn(40, 9, 7)]
)
def test_equals_dictionaries(
    pairs: list[Pair], links: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ibm1, "LINKS", links)  # however many pairs are computed together
    model = model_of(pairs, 9, 7)
    for rounds in range(1, 7):
        likelihood = model.step()
        wanted, before = by_dictionary(pairs, rounds)
        found = table_of(model)
        assert found.keys() == wanted.keys()
        assert max(abs(found[cell] - p) for cell, p in wanted.items()) <= 1e-12
        assert likelihood == pytest.approx(before, rel=1e-12)
    words = sum(len(target) for _, target in pairs)
    assert model.counts.sum() == pytest.approx(words)  # each word is explained once


def test_likelihood_never_falls() -> None:
    for seed in range(5):
        model = model_of(drawn(60, 8, 8, seed), 8, 8)
        seen = [model.step() for _ in range(40)]
        assert all(after >= before - 1e-9 for before, after in zip(seen, seen[1:], strict=False))
        assert seen[-1] > seen[0]


def test_words_find_their_translations() -> None:
    english, german = "the house book a".split(), "das Haus Buch ein".split()
    lines = ["the house/das Haus", "the book/das Buch", "a book/ein Buch"]
    pairs = [
        ([english.index(w) for w in a.split()], [german.index(w) for w in b.split()])
        for a, b in (line.split("/") for line in lines)
    ]
    model = model_of(pairs, 4, 4)
    for _ in range(80):
        model.step()
    found = table_of(model)
    for word in range(4):  # each alone with its own, and so Σ_t t(t | s) = 1
        assert found[word, word] == pytest.approx(1, abs=1e-9)


def test_nothing_to_align() -> None:
    empty = model_of([], 3, 3)
    assert empty.step() == 0 and not len(empty.t)
    assert not len(model_of([([1], [])], 3, 3).t)
