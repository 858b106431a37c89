"""Translators that count words: naive Bayes, logistic regression, IBM model 1.

Each model chooses the word of each place. Words are the same in capitals or not: a source word is
known by its small letters, a target word is written as it mostly is where no sentence begins.

A folder has config.json (`model_type`), model.safetensors and vocabulary.json.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.ambient import note, track
from regard.data.pairs import Pair, all_pairs
from regard.data.word_frequencies import words
from regard.errors import DataError, expecting
from regard.files import check_new, read_arrays, read_json, take_ids, write_counted, write_whole
from regard.history.bag_of_words import BagModel, Classes, train_bayes, train_logreg
from regard.history.ibm1 import Chosen, Ids, Ragged, Sparse, WordByWord, train_words
from regard.history.results import TranslatorRun

WEIGHTS, WORDS = "model.safetensors", "vocabulary.json"
KINDS = {f"regard-{kind}": kind for kind in ("bayes", "logreg", "ibm1")}
"""Values of `model_type`."""
Arrays = dict[str, np.ndarray]


# Words as numbers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class WordNumbers:
    """Source words in small letters, target words as they are written; the frequent ones first."""

    sources: list[str]
    targets: list[str]

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of each source word."""
        return {word: id for id, word in enumerate(self.sources)}

    def encode(self, sentence: Sequence[str]) -> Ids:
        """The numbers of source words; -1 is one that is not known."""
        return np.array([self.ids.get(word.lower(), -1) for word in sentence], np.int64)


def cut(text: str) -> list[str]:
    """Words and marks of a sentence."""
    return words(text.replace("’", "'"))


def number_words(pairs: Sequence[Pair]) -> tuple[WordNumbers, Ragged, Ragged]:
    """A vocabulary, and the numbers of the pairs that have words on both sides."""
    both = [(cut(source), cut(target)) for source, target in pairs]
    both = [(source, target) for source, target in both if source and target]
    if not both:
        problem = f"{len(pairs):,} pairs, none with words on both sides"
        raise DataError("counting the words of sentence pairs", problem, "one or more")
    sources, source_rows = number_side([source for source, _ in both])
    targets, target_rows = number_side([target for _, target in both])
    spelt = spelling([target for _, target in both])
    return WordNumbers(sources, [spelt[word] for word in targets]), source_rows, target_rows


def number_side(sentences: Sequence[Sequence[str]]) -> tuple[list[str], Ragged]:
    """The different words in small letters, frequent ones first, and sentences as their numbers."""
    small = [[word.lower() for word in sentence] for sentence in sentences]
    counts = Counter(chain.from_iterable(small))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    ids = {word: id for id, word in enumerate(ranked)}
    return ranked, Ragged.of([[ids[word] for word in sentence] for sentence in small])


def spelling(sentences: Sequence[Sequence[str]]) -> dict[str, str]:
    """How each word is mostly written: after the first of a sentence, or there if only there."""
    later = Counter(chain.from_iterable(sentence[1:] for sentence in sentences))
    first = Counter(sentence[0] for sentence in sentences)
    written: dict[str, str] = {}
    for counts in (first, later):  # what is seen later counts more
        written |= {w.lower(): w for w in sorted(counts, key=lambda w: (counts[w], w))}
    return written


# Translating --------------------------------------------------------------------------------------


class TranslatedSentence(NamedTuple):
    """What became of one sentence."""

    words: list[Chosen]
    unknown: list[str]
    """Source words that were never seen; they are copied."""
    raised: bool
    """Whether the source begins with a capital, and so the translation."""

    @property
    def text(self) -> str:
        """One line, with blanks between words and marks."""
        line = " ".join(word.text for word in self.words if word.text)
        return line[:1].upper() + line[1:] if self.raised else line


@dataclass(frozen=True, repr=False)
class WordTranslator:
    """A model with its vocabulary."""

    kind: str
    model: BagModel | WordByWord
    words: WordNumbers
    path: Path | None = None
    """Where it was opened from."""

    def __repr__(self) -> str:
        sizes = f"{len(self.words.sources):,} to {len(self.words.targets):,} words"
        return f"<translator by {self.kind}, {sizes}>"

    def translate(self, text: str) -> TranslatedSentence:
        """The translation of a sentence."""
        sentence = cut(text)
        ids: Ids = self.words.encode(sentence)
        chosen = self.model.choose(sentence, ids, self.words.targets) if sentence else []
        unknown = [word for word, id in zip(sentence, ids, strict=True) if id < 0]
        return TranslatedSentence(chosen, unknown, text[:1].isupper())

    # Folders --------------------------------------------------------------------------------------

    def save(self, folder: Path, settings: dict[str, Any]) -> None:
        """Write the folder."""
        config = {"model_type": f"regard-{self.kind}", **settings}
        write_counted(folder, config, WEIGHTS, to_arrays(self.model))
        words = {"source": self.words.sources, "target": self.words.targets}
        write_whole(folder / WORDS, json.dumps(words, ensure_ascii=False).encode())

    @classmethod
    def open(cls, folder: Path) -> WordTranslator:
        """The model in a folder, checked."""
        config = folder / "config.json"
        kind = KINDS.get(str(read_json(config).get("model_type")) if config.is_file() else "")
        if kind is None:
            expected = "a folder of `regard train bayes|logreg|ibm1`"
            raise DataError(f"opening {folder}", "no translator that counts", expected)
        words = read_json(folder / WORDS, "source and target words")
        arrays = read_arrays(folder / WEIGHTS)
        with expecting(f"reading {folder / WEIGHTS}", f"weights of {kind}"):
            known = WordNumbers(list(words["source"]), list(words["target"]))
            model = from_arrays(kind, arrays, known)
        return cls(kind, model, known, folder)


def to_arrays(model: BagModel | WordByWord) -> Arrays:
    """A model as named arrays; real numbers in float32."""
    if isinstance(model, WordByWord):
        rows, arrays = model.table, {"silent": model.silent}
    else:
        rows, arrays = model.rows, {"base": model.base, "each": model.each}
        arrays |= {name: getattr(model.classes, name) for name in Classes.__annotations__}
    arrays |= {name: getattr(rows, name) for name in Sparse.__annotations__}
    small = {"f": np.float32, "i": np.int32}
    return {name: np.ascontiguousarray(a, small[a.dtype.kind]) for name, a in arrays.items()}


def from_arrays(kind: str, arrays: Arrays, words: WordNumbers) -> BagModel | WordByWord:
    """A model from named arrays that fit each other and the vocabulary."""

    def real(name: str, size: int) -> np.ndarray:
        array = arrays[name].astype(np.float64)
        if array.shape != (size,):
            raise ValueError(f"{name} does not fit")
        return array

    cells, sources, targets = arrays["columns"].size, len(words.sources), len(words.targets)
    count = targets if kind == "ibm1" else arrays["word"].size
    bounds = take_ids(arrays, "bounds", sources + 1, cells + 1)
    columns = take_ids(arrays, "columns", cells, count).astype(np.int32)
    rows = Sparse(bounds, columns, real("values", cells))
    if kind == "ibm1":
        return WordByWord(rows, real("silent", sources))
    word, seen = take_ids(arrays, "word", count, targets), take_ids(arrays, "seen", count, 1 << 31)
    classes = Classes(word, seen, real("place", count), arrays["lengths"].astype(np.float64))
    return BagModel(classes, real("base", count), real("each", count), rows)


# Training -----------------------------------------------------------------------------------------

DOING = "training a translator that counts words"


def train_translator(
    kind: str, files: Sequence[str | Path], out: Path, **settings: Any
) -> TranslatorRun:
    """Count or fit on sentence pairs, and write a folder."""
    check_new(out, DOING)
    began = time.perf_counter()
    pairs = list(track(all_pairs(files), "reading pairs"))
    if not pairs:
        raise DataError(DOING, f"no pairs in {', '.join(map(str, files))}", "one or more")
    numbers, sources, targets = number_words(pairs)
    heard, said = len(numbers.sources), len(numbers.targets)
    model: BagModel | WordByWord
    if kind == "bayes":
        model = train_bayes(sources, targets, heard, **settings)
    elif kind == "logreg":
        model = train_logreg(sources, targets, heard, **settings)
    else:
        model = train_words(sources, targets, (heard, said), **settings)
    WordTranslator(kind, model, numbers).save(out, settings)
    classes = once = None
    if isinstance(model, BagModel):
        rare = np.flatnonzero(model.classes.seen == 1)
        classes, once = len(model.classes.word), len(rare)
        if once:
            first = numbers.targets[model.classes.word[rare[0]]]
            note(f"warning: {once:,} classes were seen once, such as {first!r}; kept")
    counted = len(sources.bounds) - 1
    return TranslatorRun(
        str(out),
        counted,
        len(pairs) - counted,
        heard,
        said,
        classes,
        once,
        len((model.rows if isinstance(model, BagModel) else model.table).values),
        round(time.perf_counter() - began, 2),
    )
