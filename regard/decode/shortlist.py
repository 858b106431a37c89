"""Shortlist: the few words that a translation may need, so that a decoder scores only those.

The ids that are frequent anywhere, and for each source id its likeliest translations by IBM model 1
(Jean 2015). Each row writes from its own list, whoever stands beside it in a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from regard.errors import DataError, UsageError
from regard.history.ibm1 import Ids, Rows, TranslationTable
from regard.tokens.tokenizer import Tokenizer

SHORTLIST_FILE = "shortlist.safetensors"
LIKELY = 1e-4  # t(target | source) below which no translation is listed
OFTEN = 0.5  # expected count below which two words met by chance
AGAIN = "`regard shortlist` makes it again; without the file all words are scored"


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
        parts = (self.always, others, first, barred)
        return Choice(*(torch.from_numpy(part) for part in parts))

    def local(self, ids: Collection[int]) -> list[int]:
        """The places of ids, such as those that end a text, among those that are always there."""
        wanted = np.array(sorted(ids), np.int64)
        place = np.searchsorted(self.always, wanted)
        lost = wanted[self.always[np.minimum(place, len(self.always) - 1)] != wanted]
        if len(lost):
            found = f"ids {lost.tolist()}, which end a text, are not always allowed"
            raise UsageError("decoding with a shortlist", found, "them in `always`", AGAIN)
        return [int(n) for n in place]

    # Disk ---------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """A safetensors file, its whole numbers as short as they can be."""
        kind = np.min_scalar_type(self.targets - 1)
        sizes = np.diff(self.bounds)
        short = sizes.astype(np.min_scalar_type(sizes.max(initial=0)))
        parts = {"always": self.always.astype(kind), "best": self.best.astype(kind)}
        made: bytes = save({**parts, "sizes": short})
        return made

    @classmethod
    def from_bytes(cls, data: bytes, sources: int, targets: int) -> Shortlist:
        """What `to_bytes` wrote, for a model of so many source and target ids."""
        parts = read_parts(data)
        always, best, sizes = parts["always"], parts["best"], parts["sizes"]
        if len(sizes) != sources:
            raise broken(f"lists of {len(sizes):,} source ids", f"of {sources:,}, as the model has")
        if int(sizes.sum()) != len(best):
            raise broken(f"{len(best):,} ids in lists of {sizes.sum():,}", "as many")
        highest = max(always.max(initial=0), best.max(initial=0))
        if highest >= targets:
            raise broken(f"id {highest}", f"ids of the model, 0 to {targets - 1}")
        if not len(always) or bool((np.diff(always) <= 0).any()):
            raise broken("`always` that is empty or out of order", "ascending ids")
        if np.isin(best, always).any():
            raise broken("ids of `always` in a list", "other ids")
        return cls(always, best, np.append(0, np.cumsum(sizes)), targets)


def read_parts(data: bytes) -> dict[str, Ids]:
    """The arrays of a file, each of whole numbers in one dimension."""
    try:
        parts: dict[str, NDArray[Any]] = load(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise broken(f"no safetensors file ({error})", "one") from None
    if set(parts) != {"always", "best", "sizes"}:
        raise broken(f"tensors {', '.join(sorted(parts)) or 'none'}", "always, best, sizes")
    for name, part in parts.items():
        if part.ndim != 1 or part.dtype.kind != "u":
            raise broken(f"{name} {part.shape} of {part.dtype}", "unsigned whole numbers (n,)")
    return {name: part.astype(np.int64) for name, part in parts.items()}


def broken(found: str, expected: str) -> DataError:
    """What is wrong with a file."""
    return DataError(f"reading {SHORTLIST_FILE}", found, expected, AGAIN)


# Making one -------------------------------------------------------------------------------------


def make_shortlist(
    table: TranslationTable,
    seen: Ids,
    tokenizer: Tokenizer,
    ends: Collection[int],
    best: int,
    always: int,
) -> Shortlist:
    """The `always` most frequent of target ids seen so often (V,), `best` more for each source id.

    A source id that the target writes as well may be copied.
    """
    allowed = np.zeros(len(seen), bool)
    allowed[np.argsort(-seen, kind="stable")[:always]] = True
    allowed &= seen > 0
    allowed[[*spelling_ids(tokenizer), *ends]] = True
    sources = len(table.bounds) - 2  # the last row is NULL's
    same = tokenizer.pieces(range(tokenizer.size), "source")
    target = tokenizer.pieces(range(tokenizer.size), "target")
    lists = list[list[int]]()
    for source in range(sources):
        ids, t, count = table.row(source)
        good = (t >= LIKELY) & (count >= OFTEN) & ~allowed[ids]
        ids, t = ids[good], t[good]
        ids = ids[np.argsort(-t, kind="stable")[:best]]
        own = source < tokenizer.size and same[source] == target[source]
        if own and seen[source] and not allowed[source]:
            ids = np.append(ids, source)
        lists.append(sorted(ids.tolist()))
    flat = Rows.of(lists)
    return Shortlist(np.flatnonzero(allowed), flat.ids, flat.bounds, len(seen))


def spelling_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids that any text can be spelt with: one character or byte each; and the control tokens."""
    ids = range(tokenizer.size)
    short = [id for id in ids if len(tokenizer.decode([id]).strip()) <= 1]
    return sorted({*short, *tokenizer.specials.values()})


class Coverage(NamedTuple):
    """What lists are worth on pairs."""

    length: float
    """Ids of a list, on average."""
    share: float
    """Target tokens that stand in the list of their source."""


def coverage(
    shortlist: Shortlist, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Coverage:
    """How long the lists of sources are, and how much of the targets they hold."""
    length = held = total = 0
    for source, target in zip(sources, targets, strict=True):
        found = shortlist.choose(torch.tensor([source], dtype=torch.long)).words()[0].numpy()
        length += len(found)
        held += int(np.isin(target, found).sum())
        total += len(target)
    return Coverage(length / len(sources), held / total)
