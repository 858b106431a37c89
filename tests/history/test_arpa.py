"""ARPA files: what is written comes back, and what is wrong is named with its line."""

from __future__ import annotations

import gzip
import io
from typing import get_args

import numpy as np
import pytest

import regard
from regard.errors import DataError
from regard.history.arpa import read_arpa, write_arpa
from regard.history.config import Smoothing
from regard.history.smoothing import train_ngrams
from tests.history.test_ngrams import START, VOCAB, flat, sentences

WORDS = ["<s>", "</s>", "<unk>", "a", "b", "c", "dé", "e", "f"]
SMALL = """\
\\data\\
ngram 1=3
ngram 2=2

\\1-grams:
-1.0\t<unk>
-0.5\ta\t-0.25
-0.3\tb

\\2-grams:
-0.1\ta b
-0.2\ta a

\\end\\
"""


def written(model):
    file = io.StringIO()
    write_arpa(model, WORDS.__getitem__, file)
    return file.getvalue()


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("way", get_args(Smoothing))
def test_what_is_written_comes_back(way, order):
    model = train_ngrams(flat(sentences()), VOCAB, order, way, 0.5, START)
    text = written(model)
    again, words = read_arpa(text.splitlines(), "m.arpa")
    assert words == WORDS and again.start == START
    for row in [*sentences(20, seed=1), [START, 8, 8, 7, 2, 8, 1]]:
        np.testing.assert_allclose(again.logprobs(row), model.logprobs(row), rtol=1e-12)
    assert written(again) == text  # all digits are there


def test_a_file_by_hand():
    model, words = read_arpa(("a comment\n\n" + SMALL).splitlines(), "m.arpa")
    assert words == ["<unk>", "a", "b"]
    ten = np.log(10)
    # b after a is listed, a after b backs off without weight, <unk> after a with that of a
    np.testing.assert_allclose(
        model.logprobs([1, 2, 1, 0]), np.array([-0.5, -0.1, -0.5, -1.0 - 0.25]) * ten
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("\\data\\\n", ""), "a line \\data\\"),
        (("ngram 2=2", "ngram 3=2"), "line 3: 'ngram 3=2'"),
        (("ngram 2=2", "ngram 2=two"), "a count"),
        (("ngram 2=2", "ngram 2=" + 5000 * "9"), "a count"),
        (("ngram 2=2", "ngram 2=5"), "2 2-grams"),
        (("\\end\\", ""), "a line \\end\\ after the n-grams"),
        (("-0.2\ta a", "-0.2\ta z"), "line 12: the word 'z'"),
        (("-0.2\ta a", "minus\ta a"), "line 12"),
        (("-0.2\ta a", "-0.2\ta"), "2 fields"),
        (("\\2-grams:", "\\3-grams:"), "line 10"),
        (("-0.3\tb", "-0.3\ta"), "line 8: 'a' again, which line 7 has"),
        (("-0.2\ta a", "-0.2\ta b"), "line 12: 'a b' again, which line 11 has"),
    ],
)
def test_what_is_wrong_is_named(change, said):
    with pytest.raises(DataError) as error:
        read_arpa(SMALL.replace(*change).splitlines(), "m.arpa")
    assert said in str(error.value) and "m.arpa" in str(error.value)


def test_a_longer_ngram_needs_its_context():
    text = SMALL.replace("ngram 2=2", "ngram 2=2\nngram 3=1")
    text = text.replace("\\end\\", "\\3-grams:\n-0.1\tb a b\n\n\\end\\")
    with pytest.raises(DataError, match="goes on from a 2-gram that is not listed"):
        read_arpa(text.splitlines(), "m.arpa")


def test_a_file_without_unk_opens_and_unknown_words_are_impossible(tmp_path):
    text = SMALL.replace("ngram 1=3", "ngram 1=2").replace("-1.0\t<unk>\n", "")
    assert "<unk>" not in text
    with gzip.open(tmp_path / "m.arpa.gz", "wt") as file:
        file.write(text)
    model = regard.load(tmp_path / "m.arpa.gz")  # compressed, too
    (logs,) = model.logprobs(["a b zebra"])
    assert np.isneginf(logs[-1]) and np.isfinite(logs[:2]).all()
