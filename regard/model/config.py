"""The shape of a whole model: fronts, stacks, output head. Plain data, to and from a dict."""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal

from regard.core.config import BlockConfig, StackConfig, check_names
from regard.errors import DataError, UsageError, did_you_mean

READING = "reading a model's config"


@dataclass(frozen=True)
class TextConfig:
    """Front for token ids: embeddings of token, position and segment.

    Of the kind graph it reads nodes instead: `vocab` numbers of each, its degree as its segment.
    """

    dim: int
    """Width of the embeddings."""
    vocab: int
    """Number of tokens."""
    position: Literal["none", "learned", "sinusoidal", "halves"] = "none"
    """Positions added to the embeddings; halves is sinusoidal in Marian's order."""
    length: int | None = None
    """Rows of the learned position table, unused leading ones included."""
    offset: int = 0
    """Unused leading rows of the learned position table (RoBERTa)."""
    segments: int = 0
    """Number of segment embeddings (BERT)."""
    norm: Literal["layer", "none"] = "none"
    """Norm on the sum of the embeddings."""
    eps: float = 1e-5
    """Added to the variance inside the norm."""
    scale: bool = False
    """Multiply token embeddings by sqrt(dim) (Vaswani 2017)."""
    spread: int = 0
    """An encoder's positions are spread over so many, at random in training (Ruoss 2023)."""
    dropout: float = 0.0
    """Dropout on the embeddings during training."""
    kind: Literal["text", "graph"] = "text"

    def __post_init__(self) -> None:
        check_names(self, "building a text front")


@dataclass(frozen=True)
class ImageConfig:
    """Front for pixels: equal patches, each one token."""

    dim: int
    """Width of the embeddings."""
    height: int
    """Height of a picture in pixels."""
    width: int
    """Width of a picture in pixels."""
    patch: int
    """Side of a square patch in pixels."""
    stride: int | None = None
    """From one patch to the next, where they overlap (AST); None: they lie side by side."""
    channels: int = 3
    """Colour channels."""
    stem: Literal["patch", "conv"] = "patch"
    """One linear map per patch, or a small stack of 3 × 3 convolutions."""
    position: Literal["learned", "2d", "none"] = "learned"
    """A learned table, sinusoidal waves of row and column, or nothing that tells where."""
    cls: bool = True
    """A learned class token in front of the patches."""
    distilled: bool = False
    """A second token after it, which learns from a teacher (DeiT)."""
    dropout: float = 0.0
    """Dropout on the embeddings during training."""
    kind: Literal["image"] = "image"

    def __post_init__(self) -> None:
        check_names(self, "building an image front")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        step = self.stride or self.patch
        return (self.height - self.patch) // step + 1, (self.width - self.patch) // step + 1


@dataclass(frozen=True)
class AudioConfig:
    """Front for log-mel spectrograms: two convolutions, half as many tokens as frames."""

    dim: int
    """Width of the embeddings."""
    mels: int
    """Mel channels."""
    length: int
    """Rows of the position table, i.e. the largest number of frames / 2."""
    dropout: float = 0.0
    """Dropout on the embeddings during training."""
    kind: Literal["audio"] = "audio"

    def __post_init__(self) -> None:
        check_names(self, "building an audio front")


@dataclass(frozen=True)
class WaveConfig(AudioConfig):
    """Front for samples at 16 kHz: convolutions, one token per 20 ms in wav2vec 2.0 and HuBERT."""

    channels: tuple[int, ...] = ()
    """Of each convolution; so are kernels and strides."""
    kernels: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    norm: Literal["group", "layer"] = "group"
    """Each channel of the first convolution by itself, or each vector of all of them."""
    bias: bool = False
    """Of the convolutions."""
    reach: int = 128
    """Tokens that the convolution sees which tells positions."""
    groups: int = 16
    """Of that convolution."""
    post: bool = True
    """A norm after the positions, as blocks with norms after them have."""
    masked: bool = True
    """A vector for what is hidden in pre-training."""
    eps: float = 1e-5
    """Added to the variance inside the norms."""
    kind: Literal["wave"] = "wave"  # type: ignore[assignment]


@dataclass(frozen=True)
class HeadConfig:
    """Output head: take positions, optionally transform them, then score."""

    size: int | None = None
    """Number of scores: the vocabulary, or the classes; None leaves vectors."""
    take: Literal["all", "first", "last", "mean", "pair"] = "all"
    """Score every position; or the first token of a row, its last, the mean of all of them, or of
    the first two (AST)."""
    transform: str | None = None
    """A dense layer with this activation before the scores."""
    norm: bool = False
    """A layer norm before the scores, after the transform."""
    eps: float = 1e-5
    """Added to the variance inside the norm."""
    bias: bool = False
    """Bias on the scores."""
    tied: bool = False
    """The score weights are the token embeddings."""
    scale: float | None = None
    """Factor on the vectors before scoring (T5)."""

    def __post_init__(self) -> None:
        check_names(self, "building an output head")


FrontConfig = TextConfig | ImageConfig | AudioConfig | WaveConfig


@dataclass(frozen=True)
class ModelConfig:
    """A Front turns anything into vectors, Stacks turn vectors into vectors, a Head answers."""

    front: FrontConfig
    """Input of the encoder, or of the decoder when there is no encoder."""
    head: HeadConfig = HeadConfig()
    """Output head."""
    encoder: StackConfig | None = None
    """Stack that sees its whole input."""
    decoder: StackConfig | None = None
    """Stack that writes from left to right."""
    target: TextConfig | None = None
    """Input of the decoder when there is an encoder too."""
    shared: bool = False
    """Front and target share their token embeddings."""

    @property
    def last(self) -> StackConfig:
        """The stack that feeds the head."""
        stack = self.decoder or self.encoder
        if stack is None:
            raise DataError("building a model", "neither encoder nor decoder", "at least one")
        return stack

    @property
    def width(self) -> int:
        """Of the vectors that the head scores."""
        return self.last.block.dim

    def to_dict(self) -> dict[str, Any]:
        """Nested plain dicts, as stored in a folder of regard's own."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModelConfig:
        """The inverse of `to_dict`; an unknown key fails with the nearest name."""
        return typing.cast(ModelConfig, from_plain(cls, values, "model"))


CELLS = ("rnn", "lstm", "gru", "mlp")


@dataclass(frozen=True)
class RecurrentConfig(ModelConfig):
    """Embeddings, recurrent layers where a Transformer has its stacks, and an output head."""

    cell: Literal["rnn", "lstm", "gru", "mlp"] = "lstm"
    """tanh (Elman 1990), LSTM (Hochreiter 1997), GRU (Cho 2014), last five words (Bengio 2003)."""
    hidden: int = 256
    """Width of the state."""
    depth: int = 1
    """Layers: of a language model, and of an encoder."""
    attention: Literal["none", "additive"] = "none"
    """What an encoder-decoder sees of its source: one vector, or all states (Bahdanau 2015)."""
    kind: Literal["recurrent"] = "recurrent"

    def __post_init__(self) -> None:
        check_names(self, "building a recurrent model")

    @property
    def last(self) -> StackConfig:
        """There is none: whoever asks means a Transformer."""
        fault = f"a recurrent model ({self.cell})"
        raise UsageError("looking for a stack of blocks", fault, "a Transformer")

    @property
    def width(self) -> int:
        """Of the vectors that the head scores."""
        return self.hidden if self.target is None else self.target.dim

    @property
    def source_width(self) -> int:
        """Of what a decoder sees of its source: states of both directions, or one vector."""
        return 2 * self.hidden if self.attention == "additive" else self.hidden


def from_plain(kind: Any, value: Any, path: str) -> Any:
    """Rebuild a dataclass tree from plain values; `path` names the place in messages."""
    if isinstance(kind, types.UnionType):
        options = [option for option in typing.get_args(kind) if option is not types.NoneType]
        if value is None and len(options) < len(typing.get_args(kind)):
            return None
        if not isinstance(value, dict):
            return from_plain(options[0], value, path)
        tags = {option.kind: option for option in options if hasattr(option, "kind")}
        return from_plain(tags.get(value.get("kind"), options[0]), value, path)
    if not dataclasses.is_dataclass(kind):
        return check_value(kind, value, path)
    if not isinstance(value, dict):
        raise DataError(READING, f"{path} = {value!r}", "an object with the fields of its part")
    hints = typing.get_type_hints(kind)
    unknown = [key for key in value if key not in hints]
    if unknown:
        fault, fix = f"unknown key {path}.{unknown[0]}", did_you_mean(unknown[0], hints)
        raise DataError(READING, fault, f"one of {', '.join(hints)}", fix)
    fields = {key: from_plain(hints[key], item, f"{path}.{key}") for key, item in value.items()}
    try:
        return kind(**fields)  # type: ignore[operator]
    except TypeError as error:
        raise DataError(READING, f"{path}: {error}", "all fields without a default") from None
    except UsageError as error:  # a value of a file, not of the caller
        raise DataError(READING, f"{path}: {error.found}", error.expected, error.fix) from None


def check_value(kind: Any, value: Any, path: str) -> Any:
    """A plain value of the type its field has: sizes from 1 up (offsets from 0), finite numbers."""
    wanted = "a value of its type"
    if kind is int:
        least = 0 if path.endswith((".offset", ".segments", ".spread")) else 1
        wanted = f"a whole number from {least} up"
        right = isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**40
    elif kind is float:
        wanted = "a finite number, not negative"
        right = isinstance(value, int | float) and not isinstance(value, bool)
        right = right and 0 <= value < float("inf")
    elif kind is bool or kind is str:
        right = isinstance(value, kind)
    elif typing.get_origin(kind) is tuple:
        part = typing.get_args(kind)[0]
        right = isinstance(value, list | tuple) and all(isinstance(v, part) for v in value)
        value = tuple(value) if right else value
    else:  # names out of a list: the dataclass itself refuses others, with the nearest
        right = isinstance(value, str)
    if not right:
        raise DataError(READING, f"{path} = {value!r}", wanted)
    return value


# The Transformer of 2017 --------------------------------------------------------------------------

FREE: dict[type, str] = {
    BlockConfig: "dim heads hidden kv_heads head_dim causal cross norm_at eps act bias dropout",
    StackConfig: "block depth final_norm",
    TextConfig: "dim vocab position length offset eps scale dropout",
    HeadConfig: "size bias tied",
}
"""What may have any value in the Transformer of 2017; all else is as it is by default."""


def find_unusual(config: ModelConfig) -> list[str]:
    """Where a shape differs from the Transformer of 2017, pre-norm or post-norm."""
    encoder, decoder, front, target = config.encoder, config.decoder, config.front, config.target
    if encoder is None or decoder is None or target is None or not isinstance(front, TextConfig):
        return ["not an encoder and a decoder over text"]
    stacks = {"encoder": encoder, "decoder": decoder}
    blocks = {f"{name}.block": stack.block for name, stack in stacks.items()}
    parts: dict[str, Any] = {**stacks, **blocks, "front": front, "target": target}
    parts["head"] = config.head
    faults = [
        f"{name}.{field.name} = {getattr(part, field.name)!r}"
        for name, part in parts.items()
        for field in dataclasses.fields(part)
        if field.name not in FREE[type(part)].split() and getattr(part, field.name) != field.default
    ]
    for name, block in blocks.items():
        if block.groups != block.heads or block.width * block.heads != block.dim:
            faults.append(f"{name}: grouped keys, or heads of their own width")
    if any(stack.block.norm_at == "post" and stack.final_norm for stack in stacks.values()):
        faults.append("a final norm after post-norm blocks")
    if "none" in (front.position, target.position):
        faults.append("an input without positions")
    return faults
