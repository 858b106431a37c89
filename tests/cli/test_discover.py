"""`regard discover`: files, columns, characters, answers, what is printed and written."""

from __future__ import annotations

import gzip
import json
import lzma
import subprocess
import sys
from random import Random

import pytest

from regard.rules.labelled_lines import thin


@pytest.fixture
def sides(tmp_path):
    """Words over a and b: an even number of a, or an odd one; one line is on the wrong side."""
    rng, sides = Random(0), {True: [], False: []}
    while min(map(len, sides.values())) < 14:
        word = rng.choices("ab", k=rng.randint(2, 9))
        if len(sides[word.count("a") % 2 == 0]) < 14:
            sides[word.count("a") % 2 == 0].append(" ".join(word))
    sides[False].append("a a b b a a")
    for name, lines in (("pos", sides[True]), ("neg", sides[False])):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def run_checker(path, *files):
    command = [sys.executable, "-I", str(path), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_json_and_checkers(here, sides):
    pos, neg = sides / "pos.txt", sides / "neg.txt"
    code, out, _ = here("discover", pos, neg, "--json", "--checker", sides / "rule.py")
    found = json.loads(out)
    assert code == 0 and found["claimed"] and found["p_value"] < 0.01 and found["complete"]
    best = found["hypotheses"][0]
    assert best["rule"] == "count of a mod 2 is 0" and best["accuracy"] == 28 / 29
    exception = {"file": str(neg), "line": 15, "text": "a a b b a a", "positive": False}
    assert best["exceptions"] == [exception]
    posteriors = [one["posterior"] for one in found["hypotheses"]]
    assert posteriors == sorted(posteriors, reverse=True) and sum(posteriors) <= 1
    lines = [(t.split(), p == pos) for p in (pos, neg) for t in p.read_text().splitlines()]
    for one in found["hypotheses"]:
        names = {}
        exec(one["checker"], names)
        wrong = sum(names["accepts"](tokens) != sign for tokens, sign in lines)
        assert wrong == len(one["exceptions"]) == one["lines"] - one["right"]
        assert len(one["checker"].splitlines()) <= 10
    for probe in found["probes"]:
        assert probe["accepted_by"] and probe["refused_by"]
        assert 1 in probe["accepted_by"] + probe["refused_by"]
        for n in probe["accepted_by"] + probe["refused_by"]:
            names = {}
            exec(found["hypotheses"][n - 1]["checker"], names)
            assert names["accepts"](probe["sequence"]) == (n in probe["accepted_by"])
    said = run_checker(sides / "rule.py", pos, neg)
    assert said == [f"{pos}: 14 of 14 lines accepted", f"{neg}: 1 of 15 lines accepted"]


def test_tables_for_people_and_pictures(here, sides):
    paths = sides / "pos.txt", sides / "neg.txt"
    wanted = ("--dot", sides / "rule.dot", "--png", sides / "rule.png")
    code, out, _ = here("discover", *paths, *wanted)
    assert code == 0 and "28/29" in out and f"{paths[1]}:15 (-): a a b b a a" in out
    for part in (
        "rules, best first",
        "probes that would decide",
        "permutation test",
        "def accepts",
    ):
        assert part in out
    assert (sides / "rule.dot").read_text().startswith("digraph")
    assert (sides / "rule.png").read_bytes().startswith(b"\x89PNG")


def test_columns_and_characters(here, sides):
    rows = [
        (text.replace(" ", ""), label)
        for name, label in (("pos", "yes"), ("neg", "0"))
        for text in (sides / f"{name}.txt").read_text().splitlines()
    ]
    table = sides / "table.csv"
    table.write_text("word,ok\n" + "".join(f"{text},{label}\n" for text, label in rows))
    flags = ("--column", "word", "--label-column", "ok", "--chars", "--json")
    code, out, _ = here("discover", table, *flags, "--checker", sides / "rule.py")
    best = json.loads(out)["hypotheses"][0]
    assert code == 0 and best["rule"] == "count of a mod 2 is 0" and best["right"] == 28
    assert best["exceptions"][0]["line"] == 30
    assert "('0', True): 1, ('yes', True): 14" in run_checker(sides / "rule.py", table)[0]
    code, _, err = here("discover", table, "--column", "word", "--label-column", "no", "--chars")
    assert code == 3 and "no column 'no'" in err


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_checkers_of_compressed_files(here, sides, ending, pack):
    files = [sides / f"{name}.txt.{ending}" for name in ("pos", "neg")]
    for file in files:
        file.write_bytes(pack(file.with_suffix("").read_bytes()))
    code, _, _ = here("discover", *files, "--seconds", 3, "--checker", sides / "rule.py")
    said = run_checker(sides / "rule.py", *files)
    assert code == 0 and said[1] == f"{files[1]}: 1 of 15 lines accepted"


def test_blocks_and_answers(here, sides):
    blocks = sides / "blocks.txt"
    texts = [(sides / f"{name}.txt").read_text() for name in ("pos", "neg")]
    blocks.write_text("\n\n".join(texts))
    code, out, _ = here("discover", blocks, "--blocks", "--label", "b b b : yes", "--json")
    found = json.loads(out)
    assert code == 0 and found["lines"] == 30 and found["hypotheses"][0]["right"] == 29
    blocks.write_text("a\n\nb\n\nc\n")
    code, _, err = here("discover", blocks, "--blocks")
    assert code == 3 and "a third block in line 5" in err


def test_the_same_line_on_both_sides(here, sides):
    with (sides / "neg.txt").open("a") as file:
        file.write((sides / "pos.txt").read_text().splitlines()[0] + "\n")
    code, out, _ = here("discover", sides / "pos.txt", sides / "neg.txt", "--json")
    found = json.loads(out)
    assert code == 0 and found["in_both"][0]["positive"].endswith("pos.txt:1")
    assert any("on both sides" in note for note in found["notes"])


def test_one_side_is_empty(here, sides):
    (sides / "empty.txt").write_text("\n  \n")
    for paths in (
        (sides / "pos.txt", sides / "empty.txt"),
        (sides / "empty.txt", sides / "pos.txt"),
    ):
        code, out, _ = here("discover", *paths, "--json", "--seconds", 3)
        found = json.loads(out)
        assert code == 0 and found["hypotheses"] and found["lines"] == 14
        assert any("empty.txt has no lines" in note for note in found["notes"])
        assert any("random lines" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ((), 2, "0 files"),
        (("--animals", "pos.txt"), 2, "1 files"),
        (("pos.txt", "neg.txt", "pos.txt"), 2, "3 files"),
        (("pos.txt", "--label-column", "ok"), 2, "without --column"),
        (("--animals", "--label", "leeuw"), 2, "a colon"),
        (("--animals", "--label", "leeuw : perhaps"), 2, "label 'perhaps'"),
        (("nothing.txt",), 3, "no such file"),
        (("empty.txt",), 3, "no tokens"),
        (("--animals", "--seconds", "0"), 2, "above 0"),
    ],
)
def test_bad_input(here, sides, arguments, code, part):
    (sides / "empty.txt").write_text("\n  \n")
    given = [str(sides / a) if a.endswith(".txt") else a for a in arguments]
    found, out, err = here("discover", *given)
    assert (found, out) == (code, "") and part in err


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (("--png", "no/rule.png"), "no folder"),
        (("--checker", "no/rule.py"), "no folder"),
        (("--dot", "."), "is a folder"),
        (("--checker", "pos.txt"), "is read"),
        (("--dot", "rule", "--png", "rule"), "two outputs"),
    ],
)
def test_outputs_are_looked_at_before_the_work(here, sides, monkeypatch, flags, part):
    monkeypatch.setattr("regard.cli.discover.discover", None)  # any search would fail
    given = [a if a.startswith("-") else str(sides / a) for a in flags]
    before = (sides / "pos.txt").read_text()
    code, out, err = here("discover", sides / "pos.txt", sides / "neg.txt", *given)
    assert (code, out) == (2, "") and part in err
    assert (sides / "pos.txt").read_text() == before and not (sides / "rule").exists()


def test_lines_that_nothing_tells_apart(here, tmp_path):
    (tmp_path / "pos.txt").write_text("a\na\n")
    files = tmp_path / "pos.txt", tmp_path / "pos.txt"
    code, out, err = here("discover", *files, "--checker", tmp_path / "rule.py")
    assert code == 0 and "none that was tried tells one line from another" in out
    assert "nothing is written" in err and not (tmp_path / "rule.py").exists()
    found = json.loads(here("discover", *files, "--json")[1])
    assert found["hypotheses"] == [] and found["p_value"] == 1


def test_chance_is_not_claimed(here, tmp_path):
    rng = Random(3)
    for name in ("pos", "neg"):
        lines = (" ".join(rng.choices("abc", k=rng.randint(3, 8))) for _ in range(12))
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    code, out, _ = here("discover", tmp_path / "pos.txt", tmp_path / "neg.txt", "--json")
    found = json.loads(out)
    assert code == 0 and not found["claimed"] and found["p_value"] >= 0.01
    assert not any(one["claimed"] for one in found["hypotheses"])
    assert any(note.startswith("no rule is claimed") for note in found["notes"])


def test_very_many_lines_are_thinned():
    assert thin(range(100), 5) == [0, 25, 50, 74, 99] and thin([1, 2], 5) == [1, 2]


def test_a_nul_is_a_token_like_others_and_a_carriage_return_ends_no_line(here, tmp_path):
    pos, neg, rule = tmp_path / "pos.txt", tmp_path / "neg.txt", tmp_path / "rule.py"
    pos.write_bytes(b"a\0b c\nx\ra\0b\na\0b\n")
    neg.write_bytes(b"c\nc x\nx\rx\r\n")
    code, out, _ = here("discover", pos, neg, "--json", "--checker", rule)
    best = json.loads(out)["hypotheses"][0]
    assert code == 0 and best["accuracy"] == 1 and "\0" not in best["checker"]
    said = run_checker(rule, pos, neg)
    assert said == [f"{pos}: 3 of 3 lines accepted", f"{neg}: 0 of 3 lines accepted"]


def test_an_answer_may_be_the_only_positive(here, tmp_path):
    (tmp_path / "neg.txt").write_text("b b\nc b\nb c c\n")
    (tmp_path / "none.txt").write_text("")
    files = tmp_path / "none.txt", tmp_path / "neg.txt"
    _, out, _ = here("discover", *files, "--label", "a a : yes", "--json")
    found = json.loads(out)
    names = {}
    exec(found["hypotheses"][0]["checker"], names)
    assert found["lines"] == 4 and found["hypotheses"][0]["accuracy"] == 1
    assert names["accepts"](["a", "a"]) and not names["accepts"](["b", "b"])


def test_random_lines_are_no_side_on_which_a_line_stands(here, tmp_path):
    (tmp_path / "pos.txt").write_text("a b\na a\n")
    _, out, _ = here("discover", tmp_path / "pos.txt", "--json")
    assert json.loads(out)["in_both"] == [] and "on both sides" not in out


@pytest.mark.parametrize("given", [["--animals"], ["--blocks", "pos.txt"]])
def test_columns_go_with_tables_only(here, given):
    code, _, err = here("discover", *given, "--column", "x")
    assert code == 2 and f"--column with {given[0]}" in err


def test_rules_of_very_long_lines_are_told_apart_on_their_beginnings():
    from regard.rules.discovery import SHORT, short_lines
    from regard.rules.labelled_lines import Line

    long = Line(("a",) * 50_000, True, "x", 1, "")
    assert [len(word) for word in short_lines([long])] == [SHORT]


def test_rests_are_below_their_divisor():
    from regard.rules.atoms import KINDS

    assert KINDS["every"].words("a", 2, 1) == "some a at a position that is 0 mod 2"
