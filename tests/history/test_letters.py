"""Soft lookup: attention by letters."""

from __future__ import annotations

import math

import pytest

import regard
from regard.errors import DataError

TITLES = [
    "Jurafsky and Martin: Speech and Language Processing",
    "Manning and Schütze: Foundations of Statistical Natural Language Processing",
    "Bishop and Bishop: Deep Learning",
    "Martin: Clean Code",
    "Shannon: A Mathematical Theory of Communication",
]


def test_the_title_that_is_meant_has_most_of_the_weight(tmp_path):
    (tmp_path / "titles.txt").write_text("\n".join([*TITLES, ""]))
    found = regard.history.lookup("jurafsky martin", tmp_path / "titles.txt", top=9)
    assert found.titles[0].title == TITLES[0] and found.titles[0].weight > 0.9
    assert found.titles[1].title == TITLES[3]  # half of the query
    assert sum(row.weight for row in found.titles) == pytest.approx(1) and found.all == 5
    scores = [math.exp(20 * row.cosine) for row in found.titles]
    for row, score in zip(found.titles, scores, strict=True):
        assert row.weight == pytest.approx(score / sum(scores), rel=1e-4)
    misspelt = regard.history.lookup("JURAFSKI", TITLES, top=1).titles
    assert [row.title for row in misspelt] == TITLES[:1]
    assert regard.history.lookup("schutze", TITLES).titles[0].title == TITLES[1]


def test_less_sharpness_spreads_and_nothing_in_common_is_all_alike():
    soft, sharp = (
        regard.history.lookup("shannon", TITLES, sharpness=s).titles[0].weight for s in (2, 50)
    )
    assert 0.2 < soft < 0.9 < 0.999 < sharp
    for query in ("zzzz", ""):
        weights = [row.weight for row in regard.history.lookup(query, TITLES).titles]
        assert weights == pytest.approx([0.2] * 5)


def test_no_titles():
    with pytest.raises(DataError, match="no titles"):
        regard.history.lookup("a", ["", " "])
