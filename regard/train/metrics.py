"""metrics.jsonl: what a run measured, one line of JSON each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAME = "metrics.jsonl"


def write_metrics(folder: Path, line: dict[str, Any]) -> None:
    """Add a line."""
    with (folder / NAME).open("a") as file:
        file.write(json.dumps(line) + "\n")


def cut_metrics(folder: Path, step: int) -> None:
    """Forget lines past a step: they will be written again."""
    path = folder / NAME
    if path.exists():
        lines = path.read_text().splitlines()
        kept = [line for line in lines if whole_line(line) and json.loads(line)["step"] <= step]
        draft = path.with_suffix(".part")
        draft.write_text("".join(line + "\n" for line in kept))
        draft.replace(path)


def whole_line(line: str) -> bool:
    """Whether a line was written to its end."""
    return line.startswith("{") and line.endswith("}")


def last_loss(folder: Path) -> float | None:
    """The loss of the last line that has one."""
    path = folder / NAME
    lines = path.read_text().splitlines() if path.exists() else []
    losses = [made["loss"] for line in lines if "loss" in (made := json.loads(line))]
    return losses[-1] if losses else None
