"""Entropy of texts: sources whose entropy is known, alphabets, guesses and their bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import DataError, UsageError
from regard.history import shannon
from regard.history.ngrams import count_ngrams
from regard.history.predictors import Folded, NgramPredictor
from regard.history.shannon import (
    bounds,
    bytes_of,
    clean,
    conditional,
    estimate,
    guess_ranks,
    letters_of,
    rank_shares,
)
from regard.history.smoothing import train_ngrams

DICE = np.random.default_rng(0)
CHAIN = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [0.8, 0.1, 0.1]])


def chain(length):
    """A text in which each letter depends on the one before it."""
    sums, chances = np.cumsum(CHAIN, 1), np.random.default_rng(1).random(length)
    ids = [0]
    for chance in chances[1:]:
        ids.append(int(np.searchsorted(sums[ids[-1]], chance)))
    return np.array(ids)


def test_equally_likely_letters():
    found = estimate(DICE.integers(0, 8, 200_000), 8, 4)
    for values in (found.plug_in, found.miller_madow, found.held_out):
        assert values == pytest.approx([3.0] * 5, abs=0.02)
    assert found.plug_in[4] < found.miller_madow[4] < found.held_out[4]
    assert abs(found.miller_madow[4] - 3) < abs(found.plug_in[4] - 3) / 4  # what it mends


def test_a_chain_has_the_entropy_of_its_rows():
    values, vectors = np.linalg.eig(CHAIN.T)
    stay = np.real(vectors[:, np.argmax(np.real(values))])
    stay /= stay.sum()
    own = -np.where(CHAIN > 0, CHAIN * np.log2(np.where(CHAIN > 0, CHAIN, 1)), 0).sum(1)
    rate = float(stay @ own)
    found = estimate(chain(100_000), 3, 4)
    for values in (found.plug_in, found.miller_madow, found.held_out):
        assert values[2:] == pytest.approx([rate] * 3, abs=0.01)
        assert values[1] == pytest.approx(-(stay * np.log2(stay)).sum(), abs=0.01)


def test_plug_in_by_hand():
    ids = np.array([0, 1, 0, 1, 0, 2])  # after 0: twice 1, once 2; after 1: twice 0
    assert conditional(count_ngrams(ids, 3, 2)[1]) == pytest.approx(
        3 / 5 * -(2 / 3 * np.log2(2 / 3) + 1 / 3 * np.log2(1 / 3))
    )
    found = estimate(ids, 3, 2)
    assert found.miller_madow[1] - found.plug_in[1] == pytest.approx(2 / (2 * 6 * np.log(2)))
    assert found.miller_madow[2] - found.plug_in[2] == pytest.approx(0)  # 3 kinds, then 3


def test_held_out_letters_are_measured_on_the_last_tenth():
    ids = chain(1000)
    model = train_ngrams(ids[:900], 3, 3)
    wanted = -model.logprobs(ids)[900:].mean() / np.log(2)
    assert estimate(ids, 3, 3).held_out[3] == pytest.approx(wanted)


def test_alphabets():
    text = "Déjà vu — naïve\nCAFÉ: 3 ½ don't!"
    assert clean(text, "27") == "deja vu naive cafe don t"
    assert clean(text, "26") == "dejavunaivecafedont"
    assert clean(text, "as-is") == text
    for alphabet, size in (("27", 27), ("26", 26), ("as-is", len(set(text)))):
        found = letters_of(text, alphabet)
        assert found.text == clean(text, alphabet) and len(found.symbols) == size
    with pytest.raises(UsageError, match="28"):
        clean(text, "28")


def test_many_characters_are_coded_as_bytes():
    text = "".join(chr(0x4E00 + n) for n in range(400)) + "\n🦊 fox"
    letters = letters_of(text, "as-is")
    few = bytes_of(letters)
    assert few.bytes and len(few.symbols) < 256 and few.text == text
    assert bytes_of(letters_of("abc", "as-is")).symbols == "abc"


@pytest.mark.parametrize(("length", "order"), [(0, 1), (1, 1), (5, 5)])
def test_too_short_for_the_order(length, order):
    with pytest.raises(DataError, match=f"{length} letters"):
        estimate(np.zeros(length, np.int64), 27, order)
    assert len(estimate(np.zeros(order + 1, np.int64), 27, order).held_out) == order + 1
    with pytest.raises(UsageError, match="order 0"):
        estimate(np.zeros(9, np.int64), 27, 0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30).filter(lambda q: sum(q) > 0.01))
@settings(deadline=None)
def test_the_bounds_are_in_order(q):
    shares = np.sort(np.array(q))[::-1] / sum(q)
    lower, upper = bounds(shares)
    assert -1e-9 <= lower <= upper + 1e-9 <= np.log2(len(q)) + 2e-9


def test_bounds_of_sure_and_of_clueless_guesses():
    assert bounds(np.array([1.0, 0, 0])) == (0, 0)
    assert bounds(np.full(27, 1 / 27)) == pytest.approx((np.log2(27), np.log2(27)))
    q = np.array([0.5, 0.25, 0.25])  # by hand
    assert bounds(q) == pytest.approx((3 * 0.25 * np.log2(3), 1.5))
    with pytest.raises(DataError, match="ranks"):
        rank_shares(np.array([28]), 27)


def test_ranks_of_a_text_known_by_heart():
    ids = np.array([0, 1, 2, 3] * 50)
    ranks = guess_ranks(ids, NgramPredictor(train_ngrams(ids, 4, 2)))
    assert (ranks[1:] == 1).all()
    assert bounds(rank_shares(ranks[1:], 4)) == (0, 0)


def test_a_uniform_guesser_takes_the_alphabet_in_turn():
    ids = DICE.integers(0, 8, 4000)
    flat = train_ngrams(np.arange(8), 8, 1, "add")
    ranks = guess_ranks(ids, NgramPredictor(flat))
    np.testing.assert_array_equal(ranks, ids + 1)
    assert bounds(rank_shares(ranks, 8))[1] == pytest.approx(3, abs=0.01)


def test_letters_of_a_model_that_knows_more():
    tokens = "aAbB.\n"  # capitals are letters too, marks are blanks
    letter = np.array([1, 1, 2, 2, 0, 0])
    tables = train_ngrams(np.array([0, 1, 2, 3, 4, 5, 1, 2]), len(tokens), 2)
    folded = Folded(NgramPredictor(tables), letter, np.array([4, 0, 2]))
    folded.start(1)
    folded.read(np.array([1]))
    own = np.exp(tables.distribution([0]))
    wanted = [own[4] + own[5], own[0] + own[1], own[2] + own[3]]
    np.testing.assert_allclose(folded.predict()[0], wanted)


@pytest.mark.parametrize(
    ("alphabet", "bits", "printed"),
    [("26", 4.7004, (4.70, 4.14, 3.56, 3.3)), ("27", 4.7549, (4.76, 4.03, 3.32, 3.1))],
)
def test_without_a_letter_the_alphabet_is_all_there_is(alphabet, bits, printed):
    letters = letters_of("I grew up in France. I speak fluent French.", alphabet)
    found = estimate(letters.ids, len(letters.symbols), 1)
    for values in (found.plug_in, found.miller_madow, found.held_out):
        assert values[0] == pytest.approx(bits, abs=5e-5)
    assert shannon.SHANNON[alphabet] == printed and printed[0] == pytest.approx(bits, abs=6e-3)


def test_the_reason_for_the_gap_is_given():
    assert "two words" in shannon.GAP
