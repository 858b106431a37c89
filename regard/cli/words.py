"""`regard eval analogies` and `eval similarity`: how good vectors of words are."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Literal

from regard.cli.show import Show
from regard.errors import DataError, UsageError
from regard.history.analogies import (
    OWN,
    Solved,
    agree,
    read_questions,
    read_similarity,
    solve,
    total,
)
from regard.history.word_vectors import read_vectors


def run(args: argparse.Namespace, show: Show) -> int:
    """Do what the verb says."""
    verbs: dict[str, Callable[[argparse.Namespace, Show], None]] = {
        "eval analogies": run_analogies,
        "eval similarity": run_similarity,
    }
    verbs[args.verb](args, show)
    return 0


def way_of(args: argparse.Namespace) -> Literal["add", "mul"]:
    """How analogies are solved."""
    return "mul" if args.mul else "add"


def run_analogies(args: argparse.Namespace, show: Show) -> None:
    """Score a set of questions, section by section."""
    vectors = read_vectors(args.path, args.matrix)
    scores = solve(vectors, read_questions(args.questions or OWN), way_of(args))
    every = total(scores)
    if not every.asked:
        found = f"none of {every.skipped:,} questions has vectors for its four words"
        raise DataError("solving analogies", found, "questions in the language of the vectors")
    if show.as_json:
        sections = {name: described(score) for name, score in scores.items()}
        show.result({**described(every), "way": way_of(args), "sections": sections})
        return
    rows = [
        (name, f"{score.accuracy:.1%}", *(f"{count:,}" for count in score))
        for name, score in [*scores.items(), ("all", every)]
    ]
    columns = "section", "right", "", "asked", "without vectors"
    show.table(f"analogies by {args.path}", columns, rows)
    low, high = every.interval()
    show.line(f"95 % interval of all: {low:.1%} to {high:.1%}; the question's words are left out")


def described(score: Solved) -> dict[str, Any]:
    """A score as plain data."""
    low, high = score.interval()
    return {"accuracy": score.accuracy, **score._asdict(), "low": low, "high": high}


def run_similarity(args: argparse.Namespace, show: Show) -> None:
    """Compare the order of cosines with people's."""
    if args.pairs is None:
        expected = "a file with lines of two words and people's score"
        fix = "such as WordSim-353: regard eval similarity M wordsim353.tsv"
        raise UsageError("comparing similarities", "no file of pairs", expected, fix)
    found = agree(read_vectors(args.path, args.matrix), read_similarity(args.pairs))
    if show.as_json:
        show.result(found._asdict())
    else:
        without = f", {found.skipped:,} without vectors" if found.skipped else ""
        show.line(f"Spearman's ρ {found.spearman:.4f} over {found.pairs:,} pairs{without}")
