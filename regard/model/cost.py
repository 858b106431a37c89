"""What a model costs, by formula: parameters, FLOPs, and the bytes alive at once.

Parts of a run have one name everywhere; letters as in `regard.core`, M is the width of the MLP.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, replace

from regard.core.config import StackConfig
from regard.errors import UsageError
from regard.model.config import AudioConfig, FrontConfig, ImageConfig, ModelConfig, TextConfig
from regard.model.model import empty_model

EMBED, PROJECT, LOOK, MLP, NORM, HEAD = PARTS = (
    "embeddings",
    "projections",
    "scores and values",
    "MLP",
    "norms and residuals",
    "output head",
)
Cost = dict[str, int]


@dataclass(frozen=True)
class RunShape:
    """The size of one forward pass."""

    batch: int = 1
    length: int = 512
    """Tokens that the last stack reads; pictures have their own number."""
    source: int = 512
    """Tokens that the encoder of an encoder-decoder reads; sound has its own number."""
    item: int = 4
    """Bytes of one number."""


@dataclass(frozen=True)
class Pass:
    """One stack of a run: what it is and how much it reads."""

    name: str
    stack: StackConfig
    front: FrontConfig
    tokens: int
    """Tokens of one sequence."""
    seen: int = 0
    """Tokens of the memory that a decoder looks at."""


def passes(config: ModelConfig, run: RunShape) -> list[Pass]:
    """The stacks of a run in their order; a text too long for its table is an error."""
    pair = config.encoder is not None and config.decoder is not None
    first = count_tokens(config.front, run.source if pair else run.length)
    stacks = []
    if config.encoder is not None:
        stacks.append(Pass("encoder", config.encoder, config.front, first))
    if config.decoder is not None:
        front = config.target if pair and config.target is not None else config.front
        tokens = count_tokens(front, run.length)
        stacks.append(Pass("decoder", config.decoder, front, tokens, first if pair else 0))
    return stacks


def count_tokens(front: FrontConfig, length: int) -> int:
    """How many tokens a front makes: as asked for text, its own number for pictures and sound."""
    if isinstance(front, ImageConfig):
        return front.grid[0] * front.grid[1] + front.cls + front.distilled
    if isinstance(front, AudioConfig):
        return front.length
    if front.position == "learned" and length > table_size(front):
        expected = f"at most {table_size(front):,}, the rows of this model's learned position table"
        fix = "a shorter --length, or a model with rotary, relative or sinusoidal positions"
        raise UsageError("planning a run", f"a length of {length:,}", expected, fix)
    return length


def table_size(front: TextConfig) -> int:
    """Positions that a learned table holds."""
    return (front.length or 512) - front.offset


def count_params(config: ModelConfig) -> int:
    """Parameters of a model, tied ones once."""
    return sum(parameter.numel() for parameter in empty_model(config).parameters())


# FLOPs ----------------------------------------------------------------------------------------


def count_flops(config: ModelConfig, run: RunShape, train: bool = False) -> Cost:
    """FLOPs by part, a multiply-add counted as two; training is three times a forward pass.

    Scores and values are counted whole, also where a causal kernel skips half. Norms and residuals
    are counted as six operations per number; activations, softmax and look-ups are left out.
    """
    flops = Counter(dict.fromkeys(PARTS, 0))
    for one in passes(config, run):
        flops.update(pass_flops(one, run.batch))
    _, rows, dim, size = head_rows(config, run)
    flops[HEAD] = 2 * rows * dim * (size + (dim if config.head.transform else 0))
    return {part: count * (3 if train else 1) for part, count in flops.items()}


def pass_flops(one: Pass, batch: int) -> Cost:
    """FLOPs of one stack and its front, by part."""
    block, depth, rows = one.stack.block, one.stack.depth, batch * one.tokens
    wide, narrow = block.heads * block.width, block.groups * block.width
    seen = (one.tokens, one.seen) if block.cross else (one.tokens,)
    # q and o of each query, k and v of each key
    return {
        EMBED: batch * front_flops(one.front, one.tokens),
        PROJECT: depth * 4 * block.dim * sum(rows * wide + batch * keys * narrow for keys in seen),
        LOOK: depth * 4 * rows * wide * sum(seen),
        MLP: depth * (6 if block.gated else 4) * rows * block.dim * block.hidden,
        NORM: depth * (3 if block.cross else 2) * 6 * rows * block.dim,
    }


def front_flops(front: FrontConfig, tokens: int) -> int:
    """FLOPs of one sequence's front: convolutions; for text, adding the positions."""
    if isinstance(front, TextConfig):
        return tokens * front.dim * ((front.position != "none") + (front.segments > 0))
    if isinstance(front, AudioConfig):
        return 2 * 3 * front.dim * tokens * (2 * front.mels + front.dim)
    places = front.grid[0] * front.grid[1]
    if front.stem == "patch":
        return 2 * front.channels * front.patch**2 * front.dim * places
    halvings, before, flops = front.patch.bit_length() - 1, front.channels, 0
    for step in range(halvings):
        after = max(front.dim >> (halvings - step), 8)
        flops += 2 * 9 * (4 * before + after) * after * places * 4 ** (halvings - step - 1)
        before = after
    return flops + 2 * before * front.dim * places


# Memory ---------------------------------------------------------------------------------------
#
# Which tensors of this code base exist together; counted for the fused attention kernel, which
# never holds the (B, H, T, S) pattern.


@dataclass(frozen=True)
class MemoryCost:
    """Bytes of a run."""

    weights: int
    parts: Cost
    """Forward: alive at the part's widest moment. Training: kept for the backward pass."""
    gradients: int = 0
    optimiser: int = 0
    peak: int = 0
    """All that is alive at the run's widest moment."""


def count_memory(config: ModelConfig, run: RunShape, train: bool = False) -> MemoryCost:
    """Peak memory of a forward pass without gradients, or of a step with AdamW."""
    weights = count_params(config) * run.item
    if not train:
        parts = live_bytes(config, run)
        return MemoryCost(weights, parts, peak=weights + max(parts.values()))
    parts = kept_bytes(config, run)
    largest = largest_tensor(config) * run.item
    # The widest moment is one of two: the backward pass begins, with all activations and no
    # gradients yet; or AdamW works on the largest tensor (its root and the quotient are new).
    begins = 3 * weights + sum(parts.values())
    return MemoryCost(weights, parts, weights, 2 * weights, max(begins, 4 * weights + 2 * largest))


def disk_of(weights: int, optimiser: int, keep: int) -> tuple[int, int]:
    """(bytes of one checkpoint, most bytes of a whole run); of a saved model the same twice.

    A checkpoint holds the weights and the optimizer's means. There are `keep` of them, the best,
    and one that is being written before an old one goes; at the end the weights alone.
    """
    if not optimiser:
        return weights, weights
    one = weights + optimiser
    return one, one * (keep + 2) + weights


def live_bytes(config: ModelConfig, run: RunShape) -> Cost:
    """Bytes alive in a forward pass without gradients, weights left out, by part."""
    live = dict.fromkeys(PARTS, 0)
    for one in passes(config, run):
        for part, count in live_in_pass(one, run.batch).items():
            live[part] = max(live[part], count)
    rows, taken, dim, size = head_rows(config, run)
    live[HEAD] = rows * dim + taken * (size + (dim if config.head.transform else 0))
    return {part: count * run.item for part, count in live.items()}


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
    return {
        EMBED: front_live(one, batch),
        PROJECT: inside + max(turning, rows * wide + stream),  # z and o's output
        LOOK: inside + rows * wide,
        MLP: held + stream + normed + (3 if block.gated else 2) * rows * block.hidden,
        NORM: held + 4 * stream,
    }


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


def kept_bytes(config: ModelConfig, run: RunShape) -> Cost:
    """Bytes that the forward pass of training keeps for the backward pass, by part."""
    kept = dict.fromkeys(PARTS, 0)
    for one in passes(config, run):
        block, depth, rows = one.stack.block, one.stack.depth, run.batch * one.tokens
        stream, wide = rows * block.dim, block.heads * block.width
        narrow = block.groups * block.width
        kept[EMBED] += stream
        for keys in (one.tokens, one.seen) if block.cross else (one.tokens,):
            kept[PROJECT] += depth * stream  # the input of q, k and v
            kept[LOOK] += depth * (2 * rows * wide + 2 * run.batch * keys * narrow)  # q, z, k, v
        # What down reads, what act read unless its result will do, and gated: act's result and up.
        wide_ones = 1 + (block.act not in ("relu", "tanh")) + 2 * block.gated
        kept[MLP] += depth * (stream + wide_ones * rows * block.hidden)
        norms = {"layer": 1, "rms": 3}.get(block.norm, 0)  # tensors; the latter is not fused
        kept[NORM] += depth * (3 if block.cross else 2) * norms * stream
        kept[LOOK] += shared_mask(one)
    rows, taken, dim, size = head_rows(config, run)
    kept[HEAD] = rows * dim + taken * (3 * size + (3 * dim if config.head.transform else 0))
    return {part: count * run.item for part, count in kept.items()}


def head_rows(config: ModelConfig, run: RunShape) -> tuple[int, int, int, int]:
    """(rows of the stream, rows that are scored, width, number of scores)."""
    rows = run.batch * passes(config, run)[-1].tokens
    taken = run.batch if config.head.take != "all" else rows
    return rows, taken, config.last.block.dim, config.head.size or 0


def largest_tensor(config: ModelConfig) -> int:
    """Numbers in the largest weight."""
    tables = [f.vocab * f.dim for f in (config.front, config.target) if isinstance(f, TextConfig)]
    head = (config.head.size or 0) * config.last.block.dim
    blocks = [s.block for s in (config.encoder, config.decoder) if s is not None]
    return max(*tables, head, *(block.dim * block.hidden for block in blocks), 0)


def fit_batch(
    config: ModelConfig, run: RunShape, limit: int, train: bool = False
) -> RunShape | None:
    """The largest batch, else the largest length of one sequence, whose peak stays in `limit`."""

    def peak(shape: RunShape) -> int:
        return count_memory(config, shape, train).peak

    batches = [replace(run, batch=n) for n in range(1, run.batch + 1)]
    lengths = [
        replace(run, batch=1, length=n, source=min(run.source, n)) for n in range(1, run.length + 1)
    ]
    for shapes in (batches, lengths):
        if fitting := bisect_right(shapes, limit, key=peak):
            return shapes[fitting - 1]
    return None
