"""Receipts: what a number came from, so that it can be made again (N12)."""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from regard.ambient import current
from regard.errors import DataError, UsageError
from regard.files import file_hash, read_json, write_whole
from regard.result import Result, plain

NAME = "receipt.json"
TOLERANCE = 0.01
"""Relative difference of losses that passes where bits cannot be expected to agree."""
SAME_BITS = ("device", "threads", "processes", "torch", "machine")
"""Parts of a receipt that must agree before weights are compared bit by bit."""


def code_version() -> str:
    """The git commit when regard runs from a checkout, '+' when files changed; else the version."""
    root, number = Path(__file__).resolve().parents[1], version("regard")
    if not (root / ".git").exists():
        return number
    try:
        commit = git(root, "rev-parse", "HEAD")
        changed = git(root, "status", "--porcelain", "--", "regard")
    except (OSError, subprocess.SubprocessError):
        return number
    return f"{number} {commit[:12]}{'+' if changed else ''}"


def git(root: Path, *arguments: str) -> str:
    """What git prints."""
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()


def make_receipt(
    config: Mapping[str, Any], data: Mapping[str, str], results: Mapping[str, Any], **origin: Any
) -> dict[str, Any]:
    """A receipt as plain data; `origin` says the function or command, its seed and its place."""
    return {
        **origin,
        "code": code_version(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "data": dict(data),
        "config": dict(config),
        "results": dict(results),
    }


def write_receipt_of(result: Result, path: Path) -> None:
    """Write a result with the call that made it, its files and the machine."""
    torch = sys.modules.get("torch")
    place: dict[str, Any] = {"device": current().device}
    if torch is not None:
        place |= {"torch": torch.__version__, "threads": torch.get_num_threads()}
    write_receipt(path, receipt_of(result) | place)


def leave_receipt(run: Result, folder: Path) -> None:
    """Write the receipt of a model that counts into its folder, with the hash of its weights.

    The bits do not depend on threads or on torch.
    """
    (weights,) = folder.glob("*.safetensors")
    receipt = receipt_of(run)
    receipt["results"] |= {"weights": file_hash(weights)}
    write_receipt(folder / NAME, receipt | {"device": "cpu"})


def receipt_of(result: Result) -> dict[str, Any]:
    """A result with the call that made it, its files and the program, as plain data."""
    call = result.call
    if call is None:
        raise UsageError("writing a receipt", "a result of no public function", "one of a verb")
    config = {name: plain(getattr(v, "path", v)) for name, v in call.arguments.items()}
    data = {str(file): file_hash(file) for file in files_of(call.files)}
    origin = {"function": call.function, "seed": current().seed}
    return make_receipt(config, data, result.to_dict(), **origin)


def files_of(arguments: Iterable[Any]) -> list[Path]:
    """The files that arguments name, those of a folder one by one; models in the box have none."""
    files: list[Path] = []
    for argument in arguments:
        for name in argument if isinstance(argument, list | tuple) else [argument]:
            path = Path(str(getattr(name, "path", name)))
            if path.is_dir():
                files += sorted(inside for inside in path.iterdir() if inside.is_file())
            elif path.is_file():
                files.append(path)
    return files


def write_receipt(path: Path, receipt: Mapping[str, Any]) -> None:
    """Write it whole or not at all."""
    write_whole(path, (json.dumps(receipt, ensure_ascii=False, indent=2) + "\n").encode())


def read_receipt(path: Path) -> dict[str, Any]:
    """A receipt from a file, or from a run's folder."""
    path = path / NAME if path.is_dir() else path
    receipt: dict[str, Any] = read_json(path, "a receipt")
    for key in ("config", "data", "results"):
        if not isinstance(receipt.get(key), dict):
            raise DataError(f"reading {path}", f"no object {key!r}", "a receipt of regard")
    return receipt


def changed_files(data: Mapping[str, str]) -> dict[str, str]:
    """What has become of the data: each file that is missing or differs, and how."""
    wrong = {}
    for name, wanted in data.items():
        try:
            digest = file_hash(name)
        except OSError as error:
            wrong[name] = error.strerror or str(error)
            continue
        if digest != wanted:
            wrong[name] = f"SHA-256 {digest[:12]}…, was {wanted[:12]}…"
    return wrong


def find_in_run(folder: Path, name: str = NAME) -> Path | None:
    """A file in a folder, or in the run it came from: RUN/final, RUN/checkpoints/step-…"""
    folder = folder.resolve()
    if (folder / name).is_file():
        return folder / name
    run = folder.parent if folder.name == "final" else folder.parent.parent
    inside = folder.name == "final" or folder.parent.name == "checkpoints"
    return run / name if inside and (run / name).is_file() else None


def training_files(receipt: Mapping[str, Any]) -> dict[str, str]:
    """The files of a receipt that were trained on, not those for validation, with their hashes.

    The receipt has whole paths, its config the names as they were given: the longest decides.
    """
    config = receipt["config"]

    def longest(path: str, key: str) -> int:
        """The most parts of a name in the config that stand in the path, in one piece."""
        whole, most = Path(path).parts, 0
        for name in config.get(key) or ():
            parts = tuple(part for part in Path(name).parts if part not in (".", ".."))
            size = len(parts)
            if any(whole[n : n + size] == parts for n in range(len(whole) - size + 1)):
                most = max(most, size)
        return most

    data: dict[str, str] = receipt["data"]
    return {p: h for p, h in data.items() if longest(p, "files") >= longest(p, "valid")}


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[bool, str]:
    """(whether two receipts agree, what was compared or the first difference)."""
    other = [key for key in SAME_BITS if before.get(key) != now.get(key)]
    then, since = before["results"], now["results"]
    if not other:
        for key in ("weights", "last_weights"):
            if then.get(key) != since.get(key):
                return False, f"{key}: {since.get(key)}, was {then.get(key)}"
        return True, f"weights are the same bits: {since.get('weights')}"
    for key in ("loss", "best_valid"):
        if differs := first_difference(then.get(key), since.get(key), key):
            return False, f"{differs} (at most {TOLERANCE:.0%} apart)"
    differing = ", ".join(f"{key} {now.get(key)}, was {before.get(key)}" for key in other)
    return True, f"losses agree within {TOLERANCE:.0%}; bits were not compared: {differing}"


def first_difference(before: Any, now: Any, place: str = "results") -> str | None:
    """Where two results are not alike, numbers to 1 %; None where they are. Clocks do not count."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in before | now if "second" not in key]
        inside = [(key, before.get(key), now.get(key)) for key in keys]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        inside = [(n, *both) for n, both in enumerate(zip(before, now, strict=True))]
    elif isinstance(before, int | float) and isinstance(now, int | float):
        near = math.isclose(before, now, rel_tol=TOLERANCE, abs_tol=1e-4)
        return None if near else f"{place}: {now}, was {before}"
    else:
        return None if before == now else f"{place}: {now}, was {before}"
    places = (first_difference(a, b, f"{place}.{key}") for key, a, b in inside)
    return next(filter(None, places), None)
