"""All families that regard opens, and finding the one of a config.json."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from regard.errors import DataError, did_you_mean
from regard.interop.bert import BERT, DISTILBERT, ROBERTA
from regard.interop.gpt2 import GPT2, IMAGEGPT
from regard.interop.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from regard.interop.marian import MARIAN
from regard.interop.t5 import T5
from regard.interop.table import Binding, Table
from regard.interop.vit import AST, DEIT, VIT
from regard.interop.wav2vec2 import HUBERT, WAV2VEC2
from regard.interop.whisper import WHISPER

DECODERS, ENCODERS = (GPT2, IMAGEGPT, LLAMA, MISTRAL, QWEN2, QWEN3), (BERT, ROBERTA, DISTILBERT)
SENSES = VIT, DEIT, AST, WHISPER, WAV2VEC2, HUBERT
FAMILIES: tuple[Table, ...] = (*DECODERS, *ENCODERS, T5, MARIAN, *SENSES)
ARCHITECTURES = {name: table for table in FAMILIES for name in table.variants}


def bind(architecture: str) -> Binding:
    """The table of an architecture."""
    if architecture not in ARCHITECTURES:
        doing, fault = "finding a model's table", f"the architecture {architecture!r}"
        fix = f"{did_you_mean(architecture, ARCHITECTURES)} docs/adding.md says how to add a family"
        raise DataError(doing, fault, f"one of {', '.join(ARCHITECTURES)}", fix.lstrip())
    table = ARCHITECTURES[architecture]
    return Binding(table, architecture, table.variants[architecture].prefix)


def recognise(config: dict[str, Any], names: Collection[str]) -> Binding:
    """The table for a config.json and the tensors that lie beside it."""
    named, kind = config.get("architectures"), str(config.get("model_type", ""))
    if isinstance(named, list) and named and isinstance(named[0], str):
        architecture = named[0]
    else:  # it names only a family: that family's first
        first = {table.family: next(iter(table.variants)) for table in FAMILIES}
        architecture = first.get(kind, str(named or kind))
    binding = bind(architecture)
    # Some files leave the prefix out, such as the first GPT-2's.
    if binding.prefix and not any(name.startswith(binding.prefix) for name in names):
        return Binding(binding.table, binding.architecture, "")
    return binding
