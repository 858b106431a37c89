"""The null model: random lines, and how often they keep a rule; negatives may be just that."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regard.formal.dfa import DFA
from regard.rules.encoded_lines import EncodedLines
from regard.rules.results import Chance
from regard.rules.rule import Accepts

DRAWN = 100, 4000  # lines, least and most, where there is no automaton to count with
TOKENS = 300_000  # of those lines, about


class RandomLines(NamedTuple):
    """Random lines: symbols drawn one by one, as long as some given lines."""

    symbols: tuple[str, ...]
    shares: tuple[float, ...]
    lengths: tuple[int, ...]
    even: bool
    """Whether all symbols are taken to be equally likely."""

    @classmethod
    def like(cls, lines: EncodedLines) -> RandomLines:
        """Lines with the lengths and the shares of symbols of some others."""
        shares = lines.counts.sum(1) / lines.counts.sum()
        return cls(lines.symbols, tuple(shares.tolist()), tuple(lines.lengths.tolist()), False)

    def draw(self, count: int, rng: np.random.Generator) -> list[list[str]]:
        """So many lines."""
        lengths = rng.choice(np.array(self.lengths), count)
        ends = np.cumsum(lengths)
        drawn = rng.choice(len(self.symbols), int(ends[-1]), p=self.shares)
        names = [self.symbols[n] for n in drawn]
        return [names[end - size : end] for end, size in zip(ends.tolist(), lengths, strict=True)]


def fit_random_lines(lines: Sequence[Sequence[str]], vocabulary: Sequence[str]) -> RandomLines:
    """Even shares unless the counts speak against them (chi-square, 5 %)."""
    counts = Counter(symbol for line in lines for symbol in line)
    number = np.array([counts[symbol] for symbol in vocabulary], float)
    mean = number.mean()
    statistic, free = float(((number - mean) ** 2).sum() / mean), len(vocabulary) - 1
    even = free == 0 or chi_square_tail(statistic, free) > 0.05
    shares = np.full(len(vocabulary), 1 / len(vocabulary)) if even else number / number.sum()
    lengths = tuple(len(line) for line in lines)
    return RandomLines(tuple(vocabulary), tuple(shares.tolist()), lengths, even)


def chi_square_tail(statistic: float, free: int) -> float:
    """Probability of a larger value (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * free)
    normal = ((statistic / free) ** (1 / 3) - 1 + spread) / math.sqrt(spread)
    return 0.5 * math.erfc(normal / math.sqrt(2))


def exact_rate(dfa: DFA, source: RandomLines) -> float:
    """The share of random lines that an automaton accepts."""
    step = np.zeros((len(dfa.moves), len(dfa.moves)))
    share = dict(zip(source.symbols, source.shares, strict=True))
    for state, row in enumerate(dfa.moves):
        for symbol, target in zip(dfa.alphabet, row, strict=True):
            step[state, target] += share.get(symbol, 0.0)
    final = np.array([state in dfa.accepting for state in range(len(dfa.moves))], float)
    lengths, rate, before = Counter(source.lengths), 0.0, 0
    for length in sorted(lengths):
        final = np.linalg.matrix_power(step, length - before) @ final
        rate, before = rate + lengths[length] * float(final[dfa.start]), length
    return rate / len(source.lengths)


def acceptance_rate(
    accepts: Accepts, dfa: DFA | None, source: RandomLines, rng: np.random.Generator
) -> float:
    """Exactly where there is an automaton, else by drawing."""
    if dfa is not None:
        return exact_rate(dfa, source)
    count = int(np.clip(TOKENS * len(source.lengths) // sum(source.lengths), *DRAWN))
    return float(np.mean([accepts(line) for line in source.draw(count, rng)]))


def chance_of(rate: float, negatives: int, observed: int) -> Chance:
    """Binomial probabilities of what was seen."""
    rate = min(max(rate, 1e-9), 1 - 1e-9)

    def exactly(k: int) -> float:
        logs = math.lgamma(negatives + 1) - math.lgamma(k + 1) - math.lgamma(negatives - k + 1)
        return math.exp(logs + k * math.log(rate) + (negatives - k) * math.log1p(-rate))

    least = max(0.0, 1 - sum(exactly(k) for k in range(observed)))
    return Chance(rate, rate * negatives, observed, exactly(observed), least)
