"""The command `regard`: finds the command in the table, runs it, turns errors into exit codes."""

from __future__ import annotations

import gc
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from regard import errors
from regard.cli.commands import GROUPS, TABLE
from regard.cli.render import show_error, warnings_as_notes
from regard.errors import DataError, RegardError, ResourceError, UsageError
from regard.files import FULL, cannot_write

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    open_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    gc.set_threshold(200_000, 20, 50)  # torch brings 170,000 objects that stay
    try:
        with warnings_as_notes():
            code = run(words)
        sys.stdout.flush()  # a closed pipe shows here, not when Python ends
        return code
    except KeyboardInterrupt:
        show_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        drop_output()
        return 0
    except Exception as error:
        if {"-v", "--verbose"} & set(words):
            traceback.print_exc()
        if isinstance(error, OSError) and error.filename is None and error.errno in FULL:
            drop_output()
        explained = explain(error)
        show_error(explained)
        return explained.exit_code
    finally:
        if arguments is None:
            gc.freeze()  # a process that ends need not look for dead objects among them


def run(words: list[str]) -> int:
    """Run the command that the words begin with; flags before it belong to it too."""
    first = next((n for n, word in enumerate(words) if not word.startswith("-")), len(words))
    before, words = words[:first], words[first:]
    for length in (2, 1):
        if command := TABLE.get(" ".join(words[:length])):
            from regard.cli.app import run_command

            return run_command(command, [*before, *words[length:]])
    asked = {"--help", "-h", "--version", "--install-completion"}
    if not words or (words[0] in GROUPS and set(words[1:]) <= asked):
        from regard.cli.app import build_tree

        words += before
        tree = build_tree(doors="--install-completion" in words)
        tree(words or ["--help"], exit_on_error=False, result_action="return_value")
        return 0 if any(word.startswith("-") for word in words) else UsageError.exit_code
    raise unknown(words)


def unknown(words: Sequence[str]) -> UsageError:
    """The error for a command that is not there, with the nearest that is, in whatever group."""
    name = " ".join(words[:2] if words[0] in GROUPS else words[:1])
    ends = [key for key in TABLE if key.split()[-1] == name]
    close = ends[0] if ends else errors.nearest(name, [*TABLE, *GROUPS], 1)
    fix = f"did you mean `regard {close}`?" if close else "see `regard --help`"
    return UsageError("reading the command line", f"unknown command {name!r}", fix=fix)


def open_streams() -> None:
    """Give a process that was started with closed streams ones that hold nothing; write UTF-8."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            # Whatever the locale says, words are kept; half a surrogate pair is written \udxxx.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def drop_output() -> None:
    """Let what stdout still holds go nowhere: Python would fail to write it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain(error: Exception) -> RegardError:
    """Any exception as one of ours."""
    if isinstance(error, RegardError):
        return error
    if errors.is_out_of_memory(error):
        fix = "`regard plan` says what fits: a smaller batch, a shorter length"
        return ResourceError("running", "not enough memory", fix=fix)
    if isinstance(error, ModuleNotFoundError) and error.name:
        fix = "`regard doctor` says what is missing"
        return RegardError("running", f"the package {error.name} is not installed", fix=fix)
    if isinstance(error, OSError) and error.strerror:
        if error.errno not in FULL:
            doing = "running" if error.filename is None else f"opening {error.filename}"
            return DataError(doing, error.strerror, "a path that can be read or written")
        if error.filename is None:  # stdout has no name
            return ResourceError("writing the output", error.strerror, "room for it on the disk")
        return cannot_write(Path(error.filename), error, "room on the disk")
    problem = f"{type(error).__name__}: {error}"
    return RegardError("running", problem, fix="run again with -v to see where it happened")
