"""Results show themselves alike in a terminal, a pipe, a notebook and files."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import FrozenInstanceError

import pytest
import torch

from regard.errors import UsageError
from regard.result import Grid, Result, Row, grid_of_values, human, human_bytes, new_figure, shown


class Near(Row):
    word: str
    cosine: float = shown("{:.2f}", title="closeness")
    secret: int = shown(table=False, default=1)


class NearWords(Result):
    """Words nearest to {word}."""

    word: str
    neighbours: list[Near]
    tokens: int = 1536
    loss: float = math.nan
    vector: object = shown(table=False, default=None)
    model: object = shown(table=False, json=False, default=None)


@pytest.fixture
def near():
    return NearWords("king", [Near("queen", 0.8765), Near("<b>", 0.5)], vector=torch.ones(2))


def test_the_dict_is_plain_data(near):
    assert near.to_dict() == {
        "word": "king",
        "neighbours": [
            {"word": "queen", "cosine": 0.8765, "secret": 1},
            {"word": "<b>", "cosine": 0.5, "secret": 1},
        ],
        "tokens": 1536,
        "loss": None,
        "vector": [1.0, 1.0],
    }


def test_a_pipe_gets_plain_lines(near):
    lines = str(near).splitlines()
    assert lines[0] == "Words nearest to king" and repr(near) == str(near)
    assert lines[1:4] == ["  word    king", "  tokens  1,536", "  loss    –"]
    assert lines[4:] == [
        "neighbours",
        "  word   closeness",
        "  queen       0.88",
        "  <b>         0.50",
    ]


def test_a_terminal_and_a_notebook_show_the_cells(near):
    from rich.console import Console

    console = Console(record=True, width=60, file=io.StringIO())
    console.print(near)
    text = console.export_text()
    assert "queen" in text and "0.88" in text and "1,536" in text
    html = near._repr_html_()
    assert "<td" in html and "&lt;b&gt;" in html and "<b>" not in html


def test_programs_and_pictures_in_a_notebook():
    """Lines of a program stay lines, and a figure is its picture."""
    pytest.importorskip("matplotlib")

    class Drawn(Result):
        """A drawing."""

        def parts(self):
            yield from ("a <b>", "def f():\n    return 1")

        def plot(self):
            return new_figure(1, 1)

    assert Drawn()._repr_html_() == "<p>a &lt;b&gt;</p>\n<pre>def f():\n    return 1</pre>"
    assert Drawn().plot()._repr_png_().startswith(b"\x89PNG")
    assert repr(Grid("t", ("a",), [("1",)])) == "t\n  a\n  1"


def test_saving_goes_by_the_end_of_the_name(near, tmp_path):
    near.save(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == near.to_dict()
    near.save(tmp_path / "a.csv")
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [row["word"] for row in rows] == ["queen", "<b>"]
    near.save(tmp_path / "a.html")
    assert "queen" in (tmp_path / "a.html").read_text()
    with pytest.raises(UsageError, match="no picture"):
        near.save(tmp_path / "a.png")
    with pytest.raises(UsageError, match=".json, .csv, .html or .png"):
        near.save(tmp_path / "a.txt")
    assert not (tmp_path / "a.png").exists() and not (tmp_path / "a.txt").exists()


def test_a_table_aligns_words_left_and_numbers_right():
    grid = Grid("", ("a", "b"), [("x", "1"), ("longer", "22")])
    assert str(grid).splitlines() == ["  a        b", "  x        1", "  longer  22"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (math.nan, "–"), (1536, "1,536"), (0.123456, "0.1235"), (True, "yes")]
    + [([1, 2000], "1, 2,000"), ("a", "a")],
)
def test_values_as_people_read_them(value, text):
    assert human(value) == text


class Size(Row):
    """A size."""

    bytes: int = shown(human_bytes)
    note: str | None = None


class Sizes(Result):
    """Sizes."""

    one: Size
    several: dict[str, Size]
    parity: int | None = shown(empty="not measured", default=None)
    cells: int | None = shown(optional=True, default=None)


def test_a_table_of_values_has_words_left_numbers_right_and_no_empty_column():
    rows = [("a", 0.5, None, "why"), ("b", None, None, "no"), ("c", 1, None, "")]
    grid = grid_of_values("shares", ("", "share", "gone", "note"), iter(rows), "{:.1%}")
    lines = ["shares", "     share  note", "  a  50.0%  why", "  b      –  no", "  c      1"]
    assert str(grid).splitlines() == lines
    assert 'text-align:right">50.0%<' in grid._repr_html_()
    assert 'text-align:left">why<' in grid._repr_html_()
    forms = (None, "{:.2f}", None, "{:>4}")
    assert "  a  0.50   why" in str(grid_of_values("", ("", "b", "c", "d"), rows, forms))


def test_a_result_inside_of_another_stands_under_its_title():
    class Both(Result):
        """Both."""

        small: Sizes = shown(title="the small one")
        large: Sizes

    sizes = Sizes(Size(1), {})
    inside = str(sizes)
    assert str(Both(sizes, sizes)) == f"Both\nthe small one\n{inside}\n{inside}"


def test_a_row_is_shown_upright_and_named_rows_are_a_table():
    text = str(Sizes(Size(2048), {"a": Size(1, "x"), "b": Size(1536)}))
    assert text.splitlines() == [
        "Sizes",
        "  parity  not measured",
        "one",
        "  bytes  2.0 KiB",
        "several",
        "       bytes  note",
        "  a      1 B  x",
        "  b  1.5 KiB  –",
    ]
    assert "cells   3" in str(Sizes(Size(1), {}, cells=3))


def test_rows_are_frozen_dataclasses_without_saying_so():
    for row in (Near("queen", 0.8), Size(3, "a")):
        assert row == type(row)(**vars(row)) and hash(row) == hash(type(row)(**vars(row)))
        with pytest.raises(FrozenInstanceError, match="cannot assign"):
            row.secret = 2

    class Named(Row, kw_only=True):
        word: str

    with pytest.raises(TypeError, match="positional"):
        Named("all")
