"""Files that a look inside leaves: where they may go."""

from __future__ import annotations

from pathlib import Path

from regard.errors import UsageError
from regard.files import check_places
from regard.look.picture import can_draw


def check_outputs(*paths: str | Path | None, png: str | Path | None = None) -> None:
    """Stop before any work where a file could not be written, or a picture not be drawn."""
    if png is not None and not can_draw():
        fix = "pip install 'regard[plot]'"
        raise UsageError("drawing a picture", "a picture without matplotlib", "the plot extra", fix)
    check_places(*paths, png)
