"""A trained translator → the folder that ships: int8 weights, lists of words; prints its scores.

    python recipes/ship.py runs/fr-en-3 OUT --languages fr en --train train-*.tsv.xz
        [--test test-*.tsv] [--shortlist train-… …] [--files memory.tsv …]

Files of pairs hold source TAB target, in the model's direction. Words are counted in those of
--train, the shortlist is learnt from those of --shortlist, where a file named twice counts twice.
What is written by hand for the two languages comes from regard/zoo/SOURCE-TARGET, more files of the
folder from --files; other keys of the run's config.json stay. Scores are of the folder as it ships,
on this machine's CPU. OUT is a new or empty folder.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

from tokenizers import Tokenizer

import regard
from regard.data.pairs import all_pairs
from regard.data.sorted_lines import sort_lines
from regard.data.word_frequencies import (
    WORDS_FILE,
    WRITTEN_FILE,
    key,
    words,
    write_counts,
)
from regard.translation.repair import WORD
from regard.zoo import HOME

ALIGNMENT = {"block": 1, "firm": 0.7}  # the best of bench/align.py
BY_HAND = ("numbers.json", "inflections.json", "README.md")
SCORED = {
    "as shipped": {},
    "all words": {"shortlist": False},
    "all words, float32": {"shortlist": False, "precision": "fp32"},
}


def main() -> None:
    """Make the folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run")
    parser.add_argument("out", type=Path)
    parser.add_argument("--languages", nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--shortlist", nargs="+", metavar="FILE")
    parser.add_argument("--files", nargs="*", default=[], type=Path, metavar="FILE")
    parser.add_argument("--test", nargs="*", default=[], metavar="FILE")
    args = parser.parse_args()
    home, out = HOME / "-".join(args.languages), args.out
    read, written = Counter[str](), Counter[str]()
    for source, target in all_pairs(args.train):
        read.update(words(key(source)))
        written.update(run.lower() for run in WORD.findall(target))
    files = {
        WORDS_FILE: write_counts(read),
        WRITTEN_FILE: sort_lines(word for word, count in written.items() if count > 1),
    }
    kit = regard.load(args.run)
    config = kit.config | {"languages": args.languages, "alignment": ALIGNMENT}
    regard.export("int8", replace(kit, config=config, files=files), out)
    tokenizer = out / "tokenizer.json"
    Tokenizer.from_file(str(tokenizer)).save(str(tokenizer), pretty=False)
    by_hand = [home / name for name in BY_HAND if (home / name).is_file()]
    for file in [*by_hand, *args.files]:
        (out / file.name).write_bytes(file.read_bytes())
    print(regard.train.shortlist(out, args.shortlist or args.train, count=1_200_000, top=80))
    for file in args.test:
        for name, how in SCORED.items():
            scores = regard.evaluate.translate(out, file, beams=5, **how)
            print(f"{file}, {name}: BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f}", flush=True)
    print(sum(file.stat().st_size for file in out.iterdir()), "bytes")


if __name__ == "__main__":
    main()
