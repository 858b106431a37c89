"""Named languages: oracle, counts and draws against brute force; non-members that are none."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import comb
from random import Random

import pytest

from regard.errors import UsageError
from regard.formal.hierarchy import MAKERS, find_language


def balanced(word):
    before = None
    while word != before:
        before, word = word, word.replace("()", "").replace("[]", "")
    return not word


def same_blocks(letters):
    return lambda w: w == "".join(x * (len(w) // len(letters)) for x in letters)


HOLDS = {
    "an": lambda w: set(w) <= {"a"},
    "aa": lambda w: len(w) % 2 == 0,
    "ab": lambda w: w == "ab" * (len(w) // 2),
    "parity": lambda w: w.count("1") % 2 == 0,
    "even-pairs": lambda w: (w.count("ab") + w.count("ba")) % 2 == 0,
    "first": lambda w: w[:1] == "1",
    "anbn": same_blocks("ab"),
    "dyck-1": balanced,
    "dyck-2": balanced,
    "palindromes": lambda w: w == w[::-1],
    "anbncn": same_blocks("abc"),
    "anbncndn": same_blocks("abcd"),
    "copy": lambda w: w[: len(w) // 2] * 2 == w,
}


@pytest.mark.parametrize("name", HOLDS)
def test_oracle_and_counts(name):
    made = find_language(name)
    longest = {1: 8, 2: 9, 3: 7, 4: 7}.get(len(made.alphabet), 4)
    for n in range(longest + 1):
        words = list(map("".join, product(made.alphabet, repeat=n)))
        members = {word for word in words if HOLDS[name](word)}
        assert {word for word in words if made.accepts(word)} == members
        assert made.source.count(n) == len(members) and made.has(n) == bool(members)
        if members:
            assert "".join(made.member(n, Random(n))) in members


def test_every_language_is_tested():
    assert set(HOLDS) | {"swiss"} == set(MAKERS)


@pytest.mark.parametrize("name", MAKERS)
def test_members_and_strangers_of_any_length(name):
    made, rng = find_language(name), Random(5)
    for n in (4, 9, 12, 36):
        if made.has(n):
            assert made.accepts(made.member(n, rng))
        for near in (False, True):
            word = made.stranger(n, rng, near)
            assert not made.accepts(word) and abs(len(word) - n) <= 1


def test_near_misses_are_one_edit_away():
    made, rng = find_language("anbn"), Random(1)
    for _ in range(50):
        word = "".join(made.stranger(10, rng, near=True))
        changed = sum(x != y for x, y in zip(word, "aaaaabbbbb", strict=True))
        assert changed in (1, 2)
    assert len(made.stranger(11, rng, near=True)) == 11


@pytest.mark.parametrize("name", ["swiss", "palindromes", "dyck-2"])
def test_draws_are_uniform(name):
    made, rng = find_language(name), Random(2)
    length = 4 if name == "dyck-2" else 6
    total = made.source.count(length)
    each = 20 if name == "swiss" else 60
    seen = Counter(made.member(length, rng) for _ in range(total * each))
    assert len(seen) == total
    square = sum((n - each) ** 2 / each for n in seen.values())
    assert abs(square - (total - 1)) < 3.3 * (2 * (total - 1)) ** 0.5


def test_swiss_german_crosses():
    made = find_language("swiss")
    assert made.source.count(4) == 3 * 3 * 2 * 3
    assert made.source.count(6) == 3**2 * 3 * 2**2 * 3 + 3 * 3**2 * 2 * 3**2
    assert made.accepts("em-Hans es-Huus hälfed aastriiche".split())
    assert made.accepts("em-Hans em-Peter es-Huus hälfe hälfed laa".split())
    assert not made.accepts("em-Hans es-Huus aastriiche hälfed".split())  # nested: wrong case
    assert not made.accepts("em-Hans es-Huus hälfed".split())


def test_dyck_counts():
    two = find_language("dyck-2")
    catalan = [comb(2 * n, n) // (n + 1) for n in range(8)]
    assert [two.source.count(2 * n) for n in range(8)] == [2**n * catalan[n] for n in range(8)]


@pytest.mark.parametrize(
    ("name", "members", "others"),
    [
        ("copy", ["", "abaaba"], ["abaabb", "aba", "abx", "xx"]),
        ("palindromes", ["", "aba", "abba"], ["aabx", "ab", "x"]),
        ("first", ["1", "10"], ["", "01"]),
        ("dyck-1", ["", "()", "(())()"], ["())", "(", "(x)"]),
    ],
)
def test_members_and_others(name, members, others):
    made = find_language(name)
    assert all(map(made.accepts, members)) and not any(map(made.accepts, others))


def test_unknown_names():
    with pytest.raises(UsageError, match="did you mean anbn"):
        find_language("anbm")
    with pytest.raises(UsageError, match="9 kinds"):
        find_language("dyck-9")
    assert find_language("dyck-3").name == "dyck-3"
