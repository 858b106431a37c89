"""Structural probe: planted trees are found again; spanning trees, grades and prints by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from regard.data.statistics import spearman
from regard.errors import DataError
from regard.look.probing import SentenceSplit, split_sentences
from regard.look.structural_probe import (
    DependencyTree,
    Parsed,
    StructuralProbe,
    compare_trees,
    fit_structure,
    gold,
    spanning_tree,
    tree_edges,
    tree_lines,
)

HEADS = [1, -1, 4, 4, 1]  # b over a and e, e over c and d


def random_heads(count, rng):
    heads, order = [-1] * count, rng.sample(range(count), count)
    for k in range(1, count):
        heads[order[k]] = order[rng.randrange(k)]
    return heads


def planted(count=80, seed=0):
    """Sentences whose vectors tell the words above each: |h_i − h_j|² is the tree's distance."""
    rng = random.Random(seed)
    trees = [
        DependencyTree(h, list(range(len(h)))) for h in (random_heads(6, rng) for _ in range(count))
    ]
    vectors = []
    for tree in trees:
        x = torch.zeros(6, 6)
        for first in range(6):
            word = first
            while tree.heads[word] >= 0:  # the root is above all, and tells nothing
                x[first, word] = 1
                word = tree.heads[word]
        vectors.append(x)
    return vectors, trees


def test_distances_by_hand():
    wanted = [[0, 1, 3, 3, 2], [1, 0, 2, 2, 1], [3, 2, 0, 2, 1], [3, 2, 2, 0, 1], [2, 1, 1, 1, 0]]
    assert gold(DependencyTree(HEADS, [])).tolist() == wanted
    assert tree_edges(HEADS) == {(0, 1), (1, 4), (2, 4), (3, 4)}


def test_a_spanning_tree_by_hand():
    table = torch.tensor([[0, 2, 9, 6], [2, 0, 3, 8], [9, 3, 0, 7], [6, 8, 7, 0]])
    assert spanning_tree(table, 1, range(4)) == [1, -1, 1, 0]
    assert spanning_tree(table, 2, [0, 2, 3]) == [3, -2, -1, 2]
    assert spanning_tree(torch.zeros(1, 1), 0, [0]) == [-1]


def test_spanning_trees_are_those_of_scipy():
    graph = pytest.importorskip("scipy.sparse.csgraph")
    for seed in range(5):
        points = torch.randn(9, 3, generator=torch.Generator().manual_seed(seed))
        table = torch.cdist(points, points)
        theirs = graph.minimum_spanning_tree(table.numpy()).toarray().nonzero()
        wanted = {(min(a, b), max(a, b)) for a, b in np.stack(theirs, 1).tolist()}
        assert tree_edges(spanning_tree(table, seed, range(9))) == wanted


def test_every_tree_spans_itself():
    rng = random.Random(1)
    for count in range(1, 12):
        heads = random_heads(count, rng)
        distances = gold(DependencyTree(heads, []))
        assert spanning_tree(distances, heads.index(-1), range(count)) == heads


def test_the_identity_measures_planted_trees_exactly():
    vectors, trees = planted()
    stay = torch.zeros(6), torch.ones(6), torch.eye(6)
    found = [StructuralProbe(*stay)(x) for x in vectors]
    for guess, tree in zip(found, trees, strict=True):
        assert torch.equal(guess, gold(tree))
    made = compare_trees(found, trees)
    assert made.distance_spearman == pytest.approx(1)
    assert made.uuas == 1 and made.edges == 5 * 80


def test_planted_trees_are_found_in_turned_vectors():
    vectors, trees = planted(300)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(3)))[0]
    vectors = [torch.cat([3 * x @ turn + 5, torch.ones(6, 1)], 1) for x in vectors]
    parts = split_sentences(torch.arange(300))
    probe, test = fit_structure(vectors, trees, parts), parts.test.tolist()
    guesses = [probe(vectors[n]) for n in test]
    made = compare_trees(guesses, [trees[n] for n in test])
    assert made.uuas == 1.0
    true = torch.cat([gold(trees[n]).flatten() for n in parts.test.tolist()])
    found = torch.cat([guess.flatten() for guess in guesses])
    assert np.corrcoef(true, found)[0, 1] > 0.99
    assert made.distance_spearman > 0.9  # ranks of equal distances are left to chance
    again = fit_structure(vectors, trees, parts)
    assert torch.equal(again(vectors[0]), fit_structure(vectors, trees, parts)(vectors[0]))
    assert fit_structure(vectors, trees, parts, rank=2).matrix.shape == (2, 7)


def test_vectors_that_tell_nothing_find_nothing():
    _, trees = planted(100)
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.randn(6, 4, generator=generator) for _ in trees]
    parts = split_sentences(torch.arange(100))
    probe, test = fit_structure(vectors, trees, parts), parts.test.tolist()
    made = compare_trees([probe(vectors[n]) for n in test], [trees[n] for n in test])
    assert made.uuas < 0.6 and made.distance_spearman < 0.4


def test_the_misfit_by_hand():
    trees = [DependencyTree([-1, 0], [0, 1]), DependencyTree([1, -1, 1], [0, 1, 2])]
    vectors = [torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [1.0], [3.0]])]
    both, one = torch.tensor([0, 1]), torch.eye(1)
    first = 2 * 3 / 4  # |4 − 1|, twice, of 4 cells
    second = 2 * (0 + 7 + 3) / 9  # |1 − 1|, |9 − 2|, |4 − 1|
    found = Parsed(vectors, [gold(t) for t in trees]).mean_error(one, both)
    assert float(found) == pytest.approx((first + second) / 2)


def chain_tree(count):
    places = torch.arange(count).float()
    return (places[:, None] - places).abs()


def test_punctuation_and_length_count_as_they_should():
    tree = DependencyTree([1, -1, 1, 1], [0, 1, 2])  # the last word is a mark
    made = compare_trees([chain_tree(4)], [tree])
    assert (made.uuas, made.edges) == (1, 2)
    assert made.distance_spearman is None  # fewer than five words
    long = DependencyTree([-1, 0, 1, 2, 3], list(range(5)))
    short_and_long = compare_trees([chain_tree(4), chain_tree(5)], [tree, long])
    assert short_and_long.distance_spearman == pytest.approx(1)
    other = DependencyTree([-1, 0, 0, 0, 0], [])
    mixed = compare_trees([chain_tree(5), chain_tree(5)], [long, other])
    rows = [
        spearman([abs(n - m) for m in range(5)], row.tolist()) for n, row in enumerate(gold(other))
    ]
    assert mixed.distance_spearman == pytest.approx((5 + sum(rows)) / 10)
    assert mixed.edges == 4


def test_what_is_refused():
    vectors, trees = planted(5)
    parts = split_sentences(torch.arange(5))
    lonely = [DependencyTree([-1], [0])] * 5
    with pytest.raises(DataError, match="two words"):
        fit_structure([torch.ones(1, 2)] * 5, lonely, SentenceSplit(*parts))


def test_the_print_of_a_tree():
    drawn = tree_lines("abcde", HEADS, {4})
    assert drawn == "b\n├─ a\n└─ e *\n   ├─ c\n   └─ d"
    assert tree_lines("abc", [-2, -1, 1]) == "b\n└─ c"  # a word outside the tree is not drawn
