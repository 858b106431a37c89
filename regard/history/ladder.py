"""The ladder: its rungs in the order they came, which of them should beat which, and two curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import NamedTuple

from regard.history.ngrams import Floats
from regard.tokens.tokenizer import Tokenizer


class Rung(NamedTuple):
    """One model of the ladder."""

    name: str
    title: str
    level: int
    """Rungs of one level are not expected to beat each other."""
    counts: bool
    """Whether it counts instead of being trained step by step."""
    share: float = 1.0
    """Of the time of those that are trained, beside the others'."""


PAIRS = (
    Rung("bayes", "naive Bayes", 0, True),
    Rung("logreg", "logistic regression", 1, True),
    Rung("ibm1", "IBM model 1", 2, True),
    Rung("fixed", "fixed vector", 3, False),
    Rung("additive", "Bahdanau", 4, False, 1.6),  # a step takes 1.5 times the fixed vector's
    Rung("transformer", "Transformer", 5, False, 1.2),
)
"""Of translation."""
TEXTS = (
    Rung("1-gram", "1-gram", 0, True),
    Rung("2-gram", "2-gram", 1, True),
    Rung("3-gram", "3-gram", 2, True),
    Rung("5-gram", "5-gram", 3, True),
    Rung("classes", "class 3-gram", 1, True),
    Rung("word2vec", "word2vec", 1, False),
    Rung("mlp", "MLP", 4, False),
    Rung("rnn", "RNN", 4, False),
    Rung("lstm", "LSTM", 5, False),
    Rung("gru", "GRU", 5, False),
    Rung("transformer", "Transformer", 6, False),
)
"""Of language modelling."""


def beaten_by(rungs: Sequence[Rung], quality: Mapping[str, float]) -> dict[str, list[str]]:
    """For each rung the lower ones that are as good or better; more quality is better."""
    return {
        rung.name: [
            other.name
            for other in rungs
            if other.level < rung.level and quality[other.name] >= quality[rung.name]
        ]
        for rung in rungs
    }


# What is said long after -------------------------------------------------------------------------

BEGIN, END, ANSWER = "I grew up in France", "I speak fluent", "French"
FILLER = "and then we went to the city and the people there were good to us".split()
DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64)
"""Words between the two."""


class Question(NamedTuple):
    """What is read, and what should follow."""

    before: list[int]
    answer: list[int]


def lacking(tokenizer: Tokenizer) -> list[str]:
    """Words of the question that a tokenizer does not know."""
    return [w for w in f"{BEGIN} {END} {ANSWER}".split() if not knows(tokenizer, w)]


def knows(tokenizer: Tokenizer, word: str) -> bool:
    """Whether a word can be written without the unknown token."""
    return tokenizer.specials.get("unk", -1) not in tokenizer.encode(word, special=False)


def questions(tokenizer: Tokenizer) -> dict[int, Question]:
    """The sentence with known words between its halves, by how many."""
    known = [word for word in FILLER if knows(tokenizer, word)]
    made: dict[int, Question] = {}
    for distance in DISTANCES if known else (0,):
        text = " ".join([BEGIN, *islice(cycle(known), distance), END])
        before = tokenizer.encode(text, special=False)
        whole = tokenizer.encode(f"{text} {ANSWER}", special=False)
        made[distance] = Question(before, whole[len(before) :])
    return made


def answer_curve(
    asked: Mapping[int, Question], logprobs: Callable[[list[int]], Sequence[float] | Floats | None]
) -> list[float | None]:
    """p(answer) at each distance; None where a model has no room for so much."""
    found = [logprobs([*question.before, *question.answer]) for question in asked.values()]
    sizes = [len(question.answer) for question in asked.values()]
    return [
        None if row is None else math.exp(sum(row[-size:]))
        for row, size in zip(found, sizes, strict=True)
    ]
