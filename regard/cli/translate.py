"""`regard translate`: one line out for each line in, by beam search."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from regard.cli.show import Show
from regard.cli.texts import at_least, cap_beams, groups, lines_in, open_kit, position_limit
from regard.cli.texts import print_json as show_json
from regard.decode.beam import BeamConfig
from regard.decode.penalty import length_penalty
from regard.decode.step import Hypothesis
from regard.errors import UsageError
from regard.kit import Kit

SORTED = 1024  # lines that are sorted by length before they are cut into batches
ROWS = 64  # beams of a batch, about


class Answer(NamedTuple):
    """One translation."""

    text: str
    logprob: float


def run(args: argparse.Namespace, show: Show) -> int:
    """Translate texts, files or stdin."""
    config = read_search(args)
    lines = lines_in(args.texts, args.file)
    with show.progress("translating") as progress:
        progress(f"opening {args.model}")
        kit = open_pair(args.model, args.device, args.strict)
        config = fit_beams(config, kit, show)
        done = 0
        for group in groups(lines, SORTED):
            for line, answers in zip(
                group, translate(kit, group, config, args.max_new), strict=True
            ):
                if show.as_json:
                    show_json(as_data(line, answers))
                else:
                    show.line("\t".join(answer.text for answer in answers))
            done += len(group)
            progress(f"{done:,} lines")
    return 0


def read_search(args: argparse.Namespace) -> BeamConfig:
    """The beam, before the model is known."""
    at_least("--beams", args.beams)
    at_least("--alternatives", args.alternatives)
    at_least("--max-new", args.max_new)
    penalty = length_penalty("gnmt", args.alpha)
    return BeamConfig(max(args.beams, args.alternatives), args.alternatives, penalty)


def open_pair(path: str, device: str, strict: bool) -> Kit:
    """An encoder-decoder."""
    kit = open_kit(path, device, strict)
    if kit.model.config.target is None:
        fix = f"regard generate {path}"
        raise UsageError("translating", "a model without encoder", "an encoder-decoder", fix)
    return kit


def fit_beams(config: BeamConfig, kit: Kit, show: Show) -> BeamConfig:
    """No wider than the vocabulary."""
    width = cap_beams(config.width, kit, show)
    return BeamConfig(width, min(config.count, width), config.penalty)


def translate(
    kit: Kit, lines: Sequence[str], config: BeamConfig, most: int | None = None
) -> Iterator[list[Answer]]:
    """Translations of each line, in order; a line without words stays one without words.

    Lines of like length run together; the answers do not depend on it.
    """
    assert kit.tokenizer is not None
    busy = [n for n, line in enumerate(lines) if line.strip()]
    ids = dict(zip(busy, kit.tokenizer.encode_batch([lines[n] for n in busy]), strict=True))
    answers: dict[int, list[Answer]] = {}
    by_length = sorted(busy, key=lambda n: len(ids[n]))
    for group in groups(by_length, max(1, ROWS // config.width)):
        batch = kit.batch([ids[n] for n in group])
        room = position_limit(kit)
        limits = [n + 50 if most is None else most for n in (len(ids[n]) for n in group)]
        limits = limits if room is None else [min(limit, room - 1) for limit in limits]
        for n, found in zip(group, kit.search(batch, limits, config), strict=True):
            answers[n] = distinct(kit, found)
    for n in range(len(lines)):
        yield answers.get(n, [Answer("", 0.0)])


def distinct(kit: Kit, found: Sequence[Hypothesis]) -> list[Answer]:
    """Answers as single lines, each text once: two cuts into tokens may spell the same."""
    texts: dict[str, float] = {}
    for hypothesis in found:
        texts.setdefault(" ".join(kit.text(hypothesis.tokens).split()), hypothesis.logprob)
    return [Answer(text, logprob) for text, logprob in texts.items()]


def as_data(line: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """The object of `--json`; probabilities are shares of this list."""
    best = max(answer.logprob for answer in answers)
    weights = [math.exp(answer.logprob - best) for answer in answers]
    rows = [
        {"text": a.text, "logprob": a.logprob, "probability": weight / sum(weights)}
        for a, weight in zip(answers, weights, strict=True)
    ]
    first = answers[0]
    made = {"source": line, "text": first.text, "logprob": first.logprob}
    return made | ({"alternatives": rows} if len(rows) > 1 else {})
