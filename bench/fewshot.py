"""What examples in the prompt do for a model, on four tasks made of real files.

    python bench/fewshot.py MODEL DATA [--count 300] [--k 0 1 4 16] [--orders 8] [--json]

DATA has words/questions-words.txt (capitals), tag/ud-ewt-*.tsv.xz (parts of speech),
classify/sst2-*.tsv (sentiment) and fr-en/dev-*.tsv (languages). Each task has its first questions
in an order drawn once; examples are drawn from others. The gain over the fewest examples is of the
same questions, with an interval over orders and questions.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import regard

KINDS = {"NOUN": "noun", "VERB": "verb", "ADJ": "adjective", "ADV": "adverb"}
POOL = 100  # examples to draw from, where there are so many

Row = dict[str, Any]


def capitals(data: Path) -> Iterator[Row]:
    """Of which of four countries a city is the capital."""
    dice, section, pairs = random.Random(0), "", dict[str, str]()
    for line in (data / "words/questions-words.txt").read_text().splitlines():
        section = line if line.startswith(":") else section
        if section == ": capital-world" and line != section:
            pairs[line.split()[0]] = line.split()[1]
    for city, country in pairs.items():
        others = dice.sample(sorted({*pairs.values()} - {country}), 3)
        choices = dice.sample([country, *others], 4)
        question = f"{city} is the capital of which country?"
        yield {"question": question, "choices": choices, "answer": country}


def parts_of_speech(data: Path) -> Iterator[Row]:
    """Noun, verb, adjective or adverb, of words that are one of them nearly always."""
    seen = defaultdict[str, Counter[str]](Counter)
    with lzma.open(data / "tag/ud-ewt-train.tsv.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            if len(cells := line.rstrip("\n").split("\t")) > 2 and cells[1].isalpha():
                seen[cells[1].lower()][cells[2]] += 1
    listed = {
        kind: [w for w, n in seen.items() if n.total() > 4 and n[kind] > 0.95 * n.total()]
        for kind in KINDS
    }
    most = min(map(len, listed.values()))
    for kind, words in listed.items():
        for word in random.Random(0).sample(words, most):
            yield {"text": word, "label": KINDS[kind]}


def sentiment(data: Path) -> Iterator[Row]:
    """Whether a review is positive: SST-2's development sentences."""
    for line in (data / "classify/sst2-dev.tsv").read_text(encoding="utf-8").splitlines():
        text, label = line.split("\t")
        if label in "01":
            yield {"text": text, "label": ("negative", "positive")[int(label)]}


def languages(data: Path) -> Iterator[Row]:
    """French or English: everyday sentences."""
    for line in (data / "fr-en/dev-tatoeba-dev.tsv").read_text(encoding="utf-8").splitlines():
        french, english = line.split("\t")[:2]
        yield from ({"text": french, "label": "French"}, {"text": english, "label": "English"})


TASKS = {
    "capital → country": capitals,
    "word → part of speech": parts_of_speech,
    "SST-2": sentiment,
    "French or English": languages,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--k", type=int, nargs="+", default=[0, 1, 4, 16])
    parser.add_argument("--orders", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    kit = regard.load(given.model)
    with tempfile.TemporaryDirectory() as folder:
        for name, task in TASKS.items():
            rows = random.Random(1).sample(listed := list(task(given.data)), len(listed))
            count = min(given.count, max(len(rows) * 3 // 4, len(rows) - POOL))
            files = [Path(folder) / f"{part}.jsonl" for part in ("test", "train")]
            for file, part in zip(files, (rows[:count], rows[count : count + POOL]), strict=True):
                file.write_text("".join(json.dumps(row) + "\n" for row in part))
            result = regard.evaluate.fewshot(
                kit, files[0], train=files[1], k=given.k, orders=given.orders
            )
            if given.json:
                print(json.dumps({"task": name, **result.to_dict()}), flush=True)
                continue
            print(f"{name}, {result.questions} questions, {result.orders} orders", flush=True)
            for row in result.by_k:
                print(
                    f"  k {row.k:2}: {row.accuracy:6.1%} ({row.low:.1%} to {row.high:.1%}), gain "
                    f"{row.gain:+.1%} ({row.gain_low:+.1%} to {row.gain_high:+.1%}), "
                    f"calibrated {row.calibrated:.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
