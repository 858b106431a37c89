"""Receipts: what a number came from, so that it can be made again (N12)."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.errors import DataError

NAME = "receipt.json"
TOLERANCE = 0.01
"""Relative difference of losses that passes where bits cannot be expected to agree."""
SAME_BITS = ("device", "threads", "torch", "machine")
"""Parts of a receipt that must agree before weights are compared bit by bit."""


def code_version(version: str) -> str:
    """The git commit when regard runs from a checkout, '+' when files changed; else the version."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return version
    try:
        commit = git(root, "rev-parse", "HEAD")
        changed = git(root, "status", "--porcelain", "--", "regard")
    except (OSError, subprocess.SubprocessError):
        return version
    return f"{version} {commit[:12]}{'+' if changed else ''}"


def git(root: Path, *arguments: str) -> str:
    """What git prints."""
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()


def make_receipt(
    command: Sequence[str],
    config: Mapping[str, Any],
    data: Mapping[str, str],
    results: Mapping[str, Any],
    versions: Mapping[str, str],
    place: Mapping[str, Any],
) -> dict[str, Any]:
    """A receipt as plain data; `place` says device and threads, `versions` regard and torch."""
    return {
        "command": list(command),
        "seed": config.get("seed"),
        "code": code_version(versions["regard"]),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: number for name, number in versions.items() if name != "regard"},
        **place,
        "data": dict(data),
        "config": dict(config),
        "results": dict(results),
    }


def write_receipt(path: Path, receipt: Mapping[str, Any]) -> None:
    """Write it whole or not at all."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(receipt, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    os.replace(draft, path)


def read_receipt(path: Path) -> dict[str, Any]:
    """A receipt from a file, or from a run's folder."""
    path = path / NAME if path.is_dir() else path
    try:
        receipt = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"reading {path}", error.strerror or str(error), "a receipt") from None
    except ValueError as error:
        raise DataError(f"reading {path}", str(error), "a receipt as JSON") from None
    missing = [key for key in ("config", "data", "results") if key not in receipt]
    if missing:
        raise DataError(f"reading {path}", f"no {missing[0]!r}", "a receipt of regard")
    made: dict[str, Any] = receipt
    return made


def changed_files(data: Mapping[str, str]) -> list[str]:
    """What has become of the data: one line for each file that is missing or differs."""
    wrong = []
    for name, wanted in data.items():
        try:
            with open(name, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            wrong.append(f"{name}: {error.strerror}")
            continue
        if found != wanted:
            wrong.append(f"{name}: SHA-256 {found[:12]}…, was {wanted[:12]}…")
    return wrong


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
        a, b = then.get(key), since.get(key)
        if a is None and b is None:
            continue
        if a is None or b is None or not abs(a - b) <= TOLERANCE * abs(a):
            return False, f"{key}: {b}, was {a} (at most {TOLERANCE:.0%} apart)"
    differing = ", ".join(f"{key} {now.get(key)}, was {before.get(key)}" for key in other)
    return True, f"losses agree within {TOLERANCE:.0%}; bits were not compared: {differing}"
