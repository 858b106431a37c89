"""`regard list`: models in the box, presets, and the architectures that can be opened."""

from __future__ import annotations

import argparse
from typing import Any

from regard.cli.show import Show, human_count
from regard.interop.families import FAMILIES
from regard.model.config import ModelConfig
from regard.model.cost import count_params
from regard.model.presets import PRESETS, architecture, preset
from regard.zoo import KNOWN, shipped


def run(args: argparse.Namespace, show: Show) -> int:
    """Print one line per shipped model, per preset and per family."""
    models = list_models()
    presets = [describe(name) for name in PRESETS]
    families = {table.family: list(table.variants) for table in FAMILIES}
    if show.as_json:
        show.result({"models": models, "presets": presets, "architectures": families})
        return 0
    inside = [(m["name"], m["does"], m["folder"] or "not in this installation") for m in models]
    show.table("models in the box", ("name", "what it does", "folder"), inside, left=3)
    rows = [
        (p["name"], p["kind"], p["architecture"] or "regard's own", human_count(p["parameters"]))
        for p in presets
    ]
    show.table("presets", ("name", "kind", "saved as", "parameters"), rows, left=3)
    opened = {family: ", ".join(names) for family, names in families.items()}
    show.fields("architectures that can be opened (folders; Llama and Qwen as .gguf too)", opened)
    return 0


def list_models() -> list[dict[str, Any]]:
    """Each model of the project, and where it is, None where this installation lacks it."""
    here = shipped()
    return [
        {
            "name": name,
            "does": KNOWN.get(name, ""),
            "folder": str(here[name]) if name in here else None,
        }
        for name in sorted({*KNOWN, *here})
    ]


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
