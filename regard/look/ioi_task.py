"""Indirect objects: "When Mary and John went to the bar, John handed a drink to" → " Mary".

The task of Wang et al. (2022) with sentences of our own: the name that stands once (IO) is the
answer, the one that stands twice (S) is not. In the corrupted twin three other names stand there,
none twice, so that nothing says who is meant. Then the heads that find the indirect object, by
class: name movers, S-inhibition, induction and others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.ambient import current, note, progress
from regard.errors import DataError, UsageError
from regard.look.edits import Edit, patch
from regard.look.head_scores import RandomRepeats, repeats_for, score_heads
from regard.look.hooks import HookedModel
from regard.look.patching import (
    ROWS,
    Pairs,
    ablation_values,
    clean_and_corrupt,
    head_sites,
    last_columns,
    mean_gap,
    patch_paths,
)
from regard.look.prompts import PromptPair, make_pairs
from regard.look.results import ClassHead, HeadScore, IndirectObjects, Site

if TYPE_CHECKING:
    from regard.kit import Kit

Z95 = 1.96
MIN_ATTENTION = 0.2  # from which a head is said to look there
MIN_EFFECT = 0.01  # share of the logit difference from which an effect counts (Wang: 1 %)
MAX_MOVERS = 4  # whose queries S-inhibition is looked for in
TAPS = 8  # read in one pass: all patterns of a large model are much

NAMES = (
    "Alice Adam Amy Andrew Anna Anthony Ben Brian Carl Carol Charles Chris Claire Daniel "
    "David Diana Edward Emily Emma Eric Frank George Grace Harry Helen Henry Ian Jack James "
    "Jane Jason Joe John Julia Karen Kate Kevin Laura Lisa Lucy Mark Martin Mary Matthew "
    "Michael Nick Oliver Paul Peter Rachel Richard Robert Rose Ruth Sam Sarah Simon Sophie "
    "Stephen Susan Thomas Tom Victor William"
).split()
PLACES = "bar market library park museum kitchen airport beach bakery hotel".split()
THINGS = "drink book letter ticket key map sandwich lamp coin flower".split()
FRAMES = (
    "When {a} and {b} went to the {place}, {s} handed a {thing} to",
    "After {a} and {b} met at the {place}, {s} passed a {thing} to",
    "While {a} and {b} were waiting at the {place}, {s} offered a {thing} to",
    "As {a} and {b} left the {place}, {s} gave a {thing} to",
    "Yesterday {a} and {b} walked to the {place}, and {s} brought a {thing} to",
    "Once {a} and {b} had found the {place}, {s} showed a {thing} to",
    "Because {a} and {b} like the {place}, {s} sent a {thing} to",
    "Since {a} and {b} work at the {place}, {s} lent a {thing} to",
)


def make_prompts(
    count: int, seed: int = 0, usable: Callable[[str], bool] = bool
) -> list[PromptPair]:
    """Prompts, half with the answer named first; only `usable` names, places and things."""
    dice = random.Random(seed)
    names, places, things = ([w for w in words if usable(w)] for words in (NAMES, PLACES, THINGS))
    if len(names) < 5 or not places or not things:
        return []
    prompts = []
    for number in range(count):
        io, s, *others = dice.sample(names, 5)
        frame = FRAMES[number // 2 % len(FRAMES)]
        spot = {"place": dice.choice(places), "thing": dice.choice(things)}
        first, second = (io, s) if number % 2 else (s, io)
        clean = frame.format(a=first, b=second, s=s, **spot)
        corrupt = frame.format(a=others[0], b=others[1], s=others[2], **spot)
        prompts.append(PromptPair(clean, corrupt, io, s, frame))
    return prompts


def ioi_prompts(kit: Kit, count: int, seed: int = 0) -> list[PromptPair]:
    """Prompts whose names, places and things are single tokens of a language model."""
    tokenizer, dropped = kit.tokenizer, list[str]()
    if tokenizer is None or kit.model.decoder is None or kit.model.encoder is not None:
        problem = "a model that does not go on with texts"
        raise UsageError("making prompts", problem, "a language model")

    def usable(word: str) -> bool:
        single = len(tokenizer.encode(f" {word}", special=False)) == 1
        dropped.extend([] if single else [word])
        return single

    prompts = make_prompts(count, seed, usable)
    if not prompts:
        problem = f"{len(dropped)} names, places and things that are no single tokens here"
        raise DataError("making prompts", problem, "5 names, a place and a thing of one token each")
    if dropped:
        note(f"{len(dropped)} words are several tokens here and left out: {' '.join(dropped)}")
    return prompts


@torch.no_grad()
def measure_ioi(kit: Kit, count: int = 64, *, heads: bool = False, top: int = 5) -> IndirectObjects:
    """Logit difference, its interval, share of prompts with IO above S, probability of IO.

    With `heads` the classes of heads too, of which `top` are shown each.
    """
    seed = current().seed
    pairs = make_pairs(kit, ioi_prompts(kit, count, seed))
    logits, _ = kit.hooked.run(pairs.clean)
    gap = pairs.goal(logits, pairs.clean)
    rows = torch.arange(len(logits), device=logits.device)
    last = logits[rows, last_columns(pairs.clean).to(logits.device)]
    chance = last.softmax(-1)[rows, pairs.goal.good.to(logits.device)]
    other, _ = kit.hooked.run(pairs.corrupt)
    figures = IndirectObjects(
        prompts=len(gap),
        logit_difference=float(gap.mean()),
        plus_minus=Z95 * float(gap.std()) / len(gap) ** 0.5 if len(gap) > 1 else math.nan,
        io_above_s=float((gap > 0).float().mean()),
        probability_io=float(chance.mean()),
        corrupted_difference=float(pairs.goal(other, pairs.corrupt).mean()),
        top=top,
    )
    if not heads:
        return figures
    repeats = repeats_for(kit.model, kit.tokenizer, seed=seed)
    classes = HeadClasses(kit.hooked, pairs, repeats).find()
    thresholds = {"looks": MIN_ATTENTION, "effect": MIN_EFFECT}
    return replace(figures, thresholds=thresholds, rules=RULES, heads=classes)


# Heads by class ---------------------------------------------------------------------------------


class Roles(NamedTuple):
    """Columns of the names in a prompt's tokens."""

    io: int
    s1: int
    s2: int
    end: int


def find_roles(ids: list[int], io: int, s: int) -> Roles | None:
    """Where the tokens of IO and S stand; None where they do not stand once and twice."""
    subject = [n for n, id in enumerate(ids) if id == s]
    if ids.count(io) != 1 or len(subject) != 2:
        return None
    return Roles(ids.index(io), subject[0], subject[1], len(ids) - 1)


ATTENDS: dict[str, Callable[[Roles], tuple[int, int]]] = {  # columns of query and key
    "end → io": lambda r: (r.end, r.io),
    "end → s2": lambda r: (r.end, r.s2),
    "s2 → s1+1": lambda r: (r.s2, r.s1 + 1),
    "s2 → s1": lambda r: (r.s2, r.s1),
    "s1+1 → s1": lambda r: (r.s1 + 1, r.s1),
}
RULES = {
    "name movers": "look from the end at IO; direct effect for IO",
    "negative name movers": "look from the end at IO; direct effect against IO",
    "backup name movers": "look from the end at IO; direct effect once name movers are ablated",
    "S-inhibition": "look from the end at S2; effect through queries of name movers",
    "induction": "look from S2 at the token after S1",
    "duplicate token": "look from S2 at S1",
    "previous token": "look from the token after S1 at S1",
}


class HeadClasses:
    """The heads of one model on one set of prompts, by class, after the scheme of Wang et al.

    A head belongs to a class by where it looks and by what it does. Effects are measured only of
    heads that look where the class does: with 270 heads that is twenty times cheaper, and no class
    is wider. Each number is measured once.
    """

    def __init__(self, hooked: HookedModel, pairs: Pairs, repeats: RandomRepeats) -> None:
        self.hooked, self.pairs, self.repeats = hooked, pairs, repeats
        self.sites = head_sites(hooked)
        if not self.sites:
            problem = "a model without attention heads"
            raise UsageError("looking for classes of heads", problem, "a Transformer")
        self.gap = float(mean_gap(*clean_and_corrupt(hooked, pairs)))

    def find(self) -> dict[str, list[ClassHead]]:
        """The heads of each class, those that do most first."""
        with progress("looking for heads") as say:
            say(f"where {len(self.sites)} heads look")
            near = len(self.looking("end → io"))
            say(f"direct paths of {near} heads that look at IO")
            classes = {
                "name movers": self.by_effect("end → io", self.direct),
                "negative name movers": self.by_effect("end → io", self.direct, -1),
            }
            say("direct paths without the name movers")
            classes["backup name movers"] = self.by_effect("end → io", self.backup_effects())
            say("paths to the queries of the name movers")
            classes["S-inhibition"] = self.by_effect("end → s2", self.inhibition_effects())
            say("random repeats")
            classes["induction"] = self.by_attention("s2 → s1+1", "induction")
            classes["duplicate token"] = self.by_attention("s2 → s1", "duplicate")
            classes["previous token"] = self.by_attention("s1+1 → s1", "previous")
        return classes

    @cached_property
    def looks(self) -> dict[str, Tensor]:
        """Mean attention (N,) of each head at each place."""
        return attention_between_roles(self.hooked, self.pairs, self.sites)

    @cached_property
    def direct(self) -> dict[int, float]:
        """Direct effects of heads that look at IO."""
        return self.path_effects(self.looking("end → io"))

    @cached_property
    def movers(self) -> list[int]:
        """Heads that look at IO and write it, the strongest first."""
        strong = [(effect, n) for n, effect in self.direct.items() if effect >= MIN_EFFECT]
        return [n for _, n in sorted(strong, reverse=True)]

    @cached_property
    def repeat_scores(self) -> dict[tuple[str, int], HeadScore]:
        """Scores of heads on random repeats."""
        return {(s.layer, s.head): s for s in score_heads(self.hooked, self.repeats)}

    def looking(self, place: str) -> list[int]:
        """Heads with enough attention there."""
        return [n for n, weight in enumerate(self.looks[place].tolist()) if weight >= MIN_ATTENTION]

    def path_effects(
        self, heads: Sequence[int], queries: Sequence[Site] = (), rows: int = ROWS
    ) -> dict[int, float]:
        """Through the queries, or straight to the end, in shares of the whole difference."""
        if not heads:
            return {}
        senders = [self.sites[n] for n in heads]
        effects = patch_paths(self.hooked, self.pairs, senders, queries, rows=rows)
        shares = effects.mean * float((effects.clean - effects.corrupt).mean()) / self.gap
        return dict(zip(heads, shares.tolist(), strict=True))

    def inhibition_effects(self) -> dict[int, float]:
        """What heads that look at S2 do through the queries of the name movers."""
        taps = [self.sites[n] for n in self.movers[:MAX_MOVERS]]
        queries = [Site(site.tap.removesuffix("z") + "q", site.head) for site in taps]
        return self.path_effects(self.looking("end → s2"), queries) if queries else {}

    def backup_effects(self) -> dict[int, float]:
        """Direct effects of the others once name movers are ablated, where that makes them grow."""
        others = [n for n in self.direct if n not in self.movers]
        if not self.movers or not others:
            return {}
        movers = [self.sites[n] for n in self.movers]
        with self.hooked.editing(mean_ablation(self.hooked, self.pairs, movers)):
            later = self.path_effects(others, rows=1)  # unrepeated: a row has its template's mean
        return {n: x for n, x in later.items() if x - self.direct[n] >= MIN_EFFECT}

    def by_effect(self, place: str, effects: Mapping[int, float], sign: int = 1) -> list[ClassHead]:
        """Heads whose effect counts, the largest first."""
        chosen = [n for n in effects if sign * effects[n] >= MIN_EFFECT]
        chosen.sort(key=lambda n: -sign * effects[n])
        return [replace(self.head(n, place), effect=effects[n]) for n in chosen]

    def by_attention(self, place: str, kind: str) -> list[ClassHead]:
        """Heads that look there, the most first, with their score on random repeats."""
        heads = []
        for n in sorted(self.looking(place), key=lambda n: -float(self.looks[place][n])):
            site = self.sites[n]
            scores = self.repeat_scores[site.tap.removesuffix(".z"), site.head or 0]
            heads.append(replace(self.head(n, place), score=getattr(scores, kind)))
        return heads

    def head(self, n: int, place: str) -> ClassHead:
        """A head, and how much it looks there."""
        site = self.sites[n]
        return ClassHead(int(site.tap.split(".")[2]), site.head or 0, float(self.looks[place][n]))


def mean_ablation(hooked: HookedModel, pairs: Pairs, sites: Sequence[Site]) -> dict[str, Edit]:
    """Edits that hold heads at their mean over the corrupted prompts of the same template."""
    values = ablation_values(hooked, sites, "mean", pairs.corrupt, pairs.templates)
    heads = {tap: [s.head or 0 for s in sites if s.tap == tap] for tap in values}
    return {tap: patch(x, head=heads[tap]) for tap, x in values.items()}


@torch.no_grad()
def attention_between_roles(
    hooked: HookedModel, pairs: Pairs, sites: Sequence[Site]
) -> dict[str, Tensor]:
    """Mean weight (N,) of each head from one role's column to another's."""
    roles = locate_roles(pairs)
    taps = list(dict.fromkeys(site.tap.removesuffix(".z") + ".pattern" for site in sites))
    weights: dict[str, list[Tensor]] = {name: [] for name in ATTENDS}
    for start in range(0, len(taps), TAPS):
        some = taps[start : start + TAPS]
        _, seen = hooked.run(pairs.clean, some)
        for name, place in ATTENDS.items():
            for tap in some:
                picked = [seen[tap][n, :, *place(role)] for n, role in enumerate(roles)]  # (H,)
                weights[name].append(torch.stack(picked).mean(0).cpu())
    return {name: torch.cat(parts) for name, parts in weights.items()}


def locate_roles(pairs: Pairs) -> list[Roles]:
    """Where the names of each prompt stand."""
    goal, batch = pairs.goal, pairs.clean
    assert goal.bad is not None
    columns = goal.good.tolist(), goal.bad.tolist(), last_columns(batch).tolist()
    located = []
    for row, io, s, end in zip(batch.ids.tolist(), *columns, strict=True):
        roles = find_roles(row, io, s)
        if roles is None:
            raise DataError("finding the names", "a prompt whose names are not single tokens")
        located.append(roles._replace(end=end))  # there may be padding after it
    return located
