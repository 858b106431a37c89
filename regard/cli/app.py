"""From the command table to a cyclopts app: a signature becomes flags, a docstring help."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import docstring_parser
from cyclopts import App, CycloptsError, Group, Parameter

import regard
from regard.ambient import Device, is_terminal, settings
from regard.cli.commands import COMMANDS, GROUPS, PANELS, TABLE, Command
from regard.cli.render import render
from regard.cli.streams import read_texts, read_whole
from regard.errors import UsageError
from regard.files import check_places
from regard.verbs import FILES, FLAT, Alias, Flag, Words, check_arguments, marks, note_call

EVERYWHERE = Group("Everywhere", sort_key=9)
EXIT_CODES = "0 ok, 1 failed, 2 usage, 3 data, 4 resources, 130 interrupted"


def flag(name: str, kind: Any, default: Any, text: str, alias: str = "") -> inspect.Parameter:
    """One of the options that every command has."""
    more: dict[str, Any] = {"alias": [alias]} if alias else {}
    more["consume_multiple"] = name == "file"  # `--save a.png TEXT`: the text is no file
    mark = Parameter(help=text, group=EVERYWHERE, negative="", show_default=bool(default), **more)
    hint = Annotated[kind, mark]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


COMMON = [
    flag("json", bool, False, "Print JSON instead of tables."),
    flag("save", list[str] | None, None, "Write the result too: .json, .csv, .html or .png."),
    flag("receipt", str | None, None, "Write the result and all it came from."),
    flag("device", Device, "auto", "Where models run."),
    flag("seed", int, 0, "Of all that is drawn."),
    flag("quiet", bool, False, "No messages on stderr but errors.", "-q"),
    flag("no_progress", bool, False, "No progress on stderr."),
    flag("verbose", bool, False, "Show tracebacks.", "-v"),
]
FILE = flag("file", list[str] | None, None, "Read texts from here, one a line.")
SIMPLE = (str, int, float, bool)
DASH = "\0"  # stands for the word -, which cyclopts would take for an option; no word has a NUL


def door(command: Command) -> Callable[..., int]:
    """The function that cyclopts calls for a command: reads texts, sets what is ambient, shows."""
    function = vars(command.load())["__wrapped__"]  # the app checks and notes by itself
    hints = typing.get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    words = {name: mark for name in hints for mark in marks(hints[name]) if isinstance(mark, Words)}

    def run(*args: Any, **flags: Any) -> int:
        positional = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY]
        arguments = dict(zip([p.name for p in positional], args, strict=False)) | flags
        arguments = {name: with_dashes(value) for name, value in arguments.items()}
        common = {p.name: arguments.pop(p.name, p.default) for p in COMMON}
        files = arguments.pop("file", None)
        check_places(*(common["save"] or ()), common["receipt"])  # before any work
        for name, mark in words.items():
            how, documents = mark.how, mark.documents
            read = read_whole if how == "whole" else read_texts
            texts = arguments.get(name) or []
            document = documents and not texts and files and len(files) == 1 and Path(files[0])
            if document and (arguments.get("out") or document.suffix.lower() in documents):
                arguments[name] = document
            else:
                arguments[name] = read(texts, files, joined=how == "joined")
        if "watch" in hints and not common["json"] and sys.stdout.isatty():
            arguments["watch"] = partial(print, end="", flush=True)
        if "doubt" in hints and arguments.get("doubt") is None:
            kept = common["json"] or common["save"] or common["receipt"]
            arguments["doubt"] = bool(kept) or is_terminal(sys.stdout)
        with settings(
            device=common["device"],
            seed=common["seed"],
            progress=not common["no_progress"],
            quiet=common["quiet"],
        ):
            check_arguments(function, arguments)
            result = note_call(function, arguments, function(**arguments))
            if common["receipt"] and isinstance(result, Iterator):  # of one text of many
                result = map(partial(note_call, function, arguments), result)
            return render(result, common["json"], common["save"], common["receipt"])

    doc = docstring_parser.parse(function.__doc__ or "")
    helps = {p.arg_name: " ".join((p.description or "").split()) for p in doc.params}
    parameters = list(own_parameters(signature, hints, helps))
    if words:
        parameters.append(FILE)
    run.__signature__ = inspect.Signature([*parameters, *COMMON])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*parameters, *COMMON)}
    run.__doc__, run.__name__ = doc.description, function.__name__
    return run


def with_dashes(value: Any) -> Any:
    """A value as it was written."""
    if isinstance(value, list):
        return [with_dashes(inside) for inside in value]
    return "-" if value == DASH else value


def own_parameters(
    signature: inspect.Signature, hints: dict[str, Any], helps: dict[str, str]
) -> Iterator[inspect.Parameter]:
    """A function's parameters as the command line has them.

    Beside texts, a list takes one word for each time it is named: `--ban cat TEXT`. Files go on.
    """
    texts = any(isinstance(mark, Words) for hint in hints.values() for mark in marks(hint))
    for name, parameter in signature.parameters.items():
        hint = flag_type(hints[name])
        if hint is None:  # only Python can give it
            continue
        kind, default = parameter.kind, parameter.default
        if kind is not inspect.Parameter.KEYWORD_ONLY:
            kind = inspect.Parameter.POSITIONAL_ONLY
        if any(isinstance(mark, Words) for mark in marks(hints[name])):
            default = None  # no words: lines of --file or stdin
        mark = Parameter(
            help=helps.get(name),
            alias=[mark.name for mark in marks(hints[name]) if isinstance(mark, Alias)] or None,
            consume_multiple=not texts or FILES in marks(hints[name]),
            negative="" if default is False else None,  # off already: no second name for it
            show_default=None if default else False,
        )
        hint = Annotated[hint, mark]
        for own in marks(hints[name]):
            if isinstance(own, Flag):
                hint = Annotated[hint, Parameter(name=own.name)]
            elif own is FLAT:  # fields are flags of their own, in a panel of their own
                panel = Group(name.capitalize(), sort_key=8)
                rest = Parameter(name="*", group=panel, consume_multiple=True, negative_iterable="")
                hint = Annotated[hint, rest]
        yield inspect.Parameter(name, kind, default=default, annotation=hint)


def flag_type(hint: Any) -> Any:
    """The type that a word of the command line is read as; None where no word can say it."""
    beside = marks(hint)
    if any(isinstance(mark, Words) for mark in beside):
        return list[str] | None
    if FLAT in beside:
        return hint.__origin__
    if typing.get_origin(hint) is Annotated:
        hint = hint.__origin__
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        known = [kind for kind in map(flag_type, inner) if kind is not None]
        lists = [kind for kind in known if typing.get_origin(kind) is list]
        if FILES in beside and lists:
            known = lists
        if not known:
            return None
        return known[0] | None if type(None) in inner else known[0]
    if origin is Literal or hint in SIMPLE:
        return hint
    if origin in (list, tuple) or getattr(origin, "__name__", "") in ("Sequence", "Iterable"):
        item = flag_type(inner[0])
        return list[item] if item is not None else None  # type: ignore[valid-type]
    return str if getattr(hint, "__name__", "") in ("Path", "PathLike") else None


def show_panel(console: Any, options: Any, panel: Any) -> None:
    """A panel of help in as few lines as it has entries, under its title."""
    from cyclopts.help import TableSpec
    from cyclopts.help.specs import get_default_command_columns, get_default_parameter_columns
    from rich.padding import Padding
    from rich.text import Text

    if not panel.entries:
        return
    title = getattr(panel.title, "plain", panel.title)
    console.print(Text(title, "bold"))
    if title in PANELS:  # the whole tree fits one screen
        width = max(len(word) for words in PANELS.values() for word in words)
        for name in (entry.names[0] for entry in panel.entries):
            what = TABLE[name].summary() if name in TABLE else room_summary(name)
            line = Text.assemble("  ", (name.ljust(width + 2), "cyan"), what.removesuffix("."))
            console.print(line, no_wrap=True, overflow="ellipsis")
        return
    commands = panel.format == "command"
    columns = get_default_command_columns if commands else get_default_parameter_columns
    table = TableSpec().build(columns(console, options, panel.entries), panel.entries)
    console.print(Padding(table, (0, 0, 0, 2)))


def examples(command: Command) -> str:
    """The three examples at the end of a help page."""
    return "Examples:\n\n" + "\n\n".join(f"  {line}" for line in command.examples())


def room_summary(name: str) -> str:
    """What the commands of a group do: the first line of its room's docstring."""
    return (getattr(regard, name).__doc__ or "").strip().splitlines()[0]


def make_app(name: str, **options: Any) -> App:
    """An app with our help."""
    app = App(
        name=name,
        version=regard.__version__,
        version_flags=["--version"],
        help_format="plaintext",
        help_formatter=show_panel,
        suppress_keyboard_interrupt=False,  # main says so
        default_parameter=Parameter(consume_multiple=True, negative_iterable=()),
        **options,
    )
    app["--help"].show = app["--version"].show = False
    return app


def build_tree(doors: bool = False) -> App:
    """The whole tree: summaries for its help or, with `doors`, every flag for completion."""
    what = "One Transformer layer for text, images and sound, with everything in view."
    app = make_app("regard", help=what, help_epilogue=f"Exit codes: {EXIT_CODES}.")
    titles = {title: Group(title, sort_key=number) for number, title in enumerate(PANELS)}
    panels = {word: titles[title] for title, words in PANELS.items() for word in words}
    groups = {
        name: make_app(name, help=room_summary(name), help_epilogue="", group=panels[name])
        for name in GROUPS
    }
    for group in groups.values():
        app.command(group)
    for number, command in enumerate(COMMANDS):
        first, _, last = command.name.rpartition(" ")
        parent = groups[first] if first else app
        more: dict[str, Any] = {"sort_key": number} | ({} if first else {"group": panels[last]})
        target: Any = door(command) if doors else f"regard.cli.app:{last}"
        parent.command(target, name=last, help=command.summary(), **more)
    if doors:
        app.register_install_completion_command(show=False)
    return app


def run_command(command: Command, arguments: Sequence[str]) -> int:
    """Run one command with the words after its name; returns the exit code."""
    app = make_app(f"regard {command.name}", help_epilogue=examples(command))
    app.default(door(command))
    words = [DASH if word == "-" else word for word in arguments]
    try:
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        error.verbose = False
        problem, _, fix = str(error).strip().partition(" Did you mean ")
        fix = f"did you mean {fix}" if fix else f"see `regard {command.name} --help`"
        raise UsageError(f"reading `regard {command.name}`", problem.rstrip("."), fix=fix) from None
    return code if isinstance(code, int) else 0
