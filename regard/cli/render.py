"""Results on stdout, messages on stderr: with rich on a terminal, in plain lines otherwise."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from regard.ambient import is_terminal, note
from regard.errors import DataError, RegardError, RegardWarning, UsageError
from regard.result import Failed, Result

FAILURES = 10  # texts that could not be done and are named one by one


def render(
    result: Result | Iterator[Result] | None,
    as_json: bool,
    save: Sequence[str] | None,
    receipt: str | None,
) -> int:
    """Show a result, or each of a stream as it comes; returns the exit code."""
    if result is None:
        return 0
    if os.environ.get("RANK", "0") != "0" and isinstance(result, Result):
        return result.exit_code  # of the processes that torchrun starts, the first one speaks
    indent: int | None = 2
    if not isinstance(result, Result):
        if not (save or receipt):
            return render_stream(result, as_json)
        results = list(islice(result, 2))
        if len(results) != 1:
            problem = "several results" if results else "no result"
            raise UsageError("saving a result", problem, "one result", "one text")
        result, indent = results[0], None
    if as_json:
        print(json.dumps(result.to_dict(), ensure_ascii=False, indent=indent, allow_nan=False))
    else:
        show(result)
    for path in save or ():
        result.save(path)
    if receipt:
        from regard.receipt import write_receipt_of

        write_receipt_of(result, Path(receipt))
    return result.exit_code


def render_stream(results: Iterator[Result], as_json: bool) -> int:
    """One JSON object a line, or one result after the other; those that failed on stderr."""
    failures = 0
    for result in results:
        if isinstance(result, Failed):
            failures += 1
            if failures <= FAILURES:
                show_error(result.error)
        if as_json:
            print(json.dumps(result.to_dict(), ensure_ascii=False, allow_nan=False), flush=True)
        elif isinstance(result, Failed):
            print(flush=True)  # lines of the answer stand beside those that were read
        else:
            show(result)
    if failures > FAILURES:
        show_error(f"{failures:,} texts could not be done; the first {FAILURES} are named")
    return DataError.exit_code if failures else 0


def show(result: Any) -> None:
    """A result for a person."""
    if is_terminal(sys.stdout):
        from rich.console import Console

        Console(highlight=False).print(result, soft_wrap=True)
    else:
        print(result, flush=True)


def show_error(error: RegardError | str) -> None:
    """What went wrong, on stderr; never dropped."""
    if is_terminal(sys.stderr):
        from rich.console import Console
        from rich.text import Text

        message = Text.assemble(("error: ", "bold red"), str(error))
        Console(stderr=True, highlight=False).print(message, soft_wrap=True)
    else:
        print(f"error: {error}", file=sys.stderr)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Warnings of ours as messages on stderr, the first of each code."""
    codes = set[str]()

    def tell(message: Warning | str, category: type[Warning], *at: Any, **more: Any) -> None:
        code, _, _ = str(message).partition("]")
        if category is not RegardWarning:
            usual(message, category, *at, **more)
        elif code not in codes:
            codes.add(code)
            note(f"warning: {message}")

    with warnings.catch_warnings():
        usual, warnings.showwarning = warnings.showwarning, tell
        warnings.simplefilter("always", RegardWarning)
        yield
