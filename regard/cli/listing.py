"""`regard list`: presets, and the architectures that can be opened."""

from __future__ import annotations

import argparse
from typing import Any

from regard.cli.show import Show, human_count
from regard.interop.families import FAMILIES
from regard.model.config import ModelConfig
from regard.model.cost import count_params
from regard.model.presets import PRESETS, architecture, preset


def run(args: argparse.Namespace, show: Show) -> int:
    """Print one line per preset and per family."""
    presets = [describe(name) for name in PRESETS]
    families = {table.family: list(table.variants) for table in FAMILIES}
    if show.as_json:
        show.result({"presets": presets, "architectures": families})
        return 0
    rows = [
        (p["name"], p["kind"], p["architecture"] or "regard's own", human_count(p["parameters"]))
        for p in presets
    ]
    show.table("presets", ("name", "kind", "saved as", "parameters"), rows, left=3)
    opened = {family: ", ".join(names) for family, names in families.items()}
    show.fields("architectures that can be opened (folders; Llama and Qwen as .gguf too)", opened)
    return 0


def describe(name: str) -> dict[str, Any]:
    """One preset."""
    config = preset(name)
    count = sum(count_params(config).values())
    saved = architecture(name)
    return {"name": name, "kind": kind_of(config), "architecture": saved, "parameters": count}


def kind_of(config: ModelConfig) -> str:
    """Encoder, decoder or both, and what it reads."""
    stacks = [name for name in ("encoder", "decoder") if getattr(config, name) is not None]
    return f"{'-'.join(stacks)}, {config.front.kind}"
