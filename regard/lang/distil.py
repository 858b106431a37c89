"""What a network learnt, opened: an automaton by questions, counterfactual edits, its heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from regard.lang.dfa import DFA
from regard.lang.kinds import Word
from regard.lang.lstar import Learnt, disagreements, learn
from regard.lang.network import Network
from regard.lang.rules import Accepts
from regard.lang.strings import Strings
from regard.look.attention_patterns import patterns
from regard.look.hooks import HookedModel
from regard.look.patching import Goal, ablation_values, head_sites, measure_sets

FRESH = 2000  # words that an automaton is held against
SAME = 0.993  # agreement that is enough: a network errs on some words that no rule tells


class Differs(NamedTuple):
    """A word on which automaton and network do not agree."""

    word: Word
    network: bool


@dataclass(frozen=True)
class Distilled:
    """An automaton that stands for a network."""

    dfa: DFA
    agreement: float
    """Share of fresh words on which both say the same; none of them was used to learn it."""
    fresh: int
    """How many fresh words there were."""
    queries: int
    exact: bool
    """While it was learnt, no word contradicted it at the end."""
    differs: tuple[Differs, ...]
    """The shortest of the fresh words on which they differ."""


def distil(
    network: Network,
    words: Sequence[Word],
    most: int = 300,
    seconds: float = 60.0,
    seed: int = 0,
    fresh: int = FRESH,
) -> Distilled:
    """The automaton of a network, learnt by asking it, checked on words that were held out."""
    strings = Strings(words, seed)
    made: Learnt = learn(network.decide, network.alphabet, strings.draw, most, FRESH, seconds, SAME)
    held = list(dict.fromkeys(Strings(words, seed + 1).draw(fresh)))
    said = network.decide(held)
    wrong = sorted(disagreements(made.dfa, held, said), key=len)
    answer = dict(zip(held, said, strict=True))
    shown = tuple(Differs(word, answer[word]) for word in wrong[:5])
    share = 1 - len(wrong) / max(1, len(held))
    return Distilled(made.dfa, share, len(held), made.queries, made.exact, shown)


class Counterfactuals(NamedTuple):
    """Words changed in one place: does the network change its mind where the rule does?"""

    edits: int
    agreement: float
    """Share of edits after which network and rule either both change or both keep their answer."""
    symbols: dict[str, float]
    """How often replacing a symbol changes the network's answer, for each symbol."""


def counterfactuals(
    network: Network, words: Sequence[Word], accepts: Accepts | None, count: int = 2000
) -> Counterfactuals:
    """Replace one symbol of a word by another, again and again."""
    strings, before, after, replaced = Strings(words, 7), [], [], []
    known = network.alphabet
    long = [word for word in words if word]
    for _ in range(count if long and len(known) > 1 else 0):
        word = strings.dice.choice(long)
        at = strings.dice.randrange(len(word))
        other = strings.dice.choice([symbol for symbol in known if symbol != word[at]])
        before.append(word)
        after.append(word[:at] + (other,) + word[at + 1 :])
        replaced.append(word[at])
    flips = [a != b for a, b in zip(network.decide(before), network.decide(after), strict=True)]
    seen, changed = Counter(replaced), Counter(s for s, f in zip(replaced, flips, strict=True) if f)
    share = 1.0
    if accepts is not None and flips:
        rule = [accepts(a) != accepts(b) for a, b in zip(before, after, strict=True)]
        share = sum(a == b for a, b in zip(flips, rule, strict=True)) / len(flips)
    rates = {symbol: changed[symbol] / seen[symbol] for symbol in seen}
    ordered = dict(sorted(rates.items(), key=lambda pair: -pair[1]))
    return Counterfactuals(len(flips), share, ordered)


class HeadUse(NamedTuple):
    """What a head does for the decision, and where it looks."""

    block: int
    head: int
    kept: float
    """Share of the margin that is left when its output is its mean over words."""
    flips: float
    """Share of decisions that change then."""
    looks: tuple[tuple[str, str, float], ...]
    """From symbol, to symbol, how many times as much weight as an equal share of it."""


@torch.no_grad()
def head_uses(network: Network, words: Sequence[Word], count: int = 256) -> list[HeadUse]:
    """Every head, the one that matters most first."""
    chosen = [word for word in words if word][:count]
    batch = network.batch(chosen).to(network.model.device)
    hooked, said = HookedModel(network.model), network.margins(chosen) > 0
    goal = Goal(said.long(), (~said).long(), torch.zeros(len(chosen), dtype=torch.long))
    sites = head_sites(hooked)
    none, each = torch.zeros(1, len(sites), dtype=torch.bool), torch.eye(len(sites)).bool()
    margins = measure_sets(
        hooked,
        batch,
        goal,
        sites,
        torch.cat((none, each)),
        ablation_values(hooked, sites, "mean", batch),
    )
    whole = float(margins[0].mean())
    looks = looked_at(network, hooked, chosen)
    made = []
    for n, site in enumerate(sites):
        block = int(site.tap.split(".")[2])
        kept, flips = (
            float(margins[n + 1].mean()) / whole,
            float((margins[n + 1] < 0).float().mean()),
        )
        made.append(HeadUse(block, site.head or 0, kept, flips, looks[block, site.head or 0]))
    return sorted(made, key=lambda use: use.kept)


def looked_at(
    network: Network, hooked: HookedModel, words: Sequence[Word], best: int = 2
) -> dict[tuple[int, int], tuple[tuple[str, str, float], ...]]:
    """For each block and head, the pairs of symbols with the most weight above an equal share."""
    names = ["[class]", "[unknown]", *network.alphabet]
    batch = network.batch(words).to(network.model.device)
    ids, real = batch.inputs.cpu(), batch.mask
    real = torch.ones_like(ids, dtype=torch.bool) if real is None else real.cpu()
    pair = ids[:, :, None] * len(names) + ids[:, None, :]  # (B, T, S)
    both = real[:, :, None] & real[:, None, :]
    equal = both.float() / real.sum(1)[:, None, None]
    cells = pair[both]
    expected = torch.zeros(len(names) ** 2).index_add_(0, cells, equal[both])
    found = {}
    for path, weights in patterns(hooked, batch).items():
        for head in range(weights.shape[1]):
            weight = weights[:, head].float().cpu()[both]
            total = torch.zeros(len(names) ** 2).index_add_(0, cells, weight)
            lift = torch.where(expected > 0.01 * float(expected.sum()) / len(names), total, 0)
            ratio = lift / expected.clamp_min(1e-9)
            top = ratio.topk(min(best, len(ratio))).indices.tolist()
            found[int(path.split(".")[2]), head] = tuple(
                (names[n // len(names)], names[n % len(names)], float(ratio[n])) for n in top
            )
    return found
