"""`regard eval`: perplexity of a text, BLEU and chrF of translations, with a guard (N14)."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator
from typing import Any

from regard.cli.show import Show
from regard.cli.texts import at_least, open_kit, position_limit
from regard.cli.translate import fit_beams, open_pair, translate
from regard.data.files import find_files, read_lines, read_pieces
from regard.data.overlap import Overlap, overlap, pair_overlap
from regard.data.pairs import read_pairs
from regard.decode.beam import BeamConfig
from regard.decode.score import total_logprob, windows
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.model.config import TextConfig

WORDS = 8  # shorter lines of running text, such as headings, recur by chance
LONGEST = 1024


def run(args: argparse.Namespace, show: Show) -> int:
    """Measure, unless the test data was trained on."""
    made = run_lm(args, show) if args.kind == "lm" else run_translate(args, show)
    if show.as_json:
        show.result(made)
    else:
        flat = {name: described(value) for name, value in made.items()}
        show.fields(f"{args.path} on {args.test}", flat)
    return 0


def described(value: Any) -> str:
    """A number or a text for people."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {described(inside)}" for name, inside in value.items())
    return f"{value:,.4f}" if isinstance(value, float) else str(value)


# Overlap ----------------------------------------------------------------------------------------


def guard(shared: dict[str, Overlap], args: argparse.Namespace, show: Show) -> str:
    """What is known of overlap with the training data; stops where a score would be none."""
    if args.train is None:
        show.note("no --train: whether the test data was trained on is not known")
        return "not checked"
    parts = []
    for name, found in shared.items():
        where = f" (line {', '.join(map(str, found.lines))})" if found.found else ""
        parts.append(f"{found.found:,} of {found.total:,} by {name}{where}")
    said = "; ".join(parts)
    if not any(found.found for found in shared.values()):
        return "none"
    if not args.allow_overlap:
        fix = "take them out of one of the two, or say --allow-overlap"
        raise DataError(
            f"evaluating on {args.test}",
            f"test lines that stand in the training data: {said}",
            "test data that was not trained on; this would not be a score",
            fix,
        )
    return f"NOT A SCORE: {said}"


# Language models --------------------------------------------------------------------------------


def run_lm(args: argparse.Namespace, show: Show) -> dict[str, Any]:
    """Perplexity by windows."""
    at_least("--length", args.length)
    at_least("--stride", args.stride)
    shared: dict[str, Overlap] = {}
    if args.train is not None:
        found = overlap(read_lines(args.train), read_lines(args.test), WORDS)
        shared = {f"lines of {WORDS} words or more": found}
    note = guard(shared, args, show)
    kit = open_kit(args.path, args.device)
    length = window_length(kit, args.length)
    stride = length if args.stride is None else args.stride
    with show.progress("evaluating") as progress:
        progress("first window")
        counted = Counted(kit, args.test)
        total, count = 0.0, 0
        for value, tokens in total_logprob(kit.model, windows(counted, length, stride)):
            total, count = total + value, count + tokens
            progress(f"{count:,} tokens")
    if count == 0:
        found_ = f"{counted.tokens} tokens in {args.test}"
        raise DataError("evaluating a language model", found_, "2 tokens or more")
    bits = -total / math.log(2)
    apart = "do not overlap" if stride == length else f"begin {stride} apart"
    return {
        "perplexity": math.exp(-total / count),
        "loss": -total / count,
        "bits_per_token": bits / count,
        "bits_per_byte": bits / counted.bytes,
        "tokens": count,
        "bytes": counted.bytes,
        "windows": f"{length} tokens; they {apart}",
        "overlap": note,
    }


def window_length(kit: Kit, asked: int | None) -> int:
    """Tokens of a window: what was asked for, at most what the model has positions for."""
    if kit.model.decoder is None or kit.model.encoder is not None:
        raise UsageError("evaluating a language model", "a model with an encoder", "a decoder")
    front, room = kit.model.config.front, position_limit(kit)
    if asked is not None and room is not None and asked > room:
        raise UsageError("evaluating a language model", f"--length {asked}", f"at most {room}")
    known = front.length if isinstance(front, TextConfig) else None
    return asked or min(room or known or LONGEST, LONGEST)


class Counted:
    """The token stream of a file; counts the bytes of what is predicted.

    A tokenizer that begins texts with a token gives the first word a context; else the first token
    is context only.
    """

    def __init__(self, kit: Kit, path: str) -> None:
        assert kit.tokenizer is not None
        self.tokenizer, self.path = kit.tokenizer, path
        self.bytes = self.tokens = 0

    def __iter__(self) -> Iterator[int]:
        begin = self.tokenizer.specials.get("bos")
        around = self.tokenizer.encode("")
        if begin is not None and around[:1] == [begin]:
            yield begin
        else:
            begin = None
        for piece in read_pieces(self.path):
            self.bytes += len(piece.encode())
            for id in self.tokenizer.encode(piece, special=False):
                if self.tokens == 0 and begin is None:
                    self.bytes -= len(self.tokenizer.decode([id]).encode())
                self.tokens += 1
                yield id


# Translation ------------------------------------------------------------------------------------


def run_translate(args: argparse.Namespace, show: Show) -> dict[str, Any]:
    """BLEU and chrF of beam search against one reference."""
    at_least("--beams", args.beams)
    pairs = list(read_pairs(args.test))
    if not pairs:
        raise DataError(f"evaluating on {args.test}", "no pairs", "one or more")
    shared: dict[str, Overlap] = {}
    if args.train is not None:
        train = (pair for path in find_files(args.train) for pair in read_pairs(path))
        shared = pair_overlap(train, pairs)
    note = guard(shared, args, show)
    kit = open_pair(args.path, args.device, args.strict)
    config = fit_beams(BeamConfig(args.beams), kit, show)
    found: list[str] = []
    with show.progress("translating") as progress:
        for answers in translate(kit, [source for source, _ in pairs], config):
            progress(f"{len(found):,} of {len(pairs):,} lines")
            found.append(answers[0].text)
    scores = bleu_chrf(found, [target for _, target in pairs])
    return {**scores, "lines": len(pairs), "beams": config.width, "overlap": note}


def bleu_chrf(found: Iterable[str], references: Iterable[str]) -> dict[str, Any]:
    """sacrebleu's scores with their signatures."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ModuleNotFoundError:
        fix = "pip install 'regard[score]'"
        raise UsageError("scoring translations", "sacrebleu is not installed", fix=fix) from None
    made: dict[str, Any] = {}
    answers, wanted = list(found), [list(references)]
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        made[name] = float(metric.corpus_score(answers, wanted).score)
        made[f"{name}_signature"] = str(metric.get_signature())
    return made
