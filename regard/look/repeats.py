"""Random repeats: A A, with A drawn at random, shows what heads do with what they have seen before.

A previous-token head looks one token back, a duplicate-token head at the same token of the first A,
an induction head at the token after that one (Olsson 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.errors import UsageError
from regard.model.batch import Batch
from regard.model.fronts import TextFront
from regard.model.model import Model
from regard.tokens.tokenizer import Tokenizer

LENGTH = 100  # tokens of A, where a model reads so many
MOST = 2000  # tokens of a vocabulary that are looked at


@dataclass(frozen=True)
class Repeats:
    """Rows of random tokens, each written twice: A A."""

    batch: Batch
    length: int
    """Tokens of A."""
    before: int = 0
    """Columns of the input before the first A; a target has one."""

    def start(self, layer: str) -> int:
        """The column where the first A begins for an attention."""
        target = self.batch.target is not None and layer.startswith("decoder.")
        return 1 if target else self.before


def random_repeats(
    ids: Sequence[int],
    length: int,
    rows: int = 4,
    seed: int = 0,
    first: Sequence[int] = (),
    begin: int | None = None,
) -> Repeats:
    """Rows `first` A A, each A of `length` different ones of the ordinary tokens `ids`.

    For an encoder-decoder `begin` begins a target that is A A as well.
    """
    if not 2 <= length <= len(ids):
        expected = f"2 to {len(ids)}, for the tokens of a half are all different"
        raise UsageError("drawing random repeats", f"length {length}", expected)
    generator = torch.Generator().manual_seed(seed)
    known = torch.tensor(list(ids))
    half = torch.stack(
        [known[torch.randperm(len(known), generator=generator)[:length]] for _ in range(rows)]
    )
    opening = torch.tensor(list(first), dtype=torch.long).expand(rows, -1)
    target = None
    if begin is not None:
        target = torch.cat([torch.full((rows, 1), begin), half, half], 1)
    return Repeats(Batch(torch.cat([opening, half, half], 1), target), length, len(first))


def repeats_for(
    model: Model,
    tokenizer: Tokenizer | None = None,
    length: int | None = None,
    rows: int = 4,
    seed: int = 0,
    begin: int = 0,
) -> Repeats:
    """Random repeats of ordinary tokens, as long as suits a model, begun as it wants texts begun.

    `begin` begins a target. Without a tokenizer every id is an ordinary token.
    """
    fronts = [front for front in (model.front, model.target) if front is not None]
    texts = [front for front in fronts if isinstance(front, TextFront)]
    if len(texts) < len(fronts):
        found = f"a model that reads {model.config.front.kind}"
        raise UsageError("drawing random repeats", found, "a model that reads text")
    size = min(front.config.vocab for front in texts)
    ids, first = list(range(size)), list[int]()
    if tokenizer is not None:
        ids, first = ordinary_ids(tokenizer, size, seed), opening(tokenizer)
    room = min(longest(front) for front in texts) - max(len(first), int(len(texts) > 1))
    most = min(room // 2, len(ids))
    if length is not None and length > most:
        expected = f"at most {most}, for this model's length and vocabulary"
        raise UsageError("drawing random repeats", f"length {length}", expected)
    begun = begin if len(texts) > 1 else None
    return random_repeats(ids, length or min(LENGTH, most), rows, seed, first, begun)


def longest(front: TextFront) -> int:
    """The most tokens that a front has positions for, or that its model was trained on."""
    table = None if front.positions is None else front.positions.size
    return table or front.config.length or 10 * LENGTH


def ordinary_ids(tokenizer: Tokenizer, size: int, seed: int = 0) -> list[int]:
    """Tokens that stand for some text, so no control tokens; of a large vocabulary a part."""
    generator = torch.Generator().manual_seed(seed)
    known = min(size, tokenizer.size)
    drawn = sorted(torch.randperm(known, generator=generator)[:MOST].tolist())
    controls = set(tokenizer.specials.values())
    return [id for id in drawn if id not in controls and tokenizer.decode([id]).strip()]


def opening(tokenizer: Tokenizer) -> list[int]:
    """What a tokenizer puts before each text: the id that begins texts, or none."""
    first = tokenizer.encode("")[:1]
    begins = {tokenizer.specials.get(role) for role in ("bos", "cls")}
    return first if first and first[0] in begins else []
