"""What each head does: scores on random repeats (Olsson 2022), spread, reach and size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from regard.core.attention import Attention, View
from regard.errors import check_known
from regard.look.capture import Board
from regard.look.lens import out_weights, with_output
from regard.look.rebuild import attention_names, pattern_taps, rebuilt
from regard.look.repeats import Repeats
from regard.model.batch import Batch

REPEATS = ("previous", "duplicate", "induction")


@dataclass(frozen=True)
class HeadScores:
    """What was measured of one head; None where there is no such thing."""

    layer: str
    """Path of its attention."""
    block: int
    head: int
    previous: float | None = None
    """Mean weight of the token before."""
    duplicate: float | None = None
    """Mean weight, in the second A, of the same token in the first."""
    induction: float | None = None
    """Mean weight, in the second A, of the token after the same one in the first."""
    entropy: float | None = None
    """Mean entropy of its rows, in nats."""
    distance: float | None = None
    """Mean distance between query and key, in tokens."""
    norm: float | None = None
    """Mean length of what it writes into the stream."""

    @property
    def name(self) -> str:
        """As people write it: block.head, with the part of the model where that is not clear."""
        stack, kind = self.layer.split(".")[0], self.layer.rpartition(".")[2]
        where = "" if (stack, kind) == ("decoder", "attn") else f" ({stack} {kind})"
        return f"{self.block}.{self.head}{where}"


# From a pattern ---------------------------------------------------------------------------------


def repeat_scores(pattern: Tensor, length: int, start: int = 0) -> dict[str, Tensor]:
    """The three scores (H,) from a pattern (B, H, T, T) over `start` tokens and A A."""
    inside = pattern[..., start:, start:]
    second = inside[..., length:, :]
    same = second.diagonal(0, -2, -1)  # query A[i] of the second time, key A[i] of the first
    after = second.diagonal(1, -2, -1)
    found = inside.diagonal(-1, -2, -1), same, after
    return {name: part.mean((0, 2)) for name, part in zip(REPEATS, found, strict=True)}


def row_entropy(pattern: Tensor) -> Tensor:
    """Entropy of each row in nats: (B, H, T, S) → (B, H, T); evenly over n keys is log n."""
    spread: Tensor = torch.special.entr(pattern)
    return spread.sum(-1)


def row_distance(pattern: Tensor) -> Tensor:
    """Mean distance in columns between query and key: (B, H, T, T) → (B, H, T)."""
    order = torch.arange(pattern.shape[-1], device=pattern.device)
    apart = (order[:, None] - order).abs().to(pattern.dtype)
    return (pattern * apart).sum(-1)


def written_norms(attention: Attention, x: Tensor) -> Tensor:
    """Length of x W_O for each head, x (B, T, H, K) → (B, H, T), without making x W_O itself."""
    weights = out_weights(attention).to(x.dtype)
    gram = torch.einsum("dhk,dhj->hkj", weights, weights)
    square = (torch.einsum("bthk,hkj->bthj", x, gram) * x).sum(-1)
    return square.clamp(min=0).sqrt().transpose(1, 2)


def value_weighted(board: Board, layer: int | str, pattern: Tensor, v: Tensor) -> Tensor:
    """‖weight · v W_O‖ for each query and key (Kobayashi 2020): (B, H, T, S), v (B, S, G, K).

    Attention to a key whose value is next to nothing counts for next to nothing.
    """
    attention = with_output(board, layer)
    per_head = attention.per_head(v.transpose(1, 2)).transpose(1, 2)  # (B, S, H, K)
    return pattern * written_norms(attention, per_head)[:, :, None]


# All heads of a model ---------------------------------------------------------------------------


class Measure:
    """Sums over batches, so that a mean over many texts needs the memory of one."""

    def __init__(self, board: Board) -> None:
        self.board, self.names = board, attention_names(board)
        self.sums: dict[str, dict[str, Tensor]] = {name: {} for name in self.names}
        self.counts: dict[str, Tensor] = {}
        self.repeats: dict[str, dict[str, Tensor]] = {name: {} for name in self.names}

    @torch.no_grad()
    def read(self, batch: Batch, repeats: Repeats | None = None, general: bool = True) -> None:
        """One pass; `repeats` says where the halves of the batch's rows are."""
        taps = [tap for name in self.names for tap in pattern_taps(self.board, name)]
        taps += [f"{name}.z" for name in self.names if f"{name}.z" in self.board.taps]
        _, seen = self.board.run(batch, taps)
        views: dict[str, View] = {}
        for name in self.names:
            pattern = rebuilt(self.board, name, seen, batch, views).float()
            if repeats is not None and not name.endswith(".cross"):
                start = repeats.start(name)
                self.repeats[name] = repeat_scores(pattern, repeats.length, start)
            if general:
                self.add(name, pattern, seen.get(f"{name}.z"), real_queries(name, batch, pattern))

    def add(self, name: str, pattern: Tensor, z: Tensor | None, real: Tensor) -> None:
        """Add one batch's rows; real (B, T) are those that count."""
        found = {"entropy": row_entropy(pattern)}
        if not name.endswith(".cross"):
            found["distance"] = row_distance(pattern)
        attention = self.board.model.get_submodule(name)
        if z is not None and isinstance(attention, Attention):
            found["norm"] = written_norms(attention, z.float())
        for what, values in found.items():  # (B, H, T)
            total = values.masked_fill(~real[:, None], 0).double().sum((0, 2))
            self.sums[name][what] = self.sums[name].get(what, 0) + total
        self.counts[name] = self.counts.get(name, 0) + real.sum()

    def scores(self) -> list[HeadScores]:
        """What was measured of each head, in the model's order."""
        made = []
        for name in self.names:
            means = {what: total / self.counts[name] for what, total in self.sums[name].items()}
            columns = {what: x.tolist() for what, x in (self.repeats[name] | means).items()}
            parts = name.split(".")
            block = int(parts[2]) if "blocks" in parts else 0
            for head in range(max(map(len, columns.values()), default=0)):
                values = {what: column[head] for what, column in columns.items()}
                made.append(HeadScores(name, block, head, **values))
        return made


def real_queries(name: str, batch: Batch, pattern: Tensor) -> Tensor:
    """Queries that are tokens, not padding (B, T)."""
    source = name.startswith("encoder.") and batch.target is not None
    mask = batch.source_mask if source else batch.mask
    every = torch.ones(len(pattern), pattern.shape[2], dtype=torch.bool, device=pattern.device)
    return every if mask is None else mask


def head_scores(
    board: Board, repeats: Repeats | None = None, batches: Iterable[Batch] | None = None
) -> list[HeadScores]:
    """Every head: the repeat scores, and entropy, distance and norm over `batches`.

    Without batches the latter are taken on the repeats too, in the same pass.
    """
    measure = Measure(board)
    if repeats is not None:
        measure.read(repeats.batch.to(board.model.device), repeats, general=batches is None)
    for batch in batches or ():
        measure.read(batch)
    return measure.scores()


def best_heads(scores: Iterable[HeadScores], by: str, count: int | None = None) -> list[HeadScores]:
    """Largest first, of entropy smallest first; heads without that score are left out."""
    check_known(by, [f.name for f in fields(HeadScores)][3:], "sorting heads")
    sign = 1 if by == "entropy" else -1
    having = [s for s in scores if getattr(s, by) is not None]
    return sorted(having, key=lambda s: sign * getattr(s, by))[:count]
