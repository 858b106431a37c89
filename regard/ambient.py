"""What surrounds a call: the device, the seed, progress and messages on stderr.

    with regard.settings(device="cuda", seed=3, progress=False):
        regard.train.lm("tale.txt", out="run")

The command line's common flags set the same four. Neither torch nor rich is loaded here.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from typing import Any, Literal, TextIO, TypeVar, get_args

from regard.errors import ResourceError, UsageError, check_known, check_names

Item = TypeVar("Item")
Device = Literal["auto", "cpu", "cuda", "mps"]
PATIENCE = 2.0  # seconds of work before progress is shown at all
INTERVAL = 5.0  # seconds between two plain lines of progress


@dataclass(frozen=True)
class Settings:
    """What every call reads and none has as an argument."""

    device: Device = "auto"
    """Where models run; auto takes a GPU where there is one."""
    seed: int = 0
    """Of everything that is drawn; the same seed gives the same result."""
    progress: bool = True
    """Whether work that takes longer than two seconds says on stderr how far it is."""
    quiet: bool = False
    """Whether messages on stderr are dropped, progress with them."""


_current: ContextVar[Settings] = ContextVar("regard.settings")
DEFAULTS = Settings()


def current() -> Settings:
    """The settings in force."""
    return _current.get(DEFAULTS)


@contextmanager
def settings(**changes: Any) -> Iterator[Settings]:
    """Change device, seed, progress or quiet inside the `with` block.

    Example:
        >>> with regard.settings(seed=3, quiet=True):
        ...     regard.generate("folder", "Once upon a time")
    """
    doing = "changing the settings"
    check_names(changes, [field.name for field in fields(Settings)], doing, "device, seed, …")
    check_known(changes.get("device", "auto"), get_args(Device), doing)
    seed = changes.get("seed", 0)
    if not isinstance(seed, int) or abs(seed) >= 1 << 63:
        raise UsageError(doing, f"seed {seed!r}", "a whole number of at most 64 bits")
    token = _current.set(replace(current(), **changes))
    try:
        yield current()
    finally:
        _current.reset(token)


def choose_device(asked: str | None = None) -> str:
    """The name of a device that is there: the one asked for, or in force; auto is the fastest."""
    asked = current().device if asked is None else asked
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available()}
    there["mps"] = torch.backends.mps.is_available()
    if asked == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if there[name])
    if not there[asked]:
        doing = f"using --device {asked}"
        expected = f"one of {', '.join(name for name, found in there.items() if found)}"
        raise ResourceError(doing, "torch sees no such device", expected, "run `regard doctor`")
    return asked


def note(text: str) -> None:
    """A message on stderr."""
    if not current().quiet:
        print(text, file=sys.stderr, flush=True)


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal that may get colours and moving lines."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return stream.isatty() and not plain and find_spec("rich") is not None


class Progress:
    """How far a longer piece of work is: a live line in a terminal, else one now and then."""

    def __init__(self, doing: str) -> None:
        self.doing, self.shown = doing, current().progress and not current().quiet
        self.start = time.monotonic()
        self.last = self.start + PATIENCE - INTERVAL
        self.status: Any = None

    def __call__(self, where: str) -> None:
        """Call before each step: what comes now."""
        now = time.monotonic()
        if not self.shown or now - self.start < PATIENCE:
            return
        text = f"{self.doing}: {where}"
        if is_terminal(sys.stderr):
            if self.status is None:
                from rich.console import Console

                self.status = Console(stderr=True).status(text)
                self.status.start()
            self.status.update(text)
        elif now - self.last >= INTERVAL:
            print(f"{text} ({now - self.start:.0f} s)", file=sys.stderr, flush=True)
            self.last = now

    def stop(self) -> None:
        """Take the live line away."""
        if self.status is not None:
            self.status.stop()


@contextmanager
def progress(doing: str) -> Iterator[Progress]:
    """Say on stderr how far the work inside the `with` block is, once it has taken two seconds.

    Example:
        >>> with progress("counting") as say:
        ...     say("words")
    """
    line = Progress(doing)
    try:
        yield line
    finally:
        line.stop()


def track(items: Iterable[Item], doing: str, total: int | None = None) -> Iterator[Item]:
    """The items themselves, with progress: which one of how many is worked on."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    of = f" of {total:,}" if total else ""
    with progress(doing) as say:
        for number, item in enumerate(items, 1):
            say(f"{number:,}{of}")
            yield item
