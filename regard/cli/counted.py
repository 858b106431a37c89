"""What all verbs share that train by counting: their folder, and their receipt."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from regard import __version__
from regard.data.text_files import find_files
from regard.errors import UsageError
from regard.files import file_hash, is_taken
from regard.receipt import NAME, make_receipt, write_receipt


def new_folder(args: argparse.Namespace, doing: str, wanted: str) -> Path:
    """Where to write, once there are files to read and nothing is in the way."""
    out = Path(args.out)
    if not args.files:
        raise UsageError(doing, "no files", wanted)
    if is_taken(out):
        raise UsageError(doing, f"{out} is there already", "a new or empty folder as --out")
    return out


def leave_receipt(args: argparse.Namespace, out: Path, results: dict[str, Any]) -> None:
    """Write what was run on which files, what came out, and the hash of its weights."""
    (weights,) = out.glob("*.safetensors")
    results = results | {"weights": file_hash(weights)}
    data = {str(path): file_hash(path) for path in find_files(args.files)}
    config = {name: value for name, value in vars(args).items() if name != "arguments"}
    versions, place = {"regard": __version__, "numpy": np.__version__}, {"device": "cpu"}
    command = ("regard", *args.arguments)
    write_receipt(out / NAME, make_receipt(command, config, data, results, versions, place))
