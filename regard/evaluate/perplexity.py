"""Perplexity of a text by windows of a length, so far apart, or by a state that goes on."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from regard.ambient import note, progress
from regard.data.speech import versions
from regard.data.statistics import check_finite, perplexity
from regard.data.text_files import read_lines, read_pieces
from regard.data.token_store import fingerprint
from regard.decode.scoring import stream_logprobs, window_logprobs, windows
from regard.errors import DataError, UsageError
from regard.evaluate.results import Perplexity, PositionBand, SpeechPerplexity
from regard.history.ngram_model import NgramModel, TextLikelihood, spelt_bytes
from regard.history.predictors import room_of
from regard.model.config import TextConfig
from regard.receipt import find_in_run
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.tokenizer_folder import open_tokenizer
from regard.train.settings import CONFIG, read_toml

if TYPE_CHECKING:
    from regard.kit import Kit

DOING = "evaluating a language model"


def evaluate_text(
    model: Kit | NgramModel,
    test: str | Path,
    length: int | None = None,
    stride: int | None = None,
    by_position: bool = False,
) -> Perplexity:
    """Perplexity of a text by a decoder or n-grams, and what its windows are."""
    if isinstance(model, NgramModel):
        measured = model.measure(test)
        if measured.impossible:
            never = f"{measured.impossible:,} of {measured.tokens:,} tokens have probability 0"
            note(f"{never}: not seen in training, and nothing is smoothed")
        return describe_likelihood(measured, model.tokenizer)
    if length is not None and model.room is not None and length > model.room:
        raise UsageError(DOING, f"a length of {length}", f"at most {model.room}")
    length = length or room_of(model)
    model.warn_long(length)
    carries = model.model.carry(1) is not None
    if carries and stride not in (None, length):
        fault = f"a stride of {stride} with a model that keeps its state"
        raise UsageError(DOING, fault, "no --stride: nothing is cut off")
    stride = stride or length
    apart = "do not overlap" if stride == length else f"begin {stride} apart"
    tokens, known = TokenStream(model, test), 0.0
    # By bands of positions (#42): band n is 2^(n−1) + 1 to 2^n tokens before.
    sums, counts = defaultdict[int, float](float), Counter[int]()
    logprobs = stream_logprobs if carries else window_logprobs
    with progress("evaluating") as say:
        say("first window")
        for first, values in logprobs(model.model, tokens.windows(length, stride)):
            at = counts.total()
            known += sum(compress(values, tokens.known[at : at + len(values)]))
            for before, value in enumerate(values, first):
                sums[(before - 1).bit_length()] += value
                counts[(before - 1).bit_length()] += 1
            say(f"{counts.total():,} tokens")
    total, count = sum(sums.values()), counts.total()
    if count == 0:
        raise DataError(DOING, f"{tokens.tokens} tokens in {test}", "2 tokens or more")
    check_finite(DOING, [total])
    unknown = count - sum(tokens.known)
    measured = TextLikelihood(total, count, tokens.bytes, known, unknown, tokens.spelt)
    bands = [
        PositionBand(2**band // 2 + 1, 2**band, own, perplexity(-sums[band] / own))
        for band, own in sorted(counts.items())
    ]
    return replace(
        describe_likelihood(measured, model.text_tokenizer),
        by_position=bands if by_position else None,
        windows="none: the state goes on" if carries else f"{length} tokens; they {apart}",
    )


def evaluate_speech(
    measure: Callable[[str], Perplexity], test: str | Path, seed: int
) -> SpeechPerplexity:
    """Perplexity of a transcript as spoken, cleaned and in random order (#116)."""
    with TemporaryDirectory() as folder:
        files = versions(test, Path(folder), seed)
        measured = {name: measure(file) for name, file in files.items()}
    rows = {name: replace(row, windows=None) for name, row in measured.items()}
    return SpeechPerplexity(rows, measured["spoken"].windows)


def describe_likelihood(measured: TextLikelihood, tokenizer: Tokenizer) -> Perplexity:
    """What is said of a text by a model with a vocabulary."""
    strange, ids = "unk" in tokenizer.specials, range(tokenizer.size)
    pieces = "\n".join(tokenizer.engine.piece(id, "source") or "" for id in ids)
    mark = hashlib.sha256(pieces.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return Perplexity(
        measured.perplexity,
        -measured.logprob / measured.tokens,
        measured.bits_per_token,
        measured.bits_per_byte,
        measured.tokens,
        measured.bytes,
        f"{tokenizer.size} tokens, {mark}",
        measured.unknown if strange else None,
        measured.perplexity_known if strange else None,
        measured.impossible or None,
    )


def check_tokenizer(kit: Kit) -> None:
    """A score is of a model with its own tokenizer."""
    front, path = kit.model.config.front, kit.path
    vocab = front.vocab if isinstance(front, TextConfig) else kit.text_tokenizer.size
    if kit.text_tokenizer.size > vocab:
        fault = f"a tokenizer of {kit.text_tokenizer.size:,} ids, a model of {vocab:,}"
    elif path is not None and find_in_run(path) is not None:
        folder = path.resolve().parent / "tokenizer"
        own = open_tokenizer(folder) if (folder / "tokenizer.json").is_file() else None
        if own is None or fingerprint(own) == fingerprint(kit.text_tokenizer):
            return
        fault = f"a tokenizer that differs from the one of the run, in {folder}"
    else:
        return
    raise DataError(f"evaluating {path}", fault, "the tokenizer that the model was trained with")


class TokenStream:
    """The token stream of a file; counts the bytes of what is predicted.

    A tokenizer that begins texts with a token gives the first word a context; else the first token
    is context only. Lines that the run of a model ended with a token, or read by themselves, are
    read so here.
    """

    def __init__(self, kit: Kit, path: str | Path) -> None:
        self.tokenizer, self.path = kit.text_tokenizer, path
        config = None if kit.path is None else find_in_run(kit.path, CONFIG)
        self.split = "file" if config is None else str(read_toml(config).get("split", "file"))
        """How the run of the model cut its texts: file, line or row; file for one of no run."""
        self.end = [] if self.split == "file" else [self.tokenizer.specials["eos"]]
        self.bytes = self.tokens = self.spelt = 0
        self.known = bytearray()
        """1 or 0 for each token that is predicted: whether it is a known word."""

    def __iter__(self) -> Iterator[int]:
        begin, unknown = self.tokenizer.first, self.tokenizer.specials.get("unk")
        if begin is not None:
            yield begin
        lines = (line for line in read_lines(self.path) if line.strip())
        first = True
        for piece in lines if self.end else read_pieces(self.path):
            self.bytes += len(piece.encode()) + len(self.end)
            self.spelt += spelt_bytes(self.tokenizer, piece)
            for id in self.tokenizer.encode(piece, special=False) + self.end:
                if first and (begin is None or self.tokens):  # context only
                    self.bytes -= len(self.tokenizer.decode([id]).encode())
                else:
                    self.known.append(id != unknown)
                first = False
                self.tokens += 1
                yield id
            first = first or self.split == "row"

    def windows(self, length: int, stride: int) -> Iterator[tuple[list[int], int]]:
        """`regard.decode.scoring.windows` of the stream, or of each line by itself."""
        if self.split != "row":
            yield from windows(self, length, stride)
            return
        line = list[int]()
        for id in self:
            line.append(id)
            if id in self.end:
                yield from windows(line, length, stride)
                line = []
