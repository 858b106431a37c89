"""`regard.formal` as a user calls it: words made and tested, automata drawn, tasks learnt."""

from __future__ import annotations

import pytest

import regard
from regard import formal
from regard.cli.main import main
from regard.errors import DataError, RegardError, UsageError
from regard.formal.hierarchy import find_language

GRAMMAR = "S -> NP sees NP\nNP -> the N | the N PP\nPP -> with NP\nN -> man | dog\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.txt").write_text(GRAMMAR)
    (tmp_path / "lines.txt").write_text("aabb\nabb\n\nε\na a b b\naxb\n")
    return tmp_path


def test_make():
    assert str(formal.make("anbn", length=6, count=2)) == "aaabbb\naaabbb"
    with regard.settings(seed=3):
        drawn, again = (formal.make("dyck-2", length="0-12", count=30, negatives=20) for _ in "ab")
    with regard.settings(seed=4):
        other = formal.make("dyck-2", length="0-12", count=30, negatives=20)
    known = find_language("dyck-2")
    assert len(drawn.members) == 30 and len(drawn.others) == 20 and "ε" in drawn.members
    assert all(known.accepts(word.replace("ε", "")) for word in drawn.members)
    assert not any(known.accepts(word) for word in drawn.others)
    assert again == drawn != other and drawn.seed == 3
    assert str(drawn).split("\n\n")[1].split("\n") == drawn.others


def test_make_words_then_test_them(folder):
    made = formal.make("g.txt", length="5-11", count=40, negatives=30)
    assert formal.test("g.txt", made.members).members == 40
    assert formal.test("g.txt", made.others).members == 0 and len(made.others) == 30
    assert str(made) == "\n".join([*made.members, "", *made.others])


def test_test_says_which_lines_are_members(folder):
    found = formal.test("anbn", "lines.txt")
    assert [line.member for line in found.lines] == [True, False, True, True, False]
    assert found.blank == 1
    rows = str(found).splitlines()
    assert rows[0] == "anbn: 3 of 5 lines are members" and rows[3].split()[-1] == "2"
    short = str(formal.test("anbn", "lines.txt", top=2))
    assert "3 more lines" in short and "axb" not in short


def test_expressions_speak_of_the_symbols_of_the_lines():
    lines = ["leeuw aap olifant leeuw", "aap leeuw leeuw", "leeuw olifant"]
    found = formal.test(".* leeuw .* olifant .* leeuw .*", lines)
    assert [line.member for line in found.lines] == [True, False, False]
    found = formal.test("~ kat*", ["kat kat", "hond"])
    assert [line.member for line in found.lines] == [False, True]


def test_draw(folder, capsys):
    found = formal.draw("(a|b)*abb")
    assert str(found).startswith("digraph {") and str(found).endswith("4 states")
    assert main(["formal", "draw", "ab", "--save", "x.dot"]) == 0
    assert (folder / "x.dot").read_text().count("->") == 3
    with pytest.raises(UsageError, match="ends with .jpg"):
        found.save("x.jpg")


def test_list():
    found = formal.list()
    assert len(found.tasks) == 15 and {"swiss", "copy"} <= {one.name for one in found.languages}
    assert "anbncn" in str(found) and "binary-multiplication" in str(found)


@pytest.mark.parametrize(
    ("verb", "arguments", "kind", "message"),
    [
        ("make", {"language": "anbm"}, UsageError, "did you mean anbn?"),
        ("make", {"language": "nosuch.txt"}, DataError, "no such file"),
        ("make", {"language": "bad.txt"}, DataError, "no rule for N at line 2, column 11"),
        ("make", {"language": "a(b"}, DataError, "( that is never closed at column 2"),
        ("make", {"language": "a~"}, DataError, "~ at the end at column 2"),
        ("make", {"language": "anbn", "length": 7}, DataError, "no member of anbn of length 7"),
        ("make", {"language": "anbn", "length": "9-7"}, UsageError, "that goes up"),
        ("make", {"language": "anbn", "length": "x"}, UsageError, "a length"),
        ("make", {"language": "ring.txt", "length": 3}, DataError, "infinitely many derivations"),
        ("make", {"language": "."}, UsageError, "without symbols"),
        ("make", {"language": "latin.txt"}, DataError, "byte 5 (0xe9) is not UTF-8"),
        ("test", {"language": "anbn", "lines": "empty.txt"}, DataError, "no lines with words"),
        ("test", {"language": "anbn", "lines": "nosuch.txt"}, DataError, "no such file"),
        ("test", {"language": "dyck-9", "lines": "lines.txt"}, UsageError, "9 kinds"),
        ("draw", {"language": "anbn"}, UsageError, "anbn is context-free"),
        ("learn", {"tasks": ["parit"]}, UsageError, "did you mean parity?"),
        ("learn", {"tasks": ["parity"], "models": ["rotry"]}, UsageError, "did you mean rotary?"),
        ("learn", {"tasks": ["parity"], "test_length": 30}, UsageError, "longer sequences"),
    ],
)
def test_bad_input(folder, verb, arguments, kind, message):
    (folder / "bad.txt").write_text("# rules\nNP -> the N\n")
    (folder / "ring.txt").write_text("S -> S | a\n")
    (folder / "latin.txt").write_bytes(b"S -> \xe9\n")
    (folder / "empty.txt").write_text("\n \n")
    with pytest.raises(RegardError) as caught:
        getattr(formal, verb)(**arguments)
    assert type(caught.value) is kind and message in str(caught.value)


def test_learn_has_a_run_for_each_seed():
    found = formal.learn(
        "parity", models=["gru"], steps=3, train_length=5, test_length=12, seeds=2, count=8
    )
    table = str(found)
    assert "parity  gru" in table and "2 seeds, best (mean)" in table and "6–10" in table
    lines = found.to_dict()["runs"]
    assert [line["seed"] for line in lines] == [0, 1]
    assert lines[0]["published"] is None and set(lines[0]["lengths"]) == {"5", "10"}


def test_learn_has_the_published_figure():
    arguments = {"steps": 2, "train_length": 4, "test_length": 9, "count": 8}
    runs = [formal.learn(["even-pairs"], models=["rnn"], **arguments).runs[0] for _ in "ab"]
    assert runs[0].published == 100 and runs[0].steps == 2 and 0 <= runs[0].far <= 1
    assert (runs[0].loss, runs[0].lengths) == (runs[1].loss, runs[1].lengths)
