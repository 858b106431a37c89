"""Words of a context-free grammar: recognised, counted and drawn by dynamic programming.

CYK (Younger 1967) with one bit for each place where a part may end; the inside algorithm
(Baker 1979); words of a length drawn uniformly from exact counts (Hickey and Cohen 1983).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from random import Random

from regard.errors import ResourceError
from regard.formal.cnf import CNF, to_cnf
from regard.formal.grammar import Grammar

ATTEMPTS = 2_000  # draws of one word before a grammar is called too ambiguous


class Chart:
    """A grammar made ready: membership, counts, uniform words.

    Of an `unambiguous` grammar no word has two derivations, so that draws need no second look.
    """

    def __init__(self, grammar: Grammar, unambiguous: bool = False) -> None:
        self.grammar, self.unambiguous = grammar, unambiguous
        self.rules: CNF = to_cnf(grammar)
        self._counts: dict[str, list[int]] = {}

    # Membership --------------------------------------------------------------------------------

    def accepts(self, word: Sequence[str]) -> bool:
        """Whether the grammar derives the word."""
        if not word:
            return bool(self.rules.empty)
        names = list(self.rules.pairs)
        pairs = [(a, b, c) for a in names for b, c in self.rules.pairs[a]]
        starts = [dict.fromkeys(names, 0) for _ in range(len(word) + 1)]  # seen from the end
        for i in range(len(word) - 1, -1, -1):
            ends = dict.fromkeys(names, 0)  # from here, where a name ends
            for name, row in self.rules.words.items():
                if word[i] in row:
                    ends[name] = 1 << (i + 1)
                    starts[i + 1][name] |= 1 << i
            for j in range(i + 2, len(word) + 1):
                behind = starts[j]
                for a, b, c in pairs:
                    if ends[b] & behind[c]:
                        ends[a] |= 1 << j
                        behind[a] |= 1 << i
        return bool(ends[self.rules.start] >> len(word) & 1)

    # Counts and uniform words ------------------------------------------------------------------

    @cached_property
    def counting(self) -> CNF:
        """The rules with the number of their derivations."""
        return to_cnf(self.grammar, counting=True)

    def _fill(self, length: int) -> dict[str, list[int]]:
        """Derivations from each name of words of length 0, 1, 2, …, at least up to a length."""
        counts = self._counts
        if not counts:
            words = self.counting.words
            counts |= {name: [0, sum(words[name].values())] for name in self.counting.pairs}
        for n in range(len(counts[self.rules.start]), length + 1):
            rows = {
                name: sum(
                    weight * sum(counts[b][k] * counts[c][n - k] for k in range(1, n))
                    for (b, c), weight in row.items()
                )
                for name, row in self.counting.pairs.items()
            }
            for name, number in rows.items():
                counts[name].append(number)
        return counts

    def count(self, length: int) -> int:
        """Derivations of words of this length: as many as there are words, if none has two."""
        return self._fill(length)[self.rules.start][length] if length else self.counting.empty

    def ambiguity(self, word: Sequence[str]) -> int:
        """How many derivations the word has, by the inside algorithm."""
        rules, size = self.counting, len(word)
        if not word:
            return rules.empty
        table: dict[tuple[int, int], Counter[str]] = {}
        for width in range(1, size + 1):
            for i in range(size - width + 1):
                cell = Counter[str]()
                if width == 1:
                    cell.update({a: row[word[i]] for a, row in rules.words.items()})
                for a, row in rules.pairs.items():
                    for (b, c), weight in row.items():
                        for k in range(i + 1, i + width):
                            if b in table[i, k] and c in table[k, i + width]:
                                cell[a] += weight * table[i, k][b] * table[k, i + width][c]
                table[i, i + width] = +cell  # what cannot stand there goes
        return table[0, size][rules.start]

    def sample(self, length: int, rng: Random) -> tuple[str, ...]:
        """One word of this length, each as likely as any other.

        A derivation is drawn; a word with d of them is kept one time in d.
        """
        for _ in range(ATTEMPTS):
            word = self._draw(length, rng) if length else ()
            if self.unambiguous or rng.randrange(self.ambiguity(word)) == 0:
                return word
        problem = f"no word in {ATTEMPTS:,} draws: the grammar is too ambiguous"
        raise ResourceError("drawing a word", problem, "few derivations of each word")

    def _draw(self, length: int, rng: Random) -> tuple[str, ...]:
        """The word of a derivation drawn uniformly."""
        counts, word = self._fill(length), list[str]()
        stack = [(self.rules.start, length)]
        while stack:
            name, n = stack.pop()
            if n == 1:
                row = self.counting.words[name]
                word += rng.choices(list(row), list(row.values()))
                continue
            rank = rng.randrange(counts[name][n])
            splits = ((b, c, k) for b, c in self.counting.pairs[name] for k in range(1, n))
            for b, c, k in splits:  # which two names, and where the first of them ends
                ways = self.counting.pairs[name][b, c] * counts[b][k] * counts[c][n - k]
                if rank < ways:
                    stack += [(c, n - k), (b, k)]
                    break
                rank -= ways
        return tuple(word)
