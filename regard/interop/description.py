"""What a model is, from its config and headers alone."""

from __future__ import annotations

from typing import Any

from regard.core.config import StackConfig
from regard.core.tap import taps
from regard.errors import RegardError
from regard.files import read_json
from regard.interop.parity import parity_file
from regard.interop.source import CheckpointSource, read_tokenizer
from regard.interop.table import Binding
from regard.interop.weights import OWN
from regard.model.config import FrontConfig, ModelConfig, RecurrentConfig, TextConfig
from regard.model.cost import count_tokens, table_size
from regard.model.model import Model
from regard.model.results import InputInfo, ModelInfo, StackInfo, TokenizerSummary


def describe_model(
    path: str,
    model: Model,
    binding: Binding | None,
    source: CheckpointSource | None,
    with_taps: bool,
) -> ModelInfo:
    """Sizes, tokenizer and parity; the model may be without memory."""
    config, count = model.config, sum(p.numel() for p in model.parameters())
    noted = None if source is None else parity_file(source.path)
    files = set(source.files.values()) if source else set()
    recurrent: dict[str, Any] | None = None
    if isinstance(config, RecurrentConfig):
        recurrent = {"cell": config.cell, "hidden": config.hidden, "depth": config.depth}
        recurrent |= {} if config.target is None else {"attention": config.attention}
    return ModelInfo(
        path=path,
        architecture=binding.architecture if binding else "regard's own",
        family=binding.table.family if binding else OWN,
        parameters=count,
        bytes_on_disk=sum(file.stat().st_size for file in files) if source else None,
        bytes_float32=4 * count,
        input=describe_front(config.front),
        target=None if config.target is None else describe_front(config.target),
        encoder=None if config.encoder is None else describe_stack(config.encoder),
        decoder=None if config.decoder is None else describe_stack(config.decoder),
        recurrent=recurrent,
        scores=config.head.size,
        tokenizer=None if source is None else describe_tokenizer(source),
        parity=read_json(noted) if noted is not None and noted.is_file() else None,
        taps={name: tap_shape(name, config) for name in taps(model)} if with_taps else None,
    )


def describe_front(front: FrontConfig) -> InputInfo:
    """Kind, vocabulary, length and positions of an input."""
    if isinstance(front, TextConfig):
        length = table_size(front) if front.position == "learned" else front.length
        return InputInfo(front.kind, front.vocab, length, front.position)
    position = getattr(front, "position", "learned")
    return InputInfo(front.kind, None, count_tokens(front, 0), position)


def describe_stack(stack: StackConfig) -> StackInfo:
    """Sizes of a stack."""
    block = stack.block
    sizes = block.dim, stack.depth, block.heads, block.groups, block.width, block.hidden
    norm, act = f"{block.norm}, {block.norm_at}", block.act + (", gated" if block.gated else "")
    return StackInfo(*sizes, stack.position, norm, act, block.causal, block.window)


def describe_tokenizer(source: CheckpointSource) -> TokenizerSummary | str | None:
    """Kind, size and control tokens; a sentence where it cannot be opened."""
    try:
        tokenizer = read_tokenizer(source)
    except RegardError as error:
        return f"cannot be opened: {error.found}"
    if tokenizer is None:
        return None
    return TokenizerSummary(tokenizer.kind, tokenizer.size, tokenizer.specials)


def tap_shape(name: str, config: ModelConfig) -> list[str]:
    """The shape of a tap in letters."""
    *_, owner, place = ["", *name.split(".")]
    own = "S" if config.target is not None and name.startswith("encoder.") else "T"
    keys = "S" if owner in ("attn", "cross") else own
    if place == "logits":
        score = "D" if config.head.size is None else "V"
        return ["B", score] if config.head.take != "all" else ["B", "T", score]
    if owner in ("attn", "cross") and place != "out":
        shapes = {"k": ["B", keys, "G", "K"], "scores": ["B", "H", own, keys]}
        shapes |= {"v": shapes["k"], "pattern": shapes["scores"]}
        return shapes.get(place, ["B", own, "H", "K"])
    wide = (owner == "mlp" and place != "out") or isinstance(config, RecurrentConfig)
    return ["B", own, "M" if wide else "D"]
