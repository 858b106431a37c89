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
from regard.history.ngrams import Floats, Ids, Level, Ngrams

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
        logs = [spell_log(value) for value in below]
        if n + 1 < model.order:
            shares = [spell_log(value) for value in level.backoff]
            rows = zip(logs, names, shares, strict=True)
            file.writelines(f"{log}\t{name}\t{share}\n" for log, name, share in rows)
        else:
            file.writelines(f"{log}\t{name}\n" for log, name in zip(logs, names, strict=True))
    file.write("\n\\end\\\n")


def spell_log(value: float) -> str:
    """A natural logarithm as log10, with as many digits as come back to the same number."""
    return repr(float(value) / LOG10) if np.isfinite(value) else repr(NEVER)


# Reading ------------------------------------------------------------------------------------------


class Lines:
    """The lines of a file, with the last one and its number for error messages."""

    def __init__(self, file: Iterable[str], name: Path | str) -> None:
        self.file, self.name, self.number, self.last = file, name, 0, ""

    def __iter__(self) -> Iterator[str]:
        for line in self.file:
            self.last, self.number = line, self.number + 1
            yield line

    def wrong(self, problem: str, expected: str, number: int | None = None) -> DataError:
        """An error at a line, the last one unless said otherwise."""
        place = f"line {number or self.number:,}"
        return DataError(f"reading {self.name}", f"{place}: {problem}", expected, BROKEN)


def read_arpa(file: Iterable[str], name: Path | str) -> tuple[Ngrams, list[str]]:
    """A model, and the spelling of each of its ids: the single words in the file's order."""
    lines = Lines(file, name)
    rows = iter(lines)
    sizes = read_sizes(lines, rows)
    words: dict[str, int] = {}
    levels: list[Level] = []
    for n, size in enumerate(sizes, 1):
        ids, logs, shares = read_level(lines, rows, n, size, words, n == len(sizes))
        if n == 1:
            start = words.get("<s>")
        model = Ngrams(max(1, len(words)), tuple(levels), start)
        levels.append(make_level(lines, model, ids, logs, shares))
    if "\\end\\" not in (lines.last.strip(), *(line.strip() for line in rows)):
        raise lines.wrong("the end", "a line \\end\\ after the n-grams")
    return Ngrams(len(words), tuple(levels), start), list(words)


def read_sizes(lines: Lines, rows: Iterator[str]) -> list[int]:
    """How many n-grams of each length follow; ends before the first section."""
    for line in rows:
        if line.strip() == "\\data\\":
            break
    else:
        raise lines.wrong("the end", "a line \\data\\")
    sizes: list[int] = []
    for line in rows:
        if not line.strip():
            if sizes:
                return sizes
            continue
        label, _, count = line.removeprefix("ngram ").partition("=")
        if not line.startswith("ngram ") or label.strip() != str(len(sizes) + 1):
            raise lines.wrong(repr(line), f"ngram {len(sizes) + 1}=…")
        if not count.strip().isdecimal() or len(count) > 18:
            raise lines.wrong(repr(line[:60]), "a count")
        sizes.append(int(count))
    raise lines.wrong("the end", "n-grams")


def read_level(
    lines: Lines, rows: Iterator[str], n: int, size: int, words: dict[str, int], last: bool
) -> tuple[Ids, Floats, Floats]:
    """The n-grams of a section: ids (N, n), log p (N,) and back-off weights (N,), natural logs."""
    title = next((line for line in rows if line.strip()), "the end")
    if title.strip() != f"\\{n}-grams:":
        raise lines.wrong(repr(title), f"\\{n}-grams:")
    ids: list[list[int]] = []
    first = lines.number + 1
    logs: list[float] = []
    shares: list[float] = []
    for line in rows:
        parts = line.split()
        if not parts or parts[0].startswith("\\"):
            break
        if len(parts) not in (n + 1, n + 2):
            raise lines.wrong(f"{len(parts)} fields", f"log p, {n} words and a back-off weight")
        log, share = read_numbers(lines, line, n)
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
    ngrams = np.array(ids, np.int64).reshape(-1, n)
    check_repeats(lines, ngrams, first, list(words))
    return ngrams, natural(logs), natural(shares)


def check_repeats(lines: Lines, ids: Ids, first: int, words: list[str]) -> None:
    """Refuse n-grams (N, n), on lines from `first` on, that stand there twice."""
    order = np.lexsort(ids.T[::-1])  # stable: of two that are equal the earlier comes first
    twice = np.flatnonzero((ids[order[1:]] == ids[order[:-1]]).all(1))
    if len(twice):
        at = twice[order[twice + 1].argmin()]
        before, again = first + int(order[at]), first + int(order[at + 1])
        spelt = " ".join(words[id] for id in ids[order[at]])
        raise lines.wrong(f"{spelt!r} again, which line {before:,} has", "each n-gram once", again)


def read_numbers(lines: Lines, line: str, n: int) -> tuple[float, float]:
    """log p before the words of a line, and the weight after them, 0 where there is none."""
    parts = line.split()
    try:
        log, share = float(parts[0]), float(parts[n + 1]) if len(parts) > n + 1 else 0.0
    except ValueError:
        raise lines.wrong(repr(line), "numbers before and after the words") from None
    if not log <= 0 or not share < np.inf:
        raise lines.wrong(repr(line), "log p of 0 or less, and a weight")
    return log, share


def natural(logs: list[float]) -> Floats:
    """log10 as natural logarithms; what is never likely as −inf."""
    values = np.array(logs, np.float64)
    return np.where(values <= NEVER, -np.inf, values * LOG10)


def make_level(lines: Lines, below: Ngrams, ids: Ids, logs: Floats, shares: Floats) -> Level:
    """Sort the n-grams of a section by their contexts, which the level below must hold."""
    context = np.zeros(len(ids), np.int64)
    for n in range(ids.shape[1] - 1):
        context = below.find(n, context, ids[:, n])
    if len(ids) and (context < 0).any():
        n, lost = ids.shape[1], int((context < 0).argmax())
        problem = f"{n}-gram {lost + 1:,} goes on from a {n - 1}-gram that is not listed"
        raise lines.wrong(problem, "each context among the shorter n-grams")
    order = np.lexsort((ids[:, -1], context))
    unseen = np.zeros(len(ids), np.int64)
    return Level(context[order], ids[order, -1], logs[order], shares[order], unseen)
