"""Everyday words and idioms: how many sentences a translator gets right.

    python bench/everyday.py [FOLDER] [--show] [--json]

everyday.tsv has three sentences for each of 74 ordinary words and idioms that training saw seldom,
and for each sentence the translations that are right in it, by hand: one of them must stand in the
translation. A word counts when its three sentences do.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import regard

TABLE = Path(__file__).with_suffix(".tsv")


class Case(NamedTuple):
    """A sentence with an everyday word, and what may be written for it."""

    word: str
    source: str
    accepted: list[str]
    """Regular expressions of whole words, in lower case."""


def read_cases(path: Path = TABLE) -> list[Case]:
    """The lines of a table; those that begin with # are remarks."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [Case(word, source, accepted.split(" | ")) for word, source, accepted in rows]


def is_right(case: Case, text: str) -> bool:
    """Whether one of the accepted translations stands in a text, as whole words."""
    plain = text.replace("’", "'")
    return any(re.search(rf"(?<!\w)(?:{one})(?!\w)", plain, re.I) for one in case.accepted)


def main() -> None:
    """Print the share of sentences and of words."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", default="fr-en")
    parser.add_argument("--show", action="store_true", help="print each miss")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cases = read_cases()
    results = regard.translate([case.source for case in cases], model=args.folder)
    words: dict[str, list[bool]] = {}
    for case, result in zip(cases, results, strict=True):
        right = is_right(case, result.text)
        words.setdefault(case.word, []).append(right)
        if args.show and not right:
            print(case.word, case.source, result.text, sep="\t")
    shares = {
        "sentences": [sum(map(sum, words.values())), len(cases)],
        "words": [sum(map(all, words.values())), len(words)],
    }
    if args.json:
        print(json.dumps(shares))
    else:
        for name, (right, total) in shares.items():
            print(f"{name:10}{right:4} of {total:4}{100 * right / total:7.1f} %")


if __name__ == "__main__":
    main()
