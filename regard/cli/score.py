"""`regard score`: how likely a model finds each token of a text."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.cli.lines import Faults, numbered_lines
from regard.cli.opening import open_kit
from regard.cli.show import Show
from regard.cli.texts import check_finite, perplexity, print_json
from regard.decode.scoring import score_masked, score_rows
from regard.errors import DataError, UsageError
from regard.history.ngram_model import NgramModel
from regard.interop.side import start_id
from regard.kit import Kit
from regard.model_kinds import is_ngrams
from regard.tokens.tokenizer import Tokenizer


class Scored(NamedTuple):
    """Tokens of a text with their natural-log probabilities; None where there is none."""

    tokens: list[int]
    logprobs: list[float | None]


def run(args: argparse.Namespace, show: Show) -> int:
    """Score each text."""
    tokenizer, score = open_scorer(args)
    faults = Faults(show)
    for number, line in numbered_lines(None if args.text is None else [args.text]):
        try:
            found = score(line.read(), number)
        except DataError as error:
            faults.tell(str(error))
            if show.as_json:
                print_json({"error": str(error)})
            continue
        check_finite("scoring", known(found))
        if show.as_json:
            print_json(as_data(tokenizer, found))
        else:
            print_table(tokenizer, line.text, found, show)
    return faults.finish()


def open_scorer(args: argparse.Namespace) -> tuple[Tokenizer, Callable[[str, int], Scored]]:
    """The tokenizer of a model, and how it scores a text, given with its number."""
    if is_ngrams(args.path) and not args.edit:  # which has nothing to edit
        counted = NgramModel.open(Path(args.path))
        return counted.tokenizer, partial(score_counted, counted)
    kit = open_kit(args.path, args.device, args.precision, edits=args.edit)
    return kit.text_tokenizer, partial(score, kit)


def score_counted(model: NgramModel, text: str, number: int) -> Scored:
    """By n-grams; the beginning of a sentence is never predicted."""
    ids = model.tokenizer.encode(text, special=model.lines)
    found = model.tables.logprobs(np.array(ids, np.int64)).tolist()
    return Scored(ids, [None if math.isnan(value) else value for value in found])


def score(kit: Kit, text: str, number: int) -> Scored:
    """By a decoder from left to right, by an encoder token by token hidden, by a pair model."""
    model = kit.model
    if model.encoder is not None and model.decoder is not None:
        return score_pair(kit, text, number)
    ids = kit.text_tokenizer.encode(text)
    kit.warn_long(len(ids))
    room = kit.room
    if room is not None and len(ids) > room:
        found = f"{len(ids):,} tokens in text {number}"
        fix = (
            "`regard evaluate lm` takes any length"
            if model.decoder is not None
            else "shorter texts"
        )
        raise DataError("scoring", found, f"at most {room:,}", fix)
    if model.decoder is not None:
        return Scored(ids, [None, *score_rows(model, [ids])[0]] if ids else [])
    mask = kit.text_tokenizer.specials.get("mask")
    if mask is None or model.config.head.take != "all":
        raise UsageError("scoring", "an encoder that predicts no words", "a language model")
    return Scored(ids, score_masked(model, ids, mask, kit.text_tokenizer.specials.values()))


def score_pair(kit: Kit, text: str, number: int) -> Scored:
    """A target after its source."""
    source, tab, target = text.partition("\t")
    if not tab or "\t" in target:
        found = f"{text.count(chr(9))} TABs in text {number}"
        raise DataError("scoring by an encoder-decoder", found, "source TAB target")
    ids = kit.text_tokenizer.encode(target, side="target")
    begun = [start_id(kit.files, kit.config), *ids]
    source_ids = kit.text_tokenizer.encode(source)
    return Scored(ids, [*score_rows(kit.model, [begun], [source_ids])[0]])


def known(found: Scored) -> list[float]:
    """Log-probabilities that are there."""
    return [value for value in found.logprobs if value is not None]


def as_data(tokenizer: Tokenizer, found: Scored) -> dict[str, Any]:
    """The object of `--json`."""
    values = known(found)
    return {
        "tokens": found.tokens,
        "pieces": tokenizer.pieces(found.tokens),
        "logprobs": found.logprobs,
        "logprob": sum(values),
        **({"impossible": values.count(-math.inf)} if -math.inf in values else {}),
        "perplexity": perplexity(-sum(values) / len(values)) if values else None,
    }


def print_table(tokenizer: Tokenizer, text: str, found: Scored, show: Show) -> None:
    """The same for people."""
    show.table(text or "an empty text", ("token", "log p", "p"), list(rows(tokenizer, found)))
    values = known(found)
    if values:
        mean = sum(values) / len(values)
        show.line(
            f"  sum {sum(values):.4f}, {len(values)} tokens, perplexity {perplexity(-mean):.4f}"
        )
        if never := values.count(-math.inf):
            show.line(f"  {never} of them have probability 0: they were not seen, nor smoothed")


def rows(tokenizer: Tokenizer, found: Scored) -> Iterator[tuple[str, str, str]]:
    """Piece, log-probability, probability."""
    pieces = tokenizer.pieces(found.tokens)
    for piece, value in zip(pieces, found.logprobs, strict=True):
        if value is None:
            yield piece, "–", "–"
        else:
            yield piece, f"{value:.4f}", f"{math.exp(value):.4f}"
