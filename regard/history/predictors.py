"""Predictors: what an arithmetic coder and Shannon's guessing game know of a model.

A predictor reads several rows of a text side by side, so that each step is a few operations on
arrays: probabilities (N, V) of the next symbol of every row, then the N symbols that came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from regard.data.text_files import CHUNK, cut_at_blanks
from regard.decode.step import ModelStep
from regard.errors import DataError, UsageError
from regard.files import file_hash
from regard.history.config import Alphabet
from regard.history.letters import clean
from regard.history.ngram_model import NgramModel, NgramPredictor, encode_lines, joined
from regard.history.ngrams import Floats, Ids
from regard.model.batch import Batch
from regard.model.config import TextConfig
from regard.receipt import find_in_run, read_receipt, training_files
from regard.result import name_of
from regard.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.kit import Kit

LONGEST = 1024  # tokens that a decoder without a limit of its own looks back


class Predictor(Protocol):
    """A model that is asked for probabilities, then told what came."""

    vocab: int

    def start(self, rows: int) -> None:
        """Begin so many rows afresh."""

    def predict(self) -> Floats:
        """Probabilities (N, V) of the next symbol of each row."""

    def read(self, words: Ids) -> None:
        """The next symbol (N,) of each row."""


class StepPredictor:
    """Any model that goes on with rows of tokens: `begin(ids)` gives its step (`decode/step.py`).

    Where `room` tokens have been read it begins again with the last half of them.
    """

    def __init__(
        self,
        begin: Callable[[Tensor], Callable[[Tensor], Tensor]],
        vocab: int,
        room: int,
        first: Sequence[int] = (),
    ) -> None:
        self.begin, self.vocab, self.room, self.first = begin, vocab, room, list(first)

    def start(self, rows: int) -> None:
        """Begin with what stands before every text, or with nothing: then all is as likely."""
        self.held = torch.tensor(self.first, dtype=torch.long).repeat(rows, 1)  # (N, t)
        self.step: Callable[[Tensor], Tensor] | None = None
        self.logits: Tensor | None = None
        if self.first:
            self.restart()

    def restart(self) -> None:
        """Read all that is held."""
        self.step = self.begin(self.held)
        self.logits = self.step(self.held)

    def predict(self) -> Floats:
        """Softmax of the scores, in float64."""
        if self.logits is None:
            return np.full((len(self.held), self.vocab), 1 / self.vocab)
        return np.asarray(self.logits.double().softmax(-1).cpu().numpy())

    def read(self, words: Ids) -> None:
        """Go on with these tokens."""
        new = torch.from_numpy(np.ascontiguousarray(words))[:, None]
        self.held = torch.cat((self.held, new), 1)
        if self.step is None or self.held.shape[1] > self.room:
            self.held = self.held[:, -max(1, self.room // 2) :]
            self.restart()
        else:
            self.logits = self.step(new)


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LOW = np.uint64(32)  # bits of a cell that count; those above tell contexts apart
FINE = 16  # parts of a count
DISCOUNTS = np.array([0, 11, 18, 22])
"""Parts taken from counts of 0, 1, 2, 3 and more, for symbols not seen in a context."""
CELLS = 22  # binary digits of the most cells of a table


class Adaptive:
    """n-grams that learn as they read: counts less a discount, the rest from a shorter context.

    A symbol counts in a context only where it was new in the longer one (update exclusion, Moffat
    1990), so shorter contexts count kinds of contexts, as Kneser and Ney's do. The rows share one
    table of counts for each length of context. A cell holds a mark of its context and a count; a
    context's V cells are neighbours. All sums are of whole numbers, and the rest is one operation
    at a time: the same probabilities on every machine.
    """

    def __init__(self, vocab: int, order: int, length: int) -> None:
        self.vocab, self.order = vocab, order
        self.bits = min(CELLS, max(8, (2 * length).bit_length()))
        self.tables = np.arange(order)[:, None] * ((1 << self.bits) + vocab)  # where each begins
        self.powers = np.uint64(vocab + 1) ** np.arange(order - 1, dtype=np.uint64)[:, None]

    def start(self, rows: int) -> None:
        """Forget everything."""
        self.cells = np.zeros(self.order * ((1 << self.bits) + self.vocab), np.uint64)
        self.windows = np.lib.stride_tricks.sliding_window_view(self.cells, self.vocab)
        self.held = np.zeros((self.order - 1, rows), np.uint64)  # symbols + 1, the last one first
        self.rows = np.arange(rows)

    def predict(self) -> Floats:
        """From no context to the longest: own share, and what is left over for the shorter one."""
        context = np.zeros((self.order, len(self.rows)), np.uint64)  # (n, N): as numbers
        np.cumsum(self.held * self.powers, 0, out=context[1:])
        mixed = context * GOLDEN
        self.mark = mixed << LOW
        self.place = (mixed >> np.uint64(64 - self.bits)).astype(np.int64) + self.tables
        count = self.windows[self.place] - self.mark[..., None]  # (n, N, V); huge for others' cells
        count *= count < np.uint64(1 << 32)
        self.count = count.view(np.int64)
        taken = DISCOUNTS.take(self.count, mode="clip")
        own, left = FINE * self.count - taken, taken.sum(2)
        total = FINE * self.count.sum(2)
        left[total == 0] = total[total == 0] = 1  # an unseen context leaves all to the shorter one
        p = np.full((len(self.rows), self.vocab), 1 / self.vocab)
        for n in range(self.order):
            p = (own[n] + left[n, :, None] * p) / total[n, :, None]
        return p

    def read(self, words: Ids) -> None:
        """Count, from the longest context to those in which the symbol is new."""
        new = self.count[:, self.rows, words] == 0  # (n, N)
        counts = np.ones_like(new)
        counts[:-1] = np.logical_and.accumulate(new[:0:-1])[::-1]
        at = self.place + words
        self.cells[at[counts & new]] = self.mark[counts & new]
        np.add.at(self.cells, at[counts], np.uint64(1))
        self.held[1:] = self.held[:-1].copy()
        self.held[:1] = words + 1


class Folded:
    """A predictor of tokens as one of letters: a letter is all tokens that read as it."""

    def __init__(self, inner: Predictor, letter: Ids, token: Ids) -> None:
        """letter (V,) of each token, −1 for none; token (A,) that is read for each letter."""
        self.inner, self.token, self.vocab = inner, token, len(token)
        self.fold = (letter[:, None] == np.arange(self.vocab)).astype(np.float64)  # (V, A)

    def start(self, rows: int) -> None:
        """Begin afresh."""
        self.inner.start(rows)

    def predict(self) -> Floats:
        """Sums over the tokens of each letter, of what is no letter nothing."""
        p = self.inner.predict() @ self.fold
        return np.asarray(p / np.maximum(p.sum(1, keepdims=True), 1e-300))

    def read(self, words: Ids) -> None:
        """The tokens of these letters."""
        self.inner.read(self.token[words])


# Texts --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextPredictor:
    """A predictor, and how it reads texts."""

    name: str
    predictor: Predictor
    tokenizer: Tokenizer
    start: int | None = None
    """What begins the sentences of a model that reads lines; None of a running text."""
    folder: Path | None = None
    """Where the model came from."""

    def encode(self, text: str) -> Ids:
        """The tokens that are predicted."""
        if self.start is not None:
            ids = joined(encode_lines(self.tokenizer, text.split("\n"), True))
            predicted: Ids = ids[ids != self.start]
            return predicted
        parts = cut_at_blanks(text[at : at + CHUNK] for at in range(0, len(text), CHUNK))
        return joined(np.array(self.tokenizer.encode(p, special=False), np.int64) for p in parts)

    def unknown(self, ids: Ids) -> int:
        """Tokens that stand for words the model does not know."""
        return int((ids == self.tokenizer.specials.get("unk", -1)).sum())

    def was_trained_on(self, file: str | Path) -> bool:
        """Whether its receipt names this file: then its figures are no measure of the text."""
        place = None if self.folder is None else find_in_run(self.folder)
        if place is None or not Path(file).is_file():
            return False
        return file_hash(file) in training_files(read_receipt(place)).values()

    def in_letters(self, symbols: str, alphabet: Alphabet) -> Predictor:
        """The model as one of letters, where each of its tokens is a character."""
        pieces = [self.tokenizer.decode([id]) for id in range(self.tokenizer.size)]
        token = [self.tokenizer.encode(symbol, special=False) for symbol in symbols]
        doing = f"guessing letters with {self.name}"
        if self.start is not None or max(map(len, pieces)) > 1:
            long = max(pieces, key=len)
            problem = f"tokens such as {long!r}" if self.start is None else "a model of sentences"
            expected = "a model whose tokens are characters (`--tokens chars`)"
            fix = "`regard history entropy --model` takes any tokens"
            raise UsageError(doing, problem, expected, fix)
        for symbol, ids in zip(symbols, token, strict=True):
            if len(ids) != 1 or self.unknown(np.array(ids)):
                raise DataError(doing, f"no token for {symbol!r}", "every letter of the alphabet")
        vocab = self.predictor.vocab
        letter = np.full(vocab, -1)
        for id, piece in enumerate(pieces[:vocab]):
            read = piece if alphabet == "as-is" else clean(f"a{piece}a", alphabet)[1:-1]
            letter[id] = symbols.find(read) if len(read) == 1 else -1
        return Folded(self.predictor, letter, np.array([id for (id,) in token]))


def room_of(kit: Kit) -> int:
    """Tokens that a decoder looks back: what it has positions for, at most 1024."""
    front = kit.model.config.front
    known = front.length if isinstance(front, TextConfig) else None
    return min(kit.room or known or LONGEST, LONGEST)


def predict_texts(model: Kit | NgramModel) -> TextPredictor:
    """A model as a predictor; a decoder reads texts after what its tokenizer puts before them."""
    name = name_of(model)
    if isinstance(model, NgramModel):
        end = model.tokenizer.specials.get("eos") if model.lines else None
        ngrams = NgramPredictor(model.tables, end)
        return TextPredictor(name, ngrams, model.tokenizer, model.tables.start, model.path)
    kit, front, room = model, model.model.config.front, room_of(model)
    first = kit.text_tokenizer.first
    vocab = kit.model.config.head.size or (front.vocab if isinstance(front, TextConfig) else 0)

    def start(ids: Tensor) -> Callable[[Tensor], Tensor]:
        step = ModelStep(kit.model, Batch(ids).to(kit.device), room - ids.shape[1] + 1)
        return lambda new: step(new.to(kit.device))

    predictor = StepPredictor(start, vocab, room, [] if first is None else [first])
    return TextPredictor(name, predictor, kit.text_tokenizer, folder=kit.path)
