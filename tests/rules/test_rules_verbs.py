"""`regard.discover` as a user calls it: files, columns, characters, answers, what is written."""

from __future__ import annotations

import gzip
import json
import lzma
import subprocess
import sys
from random import Random

import pytest

import regard
from regard.cli.main import main
from regard.errors import DataError, RegardError, UsageError


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


def test_hypotheses_checkers_and_probes(sides):
    pos, neg = sides / "pos.txt", sides / "neg.txt"
    found = regard.discover(pos, neg, checker=sides / "rule.py")
    assert found.claimed and found.p_value < 0.01 and found.complete
    best = found.hypotheses[0]
    assert best.rule == "count of a mod 2 is 0" and best.accuracy == 28 / 29
    exception = {"file": str(neg), "line": 15, "text": "a a b b a a", "positive": False}
    assert [line.to_dict() for line in best.exceptions] == [exception]
    posteriors = [one.posterior for one in found.hypotheses]
    assert posteriors == sorted(posteriors, reverse=True) and sum(posteriors) <= 1
    lines = [(t.split(), p == pos) for p in (pos, neg) for t in p.read_text().splitlines()]
    for one in found.hypotheses:
        names = {}
        exec(one.checker, names)
        wrong = sum(names["accepts"](tokens) != sign for tokens, sign in lines)
        assert wrong == len(one.exceptions) == one.lines - one.right
        assert len(one.checker.splitlines()) <= 10
        assert sum(one.accepts(tokens) != sign for tokens, sign in lines) == wrong
    for probe in found.probes:
        assert probe.accepted_by and probe.refused_by
        assert 1 in probe.accepted_by + probe.refused_by
        for n in probe.accepted_by + probe.refused_by:
            accepted = found.hypotheses[n - 1].accepts(probe.sequence)
            assert accepted == (n in probe.accepted_by)
    said = run_checker(sides / "rule.py", pos, neg)
    assert said == [f"{pos}: 14 of 14 lines accepted", f"{neg}: 1 of 15 lines accepted"]


def test_the_lines_themselves_may_be_given():
    found = regard.discover([["a b", "c"], ["c", "a b"]], ["c c", "c"], label=["x c : no"])
    best = found.hypotheses[0]
    assert best.right == found.lines == 5 and best.accepts(["a b"]) and not best.accepts(["c"])


def test_tables_for_people_and_automata(sides, capsys):
    paths = str(sides / "pos.txt"), str(sides / "neg.txt")
    assert main(["discover", *paths, "--save", str(sides / "rule.dot")]) == 0
    out = capsys.readouterr().out
    assert "28/29" in out and f"{paths[1]}:15 (-): a a b b a a" in out
    for part in (
        "rules, best first",
        "probes that would decide",
        "permutation test",
        "def accepts",
    ):
        assert part in out
    assert (sides / "rule.dot").read_text().startswith("digraph")


def test_columns_and_characters(sides):
    rows = [
        (text.replace(" ", ""), label)
        for name, label in (("pos", "yes"), ("neg", "0"))
        for text in (sides / f"{name}.txt").read_text().splitlines()
    ]
    table = sides / "table.csv"
    table.write_text("word,ok\n" + "".join(f"{text},{label}\n" for text, label in rows))
    options = {"column": "word", "chars": True}
    checker = sides / "rule.py"
    best = regard.discover(table, label_column="ok", checker=checker, **options).hypotheses[0]
    assert best.rule == "count of a mod 2 is 0" and best.right == 28
    assert best.exceptions[0].line == 30
    lines = sides / "lines.txt"
    lines.write_text("".join(f"{text}\n" for text, _ in rows))
    assert run_checker(checker, lines) == [f"{lines}: 15 of 29 lines accepted"]
    with pytest.raises(DataError, match="no column 'no'"):
        regard.discover(table, label_column="no", **options)


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_checkers_of_compressed_files(sides, ending, pack):
    files = [sides / f"{name}.txt.{ending}" for name in ("pos", "neg")]
    for file in files:
        file.write_bytes(pack(file.with_suffix("").read_bytes()))
    regard.discover(*files, seconds=3, checker=sides / "rule.py")
    said = run_checker(sides / "rule.py", *files)
    assert said[1] == f"{files[1]}: 1 of 15 lines accepted"


def test_blocks_and_answers(sides):
    blocks = sides / "blocks.txt"
    texts = [(sides / f"{name}.txt").read_text() for name in ("pos", "neg")]
    blocks.write_text("\n\n".join(texts))
    found = regard.discover(blocks, blocks=True, label=["b b b : yes"])
    assert found.lines == 30 and found.hypotheses[0].right == 29
    blocks.write_text("a\n\nb\n\nc\n")
    with pytest.raises(DataError, match="a third block in line 5"):
        regard.discover(blocks, blocks=True)


def test_the_same_line_on_both_sides(sides):
    with (sides / "neg.txt").open("a") as file:
        file.write((sides / "pos.txt").read_text().splitlines()[0] + "\n")
    found = regard.discover(sides / "pos.txt", sides / "neg.txt")
    assert found.in_both[0].positive.endswith("pos.txt:1")
    assert any("on both sides" in note for note in found.notes)


@pytest.mark.parametrize("empty", [0, 1])
def test_one_side_is_empty(sides, empty):
    (sides / "empty.txt").write_text("\n  \n")
    paths = [sides / "pos.txt"]
    paths.insert(empty, sides / "empty.txt")
    with pytest.raises(DataError, match=r"reading the (posi|nega)tives: no lines in .*empty\.txt"):
        regard.discover(*paths, checker=sides / "rule.py")
    assert not (sides / "rule.py").exists()
    with pytest.raises(UsageError, match="negatives alone"):
        regard.discover(negatives=sides / "neg.txt")
    paths[empty] = []
    with pytest.raises(DataError, match="no lines in \\[\\]"):
        regard.discover(*paths)


@pytest.mark.parametrize(
    ("files", "options", "kind", "part"),
    [
        ((), {}, UsageError, "0 files"),
        (("pos.txt",), {"animals": True}, UsageError, "1 files"),
        (("pos.txt", "neg.txt"), {"blocks": True}, UsageError, "2 files"),
        (("pos.txt",), {"label_column": "ok"}, UsageError, "without --column"),
        ((), {"animals": True, "column": "x"}, UsageError, "--column with --animals"),
        (("pos.txt",), {"blocks": True, "column": "x"}, UsageError, "--column with --blocks"),
        ((), {"animals": True, "label": ["leeuw"]}, UsageError, "a colon"),
        ((), {"animals": True, "label": ["leeuw : perhaps"]}, UsageError, "label 'perhaps'"),
        (("nothing.txt",), {}, DataError, "no such file"),
        (("empty.txt",), {}, DataError, "no lines"),
        ((), {"animals": True, "seconds": 0}, UsageError, "above 0"),
    ],
)
def test_bad_input(sides, files, options, kind, part):
    (sides / "empty.txt").write_text("\n  \n")
    with pytest.raises(RegardError) as caught:
        regard.discover(*(sides / file for file in files), **options)
    assert type(caught.value) is kind and part in str(caught.value)


@pytest.mark.parametrize(
    ("checker", "part"), [("no/rule.py", "no folder"), (".", "is a folder"), ("pos.txt", "is read")]
)
def test_outputs_are_looked_at_before_the_work(sides, monkeypatch, checker, part):
    monkeypatch.setattr("regard.rules.discovery.discover_rule", None)  # any search would fail
    before = (sides / "pos.txt").read_text()
    with pytest.raises(UsageError, match=part):
        regard.discover(sides / "pos.txt", sides / "neg.txt", checker=sides / checker)
    assert (sides / "pos.txt").read_text() == before


def test_lines_that_nothing_tells_apart(tmp_path, capsys):
    found = regard.discover(["a", "a"], ["a", "a"], checker=tmp_path / "rule.py")
    assert "none that was tried tells one line from another" in str(found)
    assert found.hypotheses == [] and found.p_value == 1
    assert "nothing is written" in capsys.readouterr().err and not (tmp_path / "rule.py").exists()
    with pytest.raises(DataError, match="no small automaton"):
        found.save(tmp_path / "rule.dot")


def test_chance_is_not_claimed():
    rng = Random(3)
    sides = [
        [" ".join(rng.choices("abc", k=rng.randint(3, 8))) for _ in range(12)] for _ in range(2)
    ]
    found = regard.discover(*sides)
    assert not found.claimed and found.p_value >= 0.01
    assert not any(one.claimed for one in found.hypotheses)
    assert any(note.startswith("no rule is claimed") for note in found.notes)


def test_a_nul_is_a_token_like_others_and_a_carriage_return_ends_no_line(tmp_path):
    pos, neg, rule = tmp_path / "pos.txt", tmp_path / "neg.txt", tmp_path / "rule.py"
    pos.write_bytes(b"a\0b c\nx\ra\0b\na\0b\n")
    neg.write_bytes(b"c\nc x\nx\rx\r\n")
    best = regard.discover(pos, neg, checker=rule).hypotheses[0]
    assert best.accuracy == 1 and "\0" not in best.checker
    said = run_checker(rule, pos, neg)
    assert said == [f"{pos}: 3 of 3 lines accepted", f"{neg}: 0 of 3 lines accepted"]


def test_an_answer_may_be_the_only_positive(tmp_path):
    (tmp_path / "none.txt").write_text("")
    found = regard.discover(tmp_path / "none.txt", ["b b", "c b", "b c c"], label=["a a : yes"])
    best = found.hypotheses[0]
    assert found.lines == 4 and best.accuracy == 1
    assert best.accepts(["a", "a"]) and not best.accepts(["b", "b"])


def test_random_lines_are_no_side_on_which_a_line_stands():
    found = regard.discover(["a b", "a a"])
    assert found.in_both == [] and "on both sides" not in json.dumps(found.to_dict())
