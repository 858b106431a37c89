"""Automata learnt by asking: exact for regular languages, cut off for others."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.formal.dfa import DFA
from regard.formal.lstar import learn_dfa
from regard.rules.atoms import Word


def drawing(alphabet: Sequence[str], seed: int, longest: int = 12):  # type: ignore[no-untyped-def]
    dice = Random(seed)

    def draw(count: int) -> list[Word]:
        lengths = [dice.randint(0, longest) for _ in range(count)]
        return [tuple(dice.choice(alphabet) for _ in range(n)) for n in lengths]

    return draw


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.integers(1, 3), st.randoms(use_true_random=False))
def test_a_random_automaton_is_found_again(size: int, width: int, dice: Random) -> None:
    alphabet = "abc"[:width]
    moves = tuple(tuple(dice.randrange(size) for _ in alphabet) for _ in range(size))
    target = DFA(tuple(alphabet), moves, frozenset(n for n in range(size) if dice.random() < 0.5))
    learnt = learn_dfa(
        lambda words: [target.accepts(w) for w in words], alphabet, drawing(alphabet, 1)
    )
    assert learnt.exact and learnt.agreement == 1
    assert len(learnt.dfa.moves) <= len(target.minimise().moves)
    fresh = drawing(alphabet, 2)(2000)
    assert sum(learnt.dfa.accepts(w) != target.accepts(w) for w in fresh) <= 4
    difference = learnt.dfa.difference(target)  # a word that is drawn too seldom to be met
    assert difference is None or len(difference) > 3


def test_each_word_is_asked_once() -> None:
    seen: list[Word] = []

    def answers(words: Sequence[Word]) -> list[bool]:
        seen.extend(words)
        return [word.count("a") % 3 == 1 for word in words]

    learnt = learn_dfa(answers, "ab", drawing("ab", 2))
    assert len(learnt.dfa.moves) == 3
    assert len(seen) == len(set(seen)) == learnt.queries


def test_a_language_that_is_not_regular_is_cut_off_and_says_so() -> None:
    def balanced(word: Word) -> bool:
        depth = 0
        for symbol in word:
            depth += 1 if symbol == "(" else -1
            if depth < 0:
                return False
        return depth == 0

    learnt = learn_dfa(lambda words: list(map(balanced, words)), "()", drawing("()", 3, 30), most=5)
    assert len(learnt.dfa.moves) <= 5
    assert not learnt.exact or learnt.agreement == 1
    for word in ("", "()", "(())", "())(", "(()"):
        assert learnt.dfa.accepts(tuple(word)) == balanced(tuple(word))


@pytest.mark.parametrize("share", [0.001, 0.004])
def test_wrong_answers_here_and_there_do_not_hide_the_rule(share: float) -> None:
    """A network errs on some words: what agrees best is small, and near the rule."""

    def answers(words: Sequence[Word]) -> list[bool]:
        told = []
        for word in words:
            right = "aba" in "".join(word)
            dice = Random("".join(word))
            told.append(right != (len(word) > 6 and dice.random() < share))
        return told

    learnt = learn_dfa(answers, "ab", drawing("ab", 4), 30, enough=0.99)
    assert learnt.agreement >= 1 - 2 * share
    words = drawing("ab", 5)(1000)
    wrong = [w for w in words if learnt.dfa.accepts(w) != ("aba" in "".join(w))]
    assert len(wrong) <= 20
    assert len(learnt.dfa.moves) == 4  # of the rule, in spite of the errors
