"""Repair: the numbers of a source that its translation lost, and words that nobody ever wrote.

How two languages write numbers is data in the model's folder, `numbers.json`:
  clock      a time of day in the source: hours, and minutes if there are any
  decimals   the decimal part at the end of a number of the source
  decade     what stands before the last two digits of a year, and the century's
  marks      between thousands and before decimals in the target
  names      a small number, in digits, and what the target may write instead
  minus      a word of the target for the sign
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

from regard.data.sentences import Span
from regard.errors import DataError

NUMBERS_FILE = "numbers.json"
GAP = "[ ,.'\u00a0\u202f\u2009]"  # between groups of three digits, and before decimals
FIGURE = re.compile(rf"(?<!\d)(?:\d{{1,3}}(?:{GAP}\d{{3}})+(?!\d)|\d+)(?:[.,]\d+)?")
MINUS = re.compile(r"(?:^|(?<=[\s(]))[-−–]$")
ALIKE = 0.6  # share of the digits of two numbers that are the same
WORD = re.compile(r"[^\W\d_]{3,}")


# Words ------------------------------------------------------------------------------------------


def letter_runs(text: str) -> list[str]:
    """Words of letters alone, three or more; parts of well-known are two."""
    return WORD.findall(text)


def coined_words(source: str, target: str, written: Collection[str]) -> list[str]:
    """The words of a translation that are made up, each once; a copied name is none of them."""
    copied = {run.lower() for run in letter_runs(source)}
    runs = dict.fromkeys(letter_runs(target))
    return [run for run in runs if run.lower() not in written and run.lower() not in copied]


# Numbers ----------------------------------------------------------------------------------------


class Figure(NamedTuple):
    """A number of a text."""

    written: str
    """As the target's language writes it."""
    digits: frozenset[str]
    """Its digits without marks; of a time of day, also those of the other half of the day."""
    minus: bool


class DigitRun(NamedTuple):
    """Digits of a text that stand together."""

    start: int
    end: int
    digits: str


@dataclass(frozen=True)
class Numbers:
    """How one language writes numbers, and another writes the same."""

    clock: re.Pattern[str]
    decimals: re.Pattern[str]
    decade: tuple[str, str]
    marks: tuple[str, str]
    names: Mapping[int, frozenset[str]]
    minus: str

    def figures(self, text: str) -> list[Figure]:
        """The numbers of a source in their order; hours and minutes are two of them."""
        found, clocks = list[tuple[int, Figure]](), list[Span]()
        for match in self.clock.finditer(text):
            clocks.append(match.span())
            hour, minute = match[1], match[2]
            written = hour if minute is None else f"{hour}:{minute}"
            halves = {str(int(hour) % 12), str(int(hour) % 12 + 12)}
            found.append((match.start(), Figure(written, alike(hour) | halves, False)))
            if int(minute or 0):
                found.append((match.start(2), Figure(written, alike(minute), False)))
        before_year, century = self.decade
        for match in FIGURE.finditer(text):
            if any(a <= match.start() < b for a, b in clocks):
                continue
            before, digits = text[: match.start()], alike(match[0])
            minus = bool(MINUS.search(before))
            if before.endswith(before_year) and len(match[0]) == 2:
                digits |= {f"{century}{match[0]}"}  # the 1980s
            elif re.fullmatch(rf"{century}\d\d", match[0]):
                digits |= {match[0][2:]}  # les années 80
            written = ("-" if minus else "") + self.convert(match[0])
            found.append((match.start(), Figure(written, digits, minus)))
        return [figure for _, figure in sorted(found, key=lambda pair: pair[0])]

    def convert(self, number: str) -> str:
        """A number of the source with the target's marks between thousands and before decimals."""
        thousands, point = self.marks
        if match := self.decimals.search(number):
            return re.sub(GAP, thousands, number[: match.start()]) + point + match[0][1:]
        return re.sub(GAP, thousands, number)

    def match(self, source: str, target: str) -> tuple[list[Figure], list[Span]]:
        """Numbers that a translation lacks, as digits or in words, and where it has others."""
        runs = [DigitRun(m.start(), m.end(), m[0]) for m in re.finditer(r"\d+", target)]
        words = set(re.findall(r"[^\W\d_]+", target.lower()))
        taken: set[int] = set()
        lost = []
        for figure in self.figures(source):
            place = find_run(target, runs, taken, figure, self.minus)
            small = [int(digits) for digits in figure.digits if len(digits) < 3]
            said = any(self.names.get(number, frozenset()) & words for number in small)
            said = said and not (figure.minus and self.minus not in words)
            if place is None and not said:
                lost.append(figure)
            taken |= set(place or ())
        used = {at for n in taken for at in range(runs[n].start, runs[n].end)}
        spare = [m.span() for m in FIGURE.finditer(target) if used.isdisjoint(range(*m.span()))]
        return lost, spare

    def find_lost(self, source: str, target: str) -> list[str]:
        """The numbers of a source that a translation lacks, as it should write them, each once."""
        return list(dict.fromkeys(figure.written for figure in self.match(source, target)[0]))

    def put_right(self, source: str, target: str) -> str:
        """A translation with the right numbers in the place of wrong ones; "" where it is unclear.

        Numbers are taken for each other where there are as many and they share most digits.
        """
        lost, spare = self.match(source, target)
        if not lost or len(lost) != len(spare):
            return ""
        text, end = "", 0
        for figure, (start, after) in zip(lost, spare, strict=True):
            digits = re.sub(r"\D", "", target[start:after])
            ratios = (SequenceMatcher(None, digits, own).ratio() for own in figure.digits)
            if not any(ratio >= ALIKE for ratio in ratios):
                return ""
            text, end = text + target[end:start] + figure.written.lstrip("-"), after
        return text + target[end:]


def read_numbers(files: Mapping[str, bytes]) -> Numbers | None:
    """What a folder's numbers.json says; None where there is none."""
    if NUMBERS_FILE not in files:
        return None
    try:
        data = json.loads(files[NUMBERS_FILE])
        return Numbers(
            re.compile(data["clock"], re.IGNORECASE),
            re.compile(data["decimals"]),
            (str(data["decade"][0]), str(data["decade"][1])),
            (str(data["marks"][0]), str(data["marks"][1])),
            {int(number): frozenset(words) for number, words in data["names"].items()},
            str(data["minus"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, re.error) as error:
        wrong = f"{type(error).__name__}: {error}"
        expected = "what translation/repair.py lists"
        raise DataError(f"reading {NUMBERS_FILE}", wrong, expected) from None


def alike(number: str) -> frozenset[str]:
    """The digits of a number; a nought before it may go."""
    digits = re.sub(r"\D", "", number)
    return frozenset({digits, digits.lstrip("0") or "0"})


def find_run(
    target: str, runs: list[DigitRun], taken: set[int], figure: Figure, minus: str
) -> range | None:
    """The runs of digits of a translation that write a number together, none of them used yet."""
    for first in range(len(runs)):
        digits = ""
        for last in range(first, len(runs)):
            gap = target[runs[last - 1].end : runs[last].start] if last > first else ""
            if last in taken or (last > first and not re.fullmatch(GAP, gap)):
                break
            digits += runs[last].digits
            before = target[: runs[first].start].rstrip()
            signed = before.endswith(("-", "−", "–", minus)) or not figure.minus
            # One more group of three digits after these runs makes the number longer.
            longer = last + 1 < len(runs) and len(runs[first].digits) <= 3
            longer = longer and all(len(run.digits) == 3 for run in runs[first + 1 : last + 2])
            if longer:
                gap = target[runs[last].end : runs[last + 1].start]
                longer = bool(re.fullmatch(GAP, gap))
            if digits in figure.digits and signed and not longer:
                return range(first, last + 1)
    return None
