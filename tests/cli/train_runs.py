"""A small corpus and the words of small runs, for the tests of `regard train`."""

from __future__ import annotations

import random

WORDS = "the a cat dog sees likes old red house tree runs".split()
SMALL = (
    "--dim 16 --depth 1 --heads 2 --length 16 --batch-tokens 64 --warm-up 2 --device cpu".split()
)
OFTEN = "--steps 6 --eval-every 3 --save-every 2 --log-every 1 --vocab 270".split()


def write_corpus(folder):
    """text.txt, pairs.tsv, and the two sides of the pairs apart."""
    dice = random.Random(0)
    rows = [" ".join(dice.choices(WORDS, k=dice.randint(2, 6))) for _ in range(80)]
    back = [" ".join(reversed(row.split())) for row in rows]
    (folder / "text.txt").write_text("\n".join(rows) + "\n")
    (folder / "pairs.tsv").write_text(
        "".join(f"{a}\t{b}\n" for a, b in zip(rows, back, strict=True))
    )
    (folder / "a.src").write_text("\n".join(rows) + "\n")
    (folder / "a.tgt").write_text("\n".join(back) + "\n")
    return folder


def words(kind, corpus, out, *more):
    """The command line of a run, without `regard`."""
    file = corpus / ("pairs.tsv" if kind == "seq2seq" else "text.txt")
    return ["train", kind, file, "--out", out, *SMALL, *OFTEN, *more]
