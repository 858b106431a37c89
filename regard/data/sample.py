"""A sample of a stream of unknown length, evenly spaced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def evenly(items: Iterable[Item], most: int) -> list[Item]:
    """At most `most` items, in order and evenly spaced, so that all parts of a corpus are seen.

    Never holds more than twice as many: when it does, every second one goes.
    """
    kept, stride = list[Item](), 1
    for number, item in enumerate(items):
        if number % stride == 0:
            kept.append(item)
            if len(kept) > 2 * most:
                kept, stride = kept[::2], 2 * stride
    if len(kept) <= most:
        return kept
    return [kept[n * len(kept) // most] for n in range(most)]
