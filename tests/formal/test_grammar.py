"""Grammars: files with their errors; CYK, counts and draws against brute derivation."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from regard.errors import DataError
from regard.formal.cnf import to_cnf
from regard.formal.cyk import Chart
from regard.formal.grammar import Grammar, Production, Symbol, read_grammar

LONGEST = 6


def derive_all(grammar, longest):
    """Each word up to a length with its number of leftmost derivations, by rewriting.

    Sentential forms whose shortest word is too long are dropped.
    """
    by_left = {}
    for rule in grammar.rules:
        by_left.setdefault(rule.left, []).append(rule)
    least = {name: math.inf for name in by_left}
    for _ in least:
        for rule in grammar.rules:
            size = sum(1 if s.terminal else least[s.text] for s in rule.right)
            least[rule.left] = min(least[rule.left], size)
    done = Counter()
    forms = Counter({(Symbol(grammar.start, False),): 1})
    for _ in range(60):
        following = Counter()
        for form, ways in forms.items():
            at = next((n for n, s in enumerate(form) if not s.terminal), None)
            if at is None:
                done[tuple(s.text for s in form)] += ways
                continue
            for rule in by_left.get(form[at].text, ()):
                new = form[:at] + rule.right + form[at + 1 :]
                if sum(1 if s.terminal else least[s.text] for s in new) <= longest:
                    following[new] += ways
        forms = following
        if not forms:
            return done
    assume(False)  # derives without end
    return done


def list_words(chart, length):
    """All words of a length, each once, from those of the parts."""
    table = {}
    for n in range(1, length + 1):
        for name, row in chart.rules.pairs.items():
            words = {(word,) for word in chart.rules.words[name]} if n == 1 else set()
            for b, c in row:
                for k in range(1, n):
                    words |= {x + y for x in table[b, k] for y in table[c, n - k]}
            table[name, n] = words
    return table[chart.rules.start, length] if length else {()} if chart.rules.empty else set()


@st.composite
def grammars(draw):
    names = ["S", "A", "B"]
    symbols = [Symbol(n, False) for n in names] + [Symbol(t, True) for t in "ab"]
    right = st.lists(st.sampled_from(symbols), max_size=3).map(tuple)
    rules = [
        Production(name, r) for name in names for r in draw(st.lists(right, min_size=1, max_size=3))
    ]
    return Grammar("S", tuple(rules))


@settings(deadline=None, max_examples=150)
@given(grammars())
def test_chart_agrees_with_derivation(grammar):
    try:
        chart = Chart(grammar)
        chart.count(1)
    except DataError:  # a ring: a word with infinitely many derivations
        assume(False)
    known = derive_all(grammar, LONGEST)
    by_length = Counter()
    for word, ways in known.items():
        by_length[len(word)] += ways
    for n in range(LONGEST + 1):
        assert chart.count(n) == by_length[n]
        assert list_words(chart, n) == {word for word in known if len(word) == n}
        for word in product("ab", repeat=n):
            assert chart.accepts(word) == (word in known)
            if n < 5:
                assert chart.ambiguity(word) == known[word]


@settings(deadline=None, max_examples=100)
@given(grammars())
def test_rings_do_not_stop_membership(grammar):
    words = list_words(Chart(grammar), 3)
    for word in product("ab", repeat=3):
        assert Chart(grammar).accepts(word) == (word in words)


def test_balanced_brackets():
    chart = Chart(read_grammar("S -> '(' S ')' S |"))
    found = [chart.accepts(w) for w in ("", "()", "(()", "())(", ")", "(x)", "()(")]
    assert found == [True, True, False, False, False, False, False]


def test_dyck_words_are_catalan_numbers():
    chart = Chart(read_grammar("S -> a S b S |"))
    catalan = [math.comb(2 * n, n) // (n + 1) for n in range(31)]
    assert [chart.count(2 * n) for n in range(31)] == catalan
    assert not any(chart.count(2 * n + 1) for n in range(30))
    ambiguous = Chart(read_grammar("S -> a S b | S S | a b"))
    assert ambiguous.count(6) > 5 == len(list_words(ambiguous, 6))
    plus = Chart(read_grammar("E -> E '+' E | x"))
    word = "x" + "+x" * 10
    assert plus.ambiguity(word) == catalan[10] == plus.count(21)


@pytest.mark.parametrize("rules", ["S -> a S b S |", "S -> a S b | S S | a b"])
def test_words_are_drawn_uniformly_even_from_ambiguous_grammars(rules):
    chart, rng = Chart(read_grammar(rules)), Random(3)
    seen = Counter(chart.sample(8, rng) for _ in range(14 * 200))
    assert len(seen) == 14
    assert sum((n - 200) ** 2 / 200 for n in seen.values()) < 34.5  # 13 degrees, one in a thousand


def test_normal_form():
    made = to_cnf(read_grammar("S -> a S b | A\nA -> c A |"), counting=True)
    assert made.empty == 1
    assert all(len(pair) == 2 for row in made.pairs.values() for pair in row)


def test_a_long_word_is_quick():
    chart = Chart(read_grammar("S -> a S b S |"))
    word = "aabb" * 75
    assert chart.accepts(word) and not chart.accepts(word[:-1] + "a")


def test_file():
    text = """
    # a greeting
    S -> NP 'VP'   # comment
       | "x y" '#' | ε
    NP → the N | the N
    N ::= cat
    """
    made = read_grammar(text)
    assert made.start == "S" and made.terminals == ("VP", "x y", "#", "the", "cat")
    assert str(made.rules[0]) == "S -> NP VP" and str(made.rules[2]) == "S -> ε"
    assert Chart(made).accepts(["the", "cat", "VP"]) and Chart(made).accepts([])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rules"),
        ("# only this", "no rules"),
        ("S a b", "no -> behind S at line 1, column 3"),
        ("S -> a\nT", "no -> behind T at line 2, column 1"),
        ("S -> a 'b", "' at line 1, column 8"),
        ("S -> a [1", r"\[ at line 1, column 8"),
        ("S -> a\n'b' -> a", "'b' at line 2, column 1"),
        ("S -> a -> b", "-> at line 1, column 8"),
        ("| a", "at line 1, column 1"),
        ("S -> NP VP\nNP -> a\nVp -> b", r"no rule for VP at line 1, column 9[\s\S]*mean Vp"),
    ],
)
def test_errors_have_line_and_column(text, message):
    with pytest.raises(DataError, match=message):
        read_grammar(text)


@pytest.mark.parametrize("rules", ["S -> S | a", "S -> A | a\nA -> S", "S -> S S | a |"])
def test_rings_cannot_be_counted(rules):
    with pytest.raises(DataError, match="infinitely many derivations"):
        Chart(read_grammar(rules)).count(3)


def test_nothing_is_derived():
    chart = Chart(read_grammar("S -> a S"))
    assert not chart.accepts("a") and chart.count(4) == 0 and list_words(chart, 2) == set()
