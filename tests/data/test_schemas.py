"""Winograd schemas from every form they come in, and which of them are pairs."""

from __future__ import annotations

import json

import pytest

from regard.data.schemas import Schema, fitted, pair_up, read_schemas
from regard.errors import DataError

XML = """<?xml version="1.0" encoding="ISO-8859-1"?>
<collection>{}</collection>"""
ONE = """<schema><text><txt1>
{} </txt1><pron> {} </pron><txt2> {}
</txt2></text><quote><quote1></quote1><pron>it</pron><quote2>is</quote2></quote>
<answers><answer>{} </answer><answer>{}
</answer></answers><correctAnswer> {}. </correctAnswer><source>x</source></schema>"""
TROPHY = ("The trophy doesn't fit into the suitcase because", "it")


def xml(*schemas):
    return XML.format("".join(ONE.format(*schema) for schema in schemas)).encode("latin-1")


def x_line(text, words, pronoun, place, both, right, language="en"):
    packed = [
        json.dumps(words),
        json.dumps([pronoun, [place, place + 1], [pronoun]]),
        json.dumps([[name, [0, 1], [name], n == right] for n, name in enumerate(both)]),
    ]
    return "\t".join([language, "original", "?", text, *packed])


def test_the_challenge(tmp_path):
    both = "The trophy", "the café's suitcase"
    (tmp_path / "a.xml").write_bytes(
        xml((*TROPHY, "is too big.", *both, "A"), (*TROPHY, "is too small.", *both, "B"))
    )
    one, other = read_schemas(tmp_path / "a.xml")
    before = "The trophy doesn't fit into the suitcase because "
    assert one.text(0) == f"{before}the trophy is too big." and one.answer == 0
    assert other.text(1) == f"{before}the café's suitcase is too small." and other.answer == 1
    start, end = other.span(1)
    assert other.text(1)[start:end] == "the café's suitcase" and pair_up([one, other]) == [(0, 1)]


@pytest.mark.parametrize(
    ("name", "before", "pronoun", "after", "wanted"),
    [
        ("The man", "because ", "he", " left", "the man"),
        ("the man", "It rained. ", "He", " left", "The man"),
        ("Ann", "near ", "her", " house", "Ann's"),
        ("Ann", "told ", "her", ".", "Ann"),
        ("Susan's", "so ", "she", " left", "Susan"),
        ("Tina's", "and ", "it", " looked", "Tina's"),
        ("The men", "on ", "their", " heads", "the men's"),
        ("La coupe", "car ", "elle", " est", "la coupe"),
        ("Le Havre Fan", "", "il", " est", "Le Havre Fan"),
    ],
)
def test_a_candidate_takes_the_pronoun_s_shape(name, before, pronoun, after, wanted):
    assert fitted(name, before, pronoun, after) == wanted


def test_xwinograd(tmp_path):
    text = 'Tom said "Check" to Ralph as he took his bishop.'
    words = ["Tom", "said", "``", "Check", "''", "to", "Ralph", "as", "he", "took", "his", "bishop"]
    lines = [
        x_line(text, words, "his", 10, ("Tom", "Ralph"), 1),
        x_line(
            "Il a vu Luc, il dort.", ["Il", "a", "vu", "Luc", ",", "il"], "il", 5, "ab", 0, "fr"
        ),
    ]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    one, other = read_schemas(tmp_path / "a.tsv")
    assert one.text(1) == 'Tom said "Check" to Ralph as he took Ralph\'s bishop.'
    assert (one.answer, one.group, other.group) == (1, "en original", "fr original")
    assert other.text(0) == "Il a vu Luc, a dort."


def test_tables_of_our_own_and_winogrande(tmp_path):
    rows = [
        {"text": "the _ ran", "a": "cat", "b": "dog", "answer": "a", "pair": "p"},
        {"text": "a _ sat", "a": "cat", "b": "dog", "answer": "B"},
        {"text": "the _ hid", "a": "dog", "b": "cat", "answer": "a", "pair": "p"},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = read_schemas(tmp_path / "a.jsonl")
    assert [schema.answer for schema in found] == [0, 1, 0] and found[0].text(1) == "the dog ran"
    assert pair_up(found) == [(0, 2)]
    cells = [list(rows[0])[:4], *([row[k] for k in list(row)[:4]] for row in rows)]
    (tmp_path / "a.tsv").write_text("\n".join("\t".join(line) for line in cells) + "\n")
    plain = read_schemas(tmp_path / "a.tsv")
    assert [schema.place for schema in plain] == ["line 2", "line 3", "line 4"]
    assert pair_up(plain) == [(0, 1)]  # neighbours, other answers; the third is alone
    both = [
        {"qID": f"3QX-{n}", "sentence": "_ x", "option1": "A", "option2": "B", "answer": str(n)}
        for n in (1, 2)
    ]
    (tmp_path / "w.jsonl").write_text("\n".join(map(json.dumps, both)))
    found = read_schemas(tmp_path / "w.jsonl")
    assert [schema.answer for schema in found] == [0, 1] and pair_up(found) == [(0, 1)]


def schema(answer, pair=None, candidates=("a", "b"), group=""):
    return Schema("here", "x ", " y", candidates, answer, pair, group)


def test_pairs():
    assert pair_up([schema(0), schema(0)]) == []
    assert pair_up([schema(0), schema(0, candidates=("B", "a"))]) == [(0, 1)]
    assert pair_up([schema(0), schema(1), schema(0), schema(1)]) == [(0, 1), (2, 3)]
    assert pair_up([schema(0), schema(1), schema(0)]) == [(0, 1)]
    assert pair_up([schema(0), schema(1, candidates=("a", "c"))]) == []
    assert pair_up([schema(0, group="en"), schema(1, group="fr")]) == []
    with pytest.raises(DataError, match="pair 'p'"):
        pair_up([schema(0, "p")] * 3)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": "no gap", "a": "u", "b": "v", "answer": "a"}, "line 2: 0 times _"),
        ({"text": "_ and _", "a": "u", "b": "v", "answer": "a"}, "line 2: 2 times _"),
        ({"text": "_", "a": "u", "b": "v", "answer": "c"}, "line 2: answer 'c'"),
        ({"text": "_", "a": "u", "answer": "a"}, "line 2: no b"),
        ({"text": "_", "a": "u", "b": "U", "answer": "a"}, "line 2: candidates"),
        ({"text": "_", "a": 3, "b": "U", "answer": "a"}, "line 2: a 3"),
    ],
)
def test_malformed_lines_are_named(tmp_path, row, said):
    good = {"text": "_ x", "a": "u", "b": "v", "answer": "a"}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(row)}\n")
    with pytest.raises(DataError, match=said):
        read_schemas(tmp_path / "a.jsonl")


def test_other_malformed_files(tmp_path):
    (tmp_path / "a.xml").write_bytes(xml((*TROPHY, "is big.", "a", "b", "C")))
    with pytest.raises(DataError, match="schema 1: pronoun 'it', answer 'c'"):
        read_schemas(tmp_path / "a.xml")
    (tmp_path / "b.xml").write_text("<collection><schema>")
    with pytest.raises(DataError, match="line 1"):
        read_schemas(tmp_path / "b.xml")
    (tmp_path / "c.xml").write_text("<collection></collection>")
    with pytest.raises(DataError, match="no schemas"):
        read_schemas(tmp_path / "c.xml")
    good = x_line("he ran", ["he", "ran"], "he", 0, ("A", "B"), 1)
    for bad in (
        "en\tone",
        good.replace("he ran", "I sat"),
        good.replace("true", "false"),
        good.replace("[0, 1]", "7"),
    ):
        (tmp_path / "d.tsv").write_text(f"{good}\n{bad}\n")
        with pytest.raises(DataError, match="line 2"):
            read_schemas(tmp_path / "d.tsv")
