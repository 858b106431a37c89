"""What the verbs that read texts share: the model, the lines, the limits, the output."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from regard.cli.doctor import choose_device
from regard.cli.opening import find_source
from regard.cli.show import Show
from regard.data.files import decode, join_lines
from regard.errors import RegardWarning, UsageError
from regard.interop.stored import INT8, STORED
from regard.kit import Kit
from regard.loading import load
from regard.model.precision import same_in_any_company, set_precision

Item = TypeVar("Item")


def open_kit(path: str, device: str, precision: str, strict: bool = False) -> Kit:
    """The model and tokenizer in a folder, on the device and in the precision asked for."""
    if find_source(path) is None:
        found = f"{path!r} is a preset, a shape without weights"
        raise UsageError("opening a model", found, "a folder with weights", "regard train")
    asked, place = None if precision == "auto" else precision, choose_device(device)
    kit = load(path, device=place, strict=strict, precision=asked)
    if precision == "auto" and place == "cpu" and kit.config.get(STORED) == INT8:
        set_precision(kit.model, INT8)  # its weights are such numbers already
        if strict and not same_in_any_company(kit.model):
            set_precision(kit.model, None)  # quicker where each sentence runs alone
    if kit.tokenizer is None:
        fix = f"put a tokenizer.json into {path}"
        raise UsageError("reading text", "this model came without a tokenizer", "one", fix)
    return kit


def lines_in(given: Sequence[str] | None) -> Iterator[str]:
    """Texts of the command, or lines of stdin."""
    return iter(given) if given else join_lines(decode(sys.stdin.buffer, "stdin"))


def groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Neighbours in lists of at most `size`."""
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


def at_least(name: str, value: int | None, least: int = 1) -> None:
    """A whole number has a smallest value."""
    if value is not None and value < least:
        raise UsageError("reading the command line", f"{name} {value}", f"{least} or more")


def cap_beams(beams: int, kit: Kit, show: Show) -> int:
    """No more beams than the vocabulary has words; says so."""
    size = kit.model.config.head.size
    if size is not None and beams > size:
        show.note(f"{beams} beams, but {size} words in the vocabulary: {size} beams")
        return size
    return beams


def print_json(value: dict[str, Any]) -> None:
    """One object on one line, at once, for there may be many."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


@contextmanager
def noted(show: Show) -> Iterator[None]:
    """Warnings of ours as messages on stderr, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RegardWarning)
        yield
    for text in dict.fromkeys(str(w.message) for w in caught if w.category is RegardWarning):
        show.note(f"warning: {text}")
