"""Trees, bracketings and agreement: against the grammar, and against searches of a graph."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from regard.errors import DataError
from regard.lang.cyk import Chart
from regard.lang.grammar import read_grammar
from regard.lang.languages import language
from regard.lang.trees import (
    OTHER,
    Tree,
    agreement,
    draw_tree,
    english,
    read_tree,
    right_branching,
    span_f1,
)


def nodes(tree):
    yield tree
    for part in tree.parts:
        if isinstance(part, Tree):
            yield from nodes(part)


def test_drawn_trees_follow_the_rules():
    rng, chart = Random(0), Chart(english())
    rules = {(r.left, tuple(s.text for s in r.right)) for r in english().rules}
    for _ in range(60):
        tree = draw_tree(english(), rng, deepest=8)
        for node in nodes(tree):
            right = tuple(p.label if isinstance(p, Tree) else p for p in node.parts)
            assert (node.label, right) in rules
        assert read_tree(str(tree)) == tree
        words = tree.leaves()
        assert len(words) > 30 or chart.accepts(words)


def test_weights_are_followed():
    rng = Random(1)
    grammar = read_grammar("S -> a S [1] | b [3]")
    sizes = [len(draw_tree(grammar, rng, 50).leaves()) for _ in range(4000)]
    assert abs(sum(sizes) / 4000 - 4 / 3) < 0.05  # geometric
    flat = [
        len(draw_tree(read_grammar("S -> a S [99] | b [1]"), rng, 4).leaves()) for _ in range(9)
    ]
    assert max(flat) <= 4


def test_depth_is_kept_whatever_the_weights():
    grammar = read_grammar("S -> A A [1] | S S [99]\nA -> B\nB -> b")
    tree = draw_tree(grammar, Random(0), 6)
    assert max(map(len, tree._paths(()))) <= 7
    with pytest.raises(DataError, match="derives no word"):
        draw_tree(read_grammar("S -> a S"), Random(0))


def test_english_is_unambiguous_and_agrees():
    chart = Chart(english())
    for n in range(3, 6):
        assert chart.derivations(n) == len(chart.words(n))
    made, rng = language("english"), Random(4)
    for n in (8, 11, 14):
        for _ in range(5):
            assert chart.ambiguity(made.member(n, rng)) == 1
    assert made.accepts("the key to the cabinets is here".split())
    assert not made.accepts("the key to the cabinets are here".split())
    assert made.accepts("the dogs that the cat near the keys sees wait".split())
    assert made.fault("the dogs that the cat near the keys see wait".split()).at == 8


def test_agreement_items():
    made, rng, seen = language("english"), Random(5), set()
    for distractors, among in ((0, 2), (1, 1), (3, 4)):
        for _ in range(20):
            item = agreement(rng, distractors, among)
            tail = ("old",) if item.right in ("is", "are") else ()
            assert made.accepts((*item.prefix, item.right, *tail))
            assert not made.accepts((*item.prefix, item.wrong, *tail))
            nouns = item.prefix[1::3]
            number = [noun.endswith("s") or noun == "children" for noun in nouns]
            assert sum(n != number[0] for n in number[1:]) == distractors == item.distractors
            assert len(number) == among + 1
            seen.add(item.right)
    assert len(seen) == 6 and all(OTHER[OTHER[verb]] == verb for verb in OTHER)


def test_distances_are_ways_in_the_graph():
    tree = draw_tree(english(), Random(8))
    edges, ends = {}, []

    def visit(node, name):
        for n, part in enumerate(node.parts):
            child = (*name, n)
            edges.setdefault(name, []).append(child)
            edges.setdefault(child, []).append(name)
            if isinstance(part, Tree):
                visit(part, child)
            else:
                ends.append(child)

    visit(tree, ())
    for start, row in zip(ends, tree.distances(), strict=True):
        steps, queue = {start: 0}, deque([start])
        while queue:
            here = queue.popleft()
            for there in edges[here]:
                if there not in steps:
                    steps[there] = steps[here] + 1
                    queue.append(there)
        assert row == [steps[end] for end in ends]


def test_spans_and_f1():
    tree = read_tree("(S (NP the key) (VP (V is) (A here)))")
    assert tree.spans() == {(0, 4), (0, 2), (2, 4)} and tree.leaves() == "the key is here".split()
    assert right_branching(4) == {(0, 4), (1, 4), (2, 4)}
    assert span_f1(right_branching(4), tree.spans()) == pytest.approx(2 / 3)
    assert list(tree.lines()) == [
        "S",
        "  NP",
        "    the",
        "    key",
        "  VP",
        "    V  is",
        "    A  here",
    ]


@pytest.mark.parametrize("text", ["", "(S a", "(S a))", "a", "(S a) (S b)"])
def test_bad_bracketings(text):
    with pytest.raises(DataError, match="reading a bracketing"):
        read_tree(text)
