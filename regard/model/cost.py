"""What a model costs, by formula: parameters, FLOPs, and the bytes alive at once.

Parts of a run have one name everywhere; letters as in `regard.core`, M is the width of the MLP.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.core.config import BlockConfig, StackConfig
from regard.errors import UsageError
from regard.model.config import AudioConfig, FrontConfig, ImageConfig, ModelConfig, TextConfig

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
class Run:
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


def passes(config: ModelConfig, run: Run) -> list[Pass]:
    """The stacks of a run in their order; a text too long for its table is an error."""
    pair = config.encoder is not None and config.decoder is not None
    first = count_tokens(config.front, run.source if pair else run.length)
    made = []
    if config.encoder is not None:
        made.append(Pass("encoder", config.encoder, config.front, first))
    if config.decoder is not None:
        front = config.target if pair and config.target is not None else config.front
        tokens = count_tokens(front, run.length)
        made.append(Pass("decoder", config.decoder, front, tokens, first if pair else 0))
    return made


def count_tokens(front: FrontConfig, length: int) -> int:
    """How many tokens a front makes: as asked for text, its own number for pictures and sound."""
    if isinstance(front, ImageConfig):
        return (front.height // front.patch) * (front.width // front.patch) + front.cls
    if isinstance(front, AudioConfig):
        return front.length
    if front.position == "learned" and length > table_size(front):
        raise UsageError(
            "planning a run",
            f"a length of {length:,}",
            f"at most {table_size(front):,}, the rows of this model's learned position table",
            "a shorter --length, or a model with rotary, relative or sinusoidal positions",
        )
    return length


def table_size(front: TextConfig) -> int:
    """Positions that a learned table holds."""
    return (front.length or 512) - front.offset


# Parameters -----------------------------------------------------------------------------------


def count_params(config: ModelConfig) -> Cost:
    """Parameters by part, tied ones once; their sum is the size of the model."""
    made = dict.fromkeys(PARTS, 0)
    made[EMBED] = front_params(config.front)
    if config.target is not None:
        shared = config.target.vocab * config.target.dim if config.shared else 0
        made[EMBED] += front_params(config.target) - shared
    for stack in filter(None, (config.encoder, config.decoder)):
        block = stack.block
        ways = 2 if block.cross else 1
        norm = norm_params(block.norm, block.dim)
        made[PROJECT] += stack.depth * ways * projection_params(block)
        made[MLP] += stack.depth * mlp_params(block)
        inner = 2 * block.width if block.qk_norm else 0
        made[NORM] += stack.depth * (ways * (norm + inner) + norm) + stack.final_norm * norm
        made[LOOK] += stack.buckets * block.heads if stack.position == "relative" else 0
    head, dim = config.head, config.last.block.dim
    if head.transform:
        made[HEAD] += dim * dim + dim + (2 * dim if head.norm else 0)
    elif head.norm:
        made[HEAD] += 2 * dim
    size = head.size or 0
    made[HEAD] += (0 if head.tied else size * dim) + (size if head.bias else 0)
    return made


def front_params(front: FrontConfig) -> int:
    """Parameters of one front."""
    dim = front.dim
    if isinstance(front, AudioConfig):
        return 3 * dim * (front.mels + dim) + 2 * dim + front.length * dim
    if isinstance(front, ImageConfig):
        table = count_tokens(front, 0) * dim if front.position == "learned" else 0
        return sum(w + out for w, out, _ in stem(front)) + table + (dim if front.cls else 0)
    table = (front.length or 512) * dim if front.position == "learned" else 0
    return (front.vocab + front.segments) * dim + table + norm_params(front.norm, dim)


def stem(front: ImageConfig) -> list[tuple[int, int, int]]:
    """Convolutions of an image front: (weights, biases, places each is applied to)."""
    area = front.height * front.width
    if front.stem == "patch":
        return [(front.channels * front.patch**2 * front.dim, front.dim, area // front.patch**2)]
    halvings, before, made = front.patch.bit_length() - 1, front.channels, []
    for step in range(halvings):
        after = max(front.dim >> (halvings - step), 8)
        made.append((9 * before * after, after, area // 4 ** (step + 1)))
        before = after
    return [*made, (before * front.dim, front.dim, area // front.patch**2)]


def norm_params(kind: str, dim: int) -> int:
    """Scale and shift of a norm."""
    return {"layer": 2 * dim, "rms": dim}.get(kind, 0)


def projection_params(block: BlockConfig) -> int:
    """q, k, v and o of one attention."""
    wide, narrow = block.heads * block.width, block.groups * block.width
    biases = {"q": wide, "k": narrow, "v": narrow, "o": block.dim}
    weights = block.dim * (2 * wide + 2 * narrow)
    return weights + sum(size for name, size in biases.items() if name in block.bias)


def mlp_params(block: BlockConfig) -> int:
    """up, gate and down."""
    ups = 2 if block.gated else 1
    bias = ups * block.hidden + block.dim if "mlp" in block.bias else 0
    return (ups + 1) * block.dim * block.hidden + bias


# FLOPs ----------------------------------------------------------------------------------------


def count_flops(config: ModelConfig, run: Run, train: bool = False) -> Cost:
    """FLOPs by part, a multiply-add counted as two; training is three times a forward pass.

    Scores and values are counted whole, also where a causal kernel skips half. Norms and residuals
    are counted as six operations per number; activations, softmax and look-ups are left out.
    """
    made = dict.fromkeys(PARTS, 0)
    for one in passes(config, run):
        block, depth, rows = one.stack.block, one.stack.depth, run.batch * one.tokens
        wide, narrow = block.heads * block.width, block.groups * block.width
        for keys in (one.tokens, one.seen) if block.cross else (one.tokens,):
            products = rows * wide + run.batch * keys * narrow  # q and o; k and v
            made[PROJECT] += depth * 4 * block.dim * products
            made[LOOK] += depth * 4 * rows * keys * wide
        made[MLP] += depth * (6 if block.gated else 4) * rows * block.dim * block.hidden
        made[NORM] += depth * (3 if block.cross else 2) * 6 * rows * block.dim
        made[EMBED] += run.batch * front_flops(one.front, one.tokens)
    head, dim = config.head, config.last.block.dim
    rows = run.batch * (1 if head.take == "first" else passes(config, run)[-1].tokens)
    made[HEAD] = 2 * rows * dim * ((head.size or 0) + (dim if head.transform else 0))
    return {part: count * (3 if train else 1) for part, count in made.items()}


def front_flops(front: FrontConfig, tokens: int) -> int:
    """FLOPs of one sequence's front: convolutions; for text, adding the positions."""
    if isinstance(front, AudioConfig):
        return 2 * 3 * front.dim * tokens * (2 * front.mels + front.dim)
    if isinstance(front, ImageConfig):
        return sum(2 * weights * places for weights, _, places in stem(front))
    return tokens * front.dim * ((front.position != "none") + (front.segments > 0))
