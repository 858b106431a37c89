"""A small network: it learns, is validated honestly, and can be opened."""

from __future__ import annotations

from random import Random

import pytest
import torch

from regard.errors import DataError
from regard.formal.dfa import Word, explore
from regard.rules.discovery import discover_rule
from regard.rules.labelled_lines import ANIMALS, read_blocks
from regard.rules.rule_extraction import (
    counterfactuals,
    extract_automaton,
    head_uses,
    study_network,
)
from regard.rules.string_sampler import StringSampler
from regard.rules.tiny_transformer import cross_validate, deal, train_network


def has_ab(word: Word) -> bool:
    """Somewhere an a, and later a b."""
    return "a" in word and "b" in word[word.index("a") :]


def after(state: int, symbol: str) -> int:
    """The same rule as an automaton: 0 nothing yet, 1 an a, 2 a b after it."""
    return 1 if state == 0 and symbol == "a" else 2 if state == 1 and symbol == "b" else state


def random_words(count: int, seed: int, alphabet: str = "abc", longest: int = 8) -> list[Word]:
    dice = Random(seed)
    return [tuple(dice.choices(alphabet, k=dice.randint(0, longest))) for _ in range(count)]


@pytest.fixture(scope="module")
def taught():  # type: ignore[no-untyped-def]
    """A network that knows a rule, and the words it learnt from."""
    words, labels = StringSampler(random_words(50, 0), 0).lesson(has_ab, 2000)
    return train_network(words, labels, 600), words


def test_a_lesson_has_both_labels_and_they_are_right() -> None:
    words, labels = StringSampler(random_words(30, 1), 0).lesson(lambda w: len(w) == 8, 200)
    assert sum(labels) == 100 and len(words) == 200
    assert all((len(word) == 8) == label for word, label in zip(words, labels, strict=True))


def test_it_learns_a_rule_and_holds_on_fresh_words(taught) -> None:  # type: ignore[no-untyped-def]
    fresh = random_words(500, 2)
    assert taught[0].accuracy(fresh, list(map(has_ab, fresh))) > 0.98


def test_padding_and_neighbours_change_no_decision(taught) -> None:  # type: ignore[no-untyped-def]
    words = random_words(40, 3)
    together = taught[0].margins(words)
    alone = torch.cat([taught[0].margins([word]) for word in words])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)


def test_its_automaton_is_that_of_the_rule(taught) -> None:  # type: ignore[no-untyped-def]
    found = extract_automaton(taught[0], taught[1])
    assert found.agreement > 0.98
    assert found.dfa.difference(explore("abc", 0, after, lambda state: state == 2)) is None
    assert found.states == 3 and found.dot is not None
    assert all(found.dfa.accepts(one.text.split()) != one.network for one in found.differs)


def test_edits_change_its_mind_where_they_break_the_rule(taught) -> None:  # type: ignore[no-untyped-def]
    found = counterfactuals(taught[0], random_words(100, 4), has_ab)
    assert found.agreement > 0.97
    assert list(found.symbols)[-1] == "c"  # which the rule does not name
    flipped = counterfactuals(taught[0], random_words(100, 4), lambda w: not w or w[0] == "c")
    assert flipped.agreement < 0.9


def test_heads_are_ordered_by_what_is_left_without_them(taught) -> None:  # type: ignore[no-untyped-def]
    uses = head_uses(taught[0], taught[1])
    assert len(uses) == 4 and {(u.block, u.head) for u in uses} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert [u.kept for u in uses] == sorted(u.kept for u in uses)
    assert uses[0].kept < 0.9
    assert all(len(u.looks) == 2 and all(look.lift >= 0 for look in u.looks) for u in uses)


def test_random_labels_are_at_chance_when_left_out() -> None:
    words, dice = [tuple(w) for w in random_words(60, 5, longest=10)], Random(0)
    labels = [dice.random() < 0.5 for _ in words]
    (share,) = cross_validate(words, labels, 40, folds=4, seeds=1)
    assert 0.2 < share < 0.8


def test_equal_lines_share_a_fold() -> None:
    words: list[Word] = [("a",), ("b",), ("a",), ("c",), ("b",), ("d",)]
    homes = deal(words, [True, False, True, False, False, True], 3, Random(0))
    assert homes[0] == homes[2] and homes[1] == homes[4]
    with pytest.raises(DataError, match="1 different"):
        deal([("a",), ("a",)], [True, False], 2, Random(0))


@pytest.mark.slow
def test_the_animals_by_a_network() -> None:
    """26 lines teach nothing; taught the rule, its states come out."""
    found = study_network(discover_rule(list(read_blocks(ANIMALS))))
    assert found.taught and found.accuracy == 1
    assert 5 <= found.automaton.states <= 8  # the rule has 5, and it errs on some words
    assert found.automaton.agreement > 0.99
    assert found.edits.agreement > 0.95


def test_one_seed_is_validated_however_late():
    words = [tuple("ab"[n % 2] * (n % 5 + 1)) for n in range(12)]
    labels = [word[0] == "a" for word in words]
    assert len(cross_validate(words, labels, 2, folds=2, seconds=0.0)) == 1
