"""What a model reads, as vectors: the place where tokens come in, and what stands for no token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call

from regard.errors import ResourceError, UsageError, is_out_of_memory
from regard.look.edits import patch
from regard.look.goal import Goal
from regard.look.hooks import Board
from regard.model.batch import Batch
from regard.model.front_text import TextFront

Baseline = int | Literal["zero", "drop"]
"""What stands for an absent token: the vector zero at its position, nothing, or a token by id."""

Watch = Callable[[int, int], None]
"""Called before each chunk of work with what is done and what there is."""

TOKENS = 4096  # of a chunk, unless rows are given


def reading_tap(board: Board) -> str:
    """The tap of the vectors that the input becomes: of the encoder, where there is one."""
    name = "encoder.embed" if board.model.encoder is not None else "decoder.embed"
    if name not in board.taps:
        raise UsageError("explaining", f"a model without the tap {name}", "one that reads tokens")
    return name


def real_tokens(board: Board, batch: Batch) -> Tensor | None:
    """The mask of the input (B, S): of an encoder-decoder, its source's."""
    return batch.mask if board.model.config.target is None else batch.source_mask


def with_real(board: Board, batch: Batch, real: Tensor) -> Batch:
    """The batch with another mask of its input."""
    return replace(batch, **{"mask" if board.model.config.target is None else "source_mask": real})


def check_one_row(batch: Batch) -> None:
    """An explanation is of one input."""
    if len(batch.inputs) != 1:
        raise UsageError("explaining", f"a batch of {len(batch.inputs)} rows", "one row at a time")


@torch.no_grad()
def own_vectors(board: Board, batch: Batch) -> Tensor:
    """The vectors (B, S, D) that the input becomes, positions and all."""
    tap = reading_tap(board)
    return board.run(batch, tap)[1][tap]


@torch.no_grad()
def baseline_vectors(board: Board, batch: Batch, baseline: Baseline) -> Tensor:
    """The same (B, S, D) where every token is absent; positions and segments stay.

    Pictures and sound have no tokens to put in place: zero is one without any signal.
    """
    front = board.model.front
    if baseline == "drop":
        found, fix = "a baseline that leaves tokens out", "lime and shap can leave tokens out"
        raise UsageError("explaining by gradients", found, "zero, or a token", fix)
    if not isinstance(front, TextFront):
        if baseline != "zero":
            raise no_text(baseline)
        return own_vectors(board, replace(batch, inputs=torch.zeros_like(batch.inputs)))
    if baseline != "zero":
        check_token(front, baseline)
        return own_vectors(board, replace(batch, inputs=torch.full_like(batch.inputs, baseline)))
    table = front.tokens.weight
    nothing = {"tokens.weight": table.new_zeros(1, 1).expand_as(table)}
    documents = batch.documents if batch.target is None else batch.source_documents
    given = (batch.inputs, real_tokens(board, batch), documents, batch.segments)
    made: Tensor = functional_call(front, nothing, given).x
    return made


def no_text(baseline: Baseline) -> UsageError:
    """The error for a token where there are only pixels or sound."""
    return UsageError("explaining", f"baseline {baseline!r}", "zero: this model reads no text")


def check_token(front: TextFront, token: int) -> None:
    """A baseline must be a token of the vocabulary."""
    if not 0 <= token < front.config.vocab:
        raise UsageError("explaining", f"baseline token {token}", f"0 to {front.config.vocab - 1}")


def value_at(board: Board, batch: Batch, goal: Goal, vectors: Tensor) -> Tensor:
    """The goal (R,) where these vectors (R, S, D) come in instead of a row's own."""
    many = batch.tile(len(vectors))
    logits, _ = board.run(many, edits={reading_tap(board): patch(vectors)})
    return goal.rows(len(vectors))(logits, many)


def chunk_rows(batch: Batch, rows: int | None) -> int:
    """How many copies of a row to run at once: as asked, or so many that tokens stay few."""
    if rows is not None and rows < 1:
        raise UsageError("explaining", f"rows = {rows}", "1 or more")
    length = batch.inputs.shape[1] if batch.inputs.dim() == 2 else 256
    length += 0 if batch.target is None else batch.target.shape[1]
    return rows or max(1, min(256, TOKENS // max(1, length)))


def in_chunks(
    items: Tensor, rows: int, work: Callable[[Tensor], Tensor], watch: Watch | None = None
) -> Tensor:
    """`work` on so many items at a time, on half as many where memory runs out."""
    made: list[Tensor] = []
    done = 0
    while done < len(items):
        if watch is not None:
            watch(done, len(items))
        try:
            made.append(work(items[done : done + rows]))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if rows == 1:
                fix = "a shorter text, or --device cpu"
                raise ResourceError("explaining", "no memory for one row", fix=fix) from None
            rows = (rows + 1) // 2
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            continue
        done += rows
    return torch.cat(made)
