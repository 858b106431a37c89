"""`regard tok vocab`: what a corpus is made of, how often each occurs, and what that covers."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers

from regard.cli.show import Show
from regard.data.files import decode, read_parts, split_lines
from regard.errors import DataError
from regard.files import write_whole
from regard.tokens.count import count_words, rank
from regard.tokens.kinds import GRAPHEMES

DOING = "listing a vocabulary"
CUTS: dict[str, Any] = {
    "words": pre_tokenizers.Whitespace(),
    "chars": pre_tokenizers.Split("", "isolated"),
    "graphemes": GRAPHEMES,
}


def run_vocab(args: argparse.Namespace, show: Show) -> int:
    """Count, and print the most frequent; --out has them all."""
    texts = read_parts(args.files) if args.files else split_lines(decode(sys.stdin.buffer, "stdin"))
    with show.progress("counting") as progress:
        progress("words")
        counts = count_words(texts, CUTS[args.kind], whole=args.kind == "graphemes")
    total, kept = sum(counts.words.values()), frequent(counts.words, args.min_count)
    if counts.lost:
        show.note(f"more kinds than memory: counts may be too low by {counts.lost:,}")
    if args.out:
        data = {word: counts.words[word] for word in kept}
        text = json.dumps(data, ensure_ascii=False, indent=0) + "\n"
        write_whole(Path(args.out), text.encode())
    covered = sum(counts.words[word] for word in kept) / total
    found = {"kind": args.kind, "tokens": total, "types": len(counts.words), "kept": len(kept)}
    shown = kept[: args.top]
    if show.as_json:
        show.result(found | {"coverage": covered, "words": {w: counts.words[w] for w in shown}})
        return 0
    show.fields(
        args.kind,
        {
            "in all": f"{total:,}",
            "different": f"{len(counts.words):,}",
            "kept": f"{len(kept):,}, which cover {covered:.2%}",
        },
    )
    rows, sum_ = [], 0
    for word in shown:
        sum_ += counts.words[word]
        name = json.dumps(word, ensure_ascii=False)
        rows.append((name, f"{counts.words[word]:,}", f"{sum_ / total:.2%}"))
    show.table(f"the {len(rows)} most frequent", (args.kind, "count", "covered so far"), rows)
    return 0


def frequent(counts: Counter[str], least: int) -> list[str]:
    """Those that occur often enough, most frequent first."""
    if not counts:
        raise DataError(DOING, "no tokens: the texts are empty or blank", "at least one")
    kept = [word for word in rank(counts) if counts[word] >= least]
    if not kept:
        most = f"the most frequent occurs {max(counts.values()):,} times"
        raise DataError(DOING, most, f"{least:,} times or more", "lower --min-count")
    return kept
