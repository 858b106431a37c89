"""An n-gram model of text: tables (`ngrams.py`) with a tokenizer, in a folder or an ARPA file."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer as Rust
from tokenizers import models, pre_tokenizers

from regard.ambient import current, note, track
from regard.data.statistics import perplexity
from regard.data.text_files import Paths, find_files, naming, read_lines, read_parts
from regard.errors import DataError, ResourceError, UsageError, expecting
from regard.files import (
    check_new,
    file_hash,
    read_arrays,
    read_json,
    take_ids,
    write_counted,
)
from regard.heap import free_memory
from regard.history.arpa import read_arpa, write_arpa
from regard.history.class_ngrams import ClassNgrams, train_class_ngrams
from regard.history.clusters import brown_classes
from regard.history.config import Smoothing
from regard.history.ibm1 import runs
from regard.history.ngrams import Counts, Floats, Ids, Level, Ngrams
from regard.history.results import NgramRun, Sample, Samples
from regard.history.smoothing import smooth, train_ngrams
from regard.result import human_bytes
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.tokenizer_folder import open_tokenizer
from regard.tokens.trainers import KINDS, train_tokenizer
from regard.tokens.vocabulary_files import surround

KIND = "regard-ngram"
WEIGHTS = "model.safetensors"
PARTS = ("context", "word", "logprob", "backoff", "count")
TOGETHER = 1 << 16  # texts that are cut into tokens at once
DOING = "training an n-gram model"
MOST_CLASSES = 100  # unless asked for: their search takes words × classes²
EACH = 110  # bytes that an n-gram takes while it is counted and smoothed
RECURRING = 8  # words of n-grams that mostly recur; longer ones are nearly all different
VALIDATED = ("perplexity", "bits_per_token", "bits_per_byte", "unknown", "perplexity_known")
"""What a run says of its validation text."""
SENTENCES = ("spaced", "words", "wordpiece")
"""Kinds of tokens for which lines are sentences unless said otherwise."""
BACKED_OFF = "·"
"""Before a word that was not seen after all the words that were looked at."""


@dataclass(frozen=True, repr=False)
class NgramModel:
    """Tables, the tokenizer of their ids, and whether lines are sentences or one running text."""

    tables: Ngrams | ClassNgrams
    tokenizer: Tokenizer
    smoothing: str = ""
    """How it was made."""
    path: Path | None = None
    """Where it was opened from."""

    def __repr__(self) -> str:
        what = "classes and words" if isinstance(self.tables, ClassNgrams) else "words"
        return f"<n-grams up to {self.tables.order} {what}, {self.tables.vocab:,} in all>"

    @property
    def lines(self) -> bool:
        """Whether each line is a sentence with a beginning and an end."""
        return self.tables.start is not None

    def encode(self, texts: Iterable[str]) -> Iterator[Ids]:
        """The ids of lines, many at a time; a sentence's with its beginning and end."""
        return encode_lines(self.tokenizer, texts, self.lines)

    def logprobs(self, texts: Iterable[str]) -> Iterator[Floats]:
        """log p of each token after those before it: of lines that are sentences, line by line."""
        return (logs for _, logs in self.score_tokens(texts))

    def score_tokens(self, texts: Iterable[str]) -> Iterator[tuple[Ids, Floats]]:
        """Tokens and their log p; in a running text batches of lines go before the next."""
        held = np.zeros(0, np.int64)
        for ids in self.encode(texts):
            whole = np.concatenate((held, ids))
            logs = self.tables.logprobs(whole)[len(held) :]
            there = ids != (self.tables.start if self.lines else -1)
            yield ids[there], logs[there]
            keep = 0 if self.lines else self.tables.order - 1
            held = whole[max(0, len(whole) - keep) :]

    def measure(self, files: Paths) -> TextLikelihood:
        """What the model says of texts."""
        read = list(read_lines(files) if self.lines else read_parts(files))
        scored = list(self.score_tokens(read))
        logs = np.concatenate([np.zeros(0), *(logs for _, logs in scored)])
        known = joined(ids for ids, _ in scored) != self.tokenizer.specials.get("unk", -1)
        if not len(logs):
            names = ", ".join(map(str, find_files(files)))
            raise DataError("evaluating a language model", f"no tokens in {names}", "1 or more")
        size = sum(len(line.encode()) + self.lines for line in read)  # the end is its line feed
        return TextLikelihood(
            float(logs.sum()),
            len(logs),
            size,
            float(logs[known].sum()),
            int((~known).sum()),
            0 if known.all() else sum(spelt_bytes(self.tokenizer, text) for text in read),
            int(np.isneginf(logs).sum()),
        )

    def at_order(self, order: int) -> Ngrams | ClassNgrams:
        """The tables of shorter n-grams, smoothed anew where counts are known: ARPA has none."""
        tables, way = self.tables, self.smoothing.split()

        def shorten(whole: Ngrams) -> Ngrams:
            if order >= whole.order or not whole.levels[0].count.any():
                return Ngrams(whole.vocab, whole.levels[:order], whole.start, whole.base)
            counts = [
                Counts(level.context, level.word, suffix, level.count)
                for level, suffix in zip(whole.levels[:order], whole.suffixes, strict=False)
            ]
            k = float(way[1]) if len(way) > 1 else 1.0
            return smooth(counts, whole.vocab, way[0], k, whole.start)  # type: ignore[arg-type]

        if isinstance(tables, ClassNgrams):
            return replace(tables, model=shorten(tables.model), words=shorten(tables.words))
        return shorten(tables)

    def sample(self, order: int, count: int, prompt: str | None = None) -> Sample:
        """A text of so many words by the probabilities of one order; sentences follow each other.

        After a context that was never seen, n-grams with k added know nothing: fewer words are
        looked at then.
        """
        tokenizer = self.tokenizer
        end = tokenizer.specials.get("eos") if self.lines else None
        first = 1 if self.smoothing.startswith("add") else order
        models = [NgramPredictor(self.at_order(n), end) for n in range(first, order + 1)]
        before = tokenizer.encode(prompt, special=False) if prompt else []
        for model in models:
            model.start(1)
            for id in before:
                model.read(np.array([id]))
        length, ids, marks = self.lines + len(before), list[int](), list[bool]()
        for chance in np.random.default_rng(current().seed % (1 << 64)).random(count):
            ready = [model for model in models if not model.ends or model.ends[-1][0] >= 0]
            sums = np.cumsum((ready or models)[-1].predict()[0])
            word = np.searchsorted(sums, chance * sums[-1], "right").reshape(1)
            marks.append(not models[-1].saw(min(order, length + 1), word))
            ids.append(int(word[0]))
            for model in models:
                model.read(word)
            length = 1 if ids[-1] == end else length + 1
        pieces = [tokenizer.decode([id]) if id != end else "." for id in ids]
        marked = (BACKED_OFF * mark + piece for piece, mark in zip(pieces, marks, strict=True))
        text = tokenizer.decode([id for id in ids if id != end])
        return Sample(order, text, (" " if self.lines else "").join(marked), ids, sum(marks))

    # Folders --------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write config.json, model.safetensors and the tokenizer."""
        tables = self.tables
        config = {
            "model_type": KIND,
            "vocab": tables.vocab,
            "start": tables.start,
            "smoothing": self.smoothing,
        }
        if isinstance(tables, ClassNgrams):
            arrays = to_arrays(tables.words, "words.") | to_arrays(tables.model, "classes.")
            arrays |= {"classes": tables.classes, "emission": tables.emission}
            config |= {"classes": tables.model.vocab, "share": tables.share}
        else:
            arrays = to_arrays(tables, "words.")
        small = {name: shrink(array) for name, array in arrays.items()}
        self.tokenizer.save(folder)
        write_counted(folder, config, WEIGHTS, small)

    @classmethod
    def open(cls, path: Path) -> NgramModel:
        """The model in a folder, or in an ARPA file."""
        if path.is_file():
            listed, words = read_arpa(read_lines(path), path)
            return cls(listed, tokenizer_of(words), "as the file says", path)
        if not (path / "config.json").is_file():
            problem = "no config.json there" if path.is_dir() else "no such file or folder"
            expected = "a folder of `regard train ngram`, or an ARPA file"
            raise DataError(f"opening {path}", problem, expected)
        config = read_json(path / "config.json", "the settings of an n-gram model")
        if config.get("model_type") != KIND:
            expected = "a folder of `regard train ngram`"
            raise DataError(f"opening {path}", "no n-gram model", expected)
        tokenizer = open_tokenizer(path)
        if tokenizer is None:
            raise DataError(f"opening {path}", "no tokenizer.json", "the tokenizer of the model")
        tables = read_tables(path / WEIGHTS, config)
        return cls(tables, tokenizer, config.get("smoothing", ""), path)

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
            problem = "n-grams of classes, for which ARPA files have no place"
            expected = "n-grams of words (`regard train ngram`)"
            raise UsageError("writing an ARPA file", problem, expected)
        known = {self.tokenizer.specials.get(role): spelt for role, spelt in USUAL.items()}

        def spell(id: int) -> str:
            word = known.get(id) or self.tokenizer.engine.piece(id, "source") or f"<id{id}>"
            return re.sub(r"\s", "▁", word.translate(BLANKS))

        spelt = Counter(map(spell, range(self.tables.vocab)))
        if (again := spelt.most_common(1)) and again[0][1] > 1:
            raise DataError(f"writing {path}", f"{again[0][0]!r} for two tokens", "one for each")
        with path.open("w", encoding="utf-8") as file:
            write_arpa(self.tables, spell, file)


class NgramPredictor:
    """What comes next in rows that are read side by side, by n-grams of words or of classes.

    After `end` a sentence begins.
    """

    def __init__(self, tables: Ngrams | ClassNgrams, end: int | None = None) -> None:
        self.vocab, self.mixed = tables.vocab, None
        if isinstance(tables, ClassNgrams):
            self.mixed, self.words = tables, NgramPredictor(tables.words, end)
            end = None if end is None else int(tables.classes[end])
            tables = tables.model
        self.tables, self.end = tables, end
        first = tables.levels[0].logprob
        self.single = np.where(np.isnan(first), tables.base, first)  # (V,)
        if tables.start is not None:
            self.single[tables.start] = -np.inf
        lengths = zip(tables.levels, tables.levels[1:], strict=False)
        self.after = [  # where in a level the n-grams of each context stand
            np.searchsorted(longer.context, np.arange(len(level) + 1)) for level, longer in lengths
        ]

    def start(self, rows: int) -> None:
        """Begin with nothing read, or at the start of a sentence."""
        self.ends = [np.full(rows, -1) for _ in self.after]  # the n-gram that ends here, by length
        if self.tables.start is not None and self.ends:
            self.ends[0][:] = self.tables.start
        self.rows = rows
        if self.mixed is not None:
            self.words.start(rows)

    def predict(self) -> Floats:
        """Probabilities (N, V) of what comes next in each row."""
        total = np.tile(self.single, (self.rows, 1))
        for n, (place, after) in enumerate(zip(self.ends, self.after, strict=True)):
            rows = np.flatnonzero(place >= 0)
            total[rows] += self.tables.levels[n].backoff[place[rows], None]
            sizes = after[place[rows] + 1] - after[place[rows]]
            row, at = np.repeat(rows, sizes), runs(after[place[rows]], sizes)
            own = self.tables.levels[n + 1].logprob[at]
            kept = ~np.isnan(own)
            total[row[kept], self.tables.levels[n + 1].word[at[kept]]] = own[kept]
        if self.tables.start is not None:
            total[:, self.tables.start] = -np.inf
        p: Floats = np.exp(total)
        if self.mixed is None:
            return p
        p = p[:, self.mixed.classes] * np.exp(self.mixed.emission)
        return self.mixed.share * p + (1 - self.mixed.share) * self.words.predict()

    def read(self, words: Ids) -> None:
        """Find the n-grams that end with these words."""
        if self.mixed is not None:
            self.words.read(words)
            words = self.mixed.classes[words]
        before, self.ends = self.ends, [words, *self.ends[1:]][: len(self.after)]
        for n in range(1, len(self.ends)):
            self.ends[n] = self.tables.find(n, before[n - 1], words)
        if self.end is not None and self.tables.start is not None and self.ends:
            ended = words == self.end
            for place in self.ends[1:]:
                place[ended] = -1
            self.ends[0] = np.where(ended, self.tables.start, words)

    def saw(self, n: int, words: Ids) -> bool:
        """Whether the n − 1 words read last were followed by these in the training text."""
        if self.mixed is not None:
            return self.words.saw(n, words)
        return n == 1 or bool(self.tables.find(n - 1, self.ends[n - 2], words) >= 0)


class TextLikelihood(NamedTuple):
    """What a model says of a text."""

    logprob: float
    """Of all tokens together, in nats."""
    tokens: int
    bytes: int
    known_logprob: float
    """Of the tokens that are known words."""
    unknown: int = 0
    """Tokens that stand for words the model does not know."""
    spelt: int = 0
    """Bytes that spell those words, with one that ends each."""
    impossible: int = 0
    """Tokens of probability 0."""

    @property
    def perplexity(self) -> float:
        """With unknown words as one word of the vocabulary."""
        return perplexity(-self.logprob / self.tokens)

    @property
    def perplexity_known(self) -> float | None:
        """Without unknown words, as KenLM gives it too; None where nothing is known."""
        known = self.tokens - self.unknown
        return perplexity(-self.known_logprob / known) if known else None

    @property
    def bits_per_token(self) -> float:
        """The logarithm of the perplexity."""
        return -self.logprob / self.tokens / math.log(2)

    @property
    def bits_per_byte(self) -> float:
        """With unknown words spelt out, 8 bits a byte: a code of the text by any vocabulary."""
        return (-self.logprob / math.log(2) + 8 * self.spelt) / self.bytes


def spelt_bytes(tokenizer: Tokenizer, text: str) -> int:
    """The bytes of words that a tokenizer does not know, with one more that ends each."""
    unknown = tokenizer.specials.get("unk")
    if unknown is None:
        return 0
    ids = tokenizer.encode(text, special=False)
    spans = zip(ids, tokenizer.offsets(text, special=False), strict=True)
    return sum(len(text[slice(*span)].encode()) + 1 for id, span in spans if id == unknown)


def draw_samples(
    model: NgramModel, prompt: str | None, orders: Sequence[int] | None, words: int
) -> Samples:
    """A text for each order, from the same random numbers (Shannon 1948)."""
    most = model.tables.order
    for order in orders or ():
        if not 1 <= order <= most:
            raise UsageError("drawing texts", f"order {order}", f"1 to {most}")
    return Samples([model.sample(order, words, prompt) for order in orders or range(1, most + 1)])


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


def to_arrays(tables: Ngrams, prefix: str) -> dict[str, np.ndarray]:
    """Tables as named arrays."""
    arrays = {
        f"{prefix}{n}.{part}": np.ascontiguousarray(getattr(level, part))
        for n, level in enumerate(tables.levels, 1)
        for part in PARTS
    }
    return arrays | {f"{prefix}base": np.array([tables.base])}


def read_tables(path: Path, config: dict[str, Any]) -> Ngrams | ClassNgrams:
    """The tables of a file, whose arrays fit each other and config.json."""
    arrays = read_arrays(path)

    def read(prefix: str, vocab: int, start: int | None) -> Ngrams:
        levels, below = list[Level](), 1
        while f"{prefix}{len(levels) + 1}.word" in arrays or not levels:
            name = f"{prefix}{len(levels) + 1}"
            _, _, logprob, backoff, count = (arrays[f"{name}.{part}"] for part in PARTS)
            size = len(logprob) if levels else vocab
            context = take_ids(arrays, f"{name}.context", size, below)
            word = take_ids(arrays, f"{name}.word", size, vocab)
            if not logprob.shape == backoff.shape == count.shape == (size,):
                raise ValueError(f"{name} does not fit")
            levels.append(Level(context, word, logprob, backoff, count.astype(np.int64)))
            below = size
        if start is not None and not 0 <= start < vocab:
            raise ValueError(f"start = {start} in config.json")
        return Ngrams(vocab, tuple(levels), start, float(arrays[f"{prefix}base"][0]))

    with expecting(f"reading {path}", "tables of an n-gram model"):
        words = read("words.", config["vocab"], config["start"])
        kinds = config.get("classes")
        if kinds is None:
            return words
        own = take_ids(arrays, "classes", words.vocab, kinds)
        model = read("classes.", kinds, None if words.start is None else int(own[words.start]))
        return ClassNgrams(own, model, arrays["emission"], words, float(config["share"]))


def shrink(array: np.ndarray) -> np.ndarray:
    """Whole numbers in 32 bits where they fit."""
    whole = array.dtype.kind == "i" and (not len(array) or array.max() < 1 << 31)
    return array.astype(np.int32) if whole else array


def tokenizer_of(words: Sequence[str]) -> Tokenizer:
    """A tokenizer that knows the words of an ARPA file, cut at blanks."""
    ids = {word: id for id, word in enumerate(words)}
    rust = Rust(models.WordLevel(ids, unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    specials = {role: ids[spelt] for role, spelt in USUAL.items() if spelt in ids}
    rust.add_special_tokens([spelt for role, spelt in USUAL.items() if spelt in ids])
    if "bos" in specials and "eos" in specials:
        surround(rust, specials["bos"], specials["eos"])
    return Tokenizer.from_rust(rust, specials)


# Training -----------------------------------------------------------------------------------------


class NgramConfig(NamedTuple):
    """How texts become tokens, how long their n-grams are, and how they are smoothed."""

    tokens: str = "spaced"
    """A kind of tokenizer that is learnt from the texts, or a folder with one."""
    vocab: int | None = None
    min_count: int = 1
    lines: bool | None = None
    """Whether each line is a sentence; None: where tokens are words."""
    order: int = 5
    smoothing: Smoothing = "kneser-ney"
    k: float = 1.0
    classes: int | None = 0
    """Of words, by Brown's way; 0 counts words, None is as many as the root of their number."""
    share: float = 1.0
    """Of the probability that comes from classes."""


def train_from_files(files: Paths, out: Path, config: NgramConfig, valid: Paths = ()) -> NgramRun:
    """Count n-grams of texts, smooth them and write a folder."""
    check_new(out, DOING)
    paths, held_out = find_files(files), find_files(valid)  # which says that one is not there
    began = time.perf_counter()
    model, count = count_texts(paths, config)
    seconds = time.perf_counter() - began
    measured = model.measure(held_out) if held_out else None  # what fails leaves no folder
    began = time.perf_counter()
    model.save(out)
    tables = model.tables
    seconds += time.perf_counter() - began
    if tables.order < config.order:
        note(f"order {tables.order} instead of {config.order}: no longer run is in the text")
    hashes = {file_hash(file) for file in paths} if held_out else set()
    if same := next((file for file in held_out if file_hash(file) in hashes), None):
        note(f"warning: {same} is validated on and trained on: its perplexity is no measure")
    return NgramRun(
        str(out),
        count,
        tables.vocab,
        tables.model.vocab if isinstance(tables, ClassNgrams) else None,
        tables.sizes,
        model.smoothing,
        round(seconds, 2),
        **({} if measured is None else {n: getattr(measured, n) for n in VALIDATED}),
    )


def count_texts(files: Sequence[Path], config: NgramConfig) -> tuple[NgramModel, int]:
    """The model, and how many tokens it was counted on."""
    tokenizer, lines = find_tokenizer(files, config)
    texts = track((read_lines if lines else read_parts)(files), "reading")
    ids = joined(encode_lines(tokenizer, texts, lines))
    if not len(ids):
        raise DataError(DOING, f"no words in {', '.join(map(str, files))}", "at least one")
    start = tokenizer.specials["bos"] if lines else None
    check_room(ids, start, config.order)
    how = (config.order, config.smoothing, config.k, start)
    tables: Ngrams | ClassNgrams
    if config.classes == 0:
        tables = train_ngrams(ids, tokenizer.size, *how)
    else:  # what begins and ends sentences is apart
        apart = [id for role, id in tokenizer.specials.items() if role in ("bos", "eos")]
        kinds = len(np.setdiff1d(ids, apart))
        count = config.classes or min(MOST_CLASSES, max(1, math.isqrt(kinds)))
        classes = brown_classes(ids, tokenizer.size, count, apart)
        tables = train_class_ngrams(ids, classes, *how, config.share)
    way = f"add {config.k}" if config.smoothing == "add" else config.smoothing
    return NgramModel(tables, tokenizer, way), len(ids)


def check_room(ids: Ids, start: int | None, order: int) -> None:
    """Refuse an order whose long n-grams, were all of them different, would not fit into memory."""
    begins = np.flatnonzero(ids == start) if start is not None else np.zeros(0, np.int64)
    lengths = np.diff(np.unique(np.concatenate(([0], begins, [len(ids)]))))
    long = np.maximum(np.minimum(lengths, order) - RECURRING, 0)
    needed = int((lengths * long).sum()) * EACH
    free = free_memory()
    if free is not None and needed > free:
        most = RECURRING + free // (len(ids) * EACH)
        problem = f"--order {order:,}: up to {human_bytes(needed)} for {len(ids):,} tokens"
        expected = f"at most {human_bytes(free)}, what is free"
        raise ResourceError(DOING, problem, expected, f"--order {most:,} fits")


def find_tokenizer(files: Sequence[Path], asked: NgramConfig) -> tuple[Tokenizer, bool]:
    """The tokenizer asked for, learnt or opened, and whether lines are sentences."""
    lines = asked.tokens in SENTENCES if asked.lines is None else asked.lines
    if asked.tokens in KINDS:
        wrap, roles = ("bos-eos", ["bos", "eos"]) if lines else ("none", [])
        settings: dict[str, Any] = {"specials": roles, "min_count": asked.min_count, "wrap": wrap}
        with naming(files, "training a tokenizer"):
            return train_tokenizer(read_parts(files), asked.tokens, asked.vocab, **settings), lines
    tokenizer = open_tokenizer(asked.tokens) if Path(asked.tokens).is_dir() else None
    if tokenizer is None:
        expected = f"one of {', '.join(KINDS)}, or a folder with a tokenizer"
        raise UsageError(DOING, f"--tokens {asked.tokens}", expected)
    if lines and not {"bos", "eos"} <= set(tokenizer.specials):
        fix = "--no-lines"
        raise UsageError(DOING, f"{asked.tokens} has no bos and eos", "them, for lines", fix)
    return tokenizer, lines
