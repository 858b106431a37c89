"""`regard lang` as a user types it."""

from __future__ import annotations

import io
import json
import sys

import pytest

from regard.cli.lang_flags import ACTIONS
from regard.cli.main import main
from regard.formal.hierarchy import find_language

GRAMMAR = "S -> NP sees NP\nNP -> the N | the N PP\nPP -> with NP\nN -> man | dog\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.txt").write_text(GRAMMAR)
    (tmp_path / "lines.txt").write_text("aabb\nabb\n\nε\na a b b\naxb\n")
    return tmp_path


def call(capsys, *words):
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_has_three_examples(action, capsys):
    with pytest.raises(SystemExit):
        main(["lang", action, "--help"])
    text = capsys.readouterr().out.partition("examples:")[2]
    assert text.count(f"\n  regard lang {action}") == 3


def test_make(folder, capsys):
    code, said, _ = call(capsys, "lang", "make", "anbn", "-n", 6, "--count", 2)
    assert (code, said) == (0, "aaabbb\naaabbb\n")
    words = ("lang", "make", "dyck-2", "-n", "0-12", "--count", 30, "--negatives", 20)
    code, said, _ = call(capsys, *words, "--seed", 3)
    members, others = (part.split("\n") for part in said.strip().split("\n\n"))
    known = find_language("dyck-2")
    assert len(members) == 30 and len(others) == 20 and "ε" in members
    assert all(known.accepts(word.replace("ε", "")) for word in members)
    assert not any(known.accepts(word) for word in others)
    assert call(capsys, *words, "--seed", 3)[1] == said != call(capsys, *words, "--seed", 4)[1]
    code, again, _ = call(capsys, *words, "--seed", 3, "--json")
    made = json.loads(again)
    assert made["members"] == members and made["others"] == others and made["seed"] == 3


def test_make_files_then_test_them(folder, capsys):
    words = ("--count", 40, "--negatives", 30, "--out", "x.txt")
    code, said, _ = call(capsys, "lang", "make", "g.txt", "-n", "5-11", *words)
    assert (code, said) == (0, "x.txt: 40 words\nx-not.txt: 30 words\n")
    for name, members in (("x.txt", 40), ("x-not.txt", 0)):
        found = json.loads(call(capsys, "lang", "test", "g.txt", name, "--json")[1])
        assert found["members"] == members and len(found["lines"]) == (40 if members else 30)
    call(capsys, "lang", "make", "anbn", "-n", 4, "--out", "x.txt")  # written anew
    assert (folder / "x.txt").read_text() == "aabb\n" * 10


def test_test_says_why(folder, capsys):
    code, said, notes = call(capsys, "lang", "test", "anbn", "lines.txt")
    rows = said.splitlines()
    assert code == 0 and rows[0] == "anbn: 3 of 5 lines are members"
    assert rows[3].split() == "no abb symbol 3, b, cannot stand there 2".split()
    assert rows[6].split() == "no axb symbol 2, x, is not in the alphabet 6".split()
    assert "1 blank lines" in notes
    code, said, notes = call(capsys, "lang", "test", "anbn", "lines.txt", "--top", 2)
    assert len(said.splitlines()) == 4 and "3 more lines" in notes
    found = json.loads(call(capsys, "lang", "test", "anbn", "lines.txt", "--json")[1])
    assert [line["member"] for line in found["lines"]] == [True, False, True, True, False]
    assert found["lines"][0]["why"] is None and found["blank"] == 1


def test_expressions_speak_of_the_symbols_of_the_lines(folder, capsys, monkeypatch):
    lines = b"leeuw aap olifant leeuw\naap leeuw leeuw\nleeuw olifant\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    pattern = ".* leeuw .* olifant .* leeuw .*"
    found = json.loads(call(capsys, "lang", "test", pattern, "-", "--json")[1])
    assert [line["member"] for line in found["lines"]] == [True, False, False]
    (folder / "one.txt").write_text("kat kat\nhond\n")
    found = json.loads(call(capsys, "lang", "test", "~kat*", "one.txt", "--words", "--json")[1])
    assert [line["member"] for line in found["lines"]] == [False, True]


def test_draw(folder, capsys):
    code, said, notes = call(capsys, "lang", "draw", "(a|b)*abb")
    assert code == 0 and said.startswith("digraph {") and notes == "4 states; (b*a)+bb\n"
    assert call(capsys, "lang", "draw", "ab", "--out", "x.dot")[0] == 0
    assert (folder / "x.dot").read_text().count("->") == 3
    found = json.loads(call(capsys, "lang", "draw", "parity", "--json", "--out", "x.png")[1])
    assert found["states"] == 2 and (folder / "x.png").read_bytes().startswith(b"\x89PNG")


def test_list(capsys):
    code, said, _ = call(capsys, "lang", "list")
    assert code == 0 and "anbncn" in said and "binary-multiplication" in said
    found = json.loads(call(capsys, "lang", "list", "--json")[1])
    assert len(found["tasks"]) == 15 and {"swiss", "copy"} <= {
        x["name"] for x in found["languages"]
    }


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("make", "anbm"), 2, "did you mean anbn?"),
        (("make", "nosuch.txt"), 3, "no such file"),
        (("make", "bad.txt"), 3, "reading bad.txt: no rule for N at line 2, column 11"),
        (("make", "a(b"), 3, "( that is never closed at column 2"),
        (("make", "anbn", "-n", "7"), 3, "no member of anbn of length 7"),
        (("make", "anbn", "-n", "9-7"), 2, "not a range that goes up"),
        (("make", "g.txt", "--out", "g.txt"), 2, "another file"),
        (("make", "ring.txt", "-n", "3"), 3, "infinitely many derivations"),
        (("make", "."), 2, "without symbols"),
        (("make", "latin.txt"), 3, "byte 5 (0xe9) is not UTF-8"),
        (("test", "anbn", "empty.txt"), 3, "no lines with words"),
        (("test", "anbn", "nosuch.txt"), 3, "no such file"),
        (("test", "dyck-9", "lines.txt"), 2, "9 kinds"),
        (("draw", "anbn"), 2, "anbn is context-free"),
        (("draw", "parity", "--out", "x.jpg"), 2, ".png or .dot"),
    ],
)
def test_bad_input(folder, capsys, words, code, message):
    (folder / "bad.txt").write_text("# rules\nNP -> the N\n")
    (folder / "ring.txt").write_text("S -> S | a\n")
    (folder / "latin.txt").write_bytes(b"S -> \xe9\n")
    (folder / "empty.txt").write_text("\n \n")
    found, _, said = call(capsys, "lang", *words)
    assert found == code and message in said, said
    assert "Traceback" not in said
