"""Bytes alive at once in a run, by formula: which tensors of this code base exist together.

Counted for the fused attention kernel, which never holds the (B, H, T, S) pattern.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

from regard.model.config import AudioConfig, ModelConfig, TextConfig
from regard.model.cost import (
    EMBED,
    HEAD,
    LOOK,
    MLP,
    NORM,
    PARTS,
    PROJECT,
    Cost,
    Pass,
    Run,
    count_params,
    passes,
)


@dataclass(frozen=True)
class Memory:
    """Bytes of a run."""

    weights: int
    parts: Cost
    """Forward: alive at the part's widest moment. Training: kept for the backward pass."""
    gradients: int = 0
    optimiser: int = 0
    peak: int = 0
    """All that is alive at the run's widest moment."""


def count_memory(config: ModelConfig, run: Run, train: bool = False) -> Memory:
    """Peak memory of a forward pass without gradients, or of a step with AdamW."""
    weights = sum(count_params(config).values()) * run.item
    if not train:
        parts = live_bytes(config, run)
        return Memory(weights, parts, peak=weights + max(parts.values()))
    parts = kept_bytes(config, run)
    largest = largest_tensor(config) * run.item
    # The widest moment is one of two: the backward pass begins, with all activations and no
    # gradients yet; or AdamW works on the largest tensor (its root and the quotient are new).
    begins = 3 * weights + sum(parts.values())
    steps = 4 * weights + 2 * largest
    return Memory(weights, parts, weights, 2 * weights, max(begins, steps))


def count_disk(config: ModelConfig, run: Run, train: bool, keep: int) -> tuple[int, int]:
    """`disk_of` the weights of a shape."""
    return disk_of(sum(count_params(config).values()) * run.item, train, keep)


def disk_of(weights: int, train: bool, keep: int) -> tuple[int, int]:
    """(bytes of one checkpoint, most bytes of a whole run); of a saved model the same twice.

    A checkpoint holds the weights and AdamW's two means. There are `keep` of them, the best, and
    one that is being written before an old one goes; at the end the weights alone.
    """
    if not train:
        return weights, weights
    return 3 * weights, 3 * weights * (keep + 2) + weights


def live_bytes(config: ModelConfig, run: Run) -> Cost:
    """Bytes alive in a forward pass without gradients, weights left out, by part."""
    made = dict.fromkeys(PARTS, 0)
    for one in passes(config, run):
        for part, count in live_in_pass(one, run.batch).items():
            made[part] = max(made[part], count)
    rows, taken, dim, size = head_rows(config, run)
    made[HEAD] = rows * dim + taken * (size + (dim if config.head.transform else 0))
    return {part: count * run.item for part, count in made.items()}


def live_in_pass(one: Pass, batch: int) -> Cost:
    """Numbers alive in one stack: its input, the block's input, and what the part makes."""
    block, rows = one.stack.block, batch * one.tokens
    stream = rows * block.dim
    wide, narrow = block.heads * block.width, block.groups * block.width
    # The embeddings live until the stack is done, as does each block's input until it is.
    held = min(one.stack.depth, 2) * stream + batch * one.seen * block.dim + shared_mask(one)
    normed = stream if block.norm_at == "pre" else 0
    keys = batch * max(one.tokens, one.seen)
    inside = held + normed + rows * wide + 2 * keys * narrow  # q, k, v
    turning = 3 * rows * wide if one.stack.position == "rotary" else 0
    made = {
        EMBED: front_live(one, batch),
        PROJECT: inside + max(turning, rows * wide + stream),  # z and o's output
        LOOK: inside + rows * wide,
        MLP: held + stream + normed + (3 if block.gated else 2) * rows * block.hidden,
        NORM: held + 4 * stream,
    }
    return made


def shared_mask(one: Pass) -> int:
    """Numbers of a position bias or window mask that all blocks share: (1, H, T, S)."""
    block, square = one.stack.block, one.tokens**2
    if one.stack.position in ("relative", "alibi"):
        return block.heads * square
    return 2 * square if block.window is not None else 0  # booleans, and the kernel's floats


def front_live(one: Pass, batch: int) -> int:
    """Numbers alive while a front makes its vectors."""
    front, rows = one.front, batch * one.tokens
    stream = rows * front.dim
    if isinstance(front, AudioConfig):
        return 2 * rows * front.mels + 6 * stream  # twice as many frames, before and after GELU
    if not isinstance(front, TextConfig):
        return 3 * stream + batch * front.channels * front.height * front.width
    waves = 8 * one.tokens * front.dim if front.position in ("sinusoidal", "halves") else 0
    return 3 * stream + waves  # four tensors of float64


def kept_bytes(config: ModelConfig, run: Run) -> Cost:
    """Bytes that the forward pass of training keeps for the backward pass, by part."""
    made = dict.fromkeys(PARTS, 0)
    for one in passes(config, run):
        block, depth, rows = one.stack.block, one.stack.depth, run.batch * one.tokens
        stream, wide = rows * block.dim, block.heads * block.width
        narrow = block.groups * block.width
        made[EMBED] += stream
        for keys in (one.tokens, one.seen) if block.cross else (one.tokens,):
            made[PROJECT] += depth * stream  # the input of q, k and v
            made[LOOK] += depth * (2 * rows * wide + 2 * run.batch * keys * narrow)  # q, z, k, v
        # What down reads, what act read unless its result will do, and gated: act's result and up.
        wide_ones = 1 + (block.act not in ("relu", "tanh")) + 2 * block.gated
        made[MLP] += depth * (stream + wide_ones * rows * block.hidden)
        made[NORM] += depth * (3 if block.cross else 2) * norm_keeps(block.norm) * stream
        made[LOOK] += shared_mask(one)
    rows, taken, dim, size = head_rows(config, run)
    made[HEAD] = rows * dim + taken * (3 * size + (3 * dim if config.head.transform else 0))
    return {part: count * run.item for part, count in made.items()}


def norm_keeps(kind: str) -> int:
    """Tensors of the stream's size that a norm keeps; the root-mean-square one is not fused."""
    return {"layer": 1, "rms": 3}.get(kind, 0)


def head_rows(config: ModelConfig, run: Run) -> tuple[int, int, int, int]:
    """(rows of the stream, rows that are scored, width, number of scores)."""
    rows = run.batch * passes(config, run)[-1].tokens
    taken = run.batch if config.head.take == "first" else rows
    return rows, taken, config.last.block.dim, config.head.size or 0


def largest_tensor(config: ModelConfig) -> int:
    """Numbers in the largest weight."""
    tables = [f.vocab * f.dim for f in (config.front, config.target) if isinstance(f, TextConfig)]
    head = (config.head.size or 0) * config.last.block.dim
    blocks = [s.block for s in (config.encoder, config.decoder) if s is not None]
    return max(*tables, head, *(block.dim * block.hidden for block in blocks), 0)


def fit_batch(config: ModelConfig, run: Run, limit: int, train: bool = False) -> Run | None:
    """The largest batch, else the largest length of one sequence, whose peak stays in `limit`."""

    def largest(top: int, make: Callable[[int], Run]) -> int:
        def peak(size: int) -> int:
            return count_memory(config, make(size), train).peak

        return bisect_right(range(1, top + 1), limit, key=peak)

    def with_batch(batch: int) -> Run:
        return replace(run, batch=batch)

    def with_length(length: int) -> Run:
        return replace(run, batch=1, length=length, source=min(run.source, length))

    batch = largest(run.batch, with_batch)
    if batch:
        return with_batch(batch)
    length = largest(run.length, with_length)
    return with_length(length) if length else None
