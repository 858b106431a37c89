"""Options that several verbs share, and the parser of a verb's action. No torch here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

MOST = (1 << 31) - 1  # of any count


def add_common(parser: argparse.ArgumentParser, default: Any = argparse.SUPPRESS) -> None:
    """Options of every verb, accepted before it and after it."""
    group = parser.add_argument_group("everywhere")
    for names, text in (
        (("--json",), "print one JSON object instead of tables"),
        (("--quiet", "-q"), "no messages on stderr but errors"),
        (("--no-progress",), "no progress on stderr"),
        (("--verbose", "-v"), "show tracebacks"),
    ):
        group.add_argument(*names, action="store_true", default=default, help=text)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Where to run."""
    choices = ("auto", "cpu", "cuda", "mps")
    parser.add_argument("--device", choices=choices, default="auto", help="where to run (auto)")


def positive(text: str) -> int:
    """A whole number from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    if int(text) > MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range: at most {MOST:,}")
    return int(text)


def natural(text: str) -> int:
    """A whole number from 0 up."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return positive(text) if int(text) else 0


def amount(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def add_action(
    choices: Any, name: str, summary: str, examples: Sequence[str]
) -> argparse.ArgumentParser:
    """The parser of one action of a verb, such as `train` of `regard tokens train`."""
    made: argparse.ArgumentParser = choices.add_parser(
        name,
        help=summary,
        description=f"{summary}.",
        epilog="examples:\n" + "\n".join(f"  {line}" for line in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return made
