"""Confidence of words: fits the regression of a translator's folder, and measures what it finds.

    python bench/doubt.py FOLDER DEV.tsv DEV.tsv … [--dictionary FILE] [--lemmas FILE]
        [--count N] [--marked SHARE] [--write]

A word of a translation is an error where the reference lacks it, and so do the dictionary's words
for the lemmas of the source words it came from. For each file the regression is fitted on the
others: the area under the ROC curve (AUROC), and the share of the errors among the words that are
marked. `--write` puts the regression over all files, and the threshold below which a share of their
words is, into the folder's config.json.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import numpy as np
from numpy.typing import NDArray

from regard.data.pairs import read_pairs
from regard.data.text_files import read_lines
from regard.data.word_frequencies import key, words
from regard.loading import load_kit
from regard.translation.config import TranslateConfig
from regard.translation.explanation import read_words
from regard.translation.translator import Translator
from regard.translation.word_confidence import FEATURES

Floats = NDArray[np.float64]
ENDINGS = ("'s", "ies", "ing", "ied", "es", "ed", "ly", "s", "e", "y")


class Sample(NamedTuple):
    """Words of the translations of one file."""

    features: Floats  # (words, features)
    wrong: NDArray[np.bool_]  # (words,)
    probability: Floats  # (words,) the model's own


def stem(word: str) -> str:
    """A word without an ending, so that its forms are alike."""
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word[: -len(ending)]
    return word


def read_table(path: str | None) -> Iterator[list[str]]:
    """The cells of each line but the first, which names them."""
    for n, line in enumerate(read_lines(path) if path else ()):
        if n:
            yield line.lower().replace("œ", "oe").split("\t")


class Dictionary:
    """Which words may translate a word."""

    def __init__(self, entries: str | None, lemmas: str | None) -> None:
        self.lemmas, self.stems = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for form, lemma, _ in read_table(lemmas):
            self.lemmas[form].add(lemma)
        for word, _, translations, _ in read_table(entries):
            self.stems[word] |= {stem(part) for part in translations.replace("|", " ").split()}

    def has(self, source: str, target: str) -> bool:
        """Whether a form of the target's word stands under a lemma of the source word."""
        form = key(source).replace("œ", "oe")
        return any(stem(target) in self.stems[lemma] for lemma in {form, *self.lemmas[form]})


def sample(translator: Translator, path: str, count: int, known: Dictionary) -> Sample:
    """The words of a file's translations, marks left out."""
    pairs = list(read_pairs(path))
    pairs = random.Random(0).sample(pairs, min(count, len(pairs)))
    documents = translator.translate([source for source, _ in pairs])
    rows, wrong = list[list[float]](), list[bool]()
    for document, (_, reference) in zip(documents, pairs, strict=True):
        expected = set(words(key(reference)))
        for part in document.parts:
            reading = read_words(translator.kit, part)
            for word, features in zip(reading.words, reading.features, strict=False):
                text = key(word.text)
                if any(map(str.isalnum, text)):
                    rows.append(features)
                    found = text in expected or any(known.has(s, text) for s in word.aligned)
                    wrong.append(not found)
    features = np.array(rows)
    return Sample(features, np.array(wrong), features[:, FEATURES.index("probability")])


def fit(samples: Sequence[Sample], penalty: float = 1e-3) -> Floats:
    """Weights of the logistic regression for words that are right, by Newton's method."""
    x = np.concatenate([s.features for s in samples])
    y = ~np.concatenate([s.wrong for s in samples])
    scale = x.std(0) + (x.std(0) == 0)
    x, weights = x / scale, np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ weights))
        gradient = x.T @ (p - y) / len(y) + penalty * weights
        curvature = (x.T * (p * (1 - p))) @ x / len(y) + penalty * np.eye(len(weights))
        weights -= np.linalg.solve(curvature, gradient)
    found: Floats = weights / scale
    return found


def auroc(wrong: NDArray[np.bool_], sure: Floats) -> float:
    """The chance that a wrong word is less sure than a right one; ties count half."""
    order = np.sort(sure[~wrong])
    below = np.searchsorted(order, sure[wrong], "left")
    above = len(order) - np.searchsorted(order, sure[wrong], "right")
    return float(((above - below) / len(order)).mean() + 1) / 2


def confidence(sample: Sample, weights: Floats) -> Floats:
    """The probability that each word is right."""
    sure: Floats = 1 / (1 + np.exp(-sample.features @ weights))
    return sure


def line(name: str, wrong: NDArray[np.bool_], sure: Floats, threshold: float) -> str:
    """What is found in a file."""
    marked = sure < threshold
    held = (marked & wrong).sum() / wrong.sum()
    return (
        f"{name:28}{len(wrong):7,} words{wrong.mean():7.1%} errors   AUROC {auroc(wrong, sure):.3f}"
        f"   {marked.mean():5.1%} marked hold {held:5.1%} of the errors"
    )


def report(samples: Mapping[str, Sample], marked: float) -> None:
    """Each file by a regression that was fitted on the others, then all."""
    held_out = []
    for own in samples.values():
        rest = [other for other in samples.values() if other is not own] or [own]
        held_out.append(confidence(own, fit(rest)))
    wrong = np.concatenate([own.wrong for own in samples.values()])
    sure = np.concatenate(held_out)
    threshold = float(np.quantile(sure, marked))
    for (name, own), each in zip(samples.items(), held_out, strict=True):
        print(line(Path(name).stem, own.wrong, each, threshold))
    print(line("all", wrong, sure, threshold))
    alone = np.concatenate([own.probability for own in samples.values()])
    print(line("all, by probability alone", wrong, alone, float(np.quantile(alone, marked))))


def main() -> int:
    """Fit and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--dictionary")
    parser.add_argument("--lemmas")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--marked", type=float, default=0.1)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    translator = Translator(load_kit(str(args.folder)), TranslateConfig(doubt=True))
    known = Dictionary(args.dictionary, args.lemmas)
    samples = {path: sample(translator, path, args.count, known) for path in args.files}
    report(samples, args.marked)
    weights = fit([*samples.values()])
    sure = np.concatenate([confidence(own, weights) for own in samples.values()])
    threshold = float(np.quantile(sure, args.marked))
    named = dict(zip(FEATURES, np.round(weights, 4).tolist(), strict=True))
    doubt = {"weights": named, "threshold": round(threshold - 5e-4, 3)}
    print(json.dumps({"doubt": doubt}))
    if args.write:
        place = args.folder / "config.json"
        config = json.loads(place.read_text(encoding="utf-8")) | {"doubt": doubt}
        place.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
