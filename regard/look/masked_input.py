"""One input with some of its tokens absent: what attribution methods run a model on.

Absent tokens are replaced by a baseline: the vector zero, or a token such as [MASK].
LIME, SHAP and deletion curves ask for the goal of subsets of tokens; gradients ask for the vectors
of the input and of its baseline, and for the goal of vectors between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast

import torch
from torch import Tensor
from torch.func import functional_call

from regard.ambient import progress
from regard.errors import RegardError, ResourceError, UsageError, is_out_of_memory
from regard.look.edits import patch
from regard.look.hooks import HookedModel
from regard.look.patching import Goal
from regard.model.batch import Batch
from regard.model.fronts import TextFront

Baseline = int | Literal["zero"]
"""What stands for an absent token: a token by id, or the vector zero at its position."""

SetFunction = Callable[[Tensor], Tensor]
"""Subsets of tokens (N, M), True where a token is there → one number each (N,)."""

CHUNK_TOKENS = 4096  # run at once, unless rows are given
DOING = "explaining"


@dataclass
class MaskedInput:
    """The goal of one row as a function of which of its tokens are there.

    Called with subsets (N, M) of its M players it gives their goals (N,), in float64.
    """

    hooked: HookedModel
    batch: Batch
    goal: Goal
    baseline: Baseline = "zero"
    """What an absent token is."""
    players: Sequence[int] | None = None
    """Columns of the M tokens that may be absent; None: all real ones."""
    rows: int | None = None
    """Subsets run at once; None lets the length decide."""

    def __post_init__(self) -> None:
        self.tap = "decoder.embed" if self.hooked.model.encoder is None else "encoder.embed"
        if self.tap not in self.hooked.taps:
            raise UsageError(DOING, f"a model without the tap {self.tap}", "one that reads tokens")
        every = range(self.width) if self.mask is None else self.mask[0].nonzero()[:, 0].tolist()
        self.columns = torch.tensor(list(every if self.players is None else self.players))

    @property
    def mask(self) -> Tensor | None:
        """The real tokens (1, S) of the input: of an encoder-decoder, those of its source."""
        return self.batch.mask if self.batch.target is None else self.batch.source_mask

    @cached_property
    def width(self) -> int:
        """Tokens, or patches, of the input."""
        shape = self.batch.inputs.shape
        return int(shape[1] if len(shape) == 2 else self.read_vectors(self.batch).shape[1])

    @torch.no_grad()
    def read_vectors(self, batch: Batch) -> Tensor:
        """The vectors (B, S, D) that a batch becomes, positions and all."""
        return self.hooked.run(batch, self.tap)[1][self.tap]

    @cached_property
    def vectors(self) -> tuple[Tensor, Tensor]:
        """The input as vectors (S, D), and with the baseline in place of its players."""
        own = self.read_vectors(self.batch)[0]
        absent = torch.zeros(len(own), 1, dtype=torch.bool, device=own.device)
        absent[self.columns.to(own.device)] = True
        return own, torch.where(absent, self.baseline_vectors().to(own), own)

    @torch.no_grad()
    def baseline_vectors(self) -> Tensor:
        """The vectors (S, D) where every token is absent; positions and segments stay.

        Pictures and sound have no tokens to put in place: zero is one without any signal.
        """
        batch, front = self.batch, self.hooked.model.front
        if self.baseline != "zero" or not isinstance(front, TextFront):
            value = 0 if self.baseline == "zero" else self.baseline
            return self.read_vectors(replace(batch, inputs=torch.full_like(batch.inputs, value)))[0]
        table = front.tokens.weight
        zeros = {"tokens.weight": table.new_zeros(1, 1).expand_as(table)}
        documents = batch.documents if batch.target is None else batch.source_documents
        arguments = (batch.inputs, self.mask, documents, batch.segments)
        return cast(Tensor, functional_call(front, zeros, arguments).x)[0]

    def goal_at(self, vectors: Tensor) -> Tensor:
        """The goal (R,) where vectors (R, S, D) come in instead of the input's own."""
        many = self.batch.tile(len(vectors))
        logits, _ = self.hooked.run(many, edits={self.tap: patch(vectors)})
        return self.goal.rows(len(vectors))(logits, many)

    @property
    def chunk_rows(self) -> int:
        """How many copies of the row are run at once."""
        length = self.batch.inputs.shape[1] if self.batch.inputs.dim() == 2 else 256
        length += 0 if self.batch.target is None else self.batch.target.shape[1]
        return self.rows or max(1, min(256, CHUNK_TOKENS // max(1, length)))

    def __call__(self, kept: Tensor) -> Tensor:
        """The goal (N,) of each subset of players (N, M)."""
        goals = run_in_chunks(kept, self.chunk_rows, self.run_subsets)
        if not bool(goals.isfinite().all()):
            fix = "check the weights of the model"
            raise RegardError(DOING, "a goal that is infinite or NaN", "numbers", fix)
        return goals

    @torch.no_grad()
    def run_subsets(self, kept: Tensor) -> Tensor:
        """One chunk of subsets (R, M) → goals (R,)."""
        there = torch.ones(len(kept), self.width, dtype=torch.bool)
        there[:, self.columns] = kept
        own, absent = self.vectors
        vectors = torch.where(there[..., None].to(own.device), own, absent)
        return self.goal_at(vectors).double().cpu()


def run_in_chunks(items: Tensor, rows: int, work: Callable[[Tensor], Tensor]) -> Tensor:
    """`work` on so many items at a time, on half as many where memory runs out."""
    results: list[Tensor] = []
    done = 0
    with progress(DOING) as say:
        while done < len(items):
            say(f"{done:,} of {len(items):,}")
            try:
                results.append(work(items[done : done + rows]))
                done += rows
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if rows == 1:
                    fix = "a shorter text, or --device cpu"
                    raise ResourceError(DOING, "no memory for one row", fix=fix) from None
                rows = (rows + 1) // 2
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
    return torch.cat(results)
