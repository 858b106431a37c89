"""One resolver for settings: dataclass fields are flags and TOML keys of the same name.

A default gives way to a preset, a preset to a TOML file, the file to flags; where each value came
from is kept. No torch here: help is quick.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import textwrap
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from regard.errors import DataError, UsageError, bad_byte, check_known, did_you_mean

Config = TypeVar("Config")
DOING = "reading the settings"


@dataclass(frozen=True)
class Setting:
    """One field of a dataclass, as flags, files and help see it."""

    name: str
    kind: type
    """bool, int, float or str; of the items when it is a list."""
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    many: bool = False
    optional: bool = False
    """None is allowed."""

    @property
    def flag(self) -> str:
        """--batch-tokens for batch_tokens."""
        return "--" + self.name.replace("_", "-")

    def read(self, value: Any, origin: str) -> Any:
        """A value of the right type, or an error that names the key and where it stood."""
        if self.many:
            items = [value] if isinstance(value, str) else value
            if not isinstance(items, list | tuple):
                raise self.wrong(value, origin)
            return tuple(self.read_one(item, origin) for item in items)
        if value is None and self.optional:
            return None
        return self.read_one(value, origin)

    def read_one(self, value: Any, origin: str) -> Any:
        """One item."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        fits = {
            bool: isinstance(value, bool),
            int: whole,
            float: whole or isinstance(value, float),
            str: isinstance(value, str),
        }
        if not fits[self.kind]:
            raise self.wrong(value, origin)
        if whole and abs(value) >= 1 << 63:
            found = f"{self.name} = {value} ({origin})"
            raise UsageError(DOING, found, "a whole number of at most 63 bits")
        if self.choices:
            check_known(value, self.choices, DOING, f"{self.name} = {value!r} ({origin})")
        return self.kind(value)

    def wrong(self, value: Any, origin: str) -> UsageError:
        """A value of another type."""
        names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        expected = f"a list of {self.kind.__name__}" if self.many else names[self.kind]
        return UsageError(DOING, f"{self.name} = {value!r} ({origin})", expected)


@dataclass
class Settings:
    """Resolved values with their origins."""

    known: dict[str, Setting]
    values: dict[str, Any]
    origins: dict[str, str]

    def make(self, config: type[Config]) -> Config:
        """One of the dataclasses, filled."""
        names = [field.name for field in dataclasses.fields(typing.cast(Any, config))]
        return config(**{name: self.values[name] for name in names})

    def put(self, name: str, value: Any, origin: str) -> None:
        """Set one value, checked."""
        self.values[name], self.origins[name] = self.known[name].read(value, origin), origin

    def toml(self, skip: Iterable[str] = ()) -> str:
        """All values as TOML, each with its origin as a comment."""
        lines = []
        for name, value in self.values.items():
            if name in skip:
                continue
            line = f"# {name} is not set" if value is None else f"{name} = {to_toml(value)}"
            lines.append(f"{line}  # {self.origins[name]}")
        return "\n".join(lines) + "\n"


def settings_of(*configs: type) -> dict[str, Setting]:
    """The fields of dataclasses, by name, in order; a name stands for one thing only."""
    found: dict[str, Setting] = {}
    for config in configs:
        hints, helps = typing.get_type_hints(config), docstrings(config)
        for field in dataclasses.fields(config):
            assert field.name not in found, field.name
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            made = describe(field.name, hints[field.name], default, helps.get(field.name, ""))
            found[field.name] = made
    return found


def describe(name: str, hint: Any, default: Any, text: str) -> Setting:
    """A setting from a type hint: bool, int, float, str, Literal, tuple of one, or None too."""
    optional = isinstance(hint, types.UnionType)
    if optional:
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    many = typing.get_origin(hint) is tuple
    if many:
        hint = typing.get_args(hint)[0]
    choices = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
    return Setting(name, str if choices else hint, default, text, choices, many, optional)


def docstrings(config: type) -> dict[str, str]:
    """The text under each field of a dataclass, read from its source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(config))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        said = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if named and said:
            found[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore
    return found


def add_flags(
    parser: argparse.ArgumentParser, known: Mapping[str, Setting], skip: Sequence[str] = ()
) -> None:
    """A flag per setting; one that is not given leaves no trace, so that a file may speak."""
    for setting in known.values():
        if setting.name in skip:
            continue
        shown = setting.default is not None and setting.default != ()
        text = setting.help + (f" [{setting.default}]" if shown else "")
        options: dict[str, Any] = dict(dest=setting.name, default=argparse.SUPPRESS)
        options["help"] = text.replace("%", "%%")
        if setting.kind is bool:
            parser.add_argument(setting.flag, action=argparse.BooleanOptionalAction, **options)
            continue
        if setting.many:
            options["nargs"] = "+"
        shape = {int: "N", float: "X", str: "TEXT"}[setting.kind]
        metavar = "|".join(setting.choices) or shape
        parser.add_argument(setting.flag, type=reader(setting), metavar=metavar, **options)


def reader(setting: Setting) -> Any:
    """How argparse reads the word after a flag."""

    def read(text: str) -> Any:
        try:
            return setting.read_one(setting.kind(text), "flag")
        except ValueError:
            kind = "whole number" if setting.kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {kind}") from None

    return read


def read_toml(path: Path) -> dict[str, Any]:
    """The keys of a TOML file; tables only group them."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8").removeprefix("\ufeff"))
    except OSError as error:
        raise DataError(f"reading {path}", error.strerror or str(error), "a TOML file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"reading {path}", bad_byte(error), "valid TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"reading {path}", str(error), "valid TOML") from None
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= value if isinstance(value, dict) else {key: value}
    return flat


def resolve(
    known: dict[str, Setting],
    flags: Mapping[str, Any],
    file: tuple[str, Mapping[str, Any]] | None = None,
    preset: tuple[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Default < preset < file < flags; `file` and `preset` are a name and their values."""
    values = {name: setting.default for name, setting in known.items()}
    made = Settings(known, values, dict.fromkeys(known, "default"))
    layers = [(f"preset {name}", given) for name, given in [preset] if preset] if preset else []
    layers += [file] if file else []
    for origin, given in [*layers, ("flag", {k: v for k, v in flags.items() if k in known})]:
        for name, value in given.items():
            if name not in known:
                fix = did_you_mean(name, known, 1)
                raise UsageError(DOING, f"unknown key {name!r} in {origin}", fix=fix)
            made.put(name, value, origin)
    return made


def to_toml(value: Any) -> str:
    """One value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    return repr(value)
