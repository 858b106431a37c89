"""`regard check`: parity with transformers, and what attention promises, on one folder."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.ambient import choose_device
from regard.cli.properties import Property, run_properties
from regard.cli.show import Progress, Show
from regard.errors import UsageError
from regard.interop.parity import PARITY, Parity, measure_parity, why_not, write_parity
from regard.interop.source import Source
from regard.interop.weights import load_model
from regard.kit import Kit
from regard.loading import find_source


def run(args: argparse.Namespace, show: Show) -> int:
    """Measure, print and record parity; with --properties test the model's; 1 on a failure."""
    source = find_source(args.path)
    if source is None:
        found = f"{args.path!r} is a preset, a shape without weights"
        raise UsageError("checking a model", found, "a folder with weights")
    with show.progress(f"checking {args.path}") as progress:
        progress("loading")
        kit, reason, parity = check_parity(source, args, progress)
        properties = run_properties(kit, args.seed, progress) if args.properties else []
    if show.as_json:
        show.result(as_data(source, parity, reason, properties))
    else:
        print_report(args.path, parity, reason, properties, show)
    failed = parity is not None and not parity.passed
    return 1 if failed or any(p.passed is False for p in properties) else 0


def check_parity(
    source: Source, args: argparse.Namespace, progress: Progress
) -> tuple[Kit, str | None, Parity | None]:
    """(the model, why parity was not measured, parity); parity.json is written beside the model."""
    import torch

    model, binding = load_model(source, torch.float32, choose_device(args.device))
    kit = Kit(model, None, binding, source.config)
    reason = why_not(source, binding)
    if reason is not None or binding is None:
        return kit, reason, None
    parity = measure_parity(source, model, binding, args.seed, progress)
    write_parity(Path(source.path), parity)
    return kit, None, parity


def as_data(
    source: Source, parity: Parity | None, reason: str | None, properties: list[Property]
) -> dict[str, Any]:
    """The result as plain data."""
    measured = {"measured": False, "reason": reason} if parity is None else asdict(parity)
    made: dict[str, Any] = {"path": str(source.path), "parity": measured}
    return made | ({"properties": [asdict(p) for p in properties]} if properties else {})


def print_report(
    path: str, parity: Parity | None, reason: str | None, properties: list[Property], show: Show
) -> None:
    """The same for people."""
    if parity is None:
        show.line(f"parity with transformers: not measured ({reason})")
    else:
        versions = ", ".join(f"{name} {number}" for name, number in parity.versions.items())
        lines = {
            "result": "pass" if parity.passed else "FAIL",
            "architecture": parity.architecture,
            "largest difference": f"{parity.max_difference:.2e}",
            "largest score": f"{parity.largest:.2e}",
            "relative": f"{parity.relative:.2e} (at most {parity.bar:.0e})",
            "compared": f"{parity.batches} random batches, {parity.dtype}, {parity.device}",
            "versions": versions,
            "written": str(Path(path) / PARITY),
        }
        show.fields(f"parity of {path} with transformers", lines)
    if properties:
        words = {True: "pass", False: "FAIL", None: "skip"}
        rows = [(p.name, words[p.passed], p.detail) for p in properties]
        show.table("properties", ("property", "result", "measured"), rows, left=3)
