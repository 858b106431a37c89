"""Counter machines against what their languages are, over all short words."""

from __future__ import annotations

import re
from itertools import product

import pytest

from regard.formal.counter_machine import CounterMachine, CounterMove, block_machine

DYCK_1 = CounterMachine(
    (CounterMove(0, "(", ".", 0, (1,)), CounterMove(0, ")", "+", 0, (-1,))), 0, ((0, "0"),)
)
AN_BN, AN_BN_CN, AN_BN_CN_DN = (block_machine("abcd"[:n], (0,) * n) for n in (2, 3, 4))


def blocks(letters):
    def holds(word):
        n = len(word) // len(letters)
        return word == "".join(letter * n for letter in letters)

    return holds


def balanced(word):
    while "()" in word:
        word = word.replace("()", "")
    return word == ""


@pytest.mark.parametrize(
    ("machine", "alphabet", "longest", "holds"),
    [
        (AN_BN, "ab", 10, blocks("ab")),
        (AN_BN_CN, "abc", 9, blocks("abc")),
        (AN_BN_CN_DN, "abcd", 8, blocks("abcd")),
        (DYCK_1, "()", 12, balanced),
    ],
)
def test_all_short_words(machine, alphabet, longest, holds):
    found = 0
    for n in range(longest + 1):
        for word in map("".join, product(alphabet, repeat=n)):
            assert machine.accepts(word) == holds(word), word
            found += machine.accepts(word)
    assert found > 2


@pytest.mark.parametrize("n", [1, 7, 200])
def test_long_words(n):
    word = "a" * n + "b" * n + "c" * n + "d" * n
    assert AN_BN_CN_DN.accepts(word)
    assert not any(map(AN_BN_CN_DN.accepts, (word[:-1], word + "d", "aabbcd")))


def test_cross_serial_is_not_nested():
    made = block_machine(("aA", "b", "c", "dD"), (0, 1, 0, 1), least=1)
    for n in range(9):
        for word in map("".join, product("aAbcdD", repeat=n)) if n < 7 else ():
            found = re.fullmatch("([aA]+)(b+)(c+)([dD]+)", word)
            same = found and len(found[1]) == len(found[3]) and len(found[2]) == len(found[4])
            assert made.accepts(word) == bool(same)
    assert made.accepts("aAbccD") and not made.accepts("aabcdd")


def test_the_path_has_the_counters():
    assert AN_BN_CN.path("aabx") == [
        (-1, (0, 0, 0)),
        (0, (1, 0, 0)),
        (0, (2, 0, 0)),
        (1, (1, 1, 0)),
    ]
    assert not AN_BN_CN.accepts("aabx") and not DYCK_1.accepts("())")
