"""Structural probe: is the tree of a sentence a distance of its vectors? (Hewitt and Manning 2019)

A matrix B is fitted so that |B (h_i − h_j)|² is the number of edges between words i and j of the
tree. The spanning tree of least length is the guess; edges have no direction, so it is drawn from
the true root.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.ambient import current
from regard.data.statistics import share_interval, spearman
from regard.data.treebank import ConllSentence, heads_of
from regard.errors import DataError
from regard.look import probing
from regard.look.results import TreeAgreement, TreeProbe

if TYPE_CHECKING:
    from regard.kit import Kit

Edge = tuple[int, int]
"""Two words, the first one first."""

ROWS = 20  # sentences of a batch
RATE = 0.25  # of Adam at first, in sizes of the matrix's first numbers
MAX_WORDS = 256  # of each two there is a distance
LENGTHS = range(5, 51)  # of the sentences that correlations are averaged over


class DependencyTree(NamedTuple):
    """The tree of one sentence."""

    heads: list[int]
    """Places of heads; −1 is the root."""
    counted: list[int]
    """Words that edges and roots are counted of: all but punctuation marks."""


class StructuralProbe(NamedTuple):
    """A fitted matrix, for vectors that are standardised."""

    mean: Tensor
    spread: Tensor
    matrix: Tensor  # (k, D)

    def __call__(self, x: Tensor) -> Tensor:
        """Vectors (n, D) → squared distances (n, n)."""
        return squared_distances((x - self.mean) / self.spread @ self.matrix.T)


def squared_distances(z: Tensor) -> Tensor:
    """Projected vectors (…, n, k) → squared distances (…, n, n)."""
    norms = z.square().sum(-1)
    square = norms[..., :, None] + norms[..., None, :] - 2 * z @ z.transpose(-1, -2)
    return square.clamp(min=0)  # rounding may leave a little less


def gold(tree: DependencyTree) -> Tensor:
    """What is to be predicted (n, n): the number of edges between every two words."""
    above: list[set[int]] = []
    for word in range(len(tree.heads)):
        way = [word]
        while tree.heads[way[-1]] >= 0:
            way.append(tree.heads[way[-1]])
        above.append(set(way))
    return torch.tensor([[len(a ^ b) for b in above] for a in above]).float()


class Parsed(NamedTuple):
    """Sentences: their vectors (n, D), and what is to be predicted (n, n)."""

    vectors: list[Tensor]
    true: list[Tensor]

    def mean_error(self, matrix: Tensor, some: Tensor) -> Tensor:
        """Mean over some sentences of the mean absolute error in each."""
        x = torch.cat([self.vectors[n] for n in some.tolist()])
        true = [self.true[n] for n in some.tolist()]
        weight = torch.block_diag(*(torch.full_like(each, 1 / each.numel()) for each in true))
        error = squared_distances(x @ matrix.T) - torch.block_diag(*true)
        total: Tensor = (error.abs() * weight).sum()
        return total / len(some)


def fit_structure(
    vectors: Sequence[Tensor],
    trees: Sequence[DependencyTree],
    parts: probing.SentenceSplit,
    rank: int | None = None,
    seed: int = 0,
) -> StructuralProbe:
    """Fit B (rank, D) on the training sentences by Adam on Σ |predicted − true| / n².

    The rate falls to nothing in a straight line; the B that was best on the dev sentences is kept.
    """
    if not any(len(trees[n].heads) > 1 for n in parts.train.tolist()):
        doing, expected = "fitting a structural probe", "sentences of words"
        raise DataError(doing, "no sentence of two words to train on", expected, "more sentences")
    mean, spread = probing.mean_and_spread(torch.cat([vectors[n] for n in parts.train.tolist()]))
    train, dev = (
        Parsed(
            [(vectors[n] - mean) / spread for n in part.tolist()],
            [gold(trees[n]).to(mean) for n in part.tolist()],
        )
        for part in (parts.train, parts.dev)
    )
    width = len(mean)
    rank = min(rank or width, width)
    usual = sum(float(each.sum()) for each in train.true) / sum(t.numel() for t in train.true)
    size = math.sqrt(max(usual, 1e-6) / (2 * rank * width))  # right in the mean at first
    generator = torch.Generator().manual_seed(seed)
    matrix = (torch.randn(rank, width, generator=generator) * size).to(mean).requires_grad_()
    losses = [(partial(part.mean_error, matrix), len(part.true)) for part in (train, dev)]
    (kept,) = probing.descend([matrix], losses, ROWS, size * RATE, generator)
    return StructuralProbe(mean, spread, kept)


# Grading ----------------------------------------------------------------------------------------


def guess_heads(distances: Tensor, tree: DependencyTree) -> list[int]:
    """The spanning tree of the words that count; −1 is its root, −2 are words outside it."""
    root = tree.heads.index(-1)
    return spanning_tree(distances, root if root in tree.counted else tree.counted[0], tree.counted)


def compare_trees(guesses: Sequence[Tensor], trees: Sequence[DependencyTree]) -> TreeAgreement:
    """How far distances (n, n) are right; edges only of sentences in which words count."""
    by_length: dict[int, list[float]] = {}
    edges = every = 0
    for guess, tree in zip(guesses, trees, strict=True):
        rows = zip(guess.tolist(), gold(tree).tolist(), strict=True)
        correlations = by_length.setdefault(len(tree.heads), [])
        correlations += [spearman(guessed, true) for guessed, true in rows]
        if tree.counted:
            true_edges = {edge for edge in tree_edges(tree.heads) if set(edge) <= set(tree.counted)}
            guessed_edges = tree_edges(guess_heads(guess, tree))
            edges, every = edges + len(guessed_edges & true_edges), every + len(true_edges)
    means = [sum(each) / len(each) for length, each in by_length.items() if length in LENGTHS]
    distance = sum(means) / len(means) if means else None
    low, high = share_interval(edges, every)
    return TreeAgreement(None, edges / every if every else 0.0, low, high, distance, every)


# Trees ------------------------------------------------------------------------------------------


def tree_edges(heads: Sequence[int]) -> set[Edge]:
    """Words that are next to each other in the tree, whichever is the head."""
    return {(min(n, head), max(n, head)) for n, head in enumerate(heads) if head >= 0}


def spanning_tree(distances: Tensor, root: int, words: Sequence[int]) -> list[int]:
    """Heads of the tree of least length through the words (Prim 1957) that hangs from `root`.

    Of equal edges the first is taken; words outside have −2.
    """
    table, heads = distances.tolist(), [-2] * len(distances)
    heads[root], joined = -1, [root]
    left = [word for word in words if word != root]
    while left:
        _, near, new = min((table[a][b], a, b) for a in joined for b in left)
        heads[new] = near
        joined.append(new)
        left.remove(new)
    return heads


def tree_lines(words: Sequence[str], heads: Sequence[int], marked: set[int] | None = None) -> str:
    """A tree for a terminal: one word a line under its head, `*` after marked ones."""
    lines: list[str] = []

    def write(word: int, before: str, branch: str, under: str) -> None:
        star = " *" if marked and word in marked else ""
        lines.append(f"{before}{branch}{words[word]}{star}")
        below = [n for n, head in enumerate(heads) if head == word]
        for n in below:
            last = n == below[-1]
            write(n, before + under, "└─ " if last else "├─ ", "   " if last else "│  ")

    for root in (n for n, head in enumerate(heads) if head == -1):
        write(root, "", "", "")
    return "\n".join(lines)


# Treebanks --------------------------------------------------------------------------------------


def probe_trees(
    kit: Kit, corpus: probing.TaggedCorpus, path: str | Path, taps: Sequence[str], rank: int = 64
) -> TreeProbe:
    """How far trees of the treebank at `path` can be read off the vectors of each tap.

    The tree of the first test sentence is drawn beside that of the best tap.
    """
    whole = [  # a tree has no gaps
        (one, row) for one, row in corpus if len(row.words) == len(one.forms) <= MAX_WORDS
    ]
    gold = [counted_tree(path, sentence) for sentence, _ in whole]
    parts = probing.split_sentences(torch.arange(len(gold)), current().seed)
    test = parts.test.tolist()
    rows = [torch.arange(len(gold[n].heads)).float() for n in test]  # words as they stand
    chain = compare_trees([(row[:, None] - row).abs() for row in rows], [gold[n] for n in test])
    probed: list[TreeAgreement] = []
    guesses: list[list[Tensor]] = []
    tokens = [row for _, row in whole]
    for tap, x in probing.tap_vectors(kit, tokens, taps):
        vectors = x.split([len(row.columns) for row in tokens])
        probe = fit_structure(vectors, gold, parts, rank, current().seed)
        guesses.append([probe(vectors[n]).cpu() for n in test])
        probed.append(replace(compare_trees(guesses[-1], [gold[n] for n in test]), tap=tap))
    best = max(range(len(probed)), key=lambda n: probed[n].uuas)
    drawn = draw_trees(whole[test[0]][0].forms, gold[test[0]], guesses[best][0])
    counts = {name: len(part) for name, part in parts._asdict().items()}
    return TreeProbe(counts, len(corpus) - len(whole), rank, chain, probed, taps[best], [drawn])


def counted_tree(path: str | Path, sentence: ConllSentence) -> DependencyTree:
    """A tree whose counted words are no punctuation, by tag or else by letters."""
    tags = sentence.columns.get("upos", [""] * len(sentence.forms))
    tagged = any(tag not in ("", "_") for tag in tags)
    counted = [
        n
        for n, (form, tag) in enumerate(zip(sentence.forms, tags, strict=True))
        if (tag != "PUNCT" if tagged else any(map(str.isalnum, form)))
    ]
    return DependencyTree(heads_of(path, sentence), counted)


def draw_trees(words: Sequence[str], tree: DependencyTree, guess: Tensor) -> tuple[str, str]:
    """The true tree and the predicted one, the latter without punctuation marks."""
    if not tree.counted:
        return tree_lines(words, tree.heads), ""
    heads, true = guess_heads(guess, tree), tree_edges(tree.heads)
    edges = {n: (min(n, head), max(n, head)) for n, head in enumerate(heads) if head >= 0}
    wrong = {n for n, edge in edges.items() if edge not in true}
    return tree_lines(words, tree.heads), tree_lines(words, heads, wrong)
