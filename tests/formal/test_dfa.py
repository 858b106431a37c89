"""Automata against brute force over all short words, and against closed forms."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ResourceError
from regard.formal.dfa import DFA, explore


def all_words(alphabet, longest):
    return [w for n in range(longest + 1) for w in product(alphabet, repeat=n)]


@st.composite
def automata(draw, alphabet="ab", most=6):
    size = draw(st.integers(1, most))
    state = st.integers(0, size - 1)
    rows = st.lists(
        st.tuples(*[state] * len(alphabet)),
        min_size=size,
        max_size=size,
    )
    accepting = frozenset(draw(st.sets(state)))
    return DFA(tuple(alphabet), tuple(draw(rows)), accepting, draw(state))


def moore(dfa):
    """How many states the smallest automaton has, by telling apart all pairs with short words."""
    reached, queue = {dfa.start}, [dfa.start]
    while queue:
        fresh = set(dfa.moves[queue.pop()]) - reached
        reached |= fresh
        queue += fresh
    words = all_words(dfa.alphabet, len(reached))
    rows = {
        tuple(DFA(dfa.alphabet, dfa.moves, dfa.accepting, s).accepts(w) for w in words)
        for s in reached
    }
    return len(rows)


PARITY = DFA(("0", "1"), ((0, 1), (1, 0)), frozenset({0}))


def test_parity_has_two_states_however_it_is_built():
    wide = explore("01", (0, 0), lambda s, c: ((s[0] + int(c)) % 6, (s[1] + 1) % 5), even_first)
    assert len(wide.moves) == 30
    assert wide.minimise() == PARITY.minimise() and len(PARITY.minimise().moves) == 2


def even_first(state):
    return state[0] % 2 == 0


@settings(deadline=None)
@given(automata(), automata())
def test_products_are_what_both_say(one, two):
    for word in all_words("ab", 5):
        a, b = one.accepts(word), two.accepts(word)
        assert (one & two).accepts(word) == (a and b)
        assert (one | two).accepts(word) == (a or b)
        assert (one ^ two).accepts(word) == (a != b)
        assert (~one).accepts(word) != a


@settings(deadline=None)
@given(automata("ab", 3), automata("bc", 3))
def test_products_over_two_alphabets(one, two):
    for word in all_words("abc", 4):
        assert (one | two).accepts(word) == (one.accepts(word) or two.accepts(word))


@settings(deadline=None)
@given(automata())
def test_minimise_keeps_the_language_and_is_smallest(dfa):
    small = dfa.minimise()
    assert all(small.accepts(word) == dfa.accepts(word) for word in all_words("ab", 7))
    assert len(small.moves) == moore(dfa)
    assert small.minimise() == small


@settings(deadline=None)
@given(automata(), automata())
def test_equivalence_and_the_shortest_difference(one, two):
    differ = one.difference(two)
    found = [w for w in all_words("ab", 8) if one.accepts(w) != two.accepts(w)]
    if found:  # shorter ones first, then a before b
        assert differ == found[0]
    elif differ is None:
        assert one.minimise() == two.minimise()
    else:
        assert len(differ) > 8 and one.accepts(differ) != two.accepts(differ)


@settings(deadline=None)
@given(automata())
def test_words_counts_and_shortest(dfa):
    listed = [w for w in all_words("ab", 6) if dfa.accepts(w)]
    sizes = Counter(map(len, listed))
    assert [dfa.count(n) for n in range(7)] == [sizes[n] for n in range(7)]
    assert dfa.shortest() == next(iter(listed), None)  # at most 6 states: a shortest has 5 symbols
    assert [dfa.word(6, n) for n in range(dfa.count(6))] == [w for w in listed if len(w) == 6]


def test_unknown_symbols_are_refused():
    assert not PARITY.accepts("12") and not (~PARITY).accepts("12")
    assert PARITY.path("12") == [0, 1]


def test_counts_have_no_limit():
    free = explore("01", 0, lambda s, c: 0, lambda s: True)
    assert free.count(500) == 2**500 and PARITY.count(500) == 2**499


def test_samples_are_uniform():
    # words of length 6 without "aa": 21 of them, a Fibonacci number
    sparse = DFA(("a", "b"), ((1, 0), (2, 0), (2, 2)), frozenset({0, 1}))
    assert [sparse.count(n) for n in range(7)] == [1, 2, 3, 5, 8, 13, 21]
    rng, drawn = Random(7), 21 * 400
    seen = Counter(sparse.sample(6, rng) for _ in range(drawn))
    assert len(seen) == 21 and all(map(sparse.accepts, seen))
    square = sum((count - 400) ** 2 / 400 for count in seen.values())
    assert square < 45.3  # chi-square of 20 degrees: one in a thousand is above


def test_bad_automata():
    with pytest.raises(ResourceError, match="over 10 states"):
        explore("a", 0, lambda s, c: s + 1, bool, most=10)
