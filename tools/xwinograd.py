"""Turn XWinograd's table into one that `regard evaluate winograd` reads.

    python tools/xwinograd.py xwinograd.tsv OUT.tsv [--language fr]

A line of XWinograd (Tikhonov 2021) has language, source, a number, the sentence, its words, the
pronoun with its place, and the candidates with which of them is right; the last three are JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

from regard.evaluate.winograd_schemas import fitted


def find_word(text: str, words: Sequence[str], place: int, word: str) -> int:
    """Where the word of this place begins; words that the text writes otherwise are passed over."""
    at = 0
    for other in words[:place]:
        begin = text.find(other, at)
        at = begin + len(other) if begin >= 0 and begin - at < 3 else at
    begin = text.find(word, at)
    if begin < 0:
        raise ValueError(f"{word!r} is not in {text[:60]!r}")
    return begin


def convert(line: str) -> tuple[str, str]:
    """(Language, text TAB a TAB b TAB answer) of a line."""
    language, _, _, text, *packed = line.split("\t")
    words, (pronoun, (first, _), _), both = map(json.loads, packed)
    named, right = [each[0] for each in both], [bool(each[3]) for each in both]
    if sorted(right) != [False, True]:
        raise ValueError(f"{sum(right)} right candidates")
    start = find_word(text, words, first, pronoun)
    before, after = text[:start], text[start + len(pronoun) :]
    a, b = (fitted(name, before, pronoun, after) for name in named)
    return language, "\t".join((f"{before}_{after}", a, b, "ab"[right.index(True)]))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--language")
    given = parser.parse_args()
    rows = ["text\ta\tb\tanswer"]
    for number, line in enumerate(given.table.read_text(encoding="utf-8").splitlines(), 1):
        try:
            language, row = convert(line)
        except (ValueError, TypeError, IndexError, KeyError) as error:
            sys.exit(f"{given.table}, line {number}: {error}")
        if given.language in (None, language):
            rows.append(row)
    given.out.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    print(f"{given.out}: {len(rows) - 1} schemas")


if __name__ == "__main__":
    main()
