"""Repair: the numbers of a source that its translation lost, and words that nobody ever wrote.

How two languages write numbers is data in the model's folder, `numbers.json`:
  source, target   of each language:
    words, ordinals  numbers in words, and what they are worth
    suffix           of an ordinal in digits
    joint            what may stand between the words of one number
    rooms            below what a number after this one may be, where it is no power of ten: after
                     60 also 10 to 19
    scores           words that multiply the number before, if it is this: vingt after 4
    years            whether two numbers below 100 in a row are a year
    not              single words that are no numbers, with what stands around them
    clock            a time of day, its number words in digits: hour or noon, minute, shift, half
    late             words that make it one after noon
  shifts     words for minutes after or before the hour
  noons      hours that have names
  time       how the target writes hour and minute
  decimals   the decimal part at the end of a number of the source
  measures   what follows a number whose comma is before decimals, even if three
  decade     what stands before the last two digits of a year, and the century's
  marks      between thousands and before decimals in the target
  signs      signs of the source beside numbers: how the target writes each, or may
  units      signs and names in the target of which one excludes the others
  mends      where the source matches, a wrong phrase of the target and the right one
  names      a small number, in digits, and what the target may write instead
  minus      a word of the target for the sign
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from regard.data.sentences import Span
from regard.errors import expecting

NUMBERS_FILE = "numbers.json"
GAP = "[ ,.'\u00a0\u202f\u2009]"  # between groups of three digits, and before decimals
FIGURE = re.compile(rf"(?<!\d)(?:\d{{1,3}}(?:{GAP}\d{{3}})+(?!\d)|\d+)(?:[.,]\d+)?")
GROUPED = re.compile(rf"\d{{1,3}}(?:{GAP}\d{{3}})+(?!\d)")
MINUS = re.compile(r"(?:^|(?<=[\s(]))[-−–]$")
ALIKE = 0.6  # share of the digits of two numbers that are the same
ANY = re.compile("")
SMALL = 10  # a number that is often said without counting
WORD = re.compile(r"[^\W\d_]{3,}")
"""Of letters alone, three or more; parts of well-known are two."""


# Words ------------------------------------------------------------------------------------------


def coined_words(source: str, target: str, written: Container[str]) -> list[str]:
    """The words of a translation that are made up, each once; a copied name is none of them."""
    copied = {run.lower() for run in WORD.findall(source)}
    runs = dict.fromkeys(WORD.findall(target))
    return [run for run in runs if run.lower() not in written and run.lower() not in copied]


# Numbers ----------------------------------------------------------------------------------------


class Figure(NamedTuple):
    """A number of a text."""

    written: str
    """As the target's language writes it."""
    digits: frozenset[str] = frozenset()
    """Its digits without marks."""
    minus: bool = False
    times: frozenset[int] = frozenset()
    """Of a time of day, the minutes since midnight that may be meant."""
    forms: frozenset[str] = frozenset()
    """How it may be written without marks between thousands; none where any mark will do."""
    sign: str = ""
    """A sign beside it that must stay."""
    small: bool | None = None
    """Where it is in words: whether it is one small word, which idioms have too."""


class Clock(NamedTuple):
    """A time of day in a text."""

    match: re.Match[str]
    time: int
    """Minutes since midnight."""
    bare: bool
    """Whether it is an hour alone, or perhaps no time at all."""
    times: frozenset[int]
    """Minutes since midnight that may be meant."""


class WordRun(NamedTuple):
    """Words of a text that are one number: a total of thousands and a group that is added to it."""

    start: int
    end: int
    total: int = 0
    group: int = 0
    room: int = 1_000_000
    """Below what the next number must be that is added."""
    suffix: str = ""


class NumberLanguage:
    """How a language says numbers and times of day: a part of numbers.json."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data: Mapping[str, Any] = {"rooms": {}, "scores": {}, "years": False, **data}
        self.values: dict[str, int] = {**data["words"], **data["ordinals"]}
        listed = "|".join(sorted(self.values, key=len, reverse=True))
        word = rf"(?<![^\W_])(?:{listed})(?![^\W_])"
        patterns = (word, *(data[name] for name in ("joint", "not", "clock", "late")))
        self.word, self.joint, self.excluded, self.clock, self.late = (
            re.compile(pattern, re.IGNORECASE) for pattern in patterns
        )

    def word_runs(self, text: str) -> list[WordRun]:
        """The numbers in words; a lone word that may be something else is none."""
        runs: list[WordRun] = []
        for match in self.word.finditer(text):
            joint = self.joint.match(text, runs[-1].end) if runs else None
            joined = joint is not None and joint.end() == match.start() and not runs[-1].suffix
            plain = joint is not None and not joint[0].strip(" -")
            longer = self.add_word(runs[-1], match, plain) if joined else None
            new = longer or self.add_word(WordRun(*match.span()), match)
            runs[len(runs) - bool(longer) :] = [new] if new else []
        alone = [run for run in runs if not re.search("[ -]", text[run.start : run.end])]
        return [r for r in runs if r not in alone or not self.excluded.match(text, r.start)]

    def add_word(self, run: WordRun, match: re.Match[str], plain: bool = False) -> WordRun | None:
        """A number with one more word, joined by a blank or hyphen if `plain`; None if it ended."""
        word = match[0].lower()
        value, score = self.values[word], self.data["scores"].get(word, -1)
        total, group = run.total, run.group
        room = 10 ** (len(str(value)) - len(str(value).rstrip("0")))
        if value == 1000 and not total:
            total, group = 1000 * max(1, group), 0
        elif value == 100 and group < 100:
            group = 100 * max(1, group)
        elif group % 100 == score:
            group, value = group - score + score * value, score * value
        elif 0 < value < run.room or run.end == match.end():
            group += value
        elif self.data["years"] and plain and 10 < group < 100 > value >= 10:
            group = 100 * group + value
        else:
            return None
        suffix = self.data["suffix"] if word in self.data["ordinals"] else ""
        room = self.data["rooms"].get(str(value), room)
        return WordRun(run.start, match.end(), total, group, room, suffix)

    def in_digits(self, text: str) -> tuple[str, dict[int, bool]]:
        """A text with digits for its numbers in words; where they begin, which are small words."""
        written, places, end = "", dict[int, bool](), 0
        for run in self.word_runs(text):
            written += text[end : run.start]
            value, end = run.total + run.group, run.end
            places[len(written)] = value <= SMALL
            written += f"{value}{run.suffix}"
        return written + text[end:], places


class Numbers:
    """How one language writes numbers, and another writes the same: what numbers.json says."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.source, self.target = NumberLanguage(data["source"]), NumberLanguage(data["target"])
        self.shifts: dict[str, int] = data["shifts"]
        self.noons: dict[str, int] = data["noons"]
        self.decimals, self.measures = (re.compile(data[n]) for n in ("decimals", "measures"))
        self.before_year, self.century = data["decade"]
        self.marks: tuple[str, str] = tuple(data["marks"])
        self.signs = {sign: (own, re.compile(a, re.I)) for sign, (own, a) in data["signs"].items()}
        self.units, self.minus, self.time = (str(data[n]) for n in ("units", "minus", "time"))
        self.mends = [(re.compile(a), re.compile(b), c) for a, b, c in data["mends"]]
        self.names = {int(number): frozenset(words) for number, words in data["names"].items()}

    def clocks(self, language: NumberLanguage, text: str) -> Iterator[Clock]:
        """The times of day of a text whose number words are digits."""
        late = language.late.search(text)
        for match in language.clock.finditer(text):
            parts = defaultdict[str, str](str, {k: v for k, v in match.groupdict().items() if v})
            hour = self.noons.get(parts["noon"].lower(), int(parts["hour"] or 0))
            minute = int(parts["minute"] or 0) + (30 if parts["half"] else 0)
            shift = re.match(r"(\D*?)\s*(\d*)\s*(\D*)$", parts["shift"].lower())
            if shift and shift[0]:
                minute += self.shifts[shift[1] + shift[3]] * int(shift[2] or 1)
            time, mark = 60 * hour + minute, parts["mark"].lower()
            if mark and hour <= 12:
                time = time % 720 + (720 if mark == "p" else 0)
            twice = not mark and parts["hour"] and hour <= 12 and (late or hour == 12)
            times = frozenset({time % 1440, (time + 720 * bool(twice)) % 1440})
            bare = not (mark or parts["minute"] or parts["shift"] or parts["noon"])
            if time <= 1440:
                yield Clock(match, time, bare, frozenset() if parts["more"] else times)

    def figures(self, text: str) -> list[Figure]:
        """The numbers of a source in their order."""
        spoken = not re.search(r"\d", text)
        text, words = self.source.in_digits(text)
        figures, clocks = dict[int, Figure](), [*self.clocks(self.source, text)]
        for match, time, bare, times in clocks:
            if spoken and time < 780 and match["hour"]:
                times |= {(time + 720) % 1440}
            written = match["hour"] if bare else self.time.format(*divmod(time, 60))
            figures[match.start()] = Figure(written, times=times)
        for match in FIGURE.finditer(text):
            if any(clock.match.start() <= match.start() < clock.match.end() for clock in clocks):
                continue
            before, after, digits = text[: match.start()], text[match.end() :], alike(match[0])
            minus = bool(MINUS.search(before))
            if before.endswith(self.before_year) and re.fullmatch(r"(\d\d){1,2}", match[0]):
                digits |= {f"{self.century}{match[0]}", match[0][-2:]}  # the 1980s, the 80s
            written = ("-" if minus else "") + self.convert(match[0], after)
            beside = before.rstrip()[-1:], after.lstrip()[:1]
            sign = next((mark for mark in beside if mark in self.signs), "")
            forms = frozenset[str]()  # 80,000 may be either, 3.14.1 is none
            if not match[0].isdigit() and ("," not in match[0] or self.marks[1] in written):
                forms = frozenset({self.plain(written), match[0].replace(",", " ")})
            small = words.get(match.start())
            figures[match.start()] = Figure(written, digits, minus, frozenset(), forms, sign, small)
        return [figures[at] for at in sorted(figures)]

    def convert(self, number: str, after: str = "") -> str:
        """A number of the source with the target's marks between thousands and before decimals."""
        thousands, point = self.marks
        if match := self.decimals.search(number):
            return re.sub(GAP, thousands, number[: match.start()]) + point + match[0][1:]
        if self.measures.match(after) and re.fullmatch(r"\d{1,3},\d+", number):
            return number.replace(",", point)
        return re.sub(GAP, thousands, number)

    def reread(self, text: str) -> str:
        """A source with its numbers in digits and its times of day as 14:30."""
        text = self.source.in_digits(text)[0]
        for match, time, bare, _ in reversed([*self.clocks(self.source, text)]):
            if not bare or match["unit"] in (None, "h") or match["at"]:
                clock = f"{match['at'] or ''}{time // 60 % 24}:{time % 60:02}"
                text = text[: match.start()] + clock + text[match.end() :]
        return text

    def match(self, source: str, target: str) -> tuple[list[Figure], list[Span]]:
        """Numbers that a translation lacks, as digits or in words, and where it has others.

        The places are those in the target with its number words in digits.
        """
        lost, used, figures = dict[int, Figure](), set[int](), self.figures(source)
        if not figures:
            return [], []
        words = set(re.findall(r"[^\W\d_]+", target.lower()))
        target = self.target.in_digits(target)[0]
        clocks = [*self.clocks(self.target, target)]
        for n, figure in enumerate(figures):
            same = (c for c in clocks if c.times & figure.times and c.match.start() not in used)
            if clock := next(same, None):
                used |= set(range(*clock.match.span()))
            elif figure.times:
                lost[n] = figure
        others = [c.match.span() for c in clocks if c.match.start() not in used and not c.bare]
        spare = others if lost else []
        kept = used | {at for span in spare for at in range(*span)}
        runs = [run for run in re.finditer(r"\d+", target) if run.start() not in kept]
        taken: set[int] = set()
        for n, figure in enumerate(figures):
            if figure.times:
                continue
            place = self.find_run(target, runs, taken, figure)
            small = [int(digits) for digits in figure.digits if len(digits) < 5]
            said = any(self.names.get(number, frozenset()) & words for number in small)
            said = said and not (figure.minus and self.minus not in words)
            template, signs = self.signs.get(figure.sign, ("{}", ANY))
            if not signs.search(target):
                lost[n] = figure._replace(written=template.format(figure.written))
            elif place is None and not said:
                lost[n] = figure
            else:
                taken |= set(place or ())
        used |= {at for n in taken for at in range(*runs[n].span())} | kept
        spare += [m.span() for m in FIGURE.finditer(target) if used.isdisjoint(range(*m.span()))]
        return [lost[n] for n in sorted(lost) if spare or not lost[n].small], sorted(spare)

    def plain(self, number: str) -> str:
        """A number of the target without marks between thousands."""
        return "".join(mark for mark in number if mark.isdigit() or mark == self.marks[1])

    def find_run(
        self, target: str, runs: list[re.Match[str]], taken: set[int], figure: Figure
    ) -> range | None:
        """The runs of digits of a translation that write a number together, none used yet."""
        for first in range(len(runs)):
            digits = ""
            for last in range(first, len(runs)):
                gap = target[runs[last - 1].end() : runs[last].start()] if last > first else ""
                short = gap.isspace() and len(runs[last][0]) != 3
                if last in taken or short or (last > first and not re.fullmatch(GAP, gap)):
                    break
                digits += runs[last][0]
                before = target[: runs[first].start()].rstrip()
                signed = before.endswith(("-", "−", "–", self.minus)) or not figure.minus
                grouped = GROUPED.match(target, runs[first].start())
                longer = grouped is not None and grouped.end() > runs[last].end()
                written = target[runs[first].start() : runs[last].end()]
                exact = not figure.forms or {written, self.plain(written)} & figure.forms
                if digits in figure.digits and signed and exact and not longer:
                    return range(first, last + 1)
        return None

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
        target = self.target.in_digits(target)[0]
        text, end = "", 0
        for figure, (start, after) in zip(lost, spare, strict=True):
            old = target[start:after]
            digits = re.sub(r"\D", "", old)
            ratios = (SequenceMatcher(None, digits, own).ratio() for own in figure.digits)
            spoken = figure.small is not None and len(lost) == 1
            alike = spoken or any(ratio >= ALIKE for ratio in ratios)
            if FIGURE.fullmatch(old) if figure.times else not alike:
                return ""
            written = figure.written.lstrip("-")
            if figure.times and written.isdigit():
                written = self.time.format(int(written), 0)
            before, rest = target[end:start], target[after:]
            if figure.sign and figure.sign in written:  # in the place of any other
                before = re.sub(rf"(?:{self.units})\s?$", "", before)
                rest = re.sub(rf"^\s?(?:{self.units})", "", rest)
            text, end = text + before + written, len(target) - len(rest)
        return text + target[end:]

    def polish(self, source: str, target: str) -> str:
        """A translation without the wrong phrases that numbers.json knows how to mend."""
        for wrong_if, phrase, right in self.mends:
            target = phrase.sub(right, target) if wrong_if.search(source) else target
        return target


def read_numbers(files: Mapping[str, bytes]) -> Numbers | None:
    """What a folder's numbers.json says; None where there is none."""
    if NUMBERS_FILE not in files:
        return None
    with expecting(f"reading {NUMBERS_FILE}", "what translation/repair.py lists"):
        return Numbers(json.loads(files[NUMBERS_FILE]))


def alike(number: str) -> frozenset[str]:
    """The digits of a number; a nought before it may go."""
    digits = re.sub(r"\D", "", number)
    return frozenset({digits, digits.lstrip("0") or "0"})
