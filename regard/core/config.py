"""The shape of a block and of a stack, as frozen dataclasses; field docstrings become `--help`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args, get_origin, get_type_hints

from regard.errors import UsageError, did_you_mean

LINEARS = ("q", "k", "v", "o", "mlp")


def check_names(config: object, doing: str) -> None:
    """Refuse a value outside the names that its field lists, with the nearest of them."""
    for field, hint in get_type_hints(type(config)).items():
        value, known = getattr(config, field), get_args(hint)
        if get_origin(hint) is Literal and value not in known:
            fix = did_you_mean(str(value).lower(), known)
            raise UsageError(doing, f"{field} = {value!r}", f"one of {', '.join(known)}", fix)


@dataclass(frozen=True)
class BlockConfig:
    """One Transformer layer: attention, optional cross-attention, MLP."""

    dim: int
    """Width of the residual stream."""
    heads: int
    """Number of attention heads."""
    hidden: int
    """Width of the MLP."""
    kv_heads: int | None = None
    """Key-value heads: fewer than heads is grouped-query, 1 is multi-query attention."""
    head_dim: int | None = None
    """Width of one head; dim / heads when not given."""
    causal: bool = False
    """Each position sees itself and earlier ones only."""
    cross: bool = False
    """A second attention looks at the encoder's output."""
    window: int | None = None
    """Sliding window: a query sees this many positions, itself included; of a graph, nodes fewer
    edges away: 2 is itself and its neighbours."""
    norm: Literal["layer", "rms", "none"] = "layer"
    """Kind of normalisation."""
    norm_at: Literal["pre", "post"] = "pre"
    """Normalise the input of each part (2019) or the sum after it (2017)."""
    eps: float = 1e-5
    """Added to the variance inside a norm."""
    act: str = "gelu"
    """Activation of the MLP."""
    gated: bool = False
    """Multiply the activation by a second projection (SwiGLU and relatives)."""
    bias: tuple[str, ...] = LINEARS
    """Which linear maps have a bias: any of q k v o mlp."""
    qk_norm: bool = False
    """Root-mean-square norm on each head's queries and keys (Qwen 3)."""
    scale: float | None = None
    """Factor on the scores; 1 / sqrt(head_dim) when not given."""
    similarity: str = "dot"
    """How a query is compared with a key: dot, gaussian or distance."""
    dropout: float = 0.0
    """Dropout on the output of each part during training."""

    def __post_init__(self) -> None:
        check_names(self, "building a block")
        if min(self.dim, self.heads, self.hidden, self.groups) < 1 or (self.head_dim or 1) < 1:
            fault = (
                f"dim {self.dim}, heads {self.heads}, hidden {self.hidden}, kv_heads {self.groups}"
            )
            raise UsageError("building a block", fault, "sizes from 1 up")
        if self.head_dim is None and self.dim % self.heads:
            low = [n for n in range(1, min(int(self.dim**0.5), 10**6) + 1) if self.dim % n == 0]
            divisors = sorted({*low, *(self.dim // n for n in low)})
            problem = f"heads = {self.heads} does not divide dim = {self.dim}"
            fix = "change heads or dim, or set head_dim"
            raise UsageError("building a block", problem, f"one of {divisors}", fix)
        if self.heads % self.groups:
            problem = f"kv_heads = {self.groups} does not divide heads = {self.heads}"
            raise UsageError("building a block", problem, "a divisor of heads")
        unknown = set(self.bias) - set(LINEARS)
        if unknown:
            raise UsageError(
                "building a block", f"bias on {sorted(unknown)}", f"names out of {list(LINEARS)}"
            )

    @property
    def groups(self) -> int:
        """Number of key-value heads."""
        return self.kv_heads or self.heads

    @property
    def width(self) -> int:
        """Width of one head."""
        return self.head_dim or self.dim // self.heads


@dataclass(frozen=True)
class RotaryScaling:
    """How Llama 3 stretches rotary wavelengths to longer contexts."""

    factor: float = 8.0
    """Long wavelengths are stretched by this much."""
    low: float = 1.0
    """Wavelengths above length / low are stretched fully."""
    high: float = 4.0
    """Wavelengths below length / high are kept; between the two, a blend."""
    length: int = 8192
    """Context length before stretching."""


@dataclass(frozen=True)
class StackConfig:
    """Blocks one after the other, with their shared positions and a final norm."""

    block: BlockConfig
    """The layer that is repeated."""
    depth: int
    """Number of blocks."""
    position: Literal["none", "rotary", "relative", "alibi", "graph"] = "none"
    """Positions inside attention; positions added to the input belong to the front."""
    rotary_base: float = 10000.0
    """Base of the rotary wavelengths."""
    rotary_scaling: RotaryScaling | None = None
    """Stretching of the rotary wavelengths for long contexts."""
    buckets: int = 32
    """T5 relative positions: number of distance buckets; graphs: kinds of edges."""
    distance: int = 128
    """T5 relative positions, graphs: distances beyond this share a bucket."""
    final_norm: bool = True
    """Normalise the stream after the last block."""
    bridge: int | None = None
    """A linear map brings an encoder's output to this width, that of the decoder which reads it."""

    def __post_init__(self) -> None:
        check_names(self, "building a stack")
        if self.position == "rotary" and self.block.width % 2:
            doing = "building a stack"
            fault = f"rotary positions and heads of width {self.block.width}"
            raise UsageError(doing, fault, "an even width, for rotary positions turn pairs")
