"""`regard translate`: one line out for each line in, by beam search."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from regard.cli.show import Show
from regard.cli.texts import at_least, cap_beams, groups, lines_in, open_kit
from regard.cli.texts import print_json as show_json
from regard.errors import UsageError
from regard.kit import Kit
from regard.translating import TranslateConfig, Translation, Word, other_words
from regard.translating import translate as translate_rows

SORTED = 1024  # lines that are sorted by length before they are cut into batches
ROWS = 64  # beams of a batch, about


class Answer(NamedTuple):
    """What became of one line."""

    translations: list[Translation]
    words: list[Word]
    """Of the first translation, where they were asked for."""


def run(args: argparse.Namespace, show: Show) -> int:
    """Translate texts, files or stdin."""
    config = read_search(args)
    lines = lines_in(args.texts, args.file)
    with show.progress("translating") as progress:
        progress(f"opening {args.model}")
        kit = open_pair(args.model, args.device, args.precision, args.strict)
        config = fit_beams(config, kit, show)
        each = show.as_json and config.count > 1  # they cost, and only an object has room for them
        done = 0
        for group in groups(lines, SORTED):
            for line, answer in zip(group, translate(kit, group, config, each), strict=True):
                if show.as_json:
                    show_json(as_data(line, answer))
                else:
                    show.line("\t".join(one_line(t.text) for t in answer.translations))
            done += len(group)
            progress(f"{done:,} lines")
    return 0


def read_search(args: argparse.Namespace) -> TranslateConfig:
    """How to search, before the model is known."""
    at_least("--beams", args.beams)
    at_least("--alternatives", args.alternatives)
    at_least("--max-new", args.max_new)
    wishes = (tuple(args.must), tuple(args.ban), args.begin)
    config = TranslateConfig(args.beams, args.alternatives, args.alpha, args.max_new, *wishes)
    config.beam()  # which checks the ranges
    return config


def open_pair(path: str, device: str, precision: str, strict: bool) -> Kit:
    """An encoder-decoder."""
    kit = open_kit(path, device, precision, strict)
    if kit.model.config.target is None:
        fix = f"regard generate {path}"
        raise UsageError("translating", "a model without encoder", "an encoder-decoder", fix)
    return kit


def fit_beams(config: TranslateConfig, kit: Kit, show: Show) -> TranslateConfig:
    """No wider than the vocabulary."""
    width = cap_beams(max(config.beams, config.count), kit, show)
    return replace(config, beams=min(config.beams, width), count=min(config.count, width))


def translate(
    kit: Kit, lines: Sequence[str], config: TranslateConfig, words: bool = False
) -> Iterator[Answer]:
    """Translations of each line, in order; a line without words stays one without words.

    Lines of like length run together; the answers do not depend on it.
    """
    assert kit.tokenizer is not None
    busy = [n for n, line in enumerate(lines) if line.strip()]
    ids = dict(zip(busy, kit.tokenizer.encode_batch([lines[n] for n in busy]), strict=True))
    answers: dict[int, Answer] = {}
    by_length = sorted(busy, key=lambda n: len(ids[n]))
    for group in groups(by_length, max(1, ROWS // max(config.beams, config.count))):
        found = translate_rows(kit, [ids[n] for n in group], config)
        for n, rows in zip(group, found, strict=True):
            answers[n] = Answer(rows, other_words(kit, ids[n], rows[0], config) if words else [])
    for n in range(len(lines)):
        yield answers.get(n, Answer([Translation("", 0.0, [])], []))


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def as_data(line: str, answer: Answer) -> dict[str, Any]:
    """The object of `--json`; probabilities of translations are shares of their list."""
    first, *rest = answer.translations
    made: dict[str, Any] = {"source": line, "text": one_line(first.text), "logprob": first.logprob}
    if rest:
        best = max(t.logprob for t in answer.translations)
        weights = [math.exp(t.logprob - best) for t in answer.translations]
        made["alternatives"] = [
            {"text": one_line(t.text), "logprob": t.logprob, "probability": weight / sum(weights)}
            for t, weight in zip(answer.translations, weights, strict=True)
        ]
    if answer.words:
        made["words"] = [word_data(word) for word in answer.words]
    return made


def word_data(word: Word) -> dict[str, Any]:
    """One word, how likely it was, and what else could stand there with what follows it."""
    others = [
        {"text": o.text, "probability": math.exp(o.logprob), "translation": o.translation}
        for o in word.others
    ]
    return {"text": word.text, "probability": math.exp(word.logprob), "alternatives": others}
