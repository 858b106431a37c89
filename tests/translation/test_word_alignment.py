"""Alignments: sums over tokens, links, and the error rate in closed form."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.align import alignment_error_rate, read_links
from regard.data.word_frequencies import words
from regard.errors import UsageError
from regard.translation.explanation import (
    AlignConfig,
    align_config,
    link_words,
    same_kind,
    token_shares,
    word_weights,
)

PAIRS = Path(__file__).with_name("aligned.tsv").read_text(encoding="utf-8").splitlines()


def test_a_token_belongs_to_words_by_its_characters() -> None:
    shares = token_shares([(0, 3), (3, 7), (7, 7), (8, 9)], [(0, 4), (4, 7)])
    assert shares.tolist() == [[1, 0], [0.25, 0.75], [0, 0], [0, 0]]


def test_weights_are_sums_over_source_and_means_over_target_tokens() -> None:
    """Against loops over words of whole tokens."""
    torch.manual_seed(0)
    source, target = [0, 0, 1, 2, 2, None], [0, 1, 1, 1, 2]
    pattern = torch.rand(5, 6).softmax(-1)

    def shares(owners: list[int | None] | list[int]) -> torch.Tensor:
        return torch.tensor([[float(owner == w) for w in range(3)] for owner in owners])

    found = word_weights(pattern, shares(target), shares(source))
    for t in range(3):
        rows = [n for n, owner in enumerate(target) if owner == t]
        mass = [
            sum(float(pattern[n, m]) for n in rows for m, owner in enumerate(source) if owner == s)
            for s in range(3)
        ]
        assert found[t].tolist() == pytest.approx([m / sum(mass) for m in mass])


def test_links() -> None:
    weights = torch.tensor([[0.6, 0.4, 0.0], [0.4, 0.1, 0.5], [0.0, 0.0, 0.0]])
    assert link_words(weights, 1.0) == [(0, 0), (2, 1)]
    assert link_words(weights, 0.6) == [(0, 0), (1, 0), (2, 1)]  # (0, 1) is no neighbour of (2, 1)
    assert link_words(torch.zeros(0, 3), 0.5) == []


def test_marks_and_words_are_not_linked() -> None:
    assert same_kind(["chat", "."], ["the", "cat", "!"]).tolist() == [[1, 0], [1, 0], [0, 1]]


def test_error_rate_in_closed_form() -> None:
    sure, possible = {(0, 0), (1, 1)}, {(1, 2)}
    cases = [
        (sure, 0.0),  # all sure links and no other
        (sure | possible, 0.0),  # a possible one does no harm
        ({(5, 5)}, 1.0),
        (set(), 1.0),
        ({(0, 0)}, 1 - 2 / 3),
        ({(0, 0), (1, 1), (5, 5)}, 1 - 4 / 5),
        ({(1, 2)}, 1 - 1 / 3),
    ]
    for found, rate in cases:
        assert alignment_error_rate([found], [sure], [possible]) == pytest.approx(rate)
    both = alignment_error_rate([sure, {(5, 5)}], [sure, {(0, 0)}], [possible, set()])
    assert both == pytest.approx(1 - 4 / 6)  # of all links together, not the mean of rates
    with pytest.raises(UsageError):
        alignment_error_rate([set()], [set()], [set()])


def test_links_by_hand() -> None:
    sure, possible = read_links("La clé de la voiture", "The car key", "La=The clé=key la~car")
    assert sure == {(0, 0), (1, 2)} and possible == {(3, 1)}
    assert read_links("un un", "a a", "un/2=a")[0] == {(1, 0)}
    for wrong in ("un/3=a", "deux=a", "un=b"):
        with pytest.raises(UsageError, match="reading links"):
            read_links("un un", "a a", wrong)


def test_the_aligned_pairs_are_whole() -> None:
    """Each word has a link, none is both sure and possible, no pair stands there twice."""
    assert len(PAIRS) >= 50 and len(set(PAIRS)) == len(PAIRS)
    for line in PAIRS:
        source, target, notation = line.split("\t")
        sure, possible = read_links(source, target, notation)
        assert sure and not sure & possible and len(notation.split()) == len(sure | possible)
        linked = sure | possible
        assert {s for s, _ in linked} == set(range(len(words(source)))), line
        assert {t for _, t in linked} == set(range(len(words(target)))), line


def test_the_way_is_read_from_the_config() -> None:
    assert align_config({}) == AlignConfig()
    assert align_config({"alignment": {"block": 0, "firm": 1.0}}) == AlignConfig(0, 1.0)
    with pytest.raises(UsageError, match="layer"):
        align_config({"alignment": {"layer": 2}})
