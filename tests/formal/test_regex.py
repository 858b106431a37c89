"""Regular expressions against Python's `re`, and against operations on automata."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import DataError, ResourceError
from regard.formal.regex import regex_dfa, symbols_of

WORDS = ["".join(w) for n in range(7) for w in product("abc", repeat=n)]


def grow(inner):
    pairs = st.tuples(inner, inner)
    times = st.tuples(inner, st.sampled_from("*+?"))
    return (
        pairs.map("".join)
        | pairs.map(lambda p: f"({p[0]}|{p[1]})")
        | times.map(lambda p: f"(?:{p[0]}){p[1]}")
    )


PATTERNS = st.recursive(
    st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "[a-c]", "(|b)"]), grow, max_leaves=8
)


@settings(deadline=None)
@given(PATTERNS)
def test_the_same_words_as_re(pattern):
    made = regex_dfa(pattern.replace("(?:", "("), "abc")
    known = re.compile(f"(?:{pattern})\\Z")
    for word in WORDS[:400]:
        assert made.accepts(word) == bool(known.match(word)), (pattern, word)


@settings(deadline=None)
@given(PATTERNS, PATTERNS)
def test_and_not(one, two):
    one, two = one.replace("(?:", "("), two.replace("(?:", "(")
    first, second = regex_dfa(one, "abc"), regex_dfa(two, "abc")
    assert regex_dfa(f"({one})&({two})", "abc") == (first & second).minimise()
    assert regex_dfa(f"~({one})", "abc") == (~first).minimise()
    assert regex_dfa(f"({one})&~({two})", "abc") == (first & ~second).minimise()
    both = f"~({one})|({two})&({one})"
    assert regex_dfa(both, "abc") == (~first | second & first).minimise()
    assert regex_dfa(f"a(~({one}))*b", "abc").accepts("ab")


def test_words():
    animals = ["leeuw", "olifant", "slang", "aap"]
    lol = regex_dfa(".* leeuw .* olifant .* leeuw .*", animals, words=True)
    assert len(lol.moves) == 4  # spec section 6
    assert lol.accepts("aap leeuw aap olifant leeuw".split())
    exact = regex_dfa("[slang aap]*([leeuw][^olifant leeuw]*)+ (olifant [slang aap]*)+", animals, 1)
    assert exact.accepts(["leeuw", "aap", "olifant"]) and not exact.accepts(["olifant"])
    assert symbols_of("b [^c d]* a\\* .", words=True) == ("a*", "b", "c", "d")


def test_the_animals_exact_rule_has_five_states():
    animals = "leeuw olifant slang muis aap kat hond kanarie".split()
    rest = "[^leeuw olifant]*"
    rule = f"{rest} (leeuw {rest})+ (olifant {rest})+ (leeuw {rest})+"
    assert len(regex_dfa(rule, animals, words=True).moves) == 5  # L+O+L+ with the dead state


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("a(b", False, "( that is never closed at column 2"),
        ("ab)", False, "')' at column 3"),
        ("a|*b", False, "'*' at column 3"),
        ("a[bc", False, "[ that is never closed at column 2"),
        ("a{3}", False, "'{' at column 2"),
        ("abd", False, "the symbol 'd' at column 3"),
        ("a\nb\n cx", True, "the symbol 'cx' at line 3, column 2"),
        ("[c-a]", False, "c-a at column 2"),
        ("ab\\", False, "at column 3"),
    ],
)
def test_errors_have_a_place(text, words, message):
    with pytest.raises(DataError, match=re.escape(message)):
        regex_dfa(text, "abc", words)


def test_too_deep():
    with pytest.raises(ResourceError, match="too deep"):
        regex_dfa("(" * 5000 + "a" + ")" * 5000)
