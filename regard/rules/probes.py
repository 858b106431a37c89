"""Which rules are one rule, and the shortest sequences that tell the others apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

import numpy as np

from regard.formal.dfa import Word
from regard.rules.encoded_lines import Bools
from regard.rules.results import DecidingProbe
from regard.rules.rule import Rule
from regard.rules.rule_search import RuleCandidate
from regard.rules.string_sampler import StringSampler

NEAR = 300  # changed lines that are tried as well
SHORT = 300  # tokens of such a line at most: very long ones would take minutes to judge
MOST = 8  # probes


def short_words(symbols: Sequence[str], most: int) -> Iterator[tuple[str, ...]]:
    """All sequences of some symbols, shortest first."""
    lengths = range(1, 41 if symbols else 1)
    yield from islice((word for n in lengths for word in product(symbols, repeat=n)), most)


def edit_lines(lines: Sequence[Sequence[str]], rng: np.random.Generator) -> list[Word]:
    """Lines with one to three tokens replaced, left out, put in or exchanged."""
    short = [tuple(line[:SHORT]) for line in lines]
    sampler = StringSampler(short, int(rng.integers(1 << 31)))
    words = (sampler.changed(sampler.rng.choice(short)) for _ in range(NEAR))
    return [word for word in words if word]


def distinct(
    candidates: Sequence[RuleCandidate], words: Sequence[Sequence[str]], most: int
) -> list[RuleCandidate]:
    """One of those that say the same on every line and every word: the cheapest."""
    kept: dict[tuple[bytes, bytes], RuleCandidate] = {}
    for one in candidates:
        kept.setdefault((one.row.tobytes(), bytes(map(one.rule.compile(), words))), one)
        if len(kept) >= most:
            break
    return list(kept.values())


def probe_symbols(rules: Sequence[Rule], vocabulary: Sequence[str], most: int = 4) -> list[str]:
    """Symbols that the first rules name, and one that none of them does."""
    named = list(dict.fromkeys(symbol for rule in rules for symbol in rule.symbols))[:most]
    rest = [symbol for symbol in vocabulary if symbol not in named]
    return [*named, *rest[: 1 if named else most]]


def find_probes(
    rules: Mapping[int, Rule],
    weights: Sequence[float],
    words: Sequence[tuple[str, ...]],
    blank: str = " ",
) -> list[DecidingProbe]:
    """Probes that split numbered rules step by step until all are apart or nothing more tells.

    Each is the word that tells most for its length, given the answers to those before it.
    """
    if len(rules) < 2:
        return []
    compiled = map(Rule.compile, rules.values())
    verdicts = np.array([[rule(word) for word in words] for rule in compiled])
    weight = np.asarray(weights) / np.sum(weights)
    lengths = np.array([len(word) for word in words])
    group, probes = np.zeros(len(rules), int), list[DecidingProbe]()
    while len(probes) < MOST:
        gains = information(verdicts, group, weight)
        chosen = int(np.argmax(gains / lengths))
        if gains[chosen] <= 1e-9:
            break
        word, says = words[chosen], dict(zip(rules, verdicts[:, chosen], strict=True))
        for_it, against = ([n for n in rules if says[n] == side] for side in (True, False))
        bits = float(gains[chosen])
        probes.append(DecidingProbe(list(word), blank.join(word), for_it, against, bits))
        group = group * 2 + verdicts[:, chosen]
    return probes


def information(verdicts: Bools, group: Any, weight: Any) -> Any:
    """Expected bits of the answer to each word, given the answers before."""  # (words,)
    total = np.zeros(verdicts.shape[1])
    for number in np.unique(group):
        inside = group == number
        mass = weight[inside].sum()
        yes = weight[inside] @ verdicts[inside]
        for part in (yes, mass - yes):
            total -= part * np.log2(np.maximum(part, 1e-300) / mass)
    return total
