"""An n-gram model of text: tables (`ngram.py`) with a tokenizer, in a folder or an ARPA file."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from tokenizers import Tokenizer as Rust
from tokenizers import models, pre_tokenizers

from regard.data.text_files import read_lines
from regard.errors import DataError, UsageError
from regard.files import read_json, read_shapes, write_whole
from regard.history.arpa import read_arpa, write_arpa
from regard.history.class_ngrams import ClassNgrams
from regard.history.ngrams import Floats, Ids, Level, Ngrams
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.tokenizer_folder import open_tokenizer

KIND = "regard-ngram"
WEIGHTS = "model.safetensors"
PARTS = ("context", "word", "logprob", "backoff", "count")
TOGETHER = 1 << 16  # texts that are cut into tokens at once


@dataclass(frozen=True)
class NgramModel:
    """Tables, the tokenizer of their ids, and whether lines are sentences or one running text."""

    tables: Ngrams | ClassNgrams
    tokenizer: Tokenizer
    smoothing: str = ""
    """How it was made."""

    @property
    def lines(self) -> bool:
        """Whether each line is a sentence with a beginning and an end."""
        return self.tables.start is not None

    def encode(self, texts: Iterable[str]) -> Iterator[Ids]:
        """The ids of lines, many at a time; a sentence's with its beginning and end."""
        return encode_lines(self.tokenizer, texts, self.lines)

    def logprobs(self, texts: Iterable[str]) -> Iterator[Floats]:
        """log p of each token after those before it: of lines that are sentences, line by line.

        In a running text the last words of one batch of lines go before the next.
        """
        held = np.zeros(0, np.int64)
        for ids in self.encode(texts):
            whole = np.concatenate((held, ids))
            found = self.tables.logprobs(whole)[len(held) :]
            yield found[~np.isnan(found)] if self.lines else found
            keep = 0 if self.lines else self.tables.order - 1
            held = whole[max(0, len(whole) - keep) :]

    # Folders --------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write config.json, model.safetensors and the tokenizer."""
        folder.mkdir(parents=True, exist_ok=True)
        tables = self.tables
        inner = tables.model if isinstance(tables, ClassNgrams) else tables
        arrays = {
            f"{n}.{part}": np.ascontiguousarray(getattr(level, part))
            for n, level in enumerate(tables.levels, 1)
            for part in PARTS
        }
        if isinstance(tables, ClassNgrams):
            arrays |= {"classes": tables.classes, "emission": tables.emission}
        small = {name: shrink(array) for name, array in arrays.items()}
        config = {
            "model_type": KIND,
            "order": tables.order,
            "vocab": tables.vocab,
            "start": tables.start,
            "base": None if np.isinf(inner.base) else inner.base,
            "smoothing": self.smoothing,
            **({} if inner is tables else {"classes": inner.vocab}),
        }
        self.tokenizer.save(folder)
        write_whole(folder / WEIGHTS, save(small))
        write_whole(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())

    @classmethod
    def open(cls, path: Path) -> NgramModel:
        """The model in a folder, or in an ARPA file."""
        if path.is_file():
            tables, words = read_arpa(read_lines(path), path)
            return cls(tables, tokenizer_of(words, path), "as the file says")
        if not (path / "config.json").is_file():
            found = "no config.json there" if path.is_dir() else "no such file or folder"
            expected = "a folder of `regard train ngram`, or an ARPA file"
            raise DataError(f"opening {path}", found, expected)
        config = read_json(path / "config.json", "the settings of an n-gram model")
        if config.get("model_type") != KIND:
            raise DataError(
                f"opening {path}", "no n-gram model", "a folder of `regard train ngram`"
            )
        tokenizer = open_tokenizer(path)
        if tokenizer is None:
            raise DataError(f"opening {path}", "no tokenizer.json", "the tokenizer of the model")
        return cls(read_tables(path, config), tokenizer, config.get("smoothing", ""))

    @property
    def cut_at_blanks(self) -> bool:
        """Whether its tokens are what stands between blanks, as ARPA files mean it."""
        rust = getattr(self.tokenizer.engine, "rust", None)
        return self.lines and isinstance(
            getattr(rust, "pre_tokenizer", None), pre_tokenizers.WhitespaceSplit
        )

    def write_arpa(self, path: Path) -> None:
        """Write an ARPA file; control tokens as it is custom there."""
        if isinstance(self.tables, ClassNgrams):
            found = "n-grams of classes, for which ARPA files have no place"
            raise UsageError(
                "writing an ARPA file", found, "n-grams of words (`regard train ngram`)"
            )
        known = {self.tokenizer.specials.get(role): spelt for role, spelt in USUAL.items()}

        def spell(id: int) -> str:
            word = known.get(id) or self.tokenizer.engine.piece(id, "source") or f"<id{id}>"
            return re.sub(r"\s", "▁", word.translate(BLANKS))

        spelt = Counter(map(spell, range(self.tables.vocab)))
        if (again := spelt.most_common(1)) and again[0][1] > 1:
            raise DataError(f"writing {path}", f"{again[0][0]!r} for two tokens", "one for each")
        with path.open("w", encoding="utf-8") as file:
            write_arpa(self.tables, spell, file)


BLANKS = {ord("\n"): "⏎", ord("\r"): "␍", ord("\t"): "⇥"}
"""Characters that ARPA files cannot hold, beside the blank."""
USUAL = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
"""Control tokens in ARPA files."""


def encode_lines(tokenizer: Tokenizer, texts: Iterable[str], lines: bool) -> Iterator[Ids]:
    """The ids of lines, many at a time; blank lines are no sentences."""
    rest = iter(texts)
    while batch := list(islice(rest, TOGETHER)):
        if lines:
            batch = [text for text in batch if text.strip()]
        rows = tokenizer.encode_batch(batch, special=lines)
        yield np.fromiter(chain.from_iterable(rows), np.int64)


def joined(parts: Iterable[Ids]) -> Ids:
    """Arrays as one; none is an empty one."""
    return np.concatenate([np.zeros(0, np.int64), *parts])


def read_tables(folder: Path, config: dict[str, Any]) -> Ngrams | ClassNgrams:
    """The arrays of a folder, checked."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise DataError(f"opening {folder}", f"no {WEIGHTS}", "the tables of the model")
    read_shapes(path)  # which says that a file was cut
    try:
        order, vocab, start = (read_whole(config, name) for name in ("order", "vocab", "start"))
        base = -np.inf if config.get("base") is None else float(config["base"])
        classes = read_whole(config, "classes")
        arrays = load_file(path)
        if order is None or vocab is None:
            raise ValueError("no order or no vocab in config.json")
        levels = [read_level(arrays, n, order) for n in range(1, order + 1)]
        return join_levels(levels, vocab, classes, start, base, arrays)
    except (KeyError, ValueError, TypeError, IndexError, SafetensorError) as error:
        found = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"reading {path}", found, "tables of an n-gram model") from None


def read_whole(config: dict[str, Any], name: str) -> int | None:
    """A whole number of config.json, None where it is left open."""
    value = config.get(name)
    if value is None or (type(value) is int and value >= 0):
        return value
    raise ValueError(f"{name} = {value!r} in config.json")


def read_level(arrays: dict[str, np.ndarray], n: int, order: int) -> Level:
    """The n-grams of one length."""
    context, word, logprob, backoff, count = (arrays[f"{n}.{part}"] for part in PARTS)
    context, word, count = (part.astype(np.int64) for part in (context, word, count))
    below = len(arrays[f"{n - 1}.word"]) if n > 1 else 1
    sizes = {part.shape for part in (context, word, logprob, backoff, count)}
    if len(sizes) > 1 or context.ndim != 1 or not in_range(context, below):
        raise ValueError(f"level {n} of {order} does not fit")
    return Level(context, word, logprob, backoff, count)


def in_range(ids: Ids, size: int) -> bool:
    """Whether all ids are from 0 to below a size."""
    return not len(ids) or bool(0 <= ids.min() <= ids.max() < size)


def join_levels(
    levels: list[Level],
    vocab: int,
    classes: int | None,
    start: int | None,
    base: float,
    arrays: dict[str, np.ndarray],
) -> Ngrams | ClassNgrams:
    """The levels as a model of words, or of classes where there are some."""
    size, what = (vocab, "words") if classes is None else (classes, "classes")
    if not levels or len(levels[0]) != size or not all(in_range(x.word, size) for x in levels):
        found = len(levels[0]) if levels else 0
        raise ValueError(f"{found:,} single {what}, {size:,} in config.json")
    if start is not None and start >= vocab:
        raise ValueError(f"start = {start} in config.json, of {vocab:,} words")
    if classes is None:
        return Ngrams(vocab, tuple(levels), start, base)
    own, emission = arrays["classes"].astype(np.int64), arrays["emission"]
    if not own.shape == emission.shape == (vocab,) or not in_range(own, classes):
        raise ValueError(f"classes that do not fit {vocab:,} words")
    inner = Ngrams(classes, tuple(levels), None if start is None else int(own[start]), base)
    return ClassNgrams(own, inner, emission, start)


def shrink(array: np.ndarray) -> np.ndarray:
    """Whole numbers in 32 bits where they fit."""
    whole = array.dtype.kind == "i" and (not len(array) or array.max() < 1 << 31)
    return array.astype(np.int32) if whole else array


def tokenizer_of(words: Sequence[str], path: Path) -> Tokenizer:
    """A tokenizer that knows the words of an ARPA file, cut at blanks."""
    ids = {word: id for id, word in enumerate(words)}
    if "<unk>" not in ids:
        raise DataError(f"reading {path}", "no word <unk>", "one that stands for unknown words")
    rust = Rust(models.WordLevel(ids, unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    specials = {role: ids[spelt] for role, spelt in USUAL.items() if spelt in ids}
    rust.add_special_tokens([spelt for role, spelt in USUAL.items() if spelt in ids])
    if "bos" in specials and "eos" in specials:
        from regard.tokens.trainers import wrap_texts

        wrap_texts(rust, "bos-eos", USUAL, specials)
    return Tokenizer.from_rust(rust, specials)
