"""A step that scores only the words of a shortlist. To a search these are the whole vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.decode.beam import BeamConfig
from regard.decode.generate import Ends
from regard.decode.model_step import ModelStep
from regard.decode.recorded import heard, watched
from regard.decode.sample import SampleConfig
from regard.decode.shortlist import Shortlist
from regard.decode.step import Hypothesis, Limit, Listener, limits_of
from regard.decode.write import write_plain
from regard.model.batch import Batch
from regard.model.fronts import TextFront
from regard.model.int8 import map_levels, to_levels
from regard.model.model import Model
from regard.model.precision import Map, PackedLinear, pack

How = SampleConfig | BeamConfig | None
PACKED: WeakKeyDictionary[nn.Linear, tuple[Shortlist, Map]] = WeakKeyDictionary()
"""Packed rows of the ids that are always allowed: they are the most, and packing takes time."""
ROUNDED: WeakKeyDictionary[nn.Linear, tuple[Tensor, Tensor]] = WeakKeyDictionary()
"""int8 weights as whole numbers and steps: each batch packs other rows of them."""


class NarrowStep(ModelStep):
    """Goes on with the rows of a batch; but for the start, ids are places in a row's own words."""

    def __init__(
        self,
        model: Model,
        batch: Batch,
        room: int,
        shortlist: Shortlist,
        listener: Listener | None = None,
    ) -> None:
        super().__init__(model, batch, room, listener=listener)
        out = model.head.out
        assert out is not None
        self.choice = choice = shortlist.choose(batch.inputs, batch.source_mask)
        self.words = choice.words()  # (B, n)
        self.common = common_map(out, shortlist)
        self.others = rows_map(out, choice.others) if len(choice.others) else None
        self.source = torch.arange(len(batch.ids))  # (N,) of each row
        self.own, self.barred = choice.own, choice.barred  # (N, m)

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> Tensor:
        """Read ids (N, t); logits (N, n) of the token after them."""
        x = self.vectors(self.words[self.source[:, None], ids] if self.started else ids)
        x = self.model.head.prepare(x[:, None])[:, 0]
        if self.others is None:
            return self.common(x)
        others = self.others(x).gather(1, self.own).masked_fill_(self.barred, -torch.inf)
        return torch.cat([self.common(x), others], 1)

    def select(self, rows: Tensor, group: int = 1) -> None:
        """Go on with these rows."""
        super().select(rows, group)
        source = self.source[rows]
        if not torch.equal(source, self.source):  # most often beams only change places
            self.source = source
            self.own, self.barred = self.choice.own[source], self.choice.barred[source]

    def real(self, found: Sequence[Sequence[Hypothesis]]) -> list[list[Hypothesis]]:
        """What a search found, in the ids of the model."""
        return [
            [replace(h, tokens=words[h.tokens].tolist()) for h in row]
            for row, words in zip(found, self.words, strict=True)
        ]


def can_narrow(model: Model, batch: Batch, how: How, ends: Ends) -> bool:
    """Whether a shortlist can serve: text into text on a CPU, and nobody looks at ids or scores."""
    if model.device.type != "cpu" or batch.target is None or batch.source_documents is not None:
        return False
    if isinstance(how, SampleConfig) or ends.stop is not None or ends.watch is not None:
        return False
    parts = (model, model.head, model.head.out)
    seen = any(part is None or heard(part) for part in parts)
    return isinstance(model.front, TextFront) and not seen


def write_narrow(
    model: Model, batch: Batch, limit: Limit, how: How, ends: Ends, shortlist: Shortlist
) -> list[list[Hypothesis]]:
    """What `write` does, each row with the words of its own list."""
    limits = limits_of(limit, len(batch.ids))
    with nullcontext() if watched(model) else torch.inference_mode():
        step = NarrowStep(model, batch, max(limits), shortlist, ends.listener)
        known = Ends(shortlist.local(ends.eos))
        return step.real(write_plain(step, limits, how, known, ()))


def common_map(out: nn.Linear, shortlist: Shortlist) -> Map:
    """The scores of the ids that are always allowed; packed ones are kept with their map."""
    ids = torch.from_numpy(shortlist.always)
    if not isinstance(out, PackedLinear):
        return rows_map(out, ids)  # which may be trained meanwhile
    held = PACKED.get(out)
    if held is None or held[0] is not shortlist:
        with torch.inference_mode(False):  # it outlives this search
            held = PACKED[out] = (shortlist, rows_map(out, ids))
    return held[1]


def rows_map(out: nn.Linear, ids: Tensor) -> Map:
    """The scores of some ids (n,), in the precision of the whole map: (N, D) → (N, n)."""
    bias = None if out.bias is None else out.bias.detach().index_select(0, ids)
    if isinstance(out, PackedLinear) and out.precision == "int8":
        if out not in ROUNDED:
            with torch.inference_mode(False):
                ROUNDED[out] = to_levels(out.weight.detach())
        whole, step = (part.index_select(0, ids) for part in ROUNDED[out])
        return map_levels(whole, step, bias)
    weight = out.weight.detach().index_select(0, ids)
    if isinstance(out, PackedLinear):
        return pack(weight, bias, out.precision)
    return lambda x: F.linear(x, weight, bias)
