"""Which lines were seen before: repeats in a corpus, and test lines in the training data (N14).

Lines are compared by 64-bit hashes of their text, after Unicode (NFC), case and blanks are made
alike; a false find has a chance of lines × test lines / 2⁶⁴.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from tempfile import TemporaryFile

import numpy as np

from regard.data.order import Counts
from regard.data.pairs import Pair
from regard.data.results import Overlap

BLOCK = 3 << 16  # hashes looked up at once, a multiple of the sides
ROOM = 1 << 24  # hashes held in memory, 128 MiB
SHOWN = 5  # lines named in a report
WORDS = 8  # shorter lines of running text, such as headings, recur by chance
SIDES = ("source", "target", "pair")


def normalise(text: str) -> str:
    """One form for texts that differ in case, blanks or Unicode composition only."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def hash_text(text: str) -> int:
    """64 bits; Python's own hash, which holds for one process."""
    return hash(normalise(text))


class Repeats:
    """Counts lines that came before; beyond ROOM hashes, sorted runs go to a temporary file."""

    def __init__(self, room: int = ROOM) -> None:
        self.room, self.held, self.runs = room, array("q"), list[Counts]()

    def add(self, value: int) -> None:
        """The hash of one more line."""
        self.held.append(value)
        if len(self.held) < self.room:
            return
        run = np.sort(np.array(self.held, np.int64))
        with TemporaryFile() as file:  # it lives as long as the map
            run.tofile(file)
            file.flush()
            self.runs.append(np.memmap(file, np.int64, "r", shape=run.shape))
        self.held = array("q")

    def count(self) -> int:
        """How many lines repeat an earlier one, taken range by range of the hashes."""
        runs = [*self.runs, np.sort(np.array(self.held, np.int64))]
        edges = [-(2**63) + n * 2**64 // len(runs) for n in range(1, len(runs))]
        cuts = [[0, *np.searchsorted(run, np.array(edges, np.int64)), len(run)] for run in runs]
        total = 0
        for n in range(len(runs)):
            part = [run[cut[n] : cut[n + 1]] for run, cut in zip(runs, cuts, strict=True)]
            values = np.concatenate(part)
            total += len(values) - len(np.unique(values))
        return total


class Finder:
    """Looks for the lines of a test set in a stream; 17 bytes a test line, none a training line."""

    def __init__(self, test: Iterable[tuple[int, int]]) -> None:
        pairs = np.array(list(test), np.int64).reshape(-1, 2)  # hash, line number
        self.keys, which = np.unique(pairs[:, 0], return_inverse=True)
        self.which, self.numbers = which.reshape(-1), pairs[:, 1]
        self.seen = np.zeros(len(self.keys), bool)

    def look(self, hashes: Counts) -> None:
        """Mark test lines that are among these."""
        if len(self.keys):
            at = np.minimum(np.searchsorted(self.keys, hashes), len(self.keys) - 1)
            self.seen[at[self.keys[at] == hashes]] = True

    def result(self) -> Overlap:
        """What was found so far."""
        numbers = np.sort(self.numbers[self.seen[self.which]])
        return Overlap(len(numbers), len(self.numbers), tuple(numbers[:SHOWN].tolist()))


def overlap(train: Iterable[str], test: Iterable[str], words: int = 1) -> Overlap:
    """Test lines that stand in the training lines; those of fewer words do not count."""
    finders = text_finders(test, words)
    search((hash_text(text) for text in train), [finders])
    return finders[0].result()


def pair_overlap(train: Iterable[Pair], test: Iterable[Pair]) -> dict[str, Overlap]:
    """Test pairs that stand in the training pairs: by source, by target, and by both."""
    finders = pair_finders(test)
    search((value for pair in train for value in hash_pair(pair)), [finders])
    return {name: finder.result() for name, finder in zip(SIDES, finders, strict=True)}


def count_words(text: str) -> int:
    """Words with a letter or digit, so that a title between marks is no sentence; 1 if none has."""
    words = text.split()
    return sum(any(map(str.isalnum, word)) for word in words) or min(1, len(words))


def text_finders(test: Iterable[str], words: int = 1) -> list[Finder]:
    """One finder, for lines of so many words or more."""
    lines = ((n, text) for n, text in enumerate(test, 1) if count_words(text) >= words)
    return [Finder((hash_text(text), n) for n, text in lines)]


def pair_finders(test: Iterable[Pair]) -> list[Finder]:
    """A finder for each of SIDES."""
    rows = [(*hash_pair(pair), n) for n, pair in enumerate(test, 1) if "".join(pair).strip()]
    return [Finder((row[side], row[3]) for row in rows) for side in range(len(SIDES))]


def search(values: Iterable[int], sets: Sequence[Sequence[Finder]]) -> None:
    """Show the training hashes, one for each finder of a set in turn, to all sets in one pass."""
    stream = iter(values)
    while len(block := np.fromiter(islice(stream, BLOCK), np.int64)):
        for finders in sets:
            for side, finder in enumerate(finders):
                finder.look(block[side :: len(finders)])


def hash_pair(pair: Pair) -> tuple[int, int, int]:
    """Hashes of source, target and both."""
    source, target = hash_text(pair[0]), hash_text(pair[1])
    return source, target, hash((source, target))
