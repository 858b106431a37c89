"""A model of the library as a predictor of texts, for `regard entropy` and `regard guess`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from regard.cli.evaluate import check_tokenizer, window_length
from regard.cli.opening import open_kit
from regard.cli.train_ngram import is_ngrams
from regard.data.text_files import CHUNK, cut_at_blanks, split_lines
from regard.decode.model_step import ModelStep
from regard.errors import DataError, UsageError
from regard.files import file_hash
from regard.history.ngram_model import NgramModel, encode_lines, joined
from regard.history.ngrams import Ids
from regard.history.predictors import Folded, Predictor, StepPredictor, ngram_predictor
from regard.history.shannon import Alphabet, clean
from regard.kit import Kit
from regard.model.batch import Batch
from regard.model.config import TextConfig
from regard.receipt import find_receipt, read_receipt, training_files
from regard.tokens.tokenizer import Tokenizer
from regard.zoo import locate


@dataclass(frozen=True)
class Model:
    """A predictor, and how it reads texts."""

    path: str
    predictor: Predictor
    tokenizer: Tokenizer
    lines: NgramModel | None = None
    """Of sentences, the model itself; else None."""

    def encode(self, text: str) -> Ids:
        """The tokens that are predicted."""
        pieces = self.pieces(text)
        if self.lines is not None:
            ids = joined(encode_lines(self.tokenizer, pieces, True))
            start = self.lines.tables.start
            return ids if start is None else ids[ids != start]
        return joined(np.array(self.tokenizer.encode(p, special=False), np.int64) for p in pieces)

    def pieces(self, text: str) -> Iterable[str]:
        """What is cut into tokens at once: lines that are sentences, else long parts."""
        if self.lines is not None:
            lines = (line.removesuffix("\n") for line in split_lines([text]))
            return (line for line in lines if line.strip())
        return cut_at_blanks(text[at : at + CHUNK] for at in range(0, len(text), CHUNK))

    def written_at(self, text: str, place: int) -> str:
        """How a token of `encode` is written in the text; nothing for the end of a sentence."""
        for piece in self.pieces(text):
            ids = self.tokenizer.encode(piece, special=self.lines is not None)
            spans = self.tokenizer.offsets(piece, special=self.lines is not None)
            start = None if self.lines is None else self.lines.tables.start
            kept = [span for id, span in zip(ids, spans, strict=True) if id != start]
            if place < len(kept):
                return piece[slice(*kept[place])]
            place -= len(kept)
        raise UsageError("finding a token", f"place {place}", "a place in the text")

    def unknown(self, ids: Ids) -> int:
        """Tokens that stand for words the model does not know."""
        return int((ids == self.tokenizer.specials.get("unk", -1)).sum())

    def was_trained_on(self, file: str) -> bool:
        """Whether its receipt names this file: then its figures are no measure of the text."""
        place = find_receipt(Path(locate(self.path)))
        if place is None or not Path(file).is_file():
            return False
        return file_hash(file) in training_files(read_receipt(place)).values()

    def in_letters(self, symbols: str, alphabet: Alphabet) -> Predictor:
        """The model as one of letters, where each of its tokens is a character."""
        pieces = [self.tokenizer.decode([id]) for id in range(self.tokenizer.size)]
        token = [self.tokenizer.encode(symbol, special=False) for symbol in symbols]
        doing = f"guessing letters with {self.path}"
        if self.lines is not None or max(map(len, pieces)) > 1:
            long = max(pieces, key=len)
            found = "a model of sentences" if self.lines is not None else f"tokens such as {long!r}"
            expected = "a model whose tokens are characters (`--tokens chars`)"
            raise UsageError(doing, found, expected, "`regard entropy --model` takes any tokens")
        for symbol, ids in zip(symbols, token, strict=True):
            if len(ids) != 1 or self.unknown(np.array(ids)):
                raise DataError(doing, f"no token for {symbol!r}", "every letter of the alphabet")
        vocab = self.predictor.vocab
        letter = np.full(vocab, -1)
        for id, piece in enumerate(pieces[:vocab]):
            read = piece if alphabet == "as-is" else clean(f"a{piece}a", alphabet)[1:-1]
            letter[id] = symbols.find(read) if len(read) == 1 else -1
        return Folded(self.predictor, letter, np.array([id for (id,) in token]))


def open_model(path: str, device: str) -> Model:
    """An n-gram model or a decoder."""
    if is_ngrams(path):
        model = NgramModel.open(Path(path))
        end = model.tokenizer.specials.get("eos") if model.lines else None
        lines = model if model.lines else None
        return Model(path, ngram_predictor(model.tables, end), model.tokenizer, lines)
    kit = open_kit(path, device, "auto")
    check_tokenizer(kit, path)
    return Model(path, kit_predictor(kit, path), kit.text_tokenizer)


def kit_predictor(kit: Kit, path: str) -> StepPredictor:
    """A decoder; texts begin with the token that its tokenizer puts there, if any."""
    room = window_length(kit, None, path)
    begin = kit.text_tokenizer.first
    first = [] if begin is None else [begin]
    front = kit.model.config.front
    vocab = kit.model.config.head.size or (front.vocab if isinstance(front, TextConfig) else 0)

    def start(ids: Tensor) -> Callable[[Tensor], Tensor]:
        step = ModelStep(kit.model, Batch(ids).to(kit.device), room - ids.shape[1] + 1)
        return lambda new: step(new.to(kit.device))

    return StepPredictor(start, vocab, room, first)
