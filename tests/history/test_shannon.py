"""Entropy of texts: sources whose entropy is known, alphabets, guesses and their bounds."""

from __future__ import annotations

import io
import lzma
import math
import os
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.errors import DataError, UsageError
from regard.history import shannon
from regard.history.letters import LETTERS, bytes_of, clean, letters_of
from regard.history.ngram_model import NgramPredictor
from regard.history.ngrams import count_ngrams
from regard.history.predictors import Folded
from regard.history.shannon import (
    ask,
    bounds,
    conditional,
    estimate,
    guess_ranks,
)
from regard.history.smoothing import train_ngrams
from regard.tokens.trainers import train_tokenizer
from tests.cli.small_folders import save_model, writer  # noqa: F401
from tests.history.naive_ngrams import distribution

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
    for values in found:
        assert values == pytest.approx([3.0] * 5, abs=0.02)
    assert found[0][4] < found[1][4]


def test_a_chain_has_the_entropy_of_its_rows():
    values, vectors = np.linalg.eig(CHAIN.T)
    stay = np.real(vectors[:, np.argmax(np.real(values))])
    stay /= stay.sum()
    own = -np.where(CHAIN > 0, CHAIN * np.log2(np.where(CHAIN > 0, CHAIN, 1)), 0).sum(1)
    rate = float(stay @ own)
    found = estimate(chain(100_000), 3, 4)
    for values in found:
        assert values[2:] == pytest.approx([rate] * 3, abs=0.01)
        assert values[1] == pytest.approx(-(stay * np.log2(stay)).sum(), abs=0.01)


def test_plug_in_by_hand():
    ids = np.array([0, 1, 0, 1, 0, 2])  # after 0: twice 1, once 2; after 1: twice 0
    assert conditional(count_ngrams(ids, 3, 2)[1]) == pytest.approx(
        3 / 5 * -(2 / 3 * np.log2(2 / 3) + 1 / 3 * np.log2(1 / 3))
    )


def test_held_out_letters_are_measured_on_the_last_tenth():
    ids = chain(1000)
    model = train_ngrams(ids[:900], 3, 3)
    wanted = -model.logprobs(ids)[900:].mean() / np.log(2)
    assert estimate(ids, 3, 3)[1][3] == pytest.approx(wanted)


def test_alphabets():
    text = "Déjà vu — naïve\nCAFÉ: 3 ½ don't!"
    assert clean(text, "27") == "deja vu naive cafe don t"
    assert clean(text, "26") == "dejavunaivecafedont"
    assert clean(text, "as-is") == text
    for alphabet, size in (("27", 27), ("26", 26), ("as-is", len(set(text)))):
        found = letters_of(text, alphabet)
        assert found.text == clean(text, alphabet) and len(found.symbols) == size


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
    assert len(estimate(np.zeros(order + 1, np.int64), 27, order)[1]) == order + 1


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


def test_ranks_of_a_text_known_by_heart():
    ids = np.array([0, 1, 2, 3] * 50)
    ranks = guess_ranks(ids, NgramPredictor(train_ngrams(ids, 4, 2)))
    assert (ranks[1:] == 1).all()
    assert bounds(np.bincount(ranks[1:] - 1) / len(ranks[1:])) == (0, 0)


def test_a_uniform_guesser_takes_the_alphabet_in_turn():
    ids = DICE.integers(0, 8, 4000)
    flat = train_ngrams(np.arange(8), 8, 1, "add")
    ranks = guess_ranks(ids, NgramPredictor(flat))
    np.testing.assert_array_equal(ranks, ids + 1)
    assert bounds(np.bincount(ranks - 1) / len(ranks))[1] == pytest.approx(3, abs=0.01)


def test_letters_of_a_model_that_knows_more():
    tokens = "aAbB.\n"  # capitals are letters too, marks are blanks
    letter = np.array([1, 1, 2, 2, 0, 0])
    tables = train_ngrams(np.array([0, 1, 2, 3, 4, 5, 1, 2]), len(tokens), 2)
    folded = Folded(NgramPredictor(tables), letter, np.array([4, 0, 2]))
    folded.start(1)
    folded.read(np.array([1]))
    own = np.exp(distribution(tables, [0]))
    wanted = [own[4] + own[5], own[0] + own[1], own[2] + own[3]]
    np.testing.assert_allclose(folded.predict()[0], wanted)


@pytest.mark.parametrize(
    ("alphabet", "bits", "printed"),
    [("26", 4.7004, (4.70, 4.14, 3.56, 3.3)), ("27", 4.7549, (4.76, 4.03, 3.32, 3.1))],
)
def test_without_a_letter_the_alphabet_is_all_there_is(alphabet, bits, printed):
    letters = letters_of("I grew up in France. I speak fluent French.", alphabet)
    found = estimate(letters.ids, len(letters.symbols), 1)
    for values in found:
        assert values[0] == pytest.approx(bits, abs=5e-5)
    assert shannon.SHANNON[alphabet] == printed and printed[0] == pytest.approx(bits, abs=6e-3)


# Texts --------------------------------------------------------------------------------------------

WORDS = "the cat sat on a mat and then the dog ate that hat in the sun".split()
CHOICES = np.random.default_rng(0).integers(0, len(WORDS), 450)
TALE = " ".join(WORDS[n] for n in CHOICES).capitalize() + ".\n"


@pytest.fixture
def tale(tmp_path):
    path = tmp_path / "tale.txt"
    path.write_text(TALE)
    return path


@pytest.fixture(scope="module")
def chars(tmp_path_factory):
    """A decoder with random weights whose tokens are characters."""
    folder = tmp_path_factory.mktemp("chars")
    made = train_tokenizer([TALE, LETTERS, "\n"], "chars", specials=["eos"])
    sizes = dict(n_embd=16, n_layer=1, n_head=2, vocab_size=made.size, n_positions=24)
    eos = made.specials["eos"]
    save_model(folder, "GPT2LMHeadModel", "GPT2Config", **sizes, bos_token_id=eos, eos_token_id=eos)
    made.save(folder)
    return folder


def test_a_table_and_its_reasons(tale):
    said = str(regard.history.entropy(tale, order=4))
    lines = said.splitlines()
    assert "27 symbols (a to z and the blank" in lines[0]
    (third,) = (line for line in lines if line.startswith("  F3"))
    assert third.split()[-1] == "3.10"
    assert "learning 4-grams" in said
    assert "Shannon" not in str(regard.history.entropy(tale, alphabet="as-is", order=2))


def test_figures_fit_each_other(tale):
    found = regard.history.entropy(tale, order=3)
    assert found.F[0] == pytest.approx(math.log2(27)) and len(found.F) == 4
    assert len(found.held_out) == 4
    assert found.F == sorted(found.F, reverse=True)
    assert found.letters == len(TALE) - 2 and found.shannon == (4.76, 4.03, 3.32, 3.1)
    (coded,) = found.coded
    assert coded.bits_per_letter < found.F[1]
    bits = coded.bits_per_letter * found.letters
    assert bits < coded.bytes * 8 < bits + 40
    assert coded.excess == pytest.approx(coded.bytes * 8 / bits - 1)
    assert coded.bytes * 8 / found.letters == pytest.approx(coded.coded_bits_per_letter)
    few = regard.history.entropy(tale, alphabet="26", order=1, letters=100)
    assert (few.symbols, few.letters, few.shannon[1]) == (26, 100, 4.14)
    cut = regard.history.entropy(tale, order=1, letters=TALE.index(" ", 50) + 1)  # at a blank
    assert cut.coded[0].tokens == cut.letters == TALE.index(" ", 50) + 1
    packed = tale.with_suffix(".txt.xz")
    packed.write_bytes(lzma.compress(tale.read_bytes()))
    assert regard.history.entropy(packed, order=3).F == found.F


def test_many_characters_go_as_bytes(tmp_path):
    text = "".join(chr(0x4E00 + n) for n in np.random.default_rng(0).integers(0, 700, 900))
    (tmp_path / "plain").write_text(text, encoding="utf-8")
    found = regard.history.entropy(tmp_path / "plain", order=1, alphabet="as-is")
    assert found.symbols > 256 and found.letters == 900 and found.coded[0].tokens == 2700


@pytest.mark.parametrize("which", ["writer", "chars"])
def test_a_transformer_codes_and_decodes(tale, request, which):
    folder = request.getfixturevalue(which)
    found = regard.history.entropy(tale, letters=300, model=str(folder), order=2)
    _, coded = found.coded
    assert coded.by == str(folder)
    assert coded.bytes * 8 <= coded.bits_per_letter * 300 * 1.01 + 40


def test_ngrams_of_words_code_too(tale, capsys):
    for name, kind in (("words", "spaced"), ("letters", "chars")):
        regard.train.ngram(tale, out=tale.parent / name, tokens=kind, order=2)
    words, letters = (tale.parent / name for name in ("words", "letters"))
    assert regard.history.entropy(tale, model=letters, order=2).coded[1].bytes > 0
    found = regard.history.entropy(tale, model=words, order=2)
    assert "was trained on this file" in capsys.readouterr().err
    assert found.coded[1].tokens == 451  # and the end of the line
    logprob, _, size, *_ = regard.load(words).measure(tale)
    assert found.coded[1].bits_per_letter == pytest.approx(-logprob / math.log(2) / size)
    tale.write_text(TALE + "zebra zebra\n")
    said = str(regard.history.entropy(tale, model=words, order=2))
    assert "2 of 454 tokens are unknown words" in said


def test_what_an_unsmoothed_bag_rules_out_is_told_in_words(tmp_path):
    (tmp_path / "train.txt").write_text("the cat sat\nthe dog sat\n" * 3)
    (tmp_path / "test.txt").write_text("the cat\n\nthe owl saw the cat\nsat\n")
    for name, smoothing in (("plain", False), ("smooth", True)):
        regard.train.bow(tmp_path / "train.txt", out=tmp_path / name, smoothing=smoothing)
    found = regard.history.entropy(tmp_path / "test.txt", model=tmp_path / "plain")
    said, row = str(found), found.to_dict()["coded"][1]
    assert "2 of 11 tokens have probability 0: not seen" in said
    assert row["impossible"] == 2
    assert row["bits_per_letter"] is None and row["excess"] is None
    found = regard.history.entropy(tmp_path / "test.txt", model=tmp_path / "smooth")
    row = found.to_dict()["coded"][1]
    assert row["impossible"] == 0 and row["bits_per_letter"] > 0


@pytest.mark.parametrize("text", ["", "12 + 3!", "abcdef"])
def test_too_few_letters(tale, text):
    tale.write_text(text)
    with pytest.raises(DataError, match=f"{len(text) if text.isalpha() else 'no'} letters"):
        regard.history.entropy(tale)


# The game -----------------------------------------------------------------------------------------


def test_models_play(tale, chars):
    options = dict(auto=True, letters=200, orders=[1, 4], model=[str(chars)])
    found = regard.history.guess(tale, **options)
    assert len(found.text) == 200 and found.text in TALE.lower()
    players = {row.player: row for row in found.players}
    assert list(players) == ["1-grams", "4-grams", str(chars)]
    for row in found.players:
        assert len(row.ranks) == 200 and sum(row.q) == pytest.approx(1)
    assert players["4-grams"].upper < 2 < players["1-grams"].upper
    assert regard.history.guess(tale, **options) == found
    with regard.settings(seed=1):
        assert regard.history.guess(tale, **options).begin != found.begin
    assert "4-grams" in str(found) and "lower" in str(found)


def test_the_passage_is_no_training_text(tale):
    tale.write_text("ab " * 200 + "qz" * 50)
    with regard.settings(seed=3):
        found = regard.history.guess(tale, auto=True, letters=60, orders=[3], alphabet="26")
    assert len(found.players[0].ranks) == 60


def test_who_may_not_play(tale, writer, monkeypatch):  # noqa: F811
    monkeypatch.setattr(sys, "stdin", io.StringIO("abc"))
    with pytest.raises(UsageError, match="not a terminal") as found:
        regard.history.guess(tale)
    assert "--auto" in str(found.value)
    with pytest.raises(UsageError, match="tokens such as") as found:
        regard.history.guess(tale, auto=True, model=[str(writer)])
    assert "entropy --model" in str(found.value)
    tale.write_text("ab")
    with pytest.raises(DataError, match="2 letters"):
        regard.history.guess(tale, auto=True)


def test_a_person_types():
    letters = letters_of("at a hat", "27")
    keys, drawn = iter("aTe_ t\nt a?_h" + "at"), list[str]()
    ranks = ask(letters.ids, letters.ids[:2], letters.symbols, lambda: next(keys), drawn.append)
    # for the fourth letter a blank, t, a key that is none, t and a blank again, a: three guesses
    assert ranks.tolist() == [1, 1, 2, 3, 27, 2, 1, 1]
    assert drawn[0].startswith("at▏ 1/8") and any("not e" in line for line in drawn)


def test_a_person_leaves_early():
    letters = letters_of("abc", "27")
    keys = iter("abxy\x04")
    ranks = ask(
        letters.ids, letters.ids[:0], letters.symbols, lambda: next(keys), lambda text: None
    )
    assert ranks.tolist() == [1, 1]


def test_a_terminal(tale):
    """Keys count at once, without the return key."""
    pty = pytest.importorskip("pty")
    environment = {**os.environ, "TERM": "xterm", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "regard", "history", "guess", str(tale), "--letters", "3"]
    child, handle = pty.fork()
    if child == 0:
        os.execve(sys.executable, [*command, "--orders", "2"], environment)
    shown = b""
    while b"1/3" not in shown:
        shown += os.read(handle, 4096)
    os.write(handle, ("".join(LETTERS) + "_").encode() * 3)
    try:
        while part := os.read(handle, 4096):
            shown += part
    except OSError:  # the other side is closed
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    text = shown.decode()
    assert "you" in text and "2-grams" in text and "Shannon's reader" in text
