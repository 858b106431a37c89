"""One tiny model of every preset's shape, all parameters random, and data to feed them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.kit import Kit
from regard.model import presets
from regard.model.config import ModelConfig
from regard.model.model import Model

VOCAB, MELS, SIDE = 61, 8, 16


def with_decoder(config: ModelConfig, block: dict | None = None, **stack: object) -> ModelConfig:
    """The config with other fields in its decoder and in the decoder's block."""
    assert config.decoder is not None
    changed = replace(config.decoder.block, **(block or {}))
    return replace(config, decoder=replace(config.decoder, block=changed, **stack))


def small_configs() -> dict[str, ModelConfig]:
    """Every family of presets.py at a tiny size, and the variants a preset has no line for."""
    gpt2 = presets.gpt2(32, 2, 4, vocab=VOCAB, length=96)
    llama = presets.llama(32, 2, 4, 2, 48, VOCAB, 96)
    vit = presets.vit(32, 2, 4, patch=4, side=SIDE, classes=7)
    return {
        "gpt2": gpt2,
        "llama": llama,
        "window": with_decoder(llama, {"window": 5}),
        "alibi": with_decoder(
            replace(gpt2, front=replace(gpt2.front, position="none")), position="alibi"
        ),
        "bert": presets.bert(32, 2, 4, VOCAB, 96),
        "t5": presets.t5(32, 2, 4, 48, head_dim=8, vocab=VOCAB),
        "transformer": presets.transformer(32, 2, 4, VOCAB),
        "transformer-pre": presets.transformer(32, 2, 4, VOCAB, pre=True),
        "vit": vit,
        "vit-conv": replace(vit, front=replace(vit.front, stem="conv", position="2d")),
        "whisper": presets.whisper(32, 2, 4, VOCAB, mels=MELS, seconds=1),
    }


CONFIGS = small_configs()
DECODERS = ["gpt2", "llama", "window", "alibi"]
PAIRS = ["t5", "transformer", "transformer-pre"]  # text to text
WRITERS = [*DECODERS, *PAIRS, "whisper"]  # models with a decoder
TEXT = [*DECODERS, "bert", *PAIRS]  # models whose first input is text
EVERY = list(CONFIGS)


@torch.no_grad()
def randomise(model: nn.Module, seed: int = 0) -> None:
    """Every parameter random, norms and biases too, so that no swap or omission can hide."""
    generator = torch.Generator().manual_seed(seed)
    tables = ("tokens.weight", "positions.weight", "segments.weight", "cls")
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            value = noise * 0.3 + name.endswith("norm.weight")
        elif name.endswith((*tables, ".bias.weight")):
            value = noise * 0.5
        else:
            value = noise * parameter[0].numel() ** -0.5
        parameter.copy_(value)


def small_kit(name: str, seed: int = 0, **changes: object) -> Kit:
    """The small model called `name`, ready to run; `changes` replace fields of its config."""
    model = Model(replace(CONFIGS[name], **changes)).eval()
    randomise(model, seed)
    return Kit(model)


@dataclass(frozen=True)
class Example:
    """One sequence, or a source and what is written after it; no batch dimension."""

    inputs: Tensor
    target: Tensor | None = None

    @property
    def ids(self) -> Tensor:
        """What the last stack reads."""
        return self.inputs if self.target is None else self.target


def random_ids(length: int, seed: int) -> Tensor:
    return torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(seed))


def example(kit: Kit, length: int, seed: int = 0, source: int | None = None) -> Example:
    """Random data for a model: `length` tokens of text, `source` tokens of an encoder-decoder's."""
    config = kit.model.config
    generator = torch.Generator().manual_seed(1000 + seed)
    if config.front.kind == "text":
        first = random_ids(length if config.target is None else (source or length), 500 + seed)
    elif config.front.kind == "image":
        first = torch.randn(3, SIDE, SIDE, generator=generator)
    else:
        first = torch.randn(MELS, 60, generator=generator)
    return Example(first, None if config.target is None else random_ids(length, seed))


def run_alone(kit: Kit, one: Example, **options: object) -> Tensor:
    """Logits of one example in a batch of one, without the batch dimension."""
    target = None if one.target is None else one.target[None]
    return kit.logits(one.inputs[None], target, **options)[0]


def assert_near(found: Tensor, expected: Tensor, share: float = 1e-5) -> None:
    """Equal up to `share` of the largest value."""
    assert found.shape == expected.shape
    gap = float((found - expected).abs().max()) if found.numel() else 0.0
    largest = float(expected.abs().max()) if found.numel() else 1.0
    assert gap <= share * largest, f"differs by {gap:.3g}, {gap / largest:.3g} of the largest value"
