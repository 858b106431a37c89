"""`regard generate`: go on from a prompt, greedily, by drawing or by beam search."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.cli.generate_capture import Record, check_capture, recording
from regard.cli.lines import Faults, Line, line_groups
from regard.cli.opening import cap_beams, open_kit, wrong_network
from regard.cli.show import Show
from regard.cli.texts import at_least, check_finite, groups, print_json
from regard.decode.alternatives import extend
from regard.decode.beam import BeamConfig
from regard.decode.constraints import StopText, end_after
from regard.decode.exhaustive import exhaustive
from regard.decode.prompt import prompt_ids
from regard.decode.sampling import Ends, SampleConfig
from regard.decode.step import Hypothesis, Process
from regard.errors import DataError, RegardError, UsageError
from regard.kit import Kit
from regard.model.batch import Batch

TOGETHER = 32  # prompts of stdin that run in one batch
ROWS = 256  # sequences that exhaustive search runs at once
DRAWS = tuple("temperature top_k top_p min_p typical repetition frequency presence".split())
Write = Callable[[list[str], int], Iterator[dict[str, Any]]]
"""Prompts, and how many came before → their answers."""


def run(args: argparse.Namespace, show: Show) -> int:
    """Write a continuation of each prompt."""
    config = read_search(args)
    check_capture(args)
    with show.progress(f"opening {args.path}") as progress:
        progress("weights")
        kit = open_kit(args.path, args.device, args.precision, args.strict, args.edit)
    if kit.model.decoder is None:
        raise wrong_network("generating", args.path, kit, "a model that writes")
    if isinstance(config, BeamConfig):
        config = BeamConfig(cap_beams(args.beams, kit, show))
    prompts = [args.prompt] if args.prompt is not None else None
    alone = prompts is not None or sys.stdin.isatty() or args.search  # a person: line by line
    done, faults = 0, Faults(show)
    write: Write = partial(write_group, kit, config=config, args=args, show=show)
    with recording(kit, args, show) as record:
        for group in line_groups(prompts, None, 1 if alone else TOGETHER):
            answer(group, done, write, faults, record)
            done += len(group)
    return faults.finish()


def answer(
    lines: list[Line], done: int, write: Write, faults: Faults, record: Record | None
) -> None:
    """Write the answers to some prompts; where one has none, to each alone, and say which."""
    try:
        texts = [line.read() for line in lines]
        for found in write(texts, done):
            if faults.show.as_json:
                print_json(found)
    except DataError as error:  # which comes before anything is written
        if len(lines) > 1:
            for number, line in enumerate(lines, done):
                answer([line], number, write, faults, record)
            return
        fault = lines[0].fault or str(error)
        faults.tell(fault)
        print_json({"error": fault}) if faults.show.as_json else faults.show.line()
        record.skip() if record else None
    else:
        record.take(texts) if record else None


def read_search(args: argparse.Namespace) -> SampleConfig | BeamConfig | None:
    """How to choose tokens; None is greedy."""
    at_least("--max-new", args.max_new)
    at_least("--beams", args.beams)
    given = {name: getattr(args, name) for name in DRAWS if getattr(args, name) is not None}
    config = SampleConfig(**given, seed=args.seed or 0)  # which checks the ranges
    named = [f"--{name.replace('_', '-')}" for name in given]
    others = ["--greedy"] * args.greedy + ["--beams"] * (args.beams is not None)
    if args.search:
        others += ["--search", *(f"--{name}" for name in ("stop", "capture") if vars(args)[name])]
    if len(others) + bool(named) > 1:
        found = " and ".join([*others, *named[:1]])
        raise UsageError("choosing tokens", found, "one way of choosing")
    if args.beams is not None:
        return BeamConfig(args.beams)
    return config if given else None


def write_group(
    kit: Kit,
    prompts: list[str],
    first: int,
    config: SampleConfig | BeamConfig | None,
    args: argparse.Namespace,
    show: Show,
) -> Iterator[dict[str, Any]]:
    """The answers to some prompts, whose first one is line `first` + 1 of all."""
    batch, limits = read_prompts(kit, prompts, first, args.max_new, show)
    if isinstance(config, SampleConfig):
        config = SampleConfig(**{**vars(config), "first": first})
    stop = StopText(kit.decode_text, args.stop) if args.stop else None
    live = not show.as_json and sys.stdout.isatty() and not isinstance(config, BeamConfig)
    stream = Stream(kit, batch, stop) if live and len(prompts) == 1 else None
    ends, rules = Ends(kit.stops, stop, stream), list[Process]()
    if stop is not None and isinstance(config, BeamConfig) and kit.stops:
        rules = [end_after(stop, kit.stops)]  # which `Ends` cannot do in the middle of a beam
    if args.search:
        found = [search_all(kit, batch, limits[0])]
    else:
        found = kit.search(batch, limits, config, ends, processes=rules)
    if not all(found):
        raise RegardError("generating", "no answer: the scores of the model are no numbers")
    check_finite("generating", [best.logprob for best, *_ in found])
    for row, (best, *_) in enumerate(found):
        if rules and stop is not None and stop(best.tokens[:-1]):
            best = replace(best, tokens=best.tokens[:-1])  # the end that the rule put there
        text = kit.continuation(batch, row, best.tokens)
        text = text if stop is None else stop.cut(text)
        if stream is not None:
            stream.finish(text)
        elif not show.as_json:
            show.line(text)
        yield as_data(best, text)


def search_all(kit: Kit, batch: Batch, limit: int) -> list[Hypothesis]:
    """The likeliest of all sequences that can follow one prompt."""

    def log_probs(prefixes: Tensor) -> Tensor:
        longer = [
            extend(batch, rows) if rows[0] else batch for rows in groups(prefixes.tolist(), ROWS)
        ]
        scores = [kit.score(each, None, None)[:, -1] for each in longer]
        return torch.cat(scores).float().log_softmax(-1)

    size = kit.model.config.head.size
    assert size is not None  # it writes tokens
    return exhaustive(log_probs, size, limit, kit.stops)


def as_data(best: Hypothesis, text: str) -> dict[str, Any]:
    """The object of `--json`."""
    made: dict[str, Any] = {"tokens": best.tokens, "text": text, "logprob": best.logprob}
    return made | {"finished": best.finished}


def read_prompts(
    kit: Kit, prompts: list[str], first: int, most: int, show: Show
) -> tuple[Batch, list[int]]:
    """A batch, and how many tokens may follow in each row."""
    room = kit.room
    if kit.model.config.target is not None:
        limit = most if room is None else min(most, room - 1)
        return kit.batch(prompts), [limit] * len(prompts)
    rows = [prompt_ids(kit.text_tokenizer, text) for text in prompts]
    limits = [most if room is None else min(most, room - len(row)) for row in rows]
    for number, (row, limit) in enumerate(zip(rows, limits, strict=True), first + 1):
        if limit < 1:
            found = f"{len(row)} tokens in prompt {number}"
            raise DataError("generating", found, f"fewer than {room}, the positions of this model")
        if limit < most:
            show.note(f"prompt {number}: {limit} new tokens at most, of {room} positions in all")
    return kit.batch(rows), limits


class Stream:
    """Text on a terminal as it comes; holds back what may still change or be a stop string."""

    def __init__(self, kit: Kit, batch: Batch, stop: StopText | None) -> None:
        self.kit, self.batch, self.stop = kit, batch, stop
        self.tokens: list[int] = []
        self.shown = 0

    def __call__(self, row: int, token: int) -> None:
        """One more token."""
        self.tokens.append(token)
        text = self.kit.continuation(self.batch, row, self.tokens)
        self.show(text[: len(text) - self.unsure(text)])

    def unsure(self, text: str) -> int:
        """Characters at the end that are half a character or the beginning of a stop string."""
        half = len(text) - len(text.rstrip("\ufffd"))
        starts = self.stop.strings if self.stop else []
        lengths = (n for stop in starts for n in range(1, len(stop) + 1) if text.endswith(stop[:n]))
        return max([half, *lengths])

    def show(self, text: str) -> None:
        """Print what is new."""
        print(text[self.shown :], end="", flush=True)
        self.shown = max(self.shown, len(text))

    def finish(self, text: str) -> None:
        """The rest, and the end of the line."""
        self.show(text)
        print(flush=True)
