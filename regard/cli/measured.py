"""Files that a look inside leaves: where they may go, and a measurement with its receipt."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard import __version__
from regard.cli.show import finite
from regard.errors import UsageError
from regard.files import check_places, file_hash
from regard.kit import Kit
from regard.look.picture import can_draw
from regard.receipt import make_receipt, write_receipt
from regard.zoo import locate


def check_outputs(*paths: str | Path | None, png: str | Path | None = None) -> None:
    """Stop before any work where a file could not be written, or a picture not be drawn."""
    if png is not None and not can_draw():
        fix = "pip install 'regard[plot]'"
        raise UsageError("drawing a picture", "a picture without matplotlib", "the plot extra", fix)
    check_places(*paths, png)


def write_measured(
    args: argparse.Namespace, kit: Kit, results: Mapping[str, Any], files: Sequence[str] = ()
) -> None:
    """Write `--out`: a receipt whose results are the object of `--json`; `files` were read too."""
    model = Path(locate(args.path))
    read = [model] if model.is_file() else sorted(p for p in model.iterdir() if p.is_file())
    data = {str(path): file_hash(path) for path in (*read, *map(Path, files))}
    config = {name: value for name, value in vars(args).items() if name != "arguments"}
    versions = {"regard": __version__, "torch": torch.__version__}
    place = {"device": str(kit.device), "threads": torch.get_num_threads()}
    if kit.device.type == "cuda":
        place["device_name"] = torch.cuda.get_device_name(kit.device)
    command = ("regard", *args.arguments)
    receipt = make_receipt(command, config, data, dict(finite(results)), versions, place)
    write_receipt(Path(args.out), receipt)
