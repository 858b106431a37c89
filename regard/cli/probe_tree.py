"""Trees of `regard probe --tree`: the structural probe at each place, and trees side by side."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch

from regard.cli.probe_reading import Corpus, vectors_of
from regard.cli.show import Progress, Show
from regard.data.treebank import Words, heads_of
from regard.kit import Kit
from regard.look.activations import split_by_sentence
from regard.look.probing import Split, split_sentences
from regard.look.structural_probe import (
    DependencyTree,
    PredictedTree,
    TreeCounts,
    beside,
    chain_tree,
    compare_trees,
    probe_structure,
    rooted,
    tree_edges,
    tree_lines,
)

MARKS = ("PUNCT",)
LONGEST = 256  # words: of each two there is a distance


def run_tree(
    args: argparse.Namespace,
    show: Show,
    kit: Kit,
    corpus: Corpus,
    taps: Sequence[str],
    progress: Progress,
) -> dict[str, Any]:
    """A structural probe of distances and depths at each tap; the object of --json."""
    whole = whole_sentences(corpus)
    trees = [tree_of(args.file, sentence) for sentence in whole.sentences]
    parts = split_sentences(torch.arange(len(trees)), args.seed)
    made: dict[str, tuple[TreeCounts, list[PredictedTree]]] = {}
    for tap, x in vectors_of(kit, whole, taps, progress):
        made[tap] = probe_structure(
            split_by_sentence(x, whole.rows), trees, parts, args.rank, args.seed
        )
    test = parts.test.tolist()
    plain = compare_trees([chain_tree(len(trees[n].heads)) for n in test], [trees[n] for n in test])
    best = max(made, key=lambda tap: made[tap][0].uuas)
    shown = [
        drawn(whole.sentences[n].forms, trees[n], made[best][1][k])
        for k, n in enumerate(test[: args.show])
    ]
    left = len(corpus.sentences) - len(whole.sentences)
    found = {
        "sentences": {"train": len(parts.train), "dev": len(parts.dev), "test": len(test)},
        "left_out": left,
        "rank": args.rank,
        "chain": grade_data(plain),
        "taps": [{"tap": tap, **grade_data(made[tap][0])} for tap in made],
        "best": best,
        "trees": shown,
    }
    if show.as_json:
        return found
    print_tree(args, show, plain, {tap: made[tap][0] for tap in made}, parts)
    if left:
        why = f"a word without a token, or more than {LONGEST} words"
        show.line(f"{left:,} sentences are left out: {why}")
    for gold, guessed in shown:
        show.line()
        show.line(beside(f"gold\n{gold}", f"{best}, * where the edge up is wrong\n{guessed}"))
    return found


def whole_sentences(corpus: Corpus) -> Corpus:
    """Those whose words all have a token, for a tree has no gaps, and are not too many."""
    kept = [
        n
        for n, (sentence, row) in enumerate(zip(corpus.sentences, corpus.rows, strict=True))
        if len(row.words) == len(sentence.forms) <= LONGEST
    ]
    return Corpus([corpus.sentences[n] for n in kept], [corpus.rows[n] for n in kept], corpus.long)


def tree_of(path: str, sentence: Words) -> DependencyTree:
    """Heads, and the words that are no punctuation, by tag or else by letters."""
    tags = sentence.columns.get("upos", [""] * len(sentence.forms))
    tagged = any(tag not in ("", "_") for tag in tags)
    counted = [
        n
        for n, (form, tag) in enumerate(zip(sentence.forms, tags, strict=True))
        if (tag not in MARKS if tagged else any(map(str.isalnum, form)))
    ]
    return DependencyTree(heads_of(path, sentence), counted)


def drawn(words: Sequence[str], tree: DependencyTree, guess: PredictedTree) -> tuple[str, str]:
    """The true tree and the predicted one, without punctuation marks that hang at the latter."""
    if not tree.counted:
        return tree_lines(words, tree.heads), ""
    edges = guess.edges(tree)
    heads = rooted(edges, guess.root(tree), len(words))
    true = tree_edges(tree.heads)
    wrong = {
        n for n, head in enumerate(heads) if head >= 0 and (min(n, head), max(n, head)) not in true
    }
    if guess.root(tree) != tree.heads.index(-1):
        wrong.add(guess.root(tree))
    return tree_lines(words, tree.heads), tree_lines(words, heads, wrong)


def grade_data(made: TreeCounts) -> dict[str, Any]:
    """A compare_trees as plain data."""
    low, high = made.interval
    return {
        "uuas": made.uuas,
        "low": low,
        "high": high,
        "distance_spearman": made.distances,
        "depth_spearman": made.depths,
        "root": made.root,
        "edges": made.all_edges,
    }


def print_tree(
    args: argparse.Namespace,
    show: Show,
    plain: TreeCounts,
    made: dict[str, TreeCounts],
    parts: Split,
) -> None:
    """The table of grades."""

    def cells(name: str, each: TreeCounts) -> tuple[str, ...]:
        low, high = each.interval
        rhos = ["–" if rho is None else f"{rho:.3f}" for rho in (each.distances, each.depths)]
        return name, f"{each.uuas:.1%}", f"{low:.1%} to {high:.1%}", *rhos, f"{each.root:.1%}"

    rows = [cells("words in a chain", plain), *(cells(*row) for row in made.items())]
    columns = "tap", "UUAS", "95 % interval", "ρ distance", "ρ depth", "root"
    show.table(f"trees by a structural probe (rank {args.rank}) of {args.path}", columns, rows)
    counts = [f"{len(part):,}" for part in parts]
    show.line(
        f"sentences to train on {counts[0]}, to choose by {counts[1]}, to test on {counts[2]}; "
        f"{plain.all_edges:,} edges, without punctuation"
    )
