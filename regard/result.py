"""What every public function returns: data that shows itself in a terminal, a pipe or a notebook.

A result is a frozen dataclass. Its fields are its JSON; a list of `Row`s is a table; the first line
of its docstring is its title, in braces fields or arguments of the call. Most results need no code.
"""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import math
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

from regard.errors import RegardError, UsageError
from regard.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASH = "–"  # where there is no value


Form = str | Callable[[Any], str]
"""How a value is written: a format such as "{:.1%}", or a function such as `human_bytes`."""


def shown(
    form: Form | None = None,
    *,
    title: str | None = None,
    table: bool = True,
    json: bool | str = True,
    empty: str = DASH,
    optional: bool = False,
    **options: Any,
) -> Any:
    """A field of a result that is shown in a way of its own.

    Args:
        form: how its values are written, such as "{:.1%}" or `human_bytes`.
        title: its name in tables, where another than the field's own reads better.
        table: whether people see it.
        json: whether `to_dict` has it, or by what other name.
        empty: what people see of None.
        optional: whether neither people nor `to_dict` see it where it is None.
        options: those of `dataclasses.field`, such as default.
    """
    metadata = {"form": form, "title": title, "table": table, "json": json}
    metadata |= {"empty": empty, "optional": optional}
    return dataclasses.field(metadata=metadata, **options)


def plain(value: Any) -> Any:
    """A value as JSON has it: tensors are lists, paths are texts, NaN and infinity are null."""
    if isinstance(value, Row):
        return value.to_dict()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(inside) for name, inside in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inside) for inside in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # tensors and arrays
        return plain(value.tolist())
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value


def human(value: Any, form: Form | None = None) -> str:
    """A value as people read it: 1536 is 1,536, no value a dash, a list has commas."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return DASH
    if isinstance(value, list | tuple):
        rows = value and isinstance(value[0], Mapping)
        return f"{len(value)} rows" if rows else ", ".join(human(inside, form) for inside in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {human(inside, form)}" for name, inside in value.items())
    if form is not None:
        return form.format(value) if isinstance(form, str) else form(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def name_of(value: Any) -> str:
    """An argument in words: a path, several, or the folder that something was opened from."""
    if isinstance(value, list | tuple):
        return ", ".join(map(name_of, value))
    return str(getattr(value, "path", value) or "a model")


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


@dataclass(frozen=True, repr=False)
class Grid:
    """A table as it is shown: cells are text, the columns `left` words, others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[int] = (0,)

    def __str__(self) -> str:
        """In plain lines, for a pipe."""
        lines = [self.columns, *self.rows] if any(self.columns) else list(self.rows)
        widths = [max(len(line[n]) for line in lines) for n in range(len(self.columns))]
        text = [self.title] if self.title else []
        for line in lines:
            cells = [
                cell.ljust(width) if n in self.left else cell.rjust(width)
                for n, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            text.append(f"  {'  '.join(cells)}".rstrip())
        return "\n".join(text)

    __repr__ = __str__

    def __rich__(self) -> Any:
        """With colours, for a terminal."""
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        head = any(self.columns)
        table = Table(box=box.SIMPLE_HEAD if head else box.SIMPLE, show_header=head)
        for n, column in enumerate(self.columns):
            style = "cyan" if n == 0 else ""
            table.add_column(column, justify="left" if n in self.left else "right", style=style)
        for row in self.rows:
            table.add_row(*map(Text, row))  # Text: brackets are not markup
        return Group(Text(self.title, "bold"), table) if self.title else table

    def _repr_html_(self) -> str:
        """For a notebook or a page."""

        def line(tag: str, cells: Sequence[str]) -> str:
            row = ""
            for n, cell in enumerate(cells):
                side = "left" if n in self.left else "right"
                row += f'<{tag} style="text-align:{side}">{html.escape(cell)}</{tag}>'
            return f"<tr>{row}</tr>"

        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        top = f"<thead>{line('th', self.columns)}</thead>" if any(self.columns) else ""
        body = "".join(line("td", row) for row in self.rows)
        return f"<table>{caption}{top}<tbody>{body}</tbody></table>"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, which a notebook shows."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        problem, fix = "matplotlib is not installed", "pip install 'regard[plot]'"
        raise UsageError("drawing a picture", problem, "the plot extra", fix) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    figure._repr_png_ = lambda: draw_png(figure, 72)  # type: ignore[attr-defined]
    return figure


def draw_png(figure: Figure, dpi: int) -> bytes:
    """A matplotlib figure as a picture."""
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a script that the font has not: a box
        figure.savefig(picture, format="png", dpi=dpi, bbox_inches="tight")
    return picture.getvalue()


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, shown))
class Row:
    """One row of a table: every class of rows is a frozen dataclass, without saying so."""

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        dataclass(frozen=True, repr=False, eq=False, kw_only=kw_only)(cls)

    # As `dataclass` writes them for each class anew, which takes longer than all else in a class.

    def __repr__(self) -> str:
        shown = [f.name for f in dataclasses.fields(self) if f.repr]  # type: ignore[arg-type]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        return compared(self) == compared(other) if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(compared(self))

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data."""
        data = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            name, value = field.metadata.get("json", True), getattr(self, field.name)
            if name and not (value is None and field.metadata.get("optional")):
                data[field.name if name is True else name] = plain(value)
        return data


def compared(row: Any) -> tuple[Any, ...]:
    """The values that make two rows equal."""
    return tuple(getattr(row, f.name) for f in dataclasses.fields(row) if f.compare)


def grid_of_values(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    forms: str | Sequence[Form | None] = "{:.4g}",
) -> Grid:
    """A table of values; columns in which nothing stands are left out.

    Args:
        title: what stands above it.
        columns: their names; the first one and those without numbers stand left.
        rows: a value for each column.
        forms: of each column, or one for all floats.
    """

    def write(value: Any, column: int) -> str:
        if isinstance(forms, str):
            return human(value, forms if isinstance(value, float) else None)
        return human(value, forms[column])

    rows = list(rows)
    kept = [n for n in range(len(columns)) if not rows or any(row[n] is not None for row in rows)]
    words = [not any(isinstance(row[n], int | float) for row in rows) for n in kept]
    left = {0} | {place for place, word in enumerate(words) if word}
    cells = [[write(row[n], n) for n in kept] for row in rows]
    return Grid(title, [columns[n] for n in kept], cells, left)


def grid_of(title: str, rows: Sequence[Row], names: Iterable[str] = ()) -> Grid:
    """A table whose columns are the fields of its rows; the names of rows stand before them."""
    fields = [f for f in dataclasses.fields(rows[0]) if f.metadata.get("table", True)]  # type: ignore[arg-type]
    columns = ["", *(f.metadata.get("title") or f.name.replace("_", " ") for f in fields)]
    named = zip(list(names) or repeat(None, len(rows)), rows, strict=True)
    values = [[name, *(getattr(row, f.name) for f in fields)] for name, row in named]
    return grid_of_values(title, columns, values, [None, *(f.metadata.get("form") for f in fields)])


def grid_of_names(title: str, values: Mapping[Any, Any]) -> Grid:
    """A table of named values, or of named rows."""
    rows = list(values.values())
    if isinstance(rows[0], Row):
        return grid_of(title, rows, map(str, values))
    return grid_of_values(title, ("", ""), values.items(), (str, None))


@dataclass(frozen=True)
class Call:
    """A public function with the arguments it was called with, for a receipt."""

    function: str
    arguments: dict[str, Any]
    files: list[Any]
    """Arguments that name files."""


class Result(Row):
    """What a public function returns: a frozen dataclass, as rows are."""

    call: ClassVar[Call | None] = None
    """The call that made it; each result of a verb has its own."""

    exit_code: ClassVar[int] = 0
    """What the command ends with; a result may say that something was not as it should be."""

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        cls.__repr__ = Result.__str__  # type: ignore[assignment]
        super().__init_subclass__(kw_only)

    def title(self) -> str:
        """The first line of the class's docstring; in braces fields, or arguments of the call."""
        first = (type(self).__doc__ or "").strip().splitlines()[0].removesuffix(".")
        asked = {} if self.call is None else self.call.arguments
        named = {name: name_of(value) for name, value in asked.items()}
        return first.format_map(defaultdict(str, named | vars(self)))

    def parts(self) -> Iterator[str | Grid]:
        """What is shown, in order: lines and tables. Scalars first, then lists and nested ones."""
        pairs: list[tuple[str, str]] = []
        later: list[str | Grid] = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            missing = value is None and field.metadata.get("optional")
            if missing or not field.metadata.get("table", True):
                continue
            name = field.metadata.get("title") or field.name.replace("_", " ")
            if isinstance(value, Result):
                heading = field.metadata.get("title")
                later += [heading, *value.parts()] if heading else value.parts()
            elif isinstance(value, list) and value and isinstance(value[0], Result):
                later += (part for result in value for part in result.parts())
            elif isinstance(value, Row):
                grid = grid_of(name, [value])
                pairs_of = zip(grid.columns, grid.rows[0], strict=True)
                known = [(what, cell) for what, cell in pairs_of if cell not in ("", DASH)]
                later.append(Grid(name, ("", ""), known, left=range(2)))
            elif isinstance(value, Mapping) and value:
                later.append(grid_of_names(name, value))
            elif isinstance(value, list | tuple) and value and isinstance(value[0], Row):
                later.append(grid_of(name, value))
            elif value is None:
                pairs.append((name, field.metadata.get("empty", DASH)))
            elif value not in ((), [], {}):
                pairs.append((name, human(value, field.metadata.get("form"))))
        if pairs:
            yield Grid(self.title(), ("", ""), pairs, left=range(2))
        else:
            yield self.title()
        yield from later

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts()))

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        return Group(*(Text(part) if isinstance(part, str) else part for part in self.parts()))

    def _repr_html_(self) -> str:
        shown = []
        for part in self.parts():
            if isinstance(part, str):  # blanks in a row or lines mean columns and programs
                tag = "pre" if "  " in part or "\n" in part else "p"
                shown.append(f"<{tag}>{html.escape(part)}</{tag}>")
            else:
                shown.append(part._repr_html_())
        return "\n".join(shown)

    def table(self) -> Sequence[Row]:
        """The rows of its table; one row with the result itself where it has none."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list | tuple) and value and isinstance(value[0], Row):
                return value
        return [self]

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame."""
        try:
            import pandas
        except ImportError as error:
            fix = "pip install pandas"
            raise UsageError("making a frame", "pandas is not installed", fix=fix) from error
        return pandas.DataFrame([row.to_dict() for row in self.table()])

    def page(self) -> str:
        """The result as an HTML page that needs no network."""
        body = self._repr_html_()
        style = "body{font:14px sans-serif;margin:2em}td,th{padding:.1em .6em}"
        style += "caption{text-align:left;font-weight:bold;padding:.6em 0}"
        title = html.escape(self.title())
        return (
            f'<!doctype html><html><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{style}</style></head><body>{body}</body></html>\n"
        )

    def plot(self) -> Any:
        """The result as a matplotlib figure, where it has a picture."""
        name = type(self).__name__
        raise UsageError("drawing a picture", f"{name} has no picture", "a result that has one")

    def save(self, path: str | Path) -> None:
        """Write the result in the form that the name ends with: .json, .csv, .html or .png."""
        place = Path(path)
        if place.suffix == ".json":
            data = json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n"
        elif place.suffix == ".csv":
            rows = [row.to_dict() for row in self.table()]
            text = io.StringIO()
            writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)
            data = text.getvalue()
        elif place.suffix == ".html":
            data = self.page()
        elif place.suffix == ".png":
            write_whole(place, draw_png(self.plot(), 150))
            return
        else:
            problem = f"{place.name}, which ends with {place.suffix or 'nothing'}"
            raise UsageError("saving a result", problem, ".json, .csv, .html or .png")
        write_whole(place, data.encode(errors="backslashreplace"))


class Failed(Result):
    """A text of many that could not be done; the others were."""

    error: RegardError = shown(json=False)

    def to_dict(self) -> dict[str, Any]:
        """What was being done and what was wrong."""
        return {"error": str(self.error)}

    def parts(self) -> Iterator[str | Grid]:
        """The error itself."""
        yield str(self.error)
