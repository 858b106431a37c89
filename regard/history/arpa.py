"""ARPA files: n-gram models as text, which SRILM, KenLM and others read and write.

A line is an n-gram: log10 p, the words, and where longer ones follow log10 of its back-off weight.
Every n-gram has a probability there, so those that a model reaches by backing off are worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from regard.errors import DataError
from regard.files import BROKEN
from regard.history.ngrams import Level, Ngrams

NEVER = -99.0
"""log10 of no probability, by custom; also what the start of a sentence has."""
LOG10 = float(np.log(10))


# Writing ------------------------------------------------------------------------------------------


def write_arpa(model: Ngrams, spell: Callable[[int], str], file: TextIO) -> None:
    """Write a model, each id as `spell` says."""
    words = np.array([spell(id) for id in range(model.vocab)], object)
    file.write("\\data\\\n")
    file.writelines(f"ngram {n}={len(level)}\n" for n, level in enumerate(model.levels, 1))
    names, below = words, np.full(model.vocab, model.base)
    for n, level in enumerate(model.levels):
        if n:  # where a level itself has no probability, it backs off
            names = names[level.context] + " " + words[level.word]
            below = below[model.suffixes[n]] + model.levels[n - 1].backoff[level.context]
        below = np.where(np.isnan(level.logprob), below, level.logprob)
        file.write(f"\n\\{n + 1}-grams:\n")
        columns = [map(spell_log, below), names, map(spell_log, level.backoff)]
        rows = zip(*columns[: 3 if n + 1 < model.order else 2], strict=True)
        file.writelines("\t".join(row) + "\n" for row in rows)
    file.write("\n\\end\\\n")


def spell_log(value: float) -> str:
    """A natural logarithm as log10, with as many digits as come back to the same number."""
    return repr(float(value) / LOG10) if np.isfinite(value) else repr(NEVER)


# Reading ------------------------------------------------------------------------------------------


class Lines(Iterator[str]):
    """The lines of a file, with the last one and its number for error messages."""

    def __init__(self, file: Iterable[str], name: Path | str) -> None:
        self.file, self.name, self.number, self.last = iter(file), name, 0, ""

    def __next__(self) -> str:
        self.last, self.number = next(self.file), self.number + 1
        return self.last

    def wrong(self, problem: str, expected: str, number: int | None = None) -> DataError:
        """An error at a line, the last one unless said otherwise."""
        place = f"line {number or self.number:,}"
        return DataError(f"reading {self.name}", f"{place}: {problem}", expected, BROKEN)


def read_arpa(file: Iterable[str], name: Path | str) -> tuple[Ngrams, list[str]]:
    """A model, and the spelling of each of its ids: the single words in the file's order.

    Where the file has no <unk>, one that is never likely comes last.
    """
    lines = Lines(file, name)
    sizes = read_sizes(lines)
    words: dict[str, int] = {}
    levels: list[Level] = []
    for n, size in enumerate(sizes, 1):
        below = Ngrams(max(1, len(words)), tuple(levels), words.get("<s>"))
        levels.append(read_level(lines, size, words, below, n == len(sizes)))
    if "\\end\\" not in (lines.last.strip(), *(line.strip() for line in lines)):
        raise lines.wrong("the end", "a line \\end\\ after the n-grams")
    return Ngrams(len(words), tuple(levels), words.get("<s>")), list(words)


def read_sizes(lines: Lines) -> list[int]:
    """How many n-grams of each length follow; ends before the first section."""
    if not any(line.strip() == "\\data\\" for line in lines):
        raise lines.wrong("the end", "a line \\data\\")
    sizes: list[int] = []
    for line in lines:
        if not line.strip() and sizes:
            return sizes
        if not line.strip():
            continue
        label, _, count = line.removeprefix("ngram ").partition("=")
        if not line.startswith("ngram ") or label.strip() != str(len(sizes) + 1):
            raise lines.wrong(repr(line), f"ngram {len(sizes) + 1}=…")
        if not count.strip().isdecimal() or len(count) > 18:
            raise lines.wrong(repr(line[:60]), "a count")
        sizes.append(int(count))
    raise lines.wrong("the end", "n-grams")


def read_level(lines: Lines, size: int, words: dict[str, int], below: Ngrams, last: bool) -> Level:
    """The n-grams of a section, sorted by their contexts, which the levels below must hold."""
    n = below.order + 1
    title = next((line for line in lines if line.strip()), "the end")
    if title.strip() != f"\\{n}-grams:":
        raise lines.wrong(repr(title), f"\\{n}-grams:")
    ids, logs, shares, first = list[list[int]](), list[float](), list[float](), lines.number + 1
    for line in lines:
        parts = line.split()
        if not parts or parts[0].startswith("\\"):
            break
        if len(parts) not in (n + 1, n + 2):
            raise lines.wrong(f"{len(parts)} fields", f"log p, {n} words and a back-off weight")
        try:
            log, share = float(parts[0]), float(parts[n + 1]) if len(parts) > n + 1 else 0.0
        except ValueError:
            raise lines.wrong(repr(line), "numbers before and after the words") from None
        if not log <= 0 or not share < np.inf:
            raise lines.wrong(repr(line), "log p of 0 or less, and a weight")
        logs.append(log)
        shares.append(0.0 if last else share)
        if n == 1:
            words.setdefault(parts[1], len(words))
        try:
            ids.append([words[word] for word in parts[1 : n + 1]])
        except KeyError as error:
            raise lines.wrong(f"the word {error}", "one of the single words above") from None
    if len(ids) != size:
        raise lines.wrong(f"{len(ids):,} {n}-grams", f"{size:,}, as the head says")
    if n == 1 and "<unk>" not in words:
        ids.append([words.setdefault("<unk>", len(words))])
        logs.append(NEVER)
        shares.append(0.0)
    grams = np.array(ids, np.int64).reshape(-1, n)
    context = np.zeros(len(grams), np.int64)
    for m in range(n - 1):
        context = below.find(m, context, grams[:, m])
    if (context < 0).any():
        problem = f"{n}-gram {int((context < 0).argmax()) + 1:,} goes on from a {n - 1}-gram"
        raise lines.wrong(f"{problem} that is not listed", "each context among the shorter n-grams")
    order = np.lexsort((grams[:, -1], context))  # stable: of two that are equal the earlier first
    twice = np.flatnonzero((grams[order[1:]] == grams[order[:-1]]).all(1))
    if len(twice):
        at = twice[order[twice + 1].argmin()]
        before, again = first + int(order[at]), first + int(order[at + 1])
        spelt = " ".join(list(words)[id] for id in grams[order[at]])
        raise lines.wrong(f"{spelt!r} again, which line {before:,} has", "each n-gram once", again)
    log10 = np.array([logs, shares])[:, order]
    p, backoff = np.where(log10 <= NEVER, -np.inf, log10 * LOG10)  # NEVER is no probability
    return Level(context[order], grams[order, -1], p, backoff, np.zeros(len(grams), np.int64))
