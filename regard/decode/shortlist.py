"""Shortlist: the few words that a translation may need, so that a decoder scores only those.

The ids that are frequent anywhere, and for each source id its likeliest translations by IBM model 1
(Jean 2015). Each row writes from its own list, whoever stands beside it in a batch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor, nn

from regard.errors import DataError, UsageError
from regard.model.batch import Batch
from regard.model.int8 import map_levels, to_levels
from regard.model.model import Head
from regard.model.precision import Map, PackedLinear

Ids = NDArray[np.int64]
SHORTLIST_FILE = "shortlist.safetensors"
AGAIN = "`regard train shortlist` makes it again; without the file all words are scored"


class Choice(NamedTuple):
    """What the rows of a batch may write: some ids all of them, and each its own of some others.

    A row's ids are ascending in both parts, so they are in the same order in any batch.
    """

    common: Tensor  # (N,)
    others: Tensor  # (n,)
    own: Tensor  # (B, m) places in `others`
    barred: Tensor  # (B, m) True after the end of a row's own list

    def words(self) -> Tensor:
        """The ids of each row, (B, N + m)."""
        return torch.cat([self.common.expand(len(self.own), -1), self.others[self.own]], 1)


@dataclass(frozen=True)
class Shortlist:
    """Ids for every source, and more for each source id."""

    always: Ids  # (N,) ascending
    best: Ids  # those of each source id, one after the other, ascending, none of `always`
    bounds: Ids  # (source ids + 1,)
    targets: int
    """Target ids in all."""

    def choose(self, sources: Tensor, real: Tensor | None = None) -> Choice:
        """The lists of sources (B, S), padding where `real` is False."""
        ids = sources.cpu().numpy()
        row, place = np.nonzero(np.ones_like(ids) if real is None else real.cpu().numpy())
        word = ids[row, place]
        size = (self.bounds[1:] - self.bounds[:-1])[word]
        shift = self.bounds[word] - (np.cumsum(size) - size)
        listed = self.best[np.arange(size.sum()) + np.repeat(shift, size)]
        allowed = np.zeros((len(ids), self.targets), bool)
        allowed[np.repeat(row, size), listed] = True
        others = np.flatnonzero(allowed.any(0))
        row, place = np.nonzero(allowed[:, others])
        sizes = np.bincount(row, minlength=len(ids))
        barred = np.arange(sizes.max(initial=0)) >= sizes[:, None]
        first = np.zeros(barred.shape, np.int64)
        first[~barred] = place  # row by row, as they were found
        return Choice(*(torch.from_numpy(part) for part in (self.always, others, first, barred)))

    def local(self, ids: Collection[int]) -> list[int]:
        """The places of ids, such as those that end a text, among those that are always there."""
        wanted = np.array(sorted(ids), np.int64)
        place = np.searchsorted(self.always, wanted)
        lost = wanted[self.always[np.minimum(place, len(self.always) - 1)] != wanted]
        if len(lost):
            fault = f"ids {lost.tolist()}, which end a text, are not always allowed"
            raise UsageError("decoding with a shortlist", fault, "them in `always`", AGAIN)
        return [int(n) for n in place]

    # Disk ---------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """A safetensors file, its whole numbers as short as they can be."""
        kind, sizes = np.min_scalar_type(self.targets - 1), np.diff(self.bounds)
        short = sizes.astype(np.min_scalar_type(sizes.max(initial=0)))
        parts = {"always": self.always.astype(kind), "best": self.best.astype(kind)}
        return bytes(save({**parts, "sizes": short}))

    @classmethod
    def from_bytes(cls, data: bytes, sources: int, targets: int) -> Shortlist:
        """What `to_bytes` wrote, for a model of so many source and target ids."""
        doing = f"reading {SHORTLIST_FILE}"
        try:
            parts = {name: part.astype(np.int64) for name, part in load(data).items()}
            always, best, sizes = (parts[name] for name in ("always", "best", "sizes"))
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            wrong = f"no safetensors file with lists ({error})"
            raise DataError(doing, wrong, "always, best, sizes", AGAIN) from None
        if len(sizes) != sources or int(sizes.sum()) != len(best):
            wrong = f"{len(best):,} ids in lists of {len(sizes):,} source ids"
            raise DataError(doing, wrong, f"{sources:,} source ids, as the model has", AGAIN)
        highest = max(always.max(initial=0), best.max(initial=0))
        if highest >= targets:
            raise DataError(doing, f"id {highest}", f"ids of the model, 0 to {targets - 1}", AGAIN)
        return cls(always, best, np.append(0, np.cumsum(sizes)), targets)


# Scoring the words of lists ---------------------------------------------------------------------

PACKED: WeakKeyDictionary[nn.Linear, tuple[Shortlist, Map]] = WeakKeyDictionary()
"""Packed rows of the ids that are always allowed: they are the most, and packing takes time."""
ROUNDED: WeakKeyDictionary[nn.Linear, tuple[Tensor, Tensor]] = WeakKeyDictionary()
"""int8 weights as whole numbers and steps: each batch packs other rows of them."""


class ShortlistHead:
    """The output head over the lists of a batch; to a search these are the whole vocabulary."""

    def __init__(self, head: Head, batch: Batch, shortlist: Shortlist) -> None:
        assert head.out is not None
        self.head = head
        self.choice = choice = shortlist.choose(batch.inputs, batch.source_mask)
        self.listed = choice.words()  # (B, n)
        self.common = common_map(head.out, shortlist)
        self.others = rows_map(head.out, choice.others) if len(choice.others) else None
        self.source = torch.arange(len(batch.ids))  # (N,) of each row
        self.own, self.barred = choice.own, choice.barred  # (N, m)

    def ids(self, places: Tensor) -> Tensor:
        """The ids that stand at places (N, t) of each row's list."""
        return self.listed[self.source[:, None], places]

    def score(self, x: Tensor) -> Tensor:
        """Final vectors (N, D) → logits (N, n)."""
        x = self.head.prepare(x[:, None])[:, 0]
        if self.others is None:
            return self.common(x)
        others = self.others(x).gather(1, self.own).masked_fill_(self.barred, -torch.inf)
        return torch.cat([self.common(x), others], 1)

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        source = self.source[rows]
        if not torch.equal(source, self.source):  # most often beams only change places
            self.source = source
            self.own, self.barred = self.choice.own[source], self.choice.barred[source]


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
    if isinstance(out, PackedLinear):
        if out not in ROUNDED:
            with torch.inference_mode(False):
                ROUNDED[out] = to_levels(out.weight.detach())
        whole, step = (part.index_select(0, ids) for part in ROUNDED[out])
        return map_levels(whole, step, bias)
    weight = out.weight.detach().index_select(0, ids)
    return lambda x: F.linear(x, weight, bias)
