"""What each head does: scores on random repeats (Olsson 2022), spread, reach and size.

A text A A, with A drawn at random, shows what heads do with what they have seen before. A
previous-token head looks one token back, a duplicate-token head at the same token of the first A,
an induction head at the token after that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor

from regard.ambient import current
from regard.core.attention import Attention
from regard.errors import UsageError, check_known
from regard.look.attention_patterns import attention_names, patterns
from regard.look.hooks import HookedModel
from regard.look.logit_lens import written_norms
from regard.look.results import HeadMeasure, HeadScore, HeadScores
from regard.model.batch import Batch
from regard.model.fronts import TextFront

if TYPE_CHECKING:
    from regard.kit import Kit

DRAWING = "drawing random repeats"
HALF_TOKENS = 100  # of A, where a model reads so many
VOCABULARY = 2000  # tokens of a vocabulary that are looked at
REPEAT_SCORES = ("previous", "duplicate", "induction")


# Random repeats -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomRepeats:
    """Rows of random tokens, each written twice: A A."""

    batch: Batch
    length: int
    """Tokens of A."""
    before: int = 0
    """Columns of the input before the first A; a target has one."""

    def start(self, layer: str) -> int:
        """The column where the first A begins for an attention."""
        return 1 if self.batch.target is not None and layer.startswith("decoder.") else self.before


def random_repeats(
    ids: Sequence[int],
    length: int,
    rows: int = 4,
    seed: int = 0,
    first: Sequence[int] = (),
    begin: int | None = None,
) -> RandomRepeats:
    """Rows `first` A A, each A of `length` different ones of the ordinary tokens `ids`.

    For an encoder-decoder `begin` begins a target that is A A as well.
    """
    if not 2 <= length <= len(ids):
        expected = f"2 to {len(ids)}, for the tokens of a half are all different"
        raise UsageError(DRAWING, f"length {length}", expected)
    generator = torch.Generator().manual_seed(seed)
    known = torch.tensor(list(ids))
    orders = [torch.randperm(len(known), generator=generator) for _ in range(rows)]
    half = torch.stack([known[order[:length]] for order in orders])
    opening = torch.tensor(list(first), dtype=torch.long).expand(rows, -1)
    ends = None if begin is None else [torch.full((rows, 1), begin), half, half]
    target = None if ends is None else torch.cat(ends, 1)
    return RandomRepeats(Batch(torch.cat([opening, half, half], 1), target), length, len(first))


def repeats_for(kit: Kit, length: int | None = None, rows: int = 4, seed: int = 0) -> RandomRepeats:
    """Random repeats of ordinary tokens, as long as suits a model, begun as it wants texts begun.

    Without a tokenizer every id is an ordinary token.
    """
    model, tokenizer = kit.model, kit.tokenizer
    fronts = [front for front in (model.front, model.target) if front is not None]
    texts = [front for front in fronts if isinstance(front, TextFront)]
    if len(texts) < len(fronts):
        problem = f"a model that reads {model.config.front.kind}"
        raise UsageError(DRAWING, problem, "a model that reads text")
    size = min(front.config.vocab for front in texts)
    ids, first = list(range(size)), list[int]()
    if tokenizer is not None:  # of a large vocabulary a part; no control tokens
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randperm(min(size, tokenizer.size), generator=generator)[:VOCABULARY]
        controls = set(tokenizer.specials.values())
        ids = [id for id in sorted(drawn.tolist()) if id not in controls]
        ids = [id for id in ids if tokenizer.decode([id]).strip()]
        begins = {tokenizer.specials.get(role) for role in ("bos", "cls")}
        first = [id for id in tokenizer.encode("")[:1] if id in begins]
    room = min(longest(front) for front in texts) - max(len(first), int(len(texts) > 1))
    most = min(room // 2, len(ids))
    if length is not None and length > most:
        expected = f"at most {most}, for this model's length and vocabulary"
        raise UsageError(DRAWING, f"length {length}", expected)
    begun = kit.start if len(texts) > 1 else None
    return random_repeats(ids, length or min(HALF_TOKENS, most), rows, seed, first, begun)


def longest(front: TextFront) -> int:
    """The most tokens that a front has positions for, or that its model was trained on."""
    table = None if front.positions is None else front.positions.size
    return table or front.config.length or 10 * HALF_TOKENS


# From a pattern ---------------------------------------------------------------------------------


def repeat_scores(pattern: Tensor, length: int, start: int = 0) -> dict[str, Tensor]:
    """The three scores (H,) from a pattern (B, H, T, T) over `start` tokens and A A."""
    inside = pattern[..., start:, start:]
    second = inside[..., length:, :]
    same = second.diagonal(0, -2, -1)  # query A[i] of the second time, key A[i] of the first
    parts = inside.diagonal(-1, -2, -1), same, second.diagonal(1, -2, -1)
    return {name: part.mean((0, 2)) for name, part in zip(REPEAT_SCORES, parts, strict=True)}


# All heads of a model ---------------------------------------------------------------------------


@torch.no_grad()
def score_heads(hooked: HookedModel, repeats: RandomRepeats) -> list[HeadScore]:
    """Every head: the repeat scores, and entropy, distance and norm, on random repeats."""
    batch, heads = repeats.batch.to(hooked.model.device), []
    read = patterns(hooked, batch)
    _, seen = hooked.run(batch, [z for name in read if (z := f"{name}.z") in hooked.taps])
    for name, pattern in read.items():
        pattern = pattern.float()
        rows = measure_rows(hooked, name, pattern, seen.get(f"{name}.z"))
        scores = {what: values.double().mean((0, 2)) for what, values in rows.items()}
        if not name.endswith(".cross"):
            scores |= repeat_scores(pattern, repeats.length, repeats.start(name))
        columns = {what: x.tolist() for what, x in scores.items()}
        parts = name.split(".")
        for head in range(pattern.shape[1]):
            values = {what: column[head] for what, column in columns.items()}
            heads.append(HeadScore(name, int(parts[2]) if "blocks" in parts else 0, head, **values))
    return heads


def measure_rows(
    hooked: HookedModel, name: str, pattern: Tensor, z: Tensor | None
) -> dict[str, Tensor]:
    """Of each query (B, H, T) of a pattern (B, H, T, S), as far as an attention has them:

    the entropy in nats, evenly over n keys log n; the mean distance in columns between query and
    key; the length of what is written into the stream.
    """
    measured = {"entropy": torch.special.entr(pattern).sum(-1)}
    if not name.endswith(".cross"):
        order = torch.arange(pattern.shape[-1], device=pattern.device)
        measured["distance"] = (pattern * (order[:, None] - order).abs().to(pattern)).sum(-1)
    attention = hooked.model.get_submodule(name)
    if z is not None and isinstance(attention, Attention):
        measured["norm"] = written_norms(attention, z.float())
    return measured


def best_heads(scores: Iterable[HeadScore], by: str, count: int | None = None) -> list[HeadScore]:
    """Largest first, of entropy smallest first; heads without that score are left out."""
    check_known(by, get_args(HeadMeasure), "sorting heads")
    sign = 1 if by == "entropy" else -1
    having = (s for s in scores if getattr(s, by) is not None)
    return sorted(having, key=lambda s: sign * getattr(s, by))[:count]


def measure_heads(
    kit: Kit, name: str, length: int | None, rows: int, sort: HeadMeasure | None, top: int | None
) -> HeadScores:
    """Score the heads of a model on random repeats."""
    attention_names(kit.hooked)  # says so where there are none
    seed = current().seed
    repeats = repeats_for(kit, length, rows, seed)
    scores = score_heads(kit.hooked, repeats)
    scores = best_heads(scores, sort) if sort else scores
    return HeadScores(name, repeats.length, rows, seed, scores[:top])
