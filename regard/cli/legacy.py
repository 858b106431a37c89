"""The command `regard`: verbs and their arguments. No torch here, so that help is quick."""

from __future__ import annotations

import argparse
import gc
import io
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from regard import __version__
from regard.cli.extract_flags import EXTRACT
from regard.cli.failures import explain
from regard.cli.options import add_common
from regard.cli.show import Show
from regard.cli.texts import noted
from regard.errors import UsageError, did_you_mean, nearest
from regard.files import FULL

INTERRUPTED = 130
Row = tuple[str, str, Callable[[argparse.ArgumentParser], None], str, str, str]
FAMILIES: dict[str, Row] = {**EXTRACT}
READING = "reading the command line"


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are errors of ours."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting."""
        named = message.startswith("argument -")  # which says more than a list of all of them
        usage = "" if named else " ".join(self.format_usage().split()).removeprefix("usage: ")
        fix = f"see `{self.prog} --help`"
        if wrong := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            close = nearest(wrong[1], re.findall(r"[\w.-]+", wrong[2]), 1)
            fix = f"did you mean {close}? {fix}" if close else fix
        raise UsageError(READING, message, usage, fix)


class Verb(NamedTuple):
    """One verb: where it lives, what it does, how it is called."""

    home: str
    summary: str
    add: Callable[[argparse.ArgumentParser], None]
    examples: Sequence[str]


ROWS: dict[str, Row] = {
    **FAMILIES,
}
"""Where each verb lives, what it does, its arguments and three examples, in the order of help."""
VERBS = {
    name: Verb(home, summary, add, examples)
    for name, (home, summary, add, *examples) in ROWS.items()
}


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser of the command and those of its verbs."""
    shape = argparse.RawDescriptionHelpFormatter
    lines = [f"  {name:15} {verb.summary}" for name, verb in VERBS.items()]
    top = Parser(
        "regard",
        usage="regard VERB [options]",
        description="One Transformer layer for text, images and sound.\n\nverbs:\n"
        + "\n".join(lines),
        epilog="`regard VERB --help` has examples of each.\n"
        "exit codes: 0 ok, 1 run failed, 2 usage, 3 input data, 4 resources, 130 interrupted",
        formatter_class=shape,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"regard {__version__}")
    add_common(top, default=False)
    choices = top.add_subparsers(dest="verb", metavar="VERB", prog="regard", help=argparse.SUPPRESS)
    made: dict[str, Parser] = {}
    for name, verb in VERBS.items():
        examples = "examples:\n" + "\n".join(f"  {line}" for line in verb.examples)
        options: dict[str, Any] = dict(epilog=examples, formatter_class=shape, allow_abbrev=False)
        made[name] = choices.add_parser(name, description=f"{verb.summary}.", **options)
        verb.add(made[name])
        add_common(made[name])
    return top, made


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, or an error that names the nearest verb or option."""
    top, verbs = build_parser()
    given_arguments, arguments = list(arguments), join_verb(arguments)
    given = next((word for word in arguments if not word.startswith("-")), None)
    if given is not None and given not in VERBS:
        close = nearest(given, VERBS, 1)
        fix = f"did you mean `regard {close}`?" if close else "see `regard --help`"
        raise UsageError(READING, f"unknown verb {given!r}", f"one of {', '.join(VERBS)}", fix)
    args, unknown = top.parse_known_args(arguments)
    args.arguments = given_arguments
    for name in ("files", "texts"):  # argparse wants them side by side
        listed = getattr(args, name, None)
        if isinstance(listed, list) and not any(word.startswith("-") for word in unknown):
            setattr(args, name, [*listed, *unknown])
            unknown = []
    if unknown:
        parser = verbs.get(args.verb, top)
        known = [name for action in parser._actions for name in action.option_strings]
        fix = did_you_mean(
            unknown[0].partition("=")[0], known, 1, otherwise=f"see `{parser.prog} --help`"
        )
        raise UsageError(READING, f"unknown argument {unknown[0]}", fix=fix)
    if args.verb is None:
        top.print_help(sys.stderr)
        raise SystemExit(UsageError.exit_code)
    return args


def knows(words: Sequence[str]) -> bool:
    """Whether a verb that has not moved to the command table is asked for."""
    return join_verb(words)[0] in VERBS


def join_verb(arguments: Sequence[str]) -> list[str]:
    """The arguments with a verb of two words, such as `train ngram`, as one."""
    made = list(arguments)
    first = next((n for n, word in enumerate(made) if not word.startswith("-")), len(made))
    if " ".join(made[first : first + 2]) in VERBS:
        made[first : first + 2] = [" ".join(made[first : first + 2])]
    return made


def open_streams() -> None:
    """Give a process that was started with closed streams ones that hold nothing; write UTF-8."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))
        elif mode == "w" and isinstance(stream, io.TextIOWrapper) and stream.encoding != "utf-8":
            stream.reconfigure(encoding="utf-8")  # whatever the locale says: words are kept


def drop_output() -> None:
    """Let what stdout still holds go nowhere: Python would fail to write it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def load_verb(name: str) -> Any:
    """The module of a verb.

    With torch come 170,000 objects that stay; to look among them for dead ones takes 0.25 s.
    """
    if "torch" in sys.modules or not gc.isenabled():
        return import_module(VERBS[name].home)
    gc.disable()
    try:
        return import_module(VERBS[name].home)
    finally:
        gc.freeze()
        gc.enable()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    open_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    show, verbose = Show(), bool({"-v", "--verbose"} & set(arguments))
    try:
        args = parse(arguments)
        show = Show(args.json, args.quiet, not args.no_progress)
        with noted(show):
            code: int = load_verb(args.verb).run(args, show)
        sys.stdout.flush()  # a closed pipe shows here, not when Python ends
        return code
    except KeyboardInterrupt:
        show.error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        drop_output()
        return 0
    except Exception as error:
        if verbose:
            traceback.print_exc()
        if isinstance(error, OSError) and error.filename is None and error.errno in FULL:
            drop_output()
        explained = explain(error)
        show.error(str(explained))
        return explained.exit_code
