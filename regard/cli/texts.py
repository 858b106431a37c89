"""What the verbs that read texts share: the lines, the limits, the output. No torch here."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from regard.cli.show import Show, finite
from regard.errors import RegardError, RegardWarning, UsageError

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


def perplexity(loss: float) -> float:
    """exp of a mean negative log-likelihood, infinite where that is too large for a number."""
    return math.exp(loss) if loss < 700 else math.inf


def likelihood(total: float, count: int, size: int) -> dict[str, Any]:
    """What a sum of log-probabilities of so many tokens and bytes says of a model."""
    bits = -total / math.log(2)
    return {
        "perplexity": perplexity(-total / count),
        "loss": -total / count,
        "bits_per_token": bits / count,
        "bits_per_byte": bits / size,
        "tokens": count,
        "bytes": size,
    }


def check_finite(doing: str, logprobs: Iterable[float]) -> None:
    """Stop where a model's scores are no numbers."""
    if any(math.isnan(value) for value in logprobs):
        raise RegardError(doing, "scores of the model that are NaN", "numbers", "check its weights")


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
