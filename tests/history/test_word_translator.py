"""Naive Bayes against posteriors computed by hand; word by word with IBM model 1; folders."""

from __future__ import annotations

import io
import json
import math
import random
import sys
from fractions import Fraction
from math import prod

import numpy as np
import pytest

import regard
from regard.cli.main import main
from regard.errors import DataError, UsageError
from regard.history.bag_of_words import train_bayes
from regard.history.ibm1 import IBM1, Ragged, train_words
from regard.history.word_translator import WordTranslator, cut, number_words

TRAIN = [
    ("Je suis un chat.", "I am a cat."),
    ("Je suis un chien.", "I am a dog."),
    ("Tu es un chat.", "You are a cat."),
    ("Tu vois la mer", "You see the sea"),
    ("Je vois la mer.", "I see the sea."),
    ("un chien", "a dog"),
    ("la mer", "the sea"),
    ("Bonjour", ""),
]
TEST = [("Tu es un chien.", "You are a dog."), ("Je vois un chat.", "I see a cat.")]
KINDS = ("bayes", "logreg", "ibm1")
TOY = [("je suis un chat", "i am a cat")]
CATS = TRAIN[:-1]  # the last has one side only


def bayes_of(pairs, k=1.0):
    words, sources, targets = number_words(pairs)
    return WordTranslator("bayes", train_bayes(sources, targets, len(words.sources), k), words)


def words_of(pairs, rounds=20):
    words, sources, targets = number_words(pairs)
    sizes = len(words.sources), len(words.targets)
    return WordTranslator("ibm1", train_words(sources, targets, sizes, rounds), words)


def said(counting, text):
    return counting.translate(text).text


def by_hand(pairs, bag, k):
    """p(word | bag) by fractions; no word stands twice in a target."""
    heard = {word for source, _ in pairs for word in source.split()}
    score = {}
    for word in {word for _, target in pairs for word in target.split()}:
        beside = [f for s, t in pairs if word in t.split() for f in s.split()]
        times = sum(word in t.split() for _, t in pairs)
        size = len(beside) + k * len(heard)
        score[word] = times * prod(Fraction(beside.count(f) + k) / size for f in bag)
    return {word: p / sum(score.values()) for word, p in score.items()}


def test_four_words_are_exact():
    assert said(bayes_of(TOY), "je suis un chat") == "i am a cat"
    assert said(bayes_of(TOY), "Je suis un chat") == "I am a cat"


@pytest.mark.parametrize("k", [Fraction(1), Fraction(1, 10)])
def test_posterior_is_that_of_a_hand(k):
    pairs = [("a b", "x y"), ("a c c", "x z"), ("b", "y"), ("a a", "z w")]
    counting = bayes_of(pairs, float(k))
    for bag in (["a"], ["c", "a"], ["a", "a", "b"], []):
        found = np.exp(counting.model.logprobs(counting.words.encode(bag)))
        wanted = by_hand(pairs, bag, k)
        names = [counting.words.targets[n] for n in counting.model.classes.word]
        assert sorted(names) == sorted(wanted)
        for name, p in zip(names, found, strict=True):
            assert p == pytest.approx(float(wanted[name]), rel=1e-12)


def test_a_second_time_is_a_class_of_its_own():
    counting = bayes_of([("un et un", "one and one"), ("un", "one")])
    classes = counting.model.classes
    names = [counting.words.targets[n] for n in classes.word]
    assert sorted(names) == ["and", "one", "one"]
    assert sorted(classes.seen.tolist()) == [1, 1, 2]
    assert said(counting, "un et un") == "one and one" and said(counting, "un") == "one"


def test_order_plays_no_part():
    counting, draw = bayes_of(CATS), random.Random(0)
    for source, _ in CATS:
        bag = cut(source)
        shuffled = draw.sample(bag, len(bag))
        a, b = (counting.translate(" ".join(words)) for words in (bag, shuffled))
        assert a.words == b.words


@pytest.mark.parametrize("make", [bayes_of, words_of])
def test_a_toy_set_is_translated(make):
    assert said(make(CATS), "Je suis un chat.") == "I am a cat ."
    sentence = make(CATS).translate("Il m'a entarté.")
    assert sentence.unknown == ["Il", "m'", "a", "entarté"]
    assert ("entarté", math.log(0.5)) in sentence.words


def test_long_sentences_are_as_long_as_the_longest_say():
    words = bayes_of(CATS).translate(" ".join(["un chien"] * 50)).words
    assert len(words) == 11  # all classes: there are no more
    assert len(bayes_of(CATS).translate("un").words) == 1


def test_alignment_tells_words_apart():
    """The lectures' three pairs: t(das | the) → 1."""
    english, german = "the house book a".split(), "das Haus Buch ein".split()
    pairs = [("the house", "das Haus"), ("the book", "das Buch"), ("a book", "ein Buch")]
    left = Ragged.of([[english.index(w) for w in s.split()] for s, _ in pairs])
    right = Ragged.of([[german.index(w) for w in t.split()] for _, t in pairs])
    model = IBM1(left, right, 4, 4)
    seen = []
    for _ in range(300):
        model.step()
        targets, t, _ = model.row(0)
        seen.append(float(t[targets.tolist().index(0)]))
    assert seen[-1] > 0.99 and seen[-1] > seen[5] > seen[0]
    assert said(words_of(pairs, 50), "a house") == "ein Haus"


def test_words_that_say_nothing_are_left_out():
    pairs = [("le chat", "cat"), ("le chien", "dog"), ("chat", "cat"), ("chien", "dog")]
    assert said(words_of(pairs), "le chat") == "cat"


@pytest.mark.parametrize("make", [bayes_of, words_of])
def test_folders(make, tmp_path):
    counting = make(CATS)
    counting.save(tmp_path / "m", {"k": 1})
    again = WordTranslator.open(tmp_path / "m")
    for text in ("Je suis un chat.", "Il voit la mer", ""):
        assert said(again, text) == said(counting, text)
    (tmp_path / "m" / "vocabulary.json").write_text('{"source": ["je"], "target": ["i"]}')
    with pytest.raises(DataError, match="does not fit"):
        WordTranslator.open(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"\x08")
    with pytest.raises(DataError, match="reading"):
        WordTranslator.open(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    with pytest.raises(DataError, match="no model.safetensors"):
        WordTranslator.open(tmp_path / "m")


def test_what_cannot_be():
    with pytest.raises(DataError, match="2 pairs, none with words"):
        number_words([("", "a"), ("b", " ")])


def test_spelling_is_the_usual_one_inside_sentences():
    said = ["The Boston the", "The sea the", "The Boston", "Once"]
    words, _, _ = number_words([("a", target) for target in said])
    assert set(words.targets) == {"the", "Boston", "sea", "Once"}


# From files ---------------------------------------------------------------------------------------


def lines(pairs):
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.tsv").write_text(lines(TRAIN))
    (tmp_path / "test.tsv").write_text(lines(TEST))
    return tmp_path


def train(files, kind, out="m", **options):
    return getattr(regard.train, kind)(files / "train.tsv", out=files / out, **options)


def call(capsys, *words):
    capsys.readouterr()
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("kind", KINDS)
def test_train_then_translate_then_evaluate(files, capsys, kind):
    out = files / "m"
    run = train(files, kind)
    assert run.pairs == 7 and run.skipped == 1
    assert ("seen once" in capsys.readouterr().err) == (kind != "ibm1")
    names = {"config.json", "model.safetensors", "vocabulary.json", "receipt.json"}
    assert {path.name for path in out.iterdir()} == names
    assert said(regard.load(out), "Je suis un chat.") == "I am a cat ."
    code, text, notes = call(capsys, "translate", "--model", out, "Je suis un chat.")
    assert (code, text, notes) == (0, "I am a cat .\n", "")
    code, text, notes = call(capsys, "translate", "--model", out, "--json", "Il m'a entarté.")
    found = json.loads(text)
    assert code == 0 and "4 unknown words were copied: Il, m', a, entarté" in notes
    assert found["source"] == "Il m'a entarté." and "entarté" in found["text"]
    logprob = sum(math.log(word["confidence"]) for word in found["words"])
    assert found["logprob"] == pytest.approx(logprob, abs=1e-3)
    assert "entarté" in [word["text"] for word in found["words"]]
    code, _, error = call(capsys, "translate", "--model", out, "--alternatives", 4, "un chat")
    assert code == 2 and "alternatives by a model that counts words" in error
    code, text, notes = call(capsys, "evaluate", "translate", out, files / "test.tsv", "--json")
    scored = json.loads(text)
    assert code == 0 and scored["lines"] == 2 and scored["overlap"] == "none"
    assert scored["bleu"] > 0 and "trained on" in notes


@pytest.mark.parametrize("kind", KINDS)
def test_twice_is_the_same_file(files, kind):
    train(files, kind)
    train(files, kind, "n")
    for name in ("model.safetensors", "vocabulary.json", "config.json"):
        assert (files / "m" / name).read_bytes() == (files / "n" / name).read_bytes()


def test_stdin_files_and_paragraphs(files, capsys, monkeypatch):
    train(files, "ibm1")
    (files / "lines.fr").write_text("Je suis un chat. Tu es un chien.\n\nun chien\n")
    wanted = "I am a cat . You are a dog .\n\na dog\n"
    out = ("translate", "--model", files / "m")
    assert call(capsys, *out, "--file", files / "lines.fr")[:2] == (0, wanted)
    data = io.BytesIO((files / "lines.fr").read_bytes() + b"\xff\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
    code, text, error = call(capsys, *out)
    assert (code, text) == (3, wanted + "\n") and "line 4" in error


def test_trained_on_is_no_score(files, capsys):
    train(files, "bayes")
    code, _, error = call(capsys, "evaluate", "translate", files / "m", files / "train.tsv")
    assert code == 3 and "would not be a score" in error


@pytest.mark.parametrize(
    ("kind", "options"),
    [("bayes", {"k": 0}), ("logreg", {"l2": -1}), ("logreg", {"top": 0}), ("ibm1", {"rounds": 0})],
)
def test_bad_options(files, kind, options):
    ((name, value),) = options.items()
    with pytest.raises(UsageError, match=f"{name} = {value}"):
        train(files, kind, **options)
    assert not (files / "m").exists()


def test_bad_files(files, capsys):
    out = files / "m"
    (files / "empty.tsv").write_text("")
    (files / "blank.tsv").write_text("\t\n \ta\n")
    (files / "odd.tsv").write_text("a\tb\nc\n")
    (files / "two.fr").write_text("a\nb\nc\n")
    (files / "two.en").write_text("a\nb\n")
    for names, wrong in (
        (["empty.tsv"], "no pairs"),
        (["blank.tsv"], "2 pairs, none with words on both sides"),
        (["odd.tsv"], "0 TABs in line 2"),
        (["none.tsv"], "none.tsv"),
        (["two.fr", "two.en"], "3 lines in"),
    ):
        with pytest.raises(DataError, match=wrong):
            regard.train.bayes([files / name for name in names], out=out)
        assert not out.exists()
    with pytest.raises(UsageError, match="there already"):
        train(files, "ibm1", ".")
    train(files, "ibm1")
    for wish in (["--explain"], ["--must", "cat"], ["--begin", "I"]):
        code, _, error = call(capsys, "translate", "--model", out, "un chat", *wish)
        assert code == 2 and "by a model that counts words" in error
    (out / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"model\.safetensors"):
        regard.load(out)


def test_bleu_by_length(files, capsys):
    train(files, "ibm1")
    longer = [*TEST, ("un chien un chien un chien la mer", "a dog a dog a dog the sea")]
    (files / "test.tsv").write_text(lines(longer))
    words = ("evaluate", "translate", files / "m", files / "test.tsv", "--by-length")
    code, text, _ = call(capsys, *words, "--json")
    bands = json.loads(text)["by_length"]
    assert code == 0 and [(b["from"], b["to"], b["lines"]) for b in bands] == [(4, 4, 2), (8, 8, 1)]
    code, text, _ = call(capsys, *words)
    assert code == 0 and "BLEU by words of the source" in text
    assert call(capsys, *words, "--workers", 0)[0] == 2


def test_pairs_without_words_are_no_test(files, capsys):
    (files / "blank.tsv").write_text("\t\na\t\n")
    train(files, "ibm1")
    code, _, error = call(capsys, "evaluate", "translate", files / "m", files / "blank.tsv")
    assert code == 3 and "2 pairs, none with words on both sides" in error
