"""The text of an automaton."""

from __future__ import annotations

from regard.formal.dfa import DFA
from regard.formal.results import Automaton
from regard.formal.state_diagram import arrows, dot

SOME_B = DFA(tuple("abc"), ((0, 1, 2), (1, 1, 1), (2, 2, 2)), frozenset({1}))  # c: dead


def test_dot_has_an_arrow_for_each_pair_of_states():
    assert dot(SOME_B) == (
        'digraph {\n  rankdir=LR\n  begin [shape=none, label=""]\n  0 [shape=circle]\n'
        "  1 [shape=doublecircle]\n  begin -> 0\n"
        '  0 -> 0 [label="a"]\n  0 -> 1 [label="b"]\n  1 -> 1 [label="any"]\n}\n'
    )


def test_labels_say_what_is_shorter():
    names = ["x", "y", "z", 'say "w"']
    made = DFA(tuple(names), ((0, 0, 1, 0), (2,) * 4, (2,) * 4), frozenset({1}))
    assert arrows(made)[0, 0] == "not z" and arrows(made)[0, 1] == "z"
    quoted = DFA(tuple(names), ((1, 1, 1, 0), (1,) * 4), frozenset({0}))
    assert r'label="say \"w\""' in dot(quoted)


def test_an_automaton_of_nothing_still_has_a_start():
    nothing = DFA(("a",), ((0,),), frozenset())
    assert "begin -> 0" in dot(nothing)


def test_save_writes_dot(tmp_path):
    Automaton("x", 3, 1, dot(SOME_B), SOME_B).save(tmp_path / "one.dot")
    assert (tmp_path / "one.dot").read_text() == dot(SOME_B)
