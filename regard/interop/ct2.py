"""A translation model for CTranslate2, a C++ engine (github.com/OpenNMT/CTranslate2).

Its package, the extra `ctranslate2`, is imported where it is used: nothing else here needs it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.core.attention import Attention
from regard.core.block import Block
from regard.core.config import StackConfig
from regard.core.position import Learned, sinusoidal
from regard.core.stack import Stack
from regard.errors import DataError, RegardError, UsageError
from regard.interop.side import start_id
from regard.model.config import TextConfig
from regard.model.fronts import TextFront
from regard.model.model import Model
from regard.model.precision import join_maps

if TYPE_CHECKING:
    from regard.kit import Kit

DOING = "exporting to CTranslate2"
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "tanh": "Tanh",
}
LENGTH = 1024  # rows of the table of waves, where a model has no limit of its own
CARD = """\
# A model for CTranslate2

```python
import ctranslate2
from tokenizers import Tokenizer

translator = ctranslate2.Translator(folder, compute_type="int8")  # or float32
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
tokens = tokenizer.encode(text).tokens  # with the end token, which the model expects
best = translator.translate_batch([tokens], beam_size=4)[0].hypotheses[0]
print(tokenizer.decode([tokenizer.token_to_id(token) for token in best]))
```

Positions end at the table in this folder: cut long texts into sentences first.
"""


def save_ctranslate2(kit: Kit, out: Path) -> None:
    """A folder that CTranslate2 opens, with the tokenizer and how to use them; all or nothing."""
    check_shape(kit.model)
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
        (part / "README.md").write_text(CARD, encoding="utf-8")
        part.replace(out)


def build_spec(
    model: Model, words: tuple[list[str], list[str]], start: int, end: int, unknown: int | None
) -> Any:
    """CTranslate2's description of a model, filled with its weights.

    words are the spellings of the source's and the target's ids; start, end and unknown are ids.
    """
    specs, (encoder, decoder) = import_specs(), check_shape(model)
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(**stack_options(specs, encoder.config)),
        specs.TransformerDecoderSpec(**stack_options(specs, decoder.config)),
    )
    fill_stack(spec.encoder, model.front, encoder)
    fill_stack(spec.decoder, model.target, decoder)
    assert model.head.out is not None
    fill_linear(spec.decoder.projection, model.head.out)
    source, target = words
    spec.register_source_vocabulary(spelling(source, spec.encoder.embeddings[0].weight))
    spec.register_target_vocabulary(spelling(target, spec.decoder.embeddings.weight))
    config = spec.config
    config.layer_norm_epsilon = encoder.config.block.eps
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


# Shapes ---------------------------------------------------------------------------------------


def check_shape(model: Model) -> tuple[Stack, Stack]:
    """Encoder and decoder, when CTranslate2 has the same ones."""
    config = model.config
    if config.encoder is None or config.decoder is None or config.target is None:
        raise DataError(DOING, "a model of one stack", "an encoder-decoder")
    faults = [
        *(f"encoder: {fault}" for fault in stack_faults(config.encoder)),
        *(f"decoder: {fault}" for fault in stack_faults(config.decoder)),
        *front_faults(config.front),
        *front_faults(config.target),
    ]
    head = config.head
    plain_head = head.transform is None and head.scale is None and head.size is not None
    if not plain_head or head.take != "all":
        faults.append("more than a linear map before the scores")
    if config.encoder.block.eps != config.decoder.block.eps:
        faults.append("norms of two eps")
    if faults:
        wanted = "the Transformer of 2017, pre-norm or post-norm, with any plain activation"
        raise DataError(DOING, "; ".join(dict.fromkeys(faults)), wanted)
    assert model.encoder is not None and model.decoder is not None
    return model.encoder, model.decoder


def stack_faults(stack: StackConfig) -> list[str]:
    """What a stack has that is not written here."""
    block = stack.block
    faults = {
        f"{block.norm} norm": block.norm != "layer",
        "grouped keys": block.groups != block.heads,
        "heads of their own width": block.width * block.heads != block.dim,
        "a gated MLP": block.gated,
        "norms on queries and keys": block.qk_norm,
        "a window": block.window is not None,
        "a factor on the scores": block.scale is not None,
        f"{block.similarity} similarity": block.similarity != "dot",
        f"{stack.position} positions": stack.position != "none",
        "a final norm after post-norm blocks": block.norm_at == "post" and stack.final_norm,
    }
    return [name for name, there in faults.items() if there]


def front_faults(front: object) -> list[str]:
    """What an input has that is not written here."""
    if not isinstance(front, TextConfig):
        return ["an input that is not text"]
    faults = {
        "segments": front.segments > 0,
        "a norm on the embeddings": front.norm != "none",
        "an input without positions": front.position == "none",
    }
    return [name for name, there in faults.items() if there]


def stack_options(specs: Any, stack: StackConfig) -> dict[str, Any]:
    """A stack in CTranslate2's words."""
    return {
        "num_layers": stack.depth,
        "num_heads": stack.block.heads,
        "pre_norm": stack.block.norm_at == "pre",
        "no_final_norm": not stack.final_norm,
        "activation": getattr(specs.common_spec.Activation, ACTIVATIONS[stack.block.act]),
    }


# Weights --------------------------------------------------------------------------------------


def fill_stack(spec: Any, front: nn.Module | None, stack: Stack) -> None:
    """An input and its blocks."""
    assert isinstance(front, TextFront)
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


def spelling(words: Sequence[str], weight: Tensor) -> list[str]:
    """A word for each row of an embedding, which may have more rows than there are words."""
    return [*words, *(f"<unused-{n}>" for n in range(len(words), len(weight)))]
