"""Pairs, tables and CoNLL files: what is read, and where a broken line stands."""

from __future__ import annotations

import csv
import gzip
import json
import lzma

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.pairs import read_pairs
from regard.data.tabular import kind_of, read_table
from regard.data.treebank import read_conll
from regard.errors import DataError, UsageError


def test_pairs_from_one_file_and_from_two(tmp_path):
    text = "un chat\ta cat\nl’été\tsummer\n"
    (tmp_path / "a.tsv").write_text(text)
    (tmp_path / "a.tsv.xz").write_bytes(lzma.compress(text.encode()))
    (tmp_path / "a.fr").write_text("un chat\nl’été\n")
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(b"a cat\nsummer"))
    expected = [("un chat", "a cat"), ("l’été", "summer")]
    assert list(read_pairs(tmp_path / "a.tsv")) == expected
    assert list(read_pairs(tmp_path / "a.tsv.xz")) == expected
    assert list(read_pairs(tmp_path / "a.fr", tmp_path / "a.en.gz")) == expected


@pytest.mark.parametrize(("left", "right", "odd"), [(3, 5, "right 3"), (5, 3, "left 3")])
def test_unequal_counts_name_both_and_the_first_odd_line(tmp_path, left, right, odd):
    (tmp_path / "l").write_text("".join(f"left {n}\n" for n in range(left)))
    (tmp_path / "r").write_text("".join(f"right {n}\n" for n in range(right)))
    with pytest.raises(DataError) as caught:
        list(read_pairs(tmp_path / "l", tmp_path / "r"))
    found = caught.value.found
    assert f"{left} lines in" in found and f"{right} in" in found
    assert "line 4 of" in found and odd in found


@pytest.mark.parametrize(("line", "tabs"), [("no tab", 0), ("a\tb\tc", 2), ("", 0)])
def test_a_line_without_exactly_one_tab(tmp_path, line, tabs):
    (tmp_path / "a.tsv").write_text(f"a\tb\n{line}\nc\td\n")
    with pytest.raises(DataError, match=rf"a.tsv: {tabs} TABs in line 2"):
        list(read_pairs(tmp_path / "a.tsv"))


def test_tables_with_line_numbers(tmp_path):
    (tmp_path / "a.csv").write_text('text,label\n"two\nlines, quoted",1\n\nplain,0\n')
    rows = list(read_table(tmp_path / "a.csv", need=["label"]))
    assert [(row.line, row.cells) for row in rows] == [
        (2, {"text": "two\nlines, quoted", "label": "1"}),
        (5, {"text": "plain", "label": "0"}),
    ]
    (tmp_path / "a.tsv").write_text('she said "hi\t0\n')
    rows = list(read_table(tmp_path / "a.tsv", names=("text", "label")))
    assert rows[0].cells == {"text": 'she said "hi', "label": "0"}
    (tmp_path / "a.jsonl.gz").write_bytes(
        gzip.compress(b'{"text": "x", "n": 3}\n\n{"text": "y"}\n')
    )
    rows = list(read_table(tmp_path / "a.jsonl.gz", need=["text"]))
    assert [(row.line, row.cells) for row in rows] == [
        (1, {"text": "x", "n": 3}), (3, {"text": "y"}),
    ]  # fmt: skip
    assert kind_of("x/y.CSV.xz") == "csv"


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.text("a,\"'\n é\t", max_size=4), min_size=2, max_size=2), max_size=5))
def test_csv_round_trip(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([["x", "y"], *rows])
    assert [list(row.cells.values()) for row in read_table(path)] == rows


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "txt,label\na,b\n", "no column 'text'(.|\n)*txt, label(.|\n)*did you mean txt"),
        ("a.csv", "", "the file is empty"),
        ("a.csv", "text,label\na,b,c\n", "3 cells in line 2(.|\n)*2: text, label"),
        ("a.csv", 'text,label\n"open,1\n', "line 2"),
        ("a.jsonl", '{"text": 1}\n{"text"\n', "line 2"),
        ("a.jsonl", "[1]\n", "line 1: list"),
        ("a.jsonl", '{"text": 1}\n{"b": 2}\n', "no column 'text' in line 2"),
    ],
)
def test_a_broken_table_says_where(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said):
        list(read_table(tmp_path / name, need=["text"]))


def test_a_table_of_unknown_kind(tmp_path):
    with pytest.raises(UsageError, match=".csv, .tsv or .jsonl"):
        list(read_table(tmp_path / "a.parquet"))


def test_conll(tmp_path):
    text = "# sent 1\n1\tThe\tDET\n2\tcat\tNOUN\n\n\n# sent 2\n1\t#\tSYM\n"
    (tmp_path / "a.conllu").write_text(text)
    first, second = read_conll(tmp_path / "a.conllu", need=["3"])
    assert first.line == 2 and first.columns["2"] == ["The", "cat"]
    assert second.line == 7 and second.columns["3"] == ["SYM"]
    (tmp_path / "b.conll").write_text("The O\nEU B-ORG\n")
    (only,) = read_conll(tmp_path / "b.conll")
    assert only.columns == {"1": ["The", "EU"], "2": ["O", "B-ORG"]}
    (tmp_path / "c.conll").write_text("The O\nEU\n")
    with pytest.raises(DataError, match="1 columns in line 2"):
        list(read_conll(tmp_path / "c.conll"))
    with pytest.raises(DataError, match="no column 'tag'"):
        list(read_conll(tmp_path / "b.conll", need=["tag"]))


def test_json_stays_json(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "é\u2028x"}, ensure_ascii=False) + "\n")
    assert next(read_table(tmp_path / "a.jsonl")).cells["text"] == "é\u2028x"
