"""Naive Bayes against posteriors computed by hand; word by word with IBM model 1; folders."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from math import exp, log, prod

import numpy as np
import pytest

from regard.errors import DataError, UsageError
from regard.history.bag_of_words import train_bayes
from regard.history.ibm1 import IBM1, Option, Rows, train_words
from regard.history.word_translator import WordTranslator, cut, likeliest, number_words
from tests.cli.test_counting import TRAIN

TOY = [("je suis un chat", "i am a cat")]
CATS = TRAIN[:-1]  # the last has one side only


def bayes_of(pairs, k=1.0):
    words, sources, targets = number_words(pairs)
    return WordTranslator("bayes", train_bayes(sources, targets, len(words.sources), k), words)


def words_of(pairs, rounds=20):
    words, sources, targets = number_words(pairs)
    sizes = len(words.sources), len(words.targets)
    return WordTranslator("ibm1", train_words(sources, targets, sizes, rounds), words)


def said(counting, text, count=1):
    sentence = counting.translate(text, count)
    return [sentence.text(guess.words) for guess in sentence.best]


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
    assert said(bayes_of(TOY), "je suis un chat") == ["i am a cat"]
    assert said(bayes_of(TOY), "Je suis un chat") == ["I am a cat"]


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
    assert said(counting, "un et un") == ["one and one"] and said(counting, "un") == ["one"]


def test_order_plays_no_part():
    counting, draw = bayes_of(CATS), random.Random(0)
    for source, _ in CATS:
        bag = cut(source)
        shuffled = draw.sample(bag, len(bag))
        a, b = (counting.translate(" ".join(words), 4) for words in (bag, shuffled))
        assert a.slots == b.slots and a.best == b.best


@pytest.mark.parametrize("make", [bayes_of, words_of])
def test_a_toy_set_is_translated(make):
    assert said(make(CATS), "Je suis un chat.") == ["I am a cat ."]
    sentence = make(CATS).translate("Il m'a entarté.", 4)
    assert sentence.unknown == ["Il", "m'", "a", "entarté"] and len(sentence.best) == 4
    assert "entarté" in sentence.best[0].words
    assert any("<unk>" in guess.words for guess in sentence.best)


def test_long_sentences_are_as_long_as_the_longest_say():
    slots = bayes_of(CATS).translate(" ".join(["un chien"] * 50)).slots
    assert len(slots) == 11  # all classes: there are no more
    assert len(bayes_of(CATS).translate("un").slots) == 1


def test_alignment_tells_words_apart():
    """The lectures' three pairs: t(das | the) → 1."""
    english, german = "the house book a".split(), "das Haus Buch ein".split()
    pairs = [("the house", "das Haus"), ("the book", "das Buch"), ("a book", "ein Buch")]
    left = Rows.of([[english.index(w) for w in s.split()] for s, _ in pairs])
    right = Rows.of([[german.index(w) for w in t.split()] for _, t in pairs])
    model = IBM1(left, right, 4, 4)
    seen = []
    for _ in range(300):
        model.step()
        targets, t, _ = model.table.row(0)
        seen.append(float(t[targets.tolist().index(0)]))
    assert seen[-1] > 0.99 and seen[-1] > seen[5] > seen[0]
    assert said(words_of(pairs, 50), "a house") == ["ein Haus"]


def test_words_that_say_nothing_are_left_out():
    pairs = [("le chat", "cat"), ("le chien", "dog"), ("chat", "cat"), ("chien", "dog")]
    assert said(words_of(pairs), "le chat") == ["cat"]


def test_several_are_the_likeliest_of_all():
    draw = random.Random(1)
    slots = [[Option(f"{n}{m}", log(draw.random())) for m in range(3)] for n in range(4)]
    slots = [sorted(slot, key=lambda option: -option.logprob) for slot in slots]
    wanted = sorted((sum(o.logprob for o in way) for way in product(*slots)), reverse=True)
    found = likeliest(slots, 20)
    assert [guess.logprob for guess in found] == pytest.approx(wanted[:20])
    assert len(likeliest(slots, 1)) == 1 and len(likeliest(slots, 1000)) == 81
    assert exp(likeliest([], 3)[0].logprob) == 1


@pytest.mark.parametrize("make", [bayes_of, words_of])
def test_folders(make, tmp_path):
    counting = make(CATS)
    counting.save(tmp_path / "m", {"k": 1})
    again = WordTranslator.open(tmp_path / "m")
    for text in ("Je suis un chat.", "Il voit la mer", ""):
        assert said(again, text, 3) == said(counting, text, 3)
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
    with pytest.raises(UsageError, match="k = 0"):
        bayes_of(TOY, 0.0)


def test_spelling_is_the_usual_one_inside_sentences():
    said = ["The Boston the", "The sea the", "The Boston", "Once"]
    words, _, _ = number_words([("a", target) for target in said])
    assert set(words.targets) == {"the", "Boston", "sea", "Once"}
