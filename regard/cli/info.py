"""`regard info`: what a model is, from its config and headers alone."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from regard.cli.info_counted import show_counted
from regard.cli.show import Show, human_bytes
from regard.core.config import StackConfig
from regard.core.tap import taps
from regard.errors import RegardError
from regard.files import read_json
from regard.interop.families import bind
from regard.interop.folder import INDEX, SINGLE
from regard.interop.parity import PARITY
from regard.interop.source import Source
from regard.interop.table import Binding
from regard.interop.weights import OWN, outline
from regard.loading import find_source, read_tokenizer
from regard.model.config import FrontConfig, ModelConfig, RecurrentConfig, TextConfig
from regard.model.cost import count_tokens, table_size
from regard.model.model import Model, empty_model
from regard.model.presets import architecture, preset
from regard.model_kinds import NETWORK, find_kind


def run(args: argparse.Namespace, show: Show) -> int:
    """Print sizes, tokenizer and parity of a model; with --taps every tap and its shape."""
    counted = find_kind(args.path)
    if counted is not None and counted.kind is not NETWORK:
        show_counted(args.path, counted, args.taps, show)
        return 0
    source = find_source(args.path)
    if source is None:
        name = architecture(args.path)
        model, binding = empty_model(preset(args.path)), bind(name) if name else None
    else:
        model, binding, _ = outline(source)
    found = describe(model, binding, source)
    listed = {name: letters(name, model.config) for name in taps(model)} if args.taps else {}
    if show.as_json:
        show.result(found | ({"taps": listed} if args.taps else {}))
        return 0
    print_report(args.path, found, show)
    if args.taps:
        rows = [(name, f"({', '.join(shape)})") for name, shape in listed.items()]
        show.table("taps", ("name", "shape"), rows, left=2)
        show.line(
            "B batch, T positions, S positions looked at (the source's in an encoder-decoder)"
        )
        show.line("D dim, H heads, G key-value heads, K head_dim, M hidden, V scores")
    return 0


# Describing -----------------------------------------------------------------------------------


def describe(model: Model, binding: Binding | None, source: Source | None) -> dict[str, Any]:
    """All that is printed, as plain data."""
    config, count = model.config, sum(p.numel() for p in model.parameters())
    stacks = {"encoder": config.encoder, "decoder": config.decoder}
    return {
        "architecture": binding.architecture if binding else "regard's own",
        "family": binding.table.family if binding else OWN,
        "parameters": count,
        "bytes_on_disk": None if source is None else weight_bytes(source.path),
        "bytes_float32": 4 * count,
        "input": describe_front(config.front),
        "target": None if config.target is None else describe_front(config.target),
        **{name: describe_stack(s) for name, s in stacks.items() if s is not None},
        **({"recurrent": describe_cells(config)} if isinstance(config, RecurrentConfig) else {}),
        "scores": config.head.size,
        "tokenizer": None if source is None else describe_tokenizer(source),
        "parity": None if source is None else read_parity(source.path),
    }


def describe_front(front: FrontConfig) -> dict[str, Any]:
    """Kind, vocabulary, length and positions of an input."""
    if isinstance(front, TextConfig):
        learned = front.position == "learned"
        length = table_size(front) if learned else front.length
        made = {"kind": "text", "vocab": front.vocab, "context_length": length}
    else:
        made = {"kind": front.kind, "vocab": None, "context_length": count_tokens(front, 0)}
    return made | {"positions": getattr(front, "position", "learned")}


def describe_cells(config: RecurrentConfig) -> dict[str, Any]:
    """Sizes of a recurrent model."""
    sizes = {"cell": config.cell, "hidden": config.hidden, "depth": config.depth}
    return sizes | ({} if config.target is None else {"attention": config.attention})


def describe_stack(stack: StackConfig) -> dict[str, Any]:
    """Sizes of a stack."""
    block = stack.block
    return {
        "dim": block.dim,
        "depth": stack.depth,
        "heads": block.heads,
        "kv_heads": block.groups,
        "head_dim": block.width,
        "hidden": block.hidden,
        "positions": stack.position,
        "norm": f"{block.norm}, {block.norm_at}",
        "activation": block.act + (", gated" if block.gated else ""),
        "causal": block.causal,
        "window": block.window,
    }


def describe_tokenizer(source: Source) -> dict[str, Any] | str | None:
    """Kind, size and control tokens; a sentence where it cannot be opened."""
    try:
        tokenizer = read_tokenizer(source)
    except RegardError as error:
        return f"cannot be opened: {error.found}"
    if tokenizer is None:
        return None
    return {"kind": tokenizer.kind, "size": tokenizer.size, "specials": tokenizer.specials}


def read_parity(path: Path) -> dict[str, Any] | None:
    """What `regard check` wrote into a folder; None when it has not been measured."""
    file = path / PARITY
    try:
        found = json.loads(file.read_text()) if file.is_file() else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def weight_bytes(path: Path) -> int:
    """Bytes of the weight files."""
    if path.is_file():
        return path.stat().st_size
    if (path / SINGLE).exists():
        return (path / SINGLE).stat().st_size
    shards = set(read_json(path / INDEX)["weight_map"].values())
    return sum((path / shard).stat().st_size for shard in shards)


def letters(name: str, config: ModelConfig) -> list[str]:
    """The shape of a tap in letters."""
    *_, owner, place = ["", *name.split(".")]
    pair = config.target is not None
    own = "S" if pair and name.startswith("encoder.") else "T"
    keys = "S" if owner in ("attn", "cross") else own
    if place == "logits":
        score = "D" if config.head.size is None else "V"
        return ["B", score] if config.head.take == "first" else ["B", "T", score]
    if owner in ("attn", "cross") and place != "out":
        shapes = {"k": ["B", keys, "G", "K"], "scores": ["B", "H", own, keys]}
        shapes |= {"v": shapes["k"], "pattern": shapes["scores"]}
        return shapes.get(place, ["B", own, "H", "K"])
    cells = isinstance(config, RecurrentConfig)
    wide = (owner == "mlp" and place != "out") or cells
    return ["B", own, "M" if wide else "D"]


# Printing -------------------------------------------------------------------------------------


def print_report(path: str, found: dict[str, Any], show: Show) -> None:
    """The same for people."""
    disk = found["bytes_on_disk"]
    sizes = "" if disk is None else f"{human_bytes(disk)} on disk, "
    model = {
        "architecture": found["architecture"],
        "family": found["family"],
        "parameters": f"{found['parameters']:,}",
        "size": f"{sizes}{human_bytes(found['bytes_float32'])} in float32",
        "input": front_line(found["input"]),
    }
    if found["target"]:
        model["target"] = front_line(found["target"])
    model["scores"] = f"{found['scores']:,}" if found["scores"] else "none, vectors"
    model["tokenizer"] = tokenizer_line(found["tokenizer"])
    model["parity"] = parity_line(found["parity"])
    show.fields(path, model)
    for name in ("encoder", "decoder", "recurrent"):
        if name in found:
            values = {k: v for k, v in found[name].items() if v not in (None, "none")}
            show.fields(name, {k.replace("_", " "): word(v) for k, v in values.items()})


def word(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def front_line(front: dict[str, Any]) -> str:
    """One line for an input."""
    made = front["kind"] + (f", vocabulary {front['vocab']:,}" if front["vocab"] else "")
    made += f", length {front['context_length']:,}" if front["context_length"] else ""
    return made if front["positions"] == "none" else f"{made}, positions {front['positions']}"


def tokenizer_line(found: dict[str, Any] | str | None) -> str:
    """One line for a tokenizer."""
    if not isinstance(found, dict):
        return found or "none"
    specials = ", ".join(f"{role} {id}" for role, id in found["specials"].items()) or "none"
    return f"{found['kind']}, {found['size']:,} tokens; specials: {specials}"


def parity_line(found: dict[str, Any] | None) -> str:
    """One line for parity."""
    if found is None:
        return "not measured"
    passed = "pass" if found.get("passed") else "FAIL"
    difference, relative = found.get("max_difference", 0), found.get("relative", 0)
    return f"{passed}: largest logit difference {difference:.1e}, relative {relative:.1e}"
