"""Structural probe: is the tree of a sentence a distance of its vectors? (Hewitt and Manning 2019)

A matrix B is fitted so that |B (h_i − h_j)|² is the number of edges between words i and j of the
tree, and another so that |B h_i|² is the depth of word i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.ambient import current
from regard.data.statistics import share_interval, spearman
from regard.data.treebank import ConllSentence, heads_of
from regard.errors import DataError
from regard.look.probing import (
    SentenceSplit,
    TaggedCorpus,
    descend,
    mean_and_spread,
    split_sentences,
    tap_vectors,
)
from regard.look.results import TreeAgreement, TreeProbe

if TYPE_CHECKING:
    from regard.kit import Kit

Kind = Literal["distance", "depth"]
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

    kind: Kind
    mean: Tensor
    spread: Tensor
    matrix: Tensor  # (k, D)

    def __call__(self, x: Tensor) -> Tensor:
        """Vectors (n, D) → squared distances (n, n), or depths (n,)."""
        return squared_values((x - self.mean) / self.spread @ self.matrix.T, self.kind)


def squared_values(z: Tensor, kind: Kind) -> Tensor:
    """Projected vectors (…, n, k) → squared norms (…, n) or squared distances (…, n, n)."""
    norms = z.square().sum(-1)
    if kind == "depth":
        return norms
    square = norms[..., :, None] + norms[..., None, :] - 2 * z @ z.transpose(-1, -2)
    return square.clamp(min=0)  # rounding may leave a little less


def gold(tree: DependencyTree, kind: Kind) -> Tensor:
    """What is to be predicted: edges from each word up to the root, or between every two words."""
    above: list[set[int]] = []
    for word in range(len(tree.heads)):
        way = [word]
        while tree.heads[way[-1]] >= 0:
            way.append(tree.heads[way[-1]])
        above.append(set(way))
    if kind == "depth":
        return torch.tensor([len(way) - 1 for way in above]).float()
    return torch.tensor([[len(a ^ b) for b in above] for a in above]).float()


class Parsed(NamedTuple):
    """Sentences: their vectors (n, D), and what is to be predicted, (n,) or (n, n)."""

    vectors: list[Tensor]
    true: list[Tensor]

    def mean_error(self, matrix: Tensor, some: Tensor, kind: Kind) -> Tensor:
        """Mean over some sentences of the mean absolute error in each."""
        places = some.tolist()
        z = pad_sequence([self.vectors[n] for n in places], batch_first=True) @ matrix.T
        true = [self.true[n] for n in places]
        pads = [(0, z.shape[1] - len(each)) * each.dim() for each in true]
        wanted = torch.stack([F.pad(each, pad) for each, pad in zip(true, pads, strict=True)])
        shares = [torch.full_like(each, 1 / each.numel()) for each in true]
        weight = torch.stack([F.pad(each, pad) for each, pad in zip(shares, pads, strict=True)])
        return ((squared_values(z, kind) - wanted).abs() * weight).sum() / len(places)


def fit_structure(
    vectors: Sequence[Tensor],
    trees: Sequence[DependencyTree],
    parts: SentenceSplit,
    kind: Kind = "distance",
    rank: int | None = None,
    seed: int = 0,
) -> StructuralProbe:
    """Fit B (rank, D) on the training sentences by Adam on Σ |predicted − true| / n².

    The rate falls to nothing in a straight line; the B that was best on the dev sentences is kept.
    """
    mean, spread = mean_and_spread(torch.cat([vectors[n] for n in parts.train.tolist()]))
    train, dev = (
        Parsed(
            [(vectors[n] - mean) / spread for n in part.tolist()],
            [gold(trees[n], kind).to(mean) for n in part.tolist()],
        )
        for part in (parts.train, parts.dev)
    )
    width = len(mean)
    rank = min(rank or width, width)
    usual = sum(float(each.sum()) for each in train.true) / sum(t.numel() for t in train.true)
    each = rank * width * (2 if kind == "distance" else 1)
    size = math.sqrt(max(usual, 1e-6) / each)  # the first guesses are right in the mean
    generator = torch.Generator().manual_seed(seed)
    matrix = (torch.randn(rank, width, generator=generator) * size).to(mean).requires_grad_()

    losses = [
        (partial(part.mean_error, matrix, kind=kind), len(part.true)) for part in (train, dev)
    ]
    (kept,) = descend([matrix], losses, ROWS, size * RATE, generator)
    return StructuralProbe(kind, mean, spread, kept)


# Grading ----------------------------------------------------------------------------------------


class PredictedTree(NamedTuple):
    """What a probe says of one sentence: distances (n, n) and depths (n,)."""

    distances: Tensor
    depths: Tensor

    def root(self, tree: DependencyTree) -> int:
        """The word that is least deep."""
        return min(tree.counted, key=lambda word: float(self.depths[word]))

    def heads(self, tree: DependencyTree) -> list[int]:
        """The spanning tree of the words that count; −1 is its root, −2 are words outside it."""
        return spanning_tree(self.distances, self.root(tree), tree.counted)


def compare_trees(
    guesses: Sequence[PredictedTree], trees: Sequence[DependencyTree]
) -> TreeAgreement:
    """How far guesses are right; edges and roots only of sentences in which words count."""
    by_length: dict[int, tuple[list[float], list[float]]] = {}
    edges = every = roots = sentences = 0
    for guess, tree in zip(guesses, trees, strict=True):
        distances, depths = by_length.setdefault(len(tree.heads), ([], []))
        rows = zip(guess.distances.tolist(), gold(tree, "distance").tolist(), strict=True)
        distances += [spearman(guessed, true) for guessed, true in rows]
        depths.append(spearman(guess.depths.tolist(), gold(tree, "depth").tolist()))
        if tree.counted:
            true_edges = {edge for edge in tree_edges(tree.heads) if set(edge) <= set(tree.counted)}
            guessed_edges = tree_edges(guess.heads(tree))
            edges, every = edges + len(guessed_edges & true_edges), every + len(true_edges)
            if tree.heads.index(-1) in tree.counted:
                roots += guess.root(tree) == tree.heads.index(-1)
                sentences += 1
    means = [
        [sum(pair[n]) / len(pair[n]) for length, pair in by_length.items() if length in LENGTHS]
        for n in (0, 1)
    ]
    distance, depth = (sum(each) / len(each) if each else None for each in means)
    low, high = share_interval(edges, every)
    uuas, root = edges / every if every else 0.0, roots / sentences if sentences else 0.0
    return TreeAgreement(None, uuas, low, high, distance, depth, root, every)


def probe_structure(
    vectors: Sequence[Tensor],
    trees: Sequence[DependencyTree],
    parts: SentenceSplit,
    rank: int | None = None,
    seed: int = 0,
) -> tuple[TreeAgreement, list[PredictedTree]]:
    """Both probes of one place: their grade on the test sentences, and what they say of each."""
    if not any(len(trees[n].heads) > 1 for n in parts.train.tolist()):
        problem = "no sentence of two words to train on"
        raise DataError(
            "fitting a structural probe", problem, "sentences of words", "more sentences"
        )
    fitted = [
        fit_structure(vectors, trees, parts, kind, rank, seed) for kind in ("distance", "depth")
    ]
    test = parts.test.tolist()
    guesses = [PredictedTree(*(probe(vectors[n]).cpu() for probe in fitted)) for n in test]
    return compare_trees(guesses, [trees[n] for n in test]), guesses


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
    kit: Kit,
    corpus: TaggedCorpus,
    path: str | Path,
    taps: Sequence[str],
    rank: int = 64,
    show: int = 1,
) -> TreeProbe:
    """How far trees of the treebank at `path` can be read off the vectors of each tap.

    The trees of the first test sentences, `show` of them, are drawn beside those of the best tap.
    """
    whole = [  # a tree has no gaps
        (one, row) for one, row in corpus if len(row.words) == len(one.forms) <= MAX_WORDS
    ]
    gold = [counted_tree(path, sentence) for sentence, _ in whole]
    parts = split_sentences(torch.arange(len(gold)), current().seed)
    test = parts.test.tolist()
    rows = [torch.arange(len(gold[n].heads)).float() for n in test]  # words as they stand
    chains = [PredictedTree((row[:, None] - row).abs(), row) for row in rows]
    chain = compare_trees(chains, [gold[n] for n in test])
    probed: list[TreeAgreement] = []
    guesses: list[list[PredictedTree]] = []
    tokens = [row for _, row in whole]
    for tap, x in tap_vectors(kit, tokens, taps):
        vectors = x.split([len(row.columns) for row in tokens])
        agreement, predicted = probe_structure(vectors, gold, parts, rank, current().seed)
        guesses.append(predicted)
        probed.append(replace(agreement, tap=tap))
    best = max(range(len(probed)), key=lambda n: probed[n].uuas)
    drawn = [
        draw_trees(whole[n][0].forms, gold[n], guesses[best][k]) for k, n in enumerate(test[:show])
    ]
    counts = {name: len(part) for name, part in parts._asdict().items()}
    return TreeProbe(counts, len(corpus) - len(whole), rank, chain, probed, taps[best], drawn)


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


def draw_trees(words: Sequence[str], tree: DependencyTree, guess: PredictedTree) -> tuple[str, str]:
    """The true tree and the predicted one, the latter without punctuation marks."""
    if not tree.counted:
        return tree_lines(words, tree.heads), ""
    heads, true = guess.heads(tree), tree_edges(tree.heads)
    wrong = {n for n, head in enumerate(heads) if (min(n, head), max(n, head)) not in true}
    if tree.heads[guess.root(tree)] == -1:
        wrong.discard(guess.root(tree))
    return tree_lines(words, tree.heads), tree_lines(words, heads, wrong)
