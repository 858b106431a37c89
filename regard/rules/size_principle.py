"""The size principle: a rule that is rare among random lines is likelier where lines keep it.

Where lines are random but for the rule, those that keep it are draws from the few that do, and the
others from the rest (Tenenbaum 1999): a rule is the likelier, the rarer its side is
by chance. How often symbols and lengths are drawn is estimated for each rule, as the mixture of its
two sides that makes the lines likeliest; one set of random lines, weighed anew, serves all rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.rules.encoded_lines import Bools, EncodedLines, encode
from regard.rules.null_model import RandomLines, chi_square_tail
from regard.rules.rule import Accepts

SYMBOLS, LENGTHS = 30, 12  # told apart, at most; others are one
MIN_DRAWN, MAX_DRAWN = 200, 20_000  # lines
WORK = 4_000_000  # tokens of them that all rules together read, about
SHARES = np.linspace(0.02, 0.98, 13)  # of a source that the accepted lines stand for
ENOUGH = 50  # lines' worth of weight below which drawn lines say nothing of another source
NEAR = 8  # symbols whose neighbours are counted


class DrawnLines:
    """So many random lines like the given ones, against which rules are held."""

    def __init__(self, encoded: EncodedLines, count: int, rng: np.random.Generator) -> None:
        self.encoded, self.rng = encoded, rng
        self.words = RandomLines.like(encoded).draw(count, rng)
        self.lines = encode(self.words, encoded.symbols)
        quantiles = np.quantile(encoded.lengths, np.linspace(0, 1, LENGTHS), method="nearest")
        self.lengths = np.unique(quantiles)
        self.real, self.drawn = self.features(encoded), self.features(self.lines)
        self.base = self.logs(self.real.mean(0))

    def features(self, lines: EncodedLines) -> Any:
        """Counts of the first symbols and of the others, and which length it is."""  # (N, F)
        counts = np.concatenate([lines.counts[:SYMBOLS], lines.counts[SYMBOLS:].sum(0)[None]])
        place = np.searchsorted(self.lengths, lines.lengths, side="right") - 1
        return np.concatenate([counts.T, np.eye(len(self.lengths))[place]], 1, dtype=np.float64)

    def logs(self, mean: Any) -> Any:
        """Logarithms of the shares of symbols and of lengths."""  # (F,)
        cut = mean.size - len(self.lengths)
        parts = (part + 1e-6 for part in (mean[:cut], mean[cut:]))
        return np.concatenate([np.log(part / part.sum()) for part in parts])

    def weigh(self, row: Bools, verdicts: Bools) -> tuple[float, Any]:
        """Bits by which a rule's source makes the given lines likely; weights of the drawn ones."""
        kept, broken = int(row.sum()), int((~row).sum())
        sides = [self.real[side].mean(0) for side in (row, ~row) if side.any()]
        options = []
        for share in SHARES:
            logs = self.logs(share * sides[0] + (1 - share) * sides[-1])
            tilt = self.drawn @ (logs - self.base)
            weights = np.exp(tilt - tilt.max())
            weights /= weights.sum()
            rate = np.clip(weights @ verdicts, 0.5 / len(weights), 1 - 0.5 / len(weights))
            likely = (self.real @ logs).sum() - kept * np.log(rate) - broken * np.log1p(-rate)
            if share == 0.5 or 1 / (weights**2).sum() > ENOUGH:
                options.append((float(likely) / math.log(2), weights))
        return max(options, key=lambda pair: pair[0])

    def random(self, row: Bools, verdicts: Bools, weights: Any) -> bool:
        """Whether the given lines may be random but for a rule: neighbours on its larger side."""
        often = bool(weights @ verdicts > 0.5)  # the side that a rule changes less
        at = self.rng.choice(len(weights), len(weights), p=weights)
        return alike(self.encoded.only(row == often), self.lines.only(at[verdicts[at] == often]))


def rarities(
    encoded: EncodedLines, rows: Sequence[Bools], tests: Sequence[Accepts], rng: np.random.Generator
) -> list[float]:
    """Bits that each rule gains on the first for being rare where the lines keep it.

    None where lines are too long to draw enough, or not random: then a rule may be rare for what
    all lines share.
    """
    count = WORK // (len(rows) * max(1, int(encoded.lengths.mean())))
    if count < MIN_DRAWN:
        return [0.0] * len(rows)
    drawn = DrawnLines(encoded, min(count, MAX_DRAWN), rng)
    verdicts = [np.array([test(word) for word in drawn.words]) for test in tests]
    weighed = [drawn.weigh(*pair) for pair in zip(rows, verdicts, strict=True)]
    best = max(range(len(rows)), key=lambda n: weighed[n][0])
    if not any(drawn.random(rows[n], verdicts[n], weighed[n][1]) for n in {0, best}):
        return [0.0] * len(rows)
    return [bits - weighed[0][0] for bits, _ in weighed]


def neighbours(lines: EncodedLines) -> Any:
    """How often each of the first symbols, any other or an end stands beside each of them."""
    marked = np.pad(np.minimum(lines.ids, NEAR) + 1, ((0, 0), (1, 1)))  # 0 before and after
    pairs = marked[:, :-1] * (NEAR + 2) + marked[:, 1:]
    return np.bincount(pairs[pairs > 0], minlength=(NEAR + 2) ** 2).astype(np.float64)


def alike(one: EncodedLines, two: EncodedLines) -> bool:
    """Whether two sets of lines may be draws from one source, by neighbours (chi-square, 5 %)."""
    first, second = neighbours(one), neighbours(two)
    seen = first + second >= 5
    if seen.sum() < 2 or not first.any() or not second.any():
        return False
    scale = math.sqrt(second.sum() / first.sum())
    apart = (first * scale - second / scale)[seen] ** 2 / (first + second)[seen]
    return chi_square_tail(float(apart.sum()), int(seen.sum()) - 1) > 0.05
