"""Named shapes: a function per family, a line per size. Sizes of a real checkpoint come with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regard.core.config import BlockConfig, RotaryScaling, StackConfig
from regard.errors import check_known
from regard.model.config import (
    AudioConfig,
    HeadConfig,
    ImageConfig,
    ModelConfig,
    RecurrentConfig,
    TextConfig,
)
from regard.model.results import PresetInfo


def gpt2(
    dim: int,
    depth: int,
    heads: int,
    vocab: int = 50257,
    length: int = 1024,
    hidden: int | None = None,
) -> ModelConfig:
    """Decoder with learned positions (Radford 2019)."""
    block = BlockConfig(dim, heads, hidden or 4 * dim, causal=True, act="gelu_tanh")
    front = TextConfig(dim, vocab, position="learned", length=length)
    return ModelConfig(front, HeadConfig(vocab, tied=True), decoder=StackConfig(block, depth))


def llama(
    dim: int,
    depth: int,
    heads: int,
    kv_heads: int,
    hidden: int,
    vocab: int,
    length: int = 2048,
    rotary: tuple[float, RotaryScaling | None] = (1e4, None),
) -> ModelConfig:
    """Decoder with rotary positions, RMS norm and a gated MLP (Touvron 2023)."""
    shape: dict[str, Any] = dict(norm="rms", act="silu", gated=True, bias=())
    width = None if dim % heads else dim // heads  # the block says what divides
    block = BlockConfig(dim, heads, hidden, kv_heads, width, causal=True, **shape)
    stack = StackConfig(block, depth, "rotary", *rotary)
    front = TextConfig(dim, vocab, length=length)
    return ModelConfig(front, HeadConfig(vocab, tied=True), decoder=stack)


def bert(dim: int, depth: int, heads: int, vocab: int = 30522, length: int = 512) -> ModelConfig:
    """Post-norm encoder with a masked-language head (Devlin 2019)."""
    block = BlockConfig(dim, heads, 4 * dim, norm_at="post", eps=1e-12)
    front = TextConfig(dim, vocab, "learned", length=length, segments=2, norm="layer", eps=1e-12)
    head = HeadConfig(vocab, transform="gelu", norm=True, eps=1e-12, bias=True, tied=True)
    return ModelConfig(front, head, encoder=StackConfig(block, depth, final_norm=False))


def two_stacks(block: BlockConfig, depth: int, **more: Any) -> tuple[StackConfig, StackConfig]:
    """An encoder of such blocks, and the decoder that looks at what it makes."""
    second = replace(block, causal=True, cross=True)
    return StackConfig(block, depth, **more), StackConfig(second, depth, **more)


def t5(
    dim: int, depth: int, heads: int, hidden: int, head_dim: int = 64, vocab: int = 32128
) -> ModelConfig:
    """Encoder-decoder with relative position bias (Raffel 2020): the gated MLP of version 1.1."""
    shape: dict[str, Any] = dict(
        head_dim=head_dim, norm="rms", eps=1e-6, act="gelu_tanh", gated=True, bias=(), scale=1.0
    )
    stacks = two_stacks(BlockConfig(dim, heads, hidden, **shape), depth, position="relative")
    text = TextConfig(dim, vocab)
    return ModelConfig(text, HeadConfig(vocab, tied=True), *stacks, target=text, shared=True)


def transformer(
    dim: int, depth: int, heads: int, vocab: int = 37000, pre: bool = False
) -> ModelConfig:
    """The encoder-decoder of Vaswani 2017, post-norm as printed or pre-norm."""
    block = BlockConfig(dim, heads, 4 * dim, act="relu", norm_at="pre" if pre else "post")
    text = TextConfig(dim, vocab, position="halves", scale=True, length=1024)
    head, stacks = HeadConfig(vocab, bias=True, tied=True), two_stacks(block, depth, final_norm=pre)
    return ModelConfig(text, head, *stacks, target=text, shared=True)


def vit(
    dim: int, depth: int, heads: int, patch: int = 16, side: int = 224, classes: int = 1000
) -> ModelConfig:
    """Encoder over picture patches with a class token (Dosovitskiy 2021)."""
    block = BlockConfig(dim, heads, 4 * dim, eps=1e-12)
    front, head = ImageConfig(dim, side, side, patch), HeadConfig(classes, take="first", bias=True)
    return ModelConfig(front, head, encoder=StackConfig(block, depth))


def whisper(
    dim: int, depth: int, heads: int, vocab: int = 51865, mels: int = 80, seconds: int = 30
) -> ModelConfig:
    """Encoder-decoder from log-mel to text (Radford 2022)."""
    stacks = two_stacks(BlockConfig(dim, heads, 4 * dim, bias=("q", "v", "o", "mlp")), depth)
    sound, text = AudioConfig(dim, mels, 50 * seconds), TextConfig(dim, vocab, "learned", 448)
    return ModelConfig(sound, HeadConfig(vocab, tied=True), *stacks, target=text)


LLAMA3 = RotaryScaling(32.0, 1.0, 4.0, 8192)


def recurrent_lm(cell: str, dim: int, hidden: int, depth: int, vocab: int) -> RecurrentConfig:
    """Next-token prediction; embeddings serve as output weights where the widths agree."""
    head = HeadConfig(vocab, bias=True, tied=hidden == dim)
    return RecurrentConfig(TextConfig(dim, vocab), head, cell=cell, hidden=hidden, depth=depth)  # type: ignore[arg-type]


def recurrent_seq2seq(
    cell: str, dim: int, hidden: int, depth: int, vocab: int, attention: str
) -> RecurrentConfig:
    """Translation; one vocabulary, whose embeddings both sides and the output share."""
    text, head = TextConfig(dim, vocab), HeadConfig(vocab, bias=True, tied=True)
    sizes = {"cell": cell, "hidden": hidden, "depth": depth, "attention": attention}
    return RecurrentConfig(text, head, target=text, shared=True, **sizes)  # type: ignore[arg-type]


FAMILIES: dict[Callable[..., ModelConfig], tuple[str, str]] = {
    gpt2: ("GPT2LMHeadModel", "next token"),
    llama: ("LlamaForCausalLM", "next token"),
    bert: ("BertForMaskedLM", "masked tokens"),
    t5: ("T5ForConditionalGeneration", "masked spans"),
    transformer: ("MarianMTModel", "pairs of sentences"),
    vit: ("ViTForImageClassification", "classes of pictures"),
    whisper: ("WhisperForConditionalGeneration", "transcripts"),
}
"""Function of a shape: (architecture that it is saved as, what checkpoints were trained on)."""
PRESETS: dict[str, tuple[Any, ...]] = {
    "gpt2": (gpt2, 768, 12, 12),
    "gpt2-medium": (gpt2, 1024, 24, 16),
    "gpt2-large": (gpt2, 1280, 36, 20),
    "gpt2-xl": (gpt2, 1600, 48, 25),
    "llama-15m": (llama, 288, 6, 6, 6, 768, 32000, 256),
    "smollm2-135m": (llama, 576, 30, 9, 3, 1536, 49152, 8192, (1e5, None)),
    "llama3.2-1b": (llama, 2048, 16, 32, 8, 8192, 128256, 131072, (5e5, LLAMA3)),
    "bert-base": (bert, 768, 12, 12),
    "bert-large": (bert, 1024, 24, 16),
    "t5-small": (t5, 512, 8, 6, 1024),
    "t5-base": (t5, 768, 12, 12, 2048),
    "transformer-base": (transformer, 512, 6, 8),
    "transformer-big": (transformer, 1024, 6, 16),
    "transformer-pre": (transformer, 512, 6, 8, 37000, True),
    "vit-32": (vit, 256, 7, 4, 4, 32, 10),
    "vit-ti16": (vit, 192, 12, 3),
    "vit-s16": (vit, 384, 12, 6),
    "vit-b16": (vit, 768, 12, 12),
    "vit-l16": (vit, 1024, 24, 16),
    "whisper-tiny": (whisper, 384, 4, 6),
    "whisper-base": (whisper, 512, 6, 8),
}
"""Name: the function of its shape, and the sizes."""


def preset(name: str) -> ModelConfig:
    """The shape called `name`, or an error with the nearest names."""
    check_known(name, PRESETS, "choosing a preset", f"no preset is called {name!r}")
    make, *sizes = PRESETS[name]
    config: ModelConfig = make(*sizes)
    return config


def classify(name: str) -> PresetInfo:
    """A preset by the axes of the survey of Lin et al. (2022)."""
    from regard.model.cost import count_params  # shapes alone need no torch

    config, saved_as = preset(name), architecture(name)
    block, front = config.last.block, config.front
    added = "learned" if isinstance(front, AudioConfig) else front.position
    added = "sinusoidal" if added == "halves" else added
    position = added if config.last.position == "none" else config.last.position
    heads = "multi-head" if block.groups == block.heads else "grouped-query"
    norm, mlp = f"{block.norm} {block.norm_at}-norm", "gated " * block.gated + block.act
    reads = {"text": "text", "image": "pictures", "audio": "speech"}[front.kind]
    stacks = [part for part in ("encoder", "decoder") if getattr(config, part) is not None]
    return PresetInfo(
        name,
        module=f"{heads}, {position} positions, {norm}, {mlp}",
        architecture="-".join(stacks),
        pretraining=FAMILIES[PRESETS[name][0]][1],
        application=f"{reads} to text" if config.target else reads,
        saved_as=saved_as,
        parameters=count_params(config),
    )


def architecture(name: str) -> str | None:
    """The architecture that a preset is saved as; None is regard's own, as of pre-norm pairs."""
    return None if name == "transformer-pre" else FAMILIES[PRESETS[name][0]][0]
