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
from regard.look import patching
from regard.look.attention_patterns import patterns
from regard.look.edits import patch
from regard.look.head_scores import RandomRepeats, repeats_for, score_heads
from regard.look.hooks import HookedModel
from regard.look.logit_lens import head_outputs, take_columns
from regard.look.prompts import PromptPair, make_pairs
from regard.look.results import ClassHead, IndirectObjects, Site

if TYPE_CHECKING:
    from regard.kit import Kit

Z95 = 1.96
MIN_ATTENTION = 0.2  # from which a head is said to look there
MIN_EFFECT = 0.01  # share of the logit difference from which an effect counts (Wang: 1 %)
MAX_MOVERS = 4  # whose queries S-inhibition is looked for in

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

    With `heads` the heads too that do most, at most `top` of each class.
    """
    seed = current().seed
    pairs = make_pairs(kit, ioi_prompts(kit, count, seed))
    logits, _ = kit.hooked.run(pairs.clean)
    gap = pairs.goal(logits, pairs.clean)
    rows = torch.arange(len(logits), device=logits.device)
    last = logits[rows, patching.last_columns(pairs.clean).to(logits.device)]
    chance = last.softmax(-1)[rows, pairs.goal.good.to(logits.device)]
    other, _ = kit.hooked.run(pairs.corrupt)
    figures = IndirectObjects(
        prompts=len(gap),
        logit_difference=float(gap.mean()),
        plus_minus=Z95 * float(gap.std()) / len(gap) ** 0.5 if len(gap) > 1 else math.nan,
        io_above_s=float((gap > 0).float().mean()),
        probability_io=float(chance.mean()),
        corrupted_difference=float(pairs.goal(other, pairs.corrupt).mean()),
    )
    if not heads:
        return figures
    repeats = repeats_for(kit, seed=seed)
    listed = HeadClasses(kit.hooked, pairs, repeats).find(top)
    return replace(figures, thresholds={"looks": MIN_ATTENTION, "effect": MIN_EFFECT}, heads=listed)


# Heads by class ---------------------------------------------------------------------------------


class Roles(NamedTuple):
    """Columns of the names in a prompt's tokens."""

    io: int
    s1: int
    s2: int
    end: int


ATTENDS: dict[str, Callable[[Roles], tuple[int, int]]] = {  # columns of query and key
    "end → io": lambda r: (r.end, r.io),
    "end → s2": lambda r: (r.end, r.s2),
    "s2 → s1+1": lambda r: (r.s2, r.s1 + 1),
    "s2 → s1": lambda r: (r.s2, r.s1),
    "s1+1 → s1": lambda r: (r.s1 + 1, r.s1),
}
LOOKS = {  # where the heads of each class look
    "name movers": "end → io",
    "negative name movers": "end → io",
    "backup name movers": "end → io",
    "S-inhibition": "end → s2",
    "induction": "s2 → s1+1",
    "duplicate token": "s2 → s1",
    "previous token": "s1+1 → s1",
}
REPEATED = {  # classes by attention alone: their score on random repeats
    "induction": "induction",
    "duplicate token": "duplicate",
    "previous token": "previous",
}


class HeadClasses:
    """The heads of one model on one set of prompts, by class, after the scheme of Wang et al.

    A head belongs to a class by where it looks and by what it does:

    - name movers look from the end at IO, with a direct effect for IO;
    - negative name movers look there too, with a direct effect against IO;
    - backup name movers look there and have a direct effect once name movers are ablated;
    - S-inhibition looks from the end at S2, with an effect through queries of name movers;
    - induction looks from S2 at the token after S1;
    - duplicate token heads look from S2 at S1;
    - previous token heads look from the token after S1 at S1.

    One that does much and looks nowhere in particular has no class. Effects are measured only of
    heads that look where a class does or that do much by an estimate: with 270 heads that is ten
    times cheaper.
    """

    def __init__(self, hooked: HookedModel, pairs: patching.Pairs, repeats: RandomRepeats) -> None:
        self.hooked, self.pairs, self.repeats = hooked, pairs, repeats
        self.sites = patching.head_sites(hooked)
        if not self.sites:
            problem = "a model without attention heads"
            raise UsageError("looking for classes of heads", problem, "a Transformer")
        self.gap = float(patching.mean_gap(*patching.clean_and_corrupt(hooked, pairs)))

    def find(self, top: int = 5) -> list[ClassHead]:
        """The heads of each class, at most `top` of each, those that do most first."""
        members: dict[str, Mapping[int, float | None]] = {}  # of each class, and their effects
        with progress("looking for heads") as say:
            say(f"where {len(self.sites)} heads look")
            at_io, at_s2 = self.looking("end → io"), self.looking("end → s2")
            say("direct paths")
            direct, readers = self.direct, [self.sites[n] for n in self.movers[:MAX_MOVERS]]
            against = {n: direct[n] for n in at_io if direct[n] <= -MIN_EFFECT}
            members["name movers"] = {n: direct[n] for n in self.movers}
            members["negative name movers"] = against
            say("direct paths without the name movers")
            members["backup name movers"] = self.backup_effects()
            say("paths to the queries of the name movers")
            queries = [Site(site.tap.removesuffix("z") + "q", site.head) for site in readers]
            effects = self.path_effects(at_s2 if queries else [], queries)
            members["S-inhibition"] = {n: x for n, x in effects.items() if x >= MIN_EFFECT}
            say("random repeats")
            scores = {(s.layer, s.head): s for s in score_heads(self.hooked, self.repeats)}
        for name in REPEATED:
            members[name] = {n: direct.get(n) for n in self.looking(LOOKS[name])}
        known = {n for some in members.values() for n in some}
        rest = {n: x for n, x in direct.items() if abs(x) >= MIN_EFFECT and n not in known}
        heads: list[ClassHead] = []
        for name, effects_of in (members | {"no class": rest}).items():
            some = []
            for n, effect in effects_of.items():
                layer, number = self.sites[n].tap.removesuffix(".z"), self.sites[n].head or 0
                looks = float(self.looks[LOOKS[name]][n]) if name in LOOKS else None
                measured = scores[layer, number]
                score = getattr(measured, REPEATED[name]) if name in REPEATED else None
                some.append(ClassHead(name, int(layer.split(".")[2]), number, looks, effect, score))
            heads += sorted(some, key=importance)[:top]
        return sorted(heads, key=importance)

    @cached_property
    def looks(self) -> dict[str, Tensor]:
        """Mean attention (N,) of each head at each place."""
        return attention_between_roles(self.hooked, self.pairs, self.sites)

    @cached_property
    def direct(self) -> dict[int, float]:
        """Direct effects of heads that look at IO, or do much by an estimate."""
        strong = direct_estimates(self.hooked, self.pairs, self.sites) / self.gap
        much = (strong.abs() >= MIN_EFFECT).nonzero()[:, 0].tolist()
        return self.path_effects(sorted({*self.looking("end → io"), *much}))

    @cached_property
    def movers(self) -> list[int]:
        """Heads that look at IO and write it, the strongest first."""
        strong = [n for n in self.looking("end → io") if self.direct[n] >= MIN_EFFECT]
        return sorted(strong, key=lambda n: -self.direct[n])

    def looking(self, place: str) -> list[int]:
        """Heads with enough attention there."""
        return [n for n, weight in enumerate(self.looks[place].tolist()) if weight >= MIN_ATTENTION]

    def path_effects(
        self, heads: Sequence[int], queries: Sequence[Site] = (), rows: int = patching.ROWS
    ) -> dict[int, float]:
        """Through the queries, or straight to the end, in shares of the whole difference."""
        if not heads:
            return {}
        senders = [self.sites[n] for n in heads]
        effects = patching.patch_paths(self.hooked, self.pairs, senders, queries, rows=rows)
        shares = effects.mean * float((effects.clean - effects.corrupt).mean()) / self.gap
        return dict(zip(heads, shares.tolist(), strict=True))

    def backup_effects(self) -> dict[int, float]:
        """Direct effects of heads that look at IO once name movers are ablated, where they grow."""
        others = [n for n in self.looking("end → io") if n not in self.movers]
        if not self.movers or not others:
            return {}
        movers = [self.sites[n] for n in self.movers]
        means = patching.ablation_values(
            self.hooked, movers, "mean", self.pairs.corrupt, self.pairs.templates
        )
        held = {tap: [s.head or 0 for s in movers if s.tap == tap] for tap in means}
        with self.hooked.editing({tap: patch(x, head=held[tap]) for tap, x in means.items()}):
            later = self.path_effects(others, rows=1)  # unrepeated: a row has its template's mean
        return {n: x for n, x in later.items() if min(x, x - self.direct[n]) >= MIN_EFFECT}


def importance(head: ClassHead) -> tuple[float, float]:
    """What heads are sorted by: the largest effect first, then the most attention."""
    return -abs(head.effect or 0), -(head.looks or 0)


@torch.no_grad()
def direct_estimates(hooked: HookedModel, pairs: patching.Pairs, sites: Sequence[Site]) -> Tensor:
    """How much of the goal (N,) goes from each head straight to the end, with later MLPs held.

    What a head writes in corrupted prompts is put into the end of the clean stream.
    """
    _, stack = patching.last_stack(hooked.model, "looking for heads")
    last = patching.last_stream(hooked)
    at, taps = patching.last_columns(pairs.clean)[:, None], patching.taps_of(sites)
    logits, own = hooked.run(pairs.clean, [*taps, last])
    _, other = hooked.run(pairs.corrupt, taps)
    stream, goals = take_columns(own[last], at), []  # (B, 1, D)
    for tap in taps:
        change = take_columns(other[tap] - own[tap], at)  # (B, 1, H, K)
        written = head_outputs(hooked, change, tap.removesuffix(".z"))  # (B, 1, H, D)
        for head in written.unbind(2):
            scores = hooked.model.head(stack.norm(stream + head))[:, 0]  # (B, V)
            goals.append(pairs.goal(scores, pairs.clean).mean())
    return (pairs.goal(logits, pairs.clean).mean() - torch.stack(goals)).cpu()


@torch.no_grad()
def attention_between_roles(
    hooked: HookedModel, pairs: patching.Pairs, sites: Sequence[Site]
) -> dict[str, Tensor]:
    """Mean weight (N,) of each head from one role's column to another's."""
    roles = locate_roles(pairs)
    heads = patterns(hooked, pairs.clean)
    names = dict.fromkeys(site.tap.removesuffix(".z") for site in sites)
    weights: dict[str, list[Tensor]] = {where: [] for where in ATTENDS}
    for where, place in ATTENDS.items():
        for name in names:
            picked = [heads[name][n, :, *place(role)] for n, role in enumerate(roles)]  # (H,)
            weights[where].append(torch.stack(picked).mean(0).cpu())
    return {where: torch.cat(parts) for where, parts in weights.items()}


def locate_roles(pairs: patching.Pairs) -> list[Roles]:
    """Where the names of each prompt stand."""
    goal, batch = pairs.goal, pairs.clean
    assert goal.bad is not None
    columns = goal.good.tolist(), goal.bad.tolist(), patching.last_columns(batch).tolist()
    located = []
    for row, io, s, end in zip(batch.ids.tolist(), *columns, strict=True):
        subject = [n for n, id in enumerate(row) if id == s]
        if row.count(io) != 1 or len(subject) != 2:
            problem = "a prompt whose names are not one token each, once and twice"
            raise DataError("finding the names", problem)
        located.append(Roles(row.index(io), subject[0], subject[1], end))
    return located
