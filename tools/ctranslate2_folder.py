"""A translator → a folder for CTranslate2, a C++ engine: ctranslate2_folder.py MODEL FOLDER.

MODEL is what `regard.load` opens. Needs the extra `ctranslate2` (github.com/OpenNMT/CTranslate2).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.attention import Attention
from regard.core.block import Block
from regard.core.position import Learned, sinusoidal
from regard.core.stack import Stack
from regard.errors import DataError, RegardError, UsageError
from regard.files import is_taken
from regard.interop.side import start_id
from regard.kit import Kit
from regard.loading import load_kit
from regard.model.config import ModelConfig, TextConfig, find_unusual
from regard.model.fronts import TextFront
from regard.model.model import Model
from regard.model.precision import join_maps

DOING = "exporting to CTranslate2"
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "tanh": "Tanh",
}
WANTED = "the Transformer of 2017, pre-norm or post-norm, with any plain activation"
LENGTH = 1024  # rows of the table of waves, where a model has no limit of its own


def save_ctranslate2(kit: Kit, out: Path) -> None:
    """A folder that CTranslate2 opens, with the tokenizer; all or nothing."""
    ends, tokenizer = sorted(kit.stops), kit.tokenizer
    if tokenizer is None or len(ends) != 1:
        fault = "no tokenizer" if tokenizer is None else f"{len(ends)} ids that end a text"
        raise UsageError("exporting", fault, "a tokenizer, and one id that ends a text")
    ids = range(tokenizer.size)
    words = tokenizer.pieces(ids, "source"), tokenizer.pieces(ids, "target")
    unknown = tokenizer.specials.get("unk")
    spec = build_spec(kit.model, words, start_id(kit.files, kit.config), ends[0], unknown)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=out.parent) as name:
        part = Path(name) / "made"
        part.mkdir()
        spec.validate()
        spec.optimize()  # weights that are equal, as tied ones are, are written once
        spec.save(str(part))
        tokenizer.save(part)
        part.replace(out)


def build_spec(
    model: Model, words: tuple[list[str], list[str]], start: int, end: int, unknown: int | None
) -> Any:
    """CTranslate2's description of a model, filled with its weights.

    words are the spellings of the source's and the target's ids; start, end and unknown are ids.
    """
    specs = import_specs()
    check_shape(model.config)
    encoder, decoder = (
        {
            "num_layers": stack.depth,
            "num_heads": stack.block.heads,
            "pre_norm": stack.block.norm_at == "pre",
            "no_final_norm": not stack.final_norm,
            "activation": getattr(specs.common_spec.Activation, ACTIVATIONS[stack.block.act]),
        }
        for stack in (model.config.encoder, model.config.decoder)
        if stack is not None
    )
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(**encoder), specs.TransformerDecoderSpec(**decoder)
    )
    fill_stack(spec.encoder, model.front, model.encoder)
    fill_stack(spec.decoder, model.target, model.decoder)
    assert model.head.out is not None
    fill_linear(spec.decoder.projection, model.head.out)
    source, target = (
        # an embedding may have more rows than there are words
        [*names, *(f"<unused-{n}>" for n in range(len(names), front.vocab))]
        for names, front in zip(words, (model.config.front, model.config.target), strict=True)
        if isinstance(front, TextConfig)
    )
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    config = spec.config
    config.layer_norm_epsilon = model.config.last.block.eps
    config.decoder_start_token, config.eos_token = target[start], target[end]
    config.bos_token = target[start]
    config.unk_token = target[end if unknown is None else unknown]  # one of its words must be it
    config.add_source_bos = config.add_source_eos = False  # the tokenizer adds what there must be
    return spec


def import_specs() -> Any:
    """CTranslate2's descriptions of models."""
    try:
        from ctranslate2 import specs
    except ImportError as error:
        fault = f"the package ctranslate2 cannot be imported: {error}"
        fix = "pip install 'regard[ctranslate2]'"
        raise RegardError(DOING, fault, "the extra ctranslate2", fix) from None
    return specs


def check_shape(config: ModelConfig) -> None:
    """Stop at a model that CTranslate2 has no like of."""
    faults, encoder, decoder = find_unusual(config), config.encoder, config.decoder
    if encoder is not None and decoder is not None and encoder.block.eps != decoder.block.eps:
        faults.append("norms of two eps")
    if faults:
        raise DataError(DOING, "; ".join(faults), WANTED)


# Weights --------------------------------------------------------------------------------------


def fill_stack(spec: Any, front: nn.Module | None, stack: Stack | None) -> None:
    """An input and its blocks."""
    assert isinstance(front, TextFront) and stack is not None
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = plain(front.tokens.weight)
    config = front.config
    spec.scale_embeddings = config.scale
    if isinstance(front.positions, Learned):
        table = plain(front.positions.weight[config.offset :])
    else:  # CTranslate2's own waves lie in another order
        places = torch.arange(config.length or LENGTH)
        table = sinusoidal(places, config.dim, config.position == "halves").float()
    spec.position_encodings.encodings = table  # (T, D)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        assert isinstance(block, Block)
        fill_attention(layer.self_attention, block.attn)
        if block.cross is not None:
            fill_attention(layer.attention, block.cross)
        fill_norm(layer.ffn.layer_norm, block.mlp.norm)
        fill_linear(layer.ffn.linear_0, block.mlp.up)
        fill_linear(layer.ffn.linear_1, block.mlp.down)
    if stack.config.final_norm:
        fill_norm(spec.layer_norm, stack.norm)


def fill_attention(spec: Any, part: Attention) -> None:
    """Maps of one input are one there: q, k and v of the sequence itself, k and v of the other."""
    fill_norm(spec.layer_norm, part.norm)
    groups = ([part.q], [part.k, part.v]) if part.cross else ([part.q, part.k, part.v],)
    for linear, maps in zip(spec.linear, (*groups, [part.o]), strict=True):
        fill_linear(linear, *maps)


def fill_linear(spec: Any, *maps: nn.Linear) -> None:
    """Maps under each other; one without a bias adds zero where another has one."""
    weight, bias = join_maps(maps)
    spec.weight = plain(weight)
    if bias is not None:
        spec.bias = plain(bias)


def fill_norm(spec: Any, norm: nn.Module) -> None:
    """Weight and bias of a layer norm."""
    assert isinstance(norm, nn.LayerNorm)
    spec.gamma, spec.beta = plain(norm.weight), plain(norm.bias)


def plain(weight: Tensor) -> Tensor:
    """A weight in float32, on the CPU."""
    return weight.detach().float().cpu().contiguous()


def convert(model: str, out: Path) -> None:
    """Open a model and write the folder, which must be new or empty."""
    if is_taken(out):
        raise UsageError("exporting", f"{out} is there already", "a new or empty folder")
    import_specs()  # before minutes are spent
    kit = load_kit(model)
    if kit.adapters:
        raise UsageError("exporting", "a model with adapters", "one without", "regard tune merge")
    save_ctranslate2(kit, out)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="a folder, or the name of a model in the box")
    parser.add_argument("folder", type=Path, help="the folder to write")
    options = parser.parse_args(arguments)
    try:
        convert(options.model, options.folder)
    except RegardError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"wrote {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
