"""A frozen encoder: any model's, whose output a new decoder reads by cross-attention (#63).

`borrow_encoder` makes the shape, `fill_encoder` the weights, `source_tokenizer` what cuts its
texts; what the decoder writes is no matter here.
"""

from __future__ import annotations

import json
from dataclasses import replace

from regard.errors import DataError
from regard.interop.source import open_source, read_tokenizer
from regard.interop.weights import outline
from regard.loading import load_kit
from regard.model.config import ModelConfig, TextConfig
from regard.model.model import Model
from regard.model_kinds import NETWORK, check_kind
from regard.tokens.tokenizer import Tokenizer


def borrow_encoder(config: ModelConfig, path: str) -> ModelConfig:
    """A shape with the front and the encoder of a folder, whose headers alone are read.

    The stream of a model that has only a decoder serves as well. Where the new decoder has another
    width, a linear bridge stands between: encoder.bridge.
    """
    check_kind(path, NETWORK)
    source = outline(open_source(path))[0].config
    stack = source.encoder or source.decoder
    if stack is None:
        fix = "give the folder of a Transformer, such as BERT, MiniLM or T5"
        raise DataError(f"taking the encoder of {path}", "a recurrent model", "a Transformer", fix)
    bridge = None if stack.block.dim == config.width else config.width
    return replace(config, front=source.front, encoder=replace(stack, bridge=bridge), shared=False)


def fill_encoder(model: Model, path: str) -> None:
    """Give a model of such a shape the weights of the folder, frozen; a bridge is trained."""
    source = load_kit(path, precision=None).model
    stack = source.decoder if source.encoder is None else source.encoder
    assert stack is not None and model.encoder is not None
    weights = {n: w for n, w in stack.state_dict().items() if not n.startswith("bridge.")}
    model.front.load_state_dict(source.front.state_dict())
    model.encoder.load_state_dict(weights, strict=False)  # all but the bridge
    for part in (model.front, model.encoder):
        for name, parameter in part.named_parameters():
            parameter.requires_grad_(name.startswith("bridge."))


def source_tokenizer(path: str) -> Tokenizer:
    """The tokenizer of a folder for the sources, with the config.json that it may lean on."""
    source, doing = open_source(path), f"taking the encoder of {path}"
    front, tokenizer = outline(source)[0].config.front, read_tokenizer(source)
    if tokenizer is None or not isinstance(front, TextConfig):
        problem = "no tokenizer" if tokenizer is None else f"a model that reads {front.kind}"
        expected, fix = "a tokenizer beside the weights", "take a model that reads text"
        raise DataError(doing, problem, expected, fix)
    own = tokenizer.of("source")
    if own.size > front.vocab:
        problem = f"{own.size:,} ids in the tokenizer, {front.vocab:,} vectors in the model"
        raise DataError(doing, problem, "a vector for each id", "find the tokenizer it came with")
    files = {"config.json": json.dumps(source.config).encode()} | own.files
    return Tokenizer(own.engine, own.specials, files)
