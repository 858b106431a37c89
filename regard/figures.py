"""Figures: the numbers of a text, and which of them a translation lost."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import NamedTuple

Span = tuple[int, int]

GAP = "[ ,.'\u00a0\u202f\u2009]"  # between groups of three digits, and before decimals
CLOCK = re.compile(
    r"(?<![\d,.])(\d{1,2})\s?(?:h|heures?)(?![a-zà-ÿ])\s?(?:(\d{2})(?!\d))?", re.IGNORECASE
)
FIGURE = re.compile(rf"(?<!\d)(?:\d{{1,3}}(?:{GAP}\d{{3}})+(?!\d)|\d+)(?:[.,]\d+)?")
MINUS = re.compile(r"(?:^|(?<=[\s(]))[-−–]$")
SAID = dict(
    enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen twenty".split()
    )
)
SAID |= {
    10 * n: word
    for n, word in enumerate("thirty forty fifty sixty seventy eighty ninety".split(), start=3)
}
ALIKE = 0.6  # share of the digits of two numbers that are the same
OTHERS = {
    0: ("no", "midnight"),
    1: ("a", "an", "first", "single"),
    2: ("second", "both", "double"),
    3: ("third", "triple"),
    4: ("fourth",),
    5: ("fifth",),
    12: ("noon", "dozen"),
}
"""Other words that English has for small numbers."""


class Figure(NamedTuple):
    """A number of a text."""

    english: str
    """As English writes it."""
    digits: frozenset[str]
    """Its digits without marks; of a time of day, also as counted from noon."""
    minus: bool


def figures(text: str) -> list[Figure]:
    """The numbers of a text in their order; hours and minutes are two of them."""
    found, clocks = list[tuple[int, Figure]](), list[tuple[int, int]]()
    for match in CLOCK.finditer(text):
        clocks.append(match.span())
        hour, minute = match[1], match[2]
        english = hour if minute is None else f"{hour}:{minute}"
        found.append((match.start(), Figure(english, hours(hour), False)))
        if int(minute or 0):
            found.append((match.start(2), Figure(english, alike(minute), False)))
    for match in FIGURE.finditer(text):
        if any(a <= match.start() < b for a, b in clocks):
            continue
        before, digits = text[: match.start()], alike(match[0])
        minus = bool(MINUS.search(before))
        if before.endswith("années ") and len(match[0]) == 2:
            digits |= {f"19{match[0]}"}  # the 1980s
        english = ("-" if minus else "") + in_english(match[0])
        found.append((match.start(), Figure(english, digits, minus)))
    return [figure for _, figure in sorted(found, key=lambda pair: pair[0])]


def hours(hour: str) -> frozenset[str]:
    """An hour as English may count it."""
    number = int(hour)
    return alike(hour) | {str(number % 12 or 12)}


def alike(number: str) -> frozenset[str]:
    """The digits of a number; a nought before it may go."""
    digits = re.sub(r"\D", "", number)
    return frozenset({digits, digits.lstrip("0") or "0"})


def in_english(number: str) -> str:
    """A French number with commas between thousands and a point before decimals."""
    whole, mark, decimals = number, "", ""
    if match := re.search(r"[.,](?!\d{3}(?!\d))\d+$|(?<=^\d),\d+$|(?<=^\d\d),\d+$", number):
        whole, mark, decimals = number[: match.start()], ".", match[0][1:]
    return re.sub(GAP, ",", whole) + mark + decimals


class Match(NamedTuple):
    """What a translation made of the numbers of its source."""

    lost: list[Figure]
    """Those that it lacks."""
    spare: list[Span]
    """Where it has numbers that the source lacks."""


def match_figures(source: str, target: str) -> Match:
    """Find each number of a source in a translation, as digits or in words."""
    runs = [(m.start(), m.end(), m[0]) for m in re.finditer(r"\d+", target)]
    words = set(re.findall(r"[a-z]+", target.lower()))
    taken: set[int] = set()
    lost = []
    for figure in figures(source):
        place = find_run(target, runs, taken, figure)
        if place is None and not is_said(figure, words):
            lost.append(figure)
        taken |= set(place or ())
    used = {at for n in taken for at in range(*runs[n][:2])}
    spare = [m.span() for m in FIGURE.finditer(target) if used.isdisjoint(range(*m.span()))]
    return Match(lost, spare)


def lost_figures(source: str, target: str) -> list[str]:
    """The numbers of a source that a translation lacks, as English writes them, each once."""
    return list(dict.fromkeys(figure.english for figure in match_figures(source, target).lost))


def mended(source: str, target: str) -> str:
    """A translation with the right numbers in the place of wrong ones; "" where these are unclear.

    Numbers are taken for each other where there are as many and they share most of their digits.
    """
    lost, spare = match_figures(source, target)
    if not lost or len(lost) != len(spare):
        return ""
    made, end = "", 0
    for figure, (start, after) in zip(lost, spare, strict=True):
        digits = re.sub(r"\D", "", target[start:after])
        if not any(SequenceMatcher(None, digits, own).ratio() >= ALIKE for own in figure.digits):
            return ""
        made, end = made + target[end:start] + figure.english.lstrip("-"), after
    return made + target[end:]


def find_run(
    target: str, runs: list[tuple[int, int, str]], taken: set[int], figure: Figure
) -> range | None:
    """The runs of digits of a translation that write a number together, none of them used yet."""
    for first in range(len(runs)):
        made = ""
        for last in range(first, len(runs)):
            gap = target[runs[last - 1][1] : runs[last][0]] if last > first else ""
            if last in taken or (last > first and not re.fullmatch(GAP, gap)):
                break
            made += runs[last][2]
            before = target[: runs[first][0]].rstrip()
            signed = before.endswith(("-", "−", "–", "minus")) or not figure.minus
            if made in figure.digits and signed and not goes_on(target, runs, first, last):
                return range(first, last + 1)
    return None


def goes_on(target: str, runs: list[tuple[int, int, str]], first: int, last: int) -> bool:
    """Whether one more group of three digits follows these runs, so that the number is longer."""
    if last + 1 == len(runs) or len(runs[first][2]) > 3:
        return False
    grouped = all(len(digits) == 3 for _, _, digits in runs[first + 1 : last + 2])
    return grouped and bool(re.fullmatch(GAP, target[runs[last][1] : runs[last + 1][0]]))


def is_said(figure: Figure, words: set[str]) -> bool:
    """Whether a small number may be there as a word."""
    numbers = {int(digits) for digits in figure.digits if len(digits) < 3}
    names = {name for n in numbers for name in (SAID.get(n, ""), *OTHERS.get(n, ()))}
    return bool(names & words) and not (figure.minus and "minus" not in words)
