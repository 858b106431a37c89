"""What a user sees: tables and lines on stdout, progress and messages on stderr.

With rich on a terminal, in plain lines otherwise: no escape codes and no carriage returns.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TextIO

PATIENCE = 2.0  # seconds of work before progress is shown at all
INTERVAL = 5.0  # seconds between two plain lines of progress


def is_fancy(stream: TextIO) -> bool:
    """Whether a stream is a terminal that may get colours and moving lines."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return stream.isatty() and not plain and find_spec("rich") is not None


def finite(value: Any) -> Any:
    """A value for JSON, which has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(inside) for name, inside in value.items()}
    return [finite(inside) for inside in value] if isinstance(value, list | tuple) else value


class Show:
    """Where the results and messages of one command go."""

    def __init__(self, as_json: bool = False, quiet: bool = False, progress: bool = True) -> None:
        self.as_json, self.quiet = as_json, quiet
        self.moving = progress and not quiet

    def result(self, value: Mapping[str, Any]) -> None:
        """The one object of `--json`."""
        print(json.dumps(finite(value), ensure_ascii=False, indent=2, allow_nan=False))

    def line(self, text: str = "") -> None:
        """One line of the result."""
        print(text)

    def fields(self, title: str, pairs: Mapping[str, str]) -> None:
        """Names and values under a title."""
        self.table(title, ("", ""), list(pairs.items()), left=2)

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1
    ) -> None:
        """A table whose first `left` columns are words and whose others are numbers."""
        if is_fancy(sys.stdout):
            rich_table(title, columns, rows, left)
            return
        lines = [columns, *rows] if any(columns) else list(rows)
        widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
        print(title)
        for line in lines:
            cells = [
                cell.ljust(width) if n < left else cell.rjust(width)
                for n, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            print(f"  {'  '.join(cells)}".rstrip())

    def note(self, text: str) -> None:
        """A message on stderr; `--quiet` drops it."""
        if not self.quiet:
            print(text, file=sys.stderr)

    def error(self, text: str) -> None:
        """What went wrong, on stderr; never dropped."""
        if is_fancy(sys.stderr):
            from rich.console import Console
            from rich.text import Text

            message = Text.assemble(("error: ", "bold red"), text)
            Console(stderr=True, highlight=False).print(message, soft_wrap=True)
        else:
            print(f"error: {text}", file=sys.stderr)

    @contextmanager
    def progress(self, doing: str) -> Iterator[Progress]:
        """Say on stderr how far a longer piece of work is, once it has taken two seconds."""
        progress = Progress(doing, self.moving)
        try:
            yield progress
        finally:
            progress.stop()


class Progress:
    """A live line on a terminal, otherwise a plain line now and then."""

    def __init__(self, doing: str, shown: bool) -> None:
        self.doing, self.shown = doing, shown
        self.start = time.monotonic()
        self.last = self.start + PATIENCE - INTERVAL
        self.status: Any = None

    def __call__(self, where: str) -> None:
        """Call before each step: what comes now."""
        now = time.monotonic()
        if not self.shown or now - self.start < PATIENCE:
            return
        text = f"{self.doing}: {where}"
        if is_fancy(sys.stderr):
            self.move(text)
        elif now - self.last >= INTERVAL:
            print(f"{text} ({now - self.start:.0f} s)", file=sys.stderr, flush=True)
            self.last = now

    def move(self, text: str) -> None:
        """Start or change the live line."""
        if self.status is None:
            from rich.console import Console

            self.status = Console(stderr=True).status(text)
            self.status.start()
        self.status.update(text)

    def stop(self) -> None:
        """Take the live line away."""
        if self.status is not None:
            self.status.stop()


def rich_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int
) -> None:
    """The same table with rich."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if any(columns) else box.SIMPLE, show_header=any(columns))
    for n, column in enumerate(columns):
        style = "cyan" if n == 0 else ""
        table.add_column(column, justify="left" if n < left else "right", style=style)
    for row in rows:
        table.add_row(*map(Text, row))  # Text: brackets are not markup
    console = Console(highlight=False)
    console.print(Text(title, "bold"), soft_wrap=True)
    console.print(table)


# Numbers as people read them ------------------------------------------------------------------


def human(value: Any) -> str:
    """1536 → '1,536', a list with commas, anything else as it is."""
    if isinstance(value, list):
        return ", ".join(map(human, value))
    return f"{value:,}" if type(value) is int else str(value)


def human_bytes(count: float) -> str:
    """1536 → '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.0f} B" if unit == "B" else f"{count:,.1f} {unit}"


def human_count(count: float) -> str:
    """124439808 → '124.44 M'."""
    for limit, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            return f"{count / limit:,.2f} {unit}"
    return f"{count:.0f}"


def human_time(seconds: float) -> str:
    """0.0123 → '12.3 ms'."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s"
    return f"{seconds / 60:,.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
