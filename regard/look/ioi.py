"""Indirect objects: "When Mary and John went to the bar, John handed a drink to" → " Mary".

The task of Wang et al. (2022) with sentences of our own: the name that stands once (IO) is the
answer, the one that stands twice (S) is not. In the corrupted twin three other names stand there,
none twice, so that nothing says who is meant.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

NAMES = (
    "Alice Adam Amy Andrew Anna Anthony Ben Brian Carl Carol Charles Chris Claire Daniel "
    "David Diana Edward Emily Emma Eric Frank George Grace Harry Helen Henry Ian Jack James "
    "Jane Jason Joe John Julia Karen Kate Kevin Laura Lisa Lucy Mark Martin Mary Matthew "
    "Michael Nick Oliver Paul Peter Rachel Richard Robert Rose Ruth Sam Sarah Simon Sophie "
    "Stephen Susan Thomas Tom Victor William"
).split()
PLACES = "bar market library park museum kitchen airport beach bakery hotel".split()
THINGS = "drink book letter ticket key map sandwich lamp coin flower".split()
FRAMES = (
    "When {a} and {b} went to the {place}, {s} handed a {thing} to",
    "After {a} and {b} met at the {place}, {s} passed a {thing} to",
    "While {a} and {b} were waiting at the {place}, {s} offered a {thing} to",
    "As {a} and {b} left the {place}, {s} gave a {thing} to",
    "Yesterday {a} and {b} walked to the {place}, and {s} brought a {thing} to",
    "Once {a} and {b} had found the {place}, {s} showed a {thing} to",
    "Because {a} and {b} like the {place}, {s} sent a {thing} to",
    "Since {a} and {b} work at the {place}, {s} lent a {thing} to",
)


class Prompt(NamedTuple):
    """A sentence and its corrupted twin, and who is meant."""

    clean: str
    corrupt: str
    io: str
    s: str
    frame: int


def make_prompts(count: int, seed: int = 0, usable: Callable[[str], bool] = bool) -> list[Prompt]:
    """Prompts, half with the answer named first; only `usable` names, places and things."""
    dice = random.Random(seed)
    names, places, things = ([w for w in words if usable(w)] for words in (NAMES, PLACES, THINGS))
    if len(names) < 5 or not places or not things:
        return []
    made = []
    for number in range(count):
        io, s, *others = dice.sample(names, 5)
        frame = number // 2 % len(FRAMES)
        spot = {"place": dice.choice(places), "thing": dice.choice(things)}
        first, second = (io, s) if number % 2 else (s, io)
        clean = FRAMES[frame].format(a=first, b=second, s=s, **spot)
        corrupt = FRAMES[frame].format(a=others[0], b=others[1], s=others[2], **spot)
        made.append(Prompt(clean, corrupt, io, s, frame))
    return made


class Roles(NamedTuple):
    """Columns of the names in a prompt's tokens."""

    io: int
    s1: int
    s2: int
    end: int


def find_roles(ids: list[int], io: int, s: int) -> Roles | None:
    """Where the tokens of IO and S stand; None where they do not stand once and twice."""
    subject = [n for n, id in enumerate(ids) if id == s]
    if ids.count(io) != 1 or len(subject) != 2:
        return None
    return Roles(ids.index(io), subject[0], subject[1], len(ids) - 1)
