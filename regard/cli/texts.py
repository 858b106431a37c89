"""What the verbs that read texts share: the lines, the limits, the output. No torch here."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from regard.cli.show import Show, finite
from regard.data.statistics import check_finite as check_finite
from regard.data.statistics import perplexity as perplexity
from regard.errors import RegardWarning, UsageError

Item = TypeVar("Item")


def groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Neighbours in lists of at most `size`."""
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


def at_least(name: str, value: int | None, least: int = 1) -> None:
    """A whole number has a smallest value."""
    if value is not None and value < least:
        raise UsageError("reading the command line", f"{name} {value}", f"{least} or more")


def print_json(value: dict[str, Any]) -> None:
    """One object on one line, at once, for there may be many."""
    print(json.dumps(finite(value), ensure_ascii=False, allow_nan=False), flush=True)


@contextmanager
def noted(show: Show) -> Iterator[None]:
    """Warnings of ours as messages on stderr, the first of each code."""
    told = set[str]()

    def tell(message: Warning | str, category: type[Warning], *at: Any, **more: Any) -> None:
        code, _, _ = str(message).partition("]")
        if category is not RegardWarning:
            usual(message, category, *at, **more)
        elif code not in told:
            told.add(code)
            show.note(f"warning: {message}")

    with warnings.catch_warnings():
        usual, warnings.showwarning = warnings.showwarning, tell
        warnings.simplefilter("always", RegardWarning)
        yield
