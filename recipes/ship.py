"""A trained translator → the folder that ships: int8 weights, lists of words; prints its scores.

    python recipes/ship.py RUN/final regard/zoo/fr-en --train train-*.tsv.xz --test test-*.tsv
        [--shortlist train-… …]

Writes into a new or empty folder. Words are counted in the files of --train, the shortlist is
learnt from those of --shortlist, where a file named twice counts twice. Scores are of the folder as
it ships, on this machine's CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

from regard.cli.evaluate import training_pairs
from tokenizers import Tokenizer

from regard.cli.main import main as regard
from regard.data.word_frequencies import (
    WORDS_FILE,
    WRITTEN_FILE,
    count_words,
    write_counts,
    write_words,
)
from regard.translation.repair import NUMBERS_FILE, letter_runs
from regard.zoo import HOME

ALIGNMENT = {"block": 1, "firm": 0.7}  # the best of bench/align.py


def ask(*words: object) -> dict[str, object]:
    """The JSON that a command prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = regard([*map(str, words), "--json"])
    if code:
        sys.exit(code)
    made: dict[str, object] = json.loads(said.getvalue())
    return made


def main() -> None:
    """Make the folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("final")
    parser.add_argument("out")
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--shortlist", nargs="+", metavar="FILE")
    parser.add_argument("--test", nargs="+", required=True, metavar="FILE")
    args = parser.parse_args()
    out = Path(args.out)
    ask("export", "int8", args.final, out)
    tokenizer = out / "tokenizer.json"
    Tokenizer.from_file(str(tokenizer)).save(str(tokenizer), pretty=False)
    config = json.loads((out / "config.json").read_text()) | {
        "languages": ["fr", "en"],
        "alignment": ALIGNMENT,
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    numbers = HOME / "fr-en" / NUMBERS_FILE  # how French and English write them
    (out / NUMBERS_FILE).write_bytes(numbers.read_bytes())
    counts = count_words(source for source, _ in training_pairs(args.train))
    (out / WORDS_FILE).write_bytes(write_counts(counts))
    written = Counter(
        run.lower() for _, target in training_pairs(args.train) for run in letter_runs(target)
    )
    (out / WRITTEN_FILE).write_bytes(write_words(w for w, n in written.items() if n > 1))
    pairs = args.shortlist or args.train
    listed = ask("train", "shortlist", out, *pairs, "--count", 1_200_000, "--top", 80)
    print("shortlist", listed)
    for file in args.test:
        made = ask("eval", "translate", out, file, "--beams", 5)
        whole = ask("eval", "translate", out, file, "--beams", 5, "--no-shortlist")
        exact = ask(
            *("eval", "translate", out, file, "--beams", 5, "--no-shortlist", "--precision", "fp32")
        )
        parts = {"as shipped": made, "all words": whole, "all words, float32": exact}
        print(file, {name: row["bleu"] for name, row in parts.items()}, flush=True)
    print(sum(f.stat().st_size for f in out.iterdir()), "bytes")


if __name__ == "__main__":
    main()
