"""Translators that count words, in folders: naive Bayes, logistic regression, IBM model 1.

A folder has config.json (`model_type`), model.safetensors and vocabulary.json. Each model says what
could stand at each place (a slot); here the best translations are put together from that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from regard.errors import DataError
from regard.files import read_json, write_whole
from regard.history.bag import BagModel, Classes, Slot, Sparse
from regard.history.ibm1 import Ids
from regard.history.vocabulary import Vocabulary, cut
from regard.history.word_by_word import WordByWord

WEIGHTS, WORDS = "model.safetensors", "vocabulary.json"
KINDS = {f"regard-{kind}": kind for kind in ("bayes", "logreg", "ibm1")}
"""Values of `model_type`."""
Arrays = dict[str, np.ndarray]


class Guess(NamedTuple):
    """One translation: the word of each slot and its log-probability."""

    words: tuple[str, ...]
    logprob: float


class Sentence(NamedTuple):
    """What became of one sentence."""

    slots: list[Slot]
    best: list[Guess]
    unknown: list[str]
    """Source words that were never seen; they are copied."""
    raised: bool
    """Whether the source begins with a capital, and so the translation."""

    def text(self, words: tuple[str, ...]) -> str:
        """Words as a line, with blanks between words and marks."""
        line = " ".join(word for word in words if word)
        return line[:1].upper() + line[1:] if self.raised else line


@dataclass(frozen=True)
class Counting:
    """A model with its vocabulary."""

    kind: str
    model: BagModel | WordByWord
    words: Vocabulary

    def translate(self, text: str, count: int = 1) -> Sentence:
        """The best translations of a sentence, at most so many."""
        sentence = cut(text)
        ids: Ids = self.words.encode(sentence)
        slots = self.model.slots(sentence, ids, self.words.targets) if sentence else []
        unknown = [word for word, id in zip(sentence, ids, strict=True) if id < 0]
        return Sentence(slots, likeliest(slots, count), unknown, text[:1].isupper())

    # Folders --------------------------------------------------------------------------------------

    def save(self, folder: Path, settings: dict[str, Any]) -> None:
        """Write the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        words = {"source": self.words.sources, "target": self.words.targets}
        write_whole(folder / WORDS, json.dumps(words, ensure_ascii=False).encode())
        write_whole(folder / WEIGHTS, save(to_arrays(self.model)))
        config = {"model_type": f"regard-{self.kind}", **settings}
        write_whole(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())

    @classmethod
    def open(cls, folder: Path) -> Counting:
        """The model in a folder, checked."""
        kind = counting_kind(folder)
        if kind is None:
            expected = "a folder of `regard train bayes|logreg|ibm1`"
            raise DataError(f"opening {folder}", "no translator that counts", expected)
        path, words = folder / WEIGHTS, read_json(folder / WORDS, "source and target words")
        try:
            arrays = load_file(path)
            known = Vocabulary(list(words["source"]), list(words["target"]))
            model = from_arrays(kind, arrays, known)
        except FileNotFoundError:
            raise DataError(f"opening {folder}", f"no {WEIGHTS}", "the model's weights") from None
        except (KeyError, ValueError, TypeError, SafetensorError) as error:
            found = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise DataError(f"reading {path}", found, f"weights of {kind}") from None
        return cls(kind, model, known)


def counting_kind(folder: Path) -> str | None:
    """bayes, logreg or ibm1; None where a folder is none of them."""
    config = folder / "config.json"
    return KINDS.get(str(read_json(config).get("model_type"))) if config.is_file() else None


def to_arrays(model: BagModel | WordByWord) -> Arrays:
    """A model as named arrays; real numbers in float32."""
    if isinstance(model, WordByWord):
        rows, made = model.table, {"silent": model.silent}
    else:
        rows, made = model.rows, {"base": model.base, "each": model.each}
        made |= {name: getattr(model.classes, name) for name in Classes.__annotations__}
    made |= {name: getattr(rows, name) for name in Sparse.__annotations__}
    small = {"f": np.float32, "i": np.int32}
    return {name: np.ascontiguousarray(a, small[a.dtype.kind]) for name, a in made.items()}


def from_arrays(kind: str, arrays: Arrays, words: Vocabulary) -> BagModel | WordByWord:
    """A model from named arrays that fit each other and the vocabulary."""

    def whole(name: str, size: int, below: int) -> Ids:
        array = arrays[name].astype(np.int64)
        if array.shape != (size,) or (size and not 0 <= array.min() <= array.max() < below):
            raise ValueError(f"{name} does not fit")
        return array

    def real(name: str, size: int) -> np.ndarray:
        array = arrays[name].astype(np.float64)
        if array.shape != (size,) or not np.isfinite(array).all():
            raise ValueError(f"{name} does not fit")
        return array

    cells, sources = arrays["columns"].size, len(words.sources)
    bounds = whole("bounds", sources + 1, cells + 1)
    if bounds[0] != 0 or bounds[-1] != cells or (np.diff(bounds) < 0).any():
        raise ValueError("bounds do not fit")
    count = len(words.targets) if kind == "ibm1" else arrays["word"].size
    columns = whole("columns", cells, count).astype(np.int32)
    rows = Sparse(bounds, columns, real("values", cells))
    if kind == "ibm1":
        return WordByWord(rows, real("silent", sources))
    word, seen = whole("word", count, len(words.targets)), whole("seen", count, 1 << 31)
    lengths = real("lengths", arrays["lengths"].size)
    if len(lengths) < 2:
        raise ValueError("lengths do not fit")
    classes = Classes(word, seen, real("place", count), lengths)
    return BagModel(classes, real("base", count), real("each", count), rows)


# Several translations -----------------------------------------------------------------------------


def likeliest(slots: list[Slot], count: int) -> list[Guess]:
    """The choice of each slot, then the likeliest other ways; no other word is taken twice.

    Slots are independent, so that the best of the first n slots lie among the best of n - 1.
    """
    found = [Guess((), 0.0)]
    for slot in slots:
        mixed: dict[tuple[str, ...], Guess] = {}
        for guess in found:
            for n, (text, logprob) in enumerate(slot if count > 1 else slot[:1]):
                if n and text and text in guess.words:
                    continue
                longer = Guess((*guess.words, text), guess.logprob + logprob)
                mixed.setdefault(longer.words, longer)
        first, *rest = mixed.values()
        found = [first, *sorted(rest, key=lambda guess: -guess.logprob)[: count - 1]]
    return found
