"""All families that regard opens, and finding the one of a config.json."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from regard.errors import DataError
from regard.interop.bert import BERT, DISTILBERT, ROBERTA
from regard.interop.gpt2 import GPT2
from regard.interop.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from regard.interop.marian import MARIAN
from regard.interop.t5 import T5
from regard.interop.table import Binding, Table, braces
from regard.interop.vit import AST, DEIT, VIT
from regard.interop.wav2vec2 import HUBERT, WAV2VEC2
from regard.interop.whisper import WHISPER

FAMILIES: tuple[Table, ...] = (
    GPT2,
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    BERT,
    ROBERTA,
    DISTILBERT,
    T5,
    MARIAN,
    VIT,
    DEIT,
    AST,
    WHISPER,
    WAV2VEC2,
    HUBERT,
)
ARCHITECTURES = {name: table for table in FAMILIES for name in table.variants}


def bind(architecture: str, names: Collection[str] = ()) -> Binding:
    """The table of an architecture; `names` of its tensors help to find the nearest of another."""
    if architecture not in ARCHITECTURES:
        raise DataError(
            "finding a model's table",
            f"the architecture {architecture!r}",
            f"one of {', '.join(ARCHITECTURES)}",
            f"{nearest_to(architecture, names)}docs/adding.md says how to add a family",
        )
    table = ARCHITECTURES[architecture]
    return Binding(table, architecture, table.variants[architecture].prefix)


def nearest_to(architecture: str, names: Collection[str]) -> str:
    """The known architecture that shares most tensors, then the task, then the spelling."""
    held = "\n".join(names)

    def task(name: str) -> str:
        return "CausalLM" if "LMHead" in name else name.partition("For")[2]

    def likeness(name: str) -> tuple[float, bool, float]:
        rows = [braces(row.theirs.replace("{i}", "0"))[0] for row in ARCHITECTURES[name].rows]
        shared = sum(row in held for row in rows)
        spelling = difflib.SequenceMatcher(None, architecture, name).ratio()
        return shared / len(rows), task(name) == task(architecture) != "", spelling

    best = max(ARCHITECTURES, key=likeness)
    share, same_task, spelling = likeness(best)
    if not share and not same_task and spelling < 0.5:
        return ""
    count = len(ARCHITECTURES[best].rows)
    part = f", which has {share * count:.0f} of its {count} kinds of tensors" if share else ""
    return f"the nearest is {best}{part}; "


def recognise(config: dict[str, Any], names: Collection[str]) -> Binding:
    """The table for a config.json and the tensors that lie beside it."""
    named, kind = config.get("architectures"), str(config.get("model_type", ""))
    if isinstance(named, list) and named and isinstance(named[0], str):
        architecture = named[0]
    else:  # it names only a family: that family's first
        first = {table.family: next(iter(table.variants)) for table in FAMILIES}
        architecture = first.get(kind, str(named or kind))
    binding = bind(architecture, names)
    # Some files leave the prefix out, such as the first GPT-2's.
    if binding.prefix and not any(name.startswith(binding.prefix) for name in names):
        return Binding(binding.table, binding.architecture, "")
    return binding
