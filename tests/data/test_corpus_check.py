"""Repeats, overlap between splits and the reports of `regard data check`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.cli.main import main
from regard.data.corpus_check import check_file, find_overlap, guess_kind
from regard.data.duplicates import normalise, overlap, pair_overlap, repeated
from regard.errors import UsageError

lines = st.lists(
    st.sampled_from(["a", "A ", "b  c", "b c", "", " ", "é", "e\u0301", "d"]), max_size=12
)


@settings(deadline=None)
@given(lines, lines)
def test_overlap_is_what_sets_say(train, test):
    seen = {normalise(line) for line in train} - {""}
    hit = [n for n, line in enumerate(test, 1) if normalise(line) in seen]
    found = overlap(train, test)
    assert (found.found, found.lines) == (len(hit), tuple(hit[:5]))
    assert found.total == sum(bool(line.strip()) for line in test)


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5)))
def test_repeats_are_found(values):
    again = [n for n, value in enumerate(values) if value in values[:n]]
    assert repeated(values) == again


def test_a_planted_leak_is_caught():
    rng = np.random.default_rng(0)
    train = [" ".join(map(str, row)) for row in rng.integers(0, 10**6, (20_000, 4))]
    test = [" ".join(map(str, row)) for row in rng.integers(0, 10**6, (500, 4))]
    assert overlap(train, test).found == 0
    test[123], test[456] = f"  {train[19_999].replace(' ', '   ')} ", train[0]
    found = overlap(iter(train), iter(test))
    assert (found.found, found.lines, found.share) == (2, (124, 457), 2 / 500)
    assert overlap(train, test, words=5).total == 0


def test_pairs_leak_by_side():
    train = [("un chat", "a cat"), ("oui", "yes"), ("non", "no")]
    test = [("Un  chat", "some cat"), ("si", "YES"), ("non", "No"), ("", ""), ("chien", "dog")]
    found = pair_overlap(train, test)
    assert {side: o.lines for side, o in found.items()} == {
        "source": (1, 3), "target": (2, 3), "pair": (3,),
    }  # fmt: skip
    assert found["pair"].total == 4


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.txt", "x\n", "text"),
        ("a.tsv", "un\tone\ndeux\ttwo\n", "pairs"),
        ("a.tsv", "".join(f"text {n}\t{n % 2}\n" for n in range(30)), "labelled"),
        ("a.tsv", "1\tThe\tDET\n\n1\tA\tDET\n", "conll"),
        ("a.tsv", "id\ttext\tlabel\n1\tx\ty\n", "table"),
        ("a.jsonl", "{}\n", "table"),
        ("a.conllu", "x y\n", "conll"),
    ],
)
def test_the_kind_is_guessed(tmp_path, name, text, kind):
    (tmp_path / name).write_text(text)
    assert guess_kind(tmp_path / name) == kind


def test_a_report_of_pairs(tmp_path):
    rows = ["un chat\ta cat", "same\tsame", "\tnothing", "un chat\tA  cat"]
    rows += ["court\t" + "a rather long sentence " * 3, "mau\ufffdvais\tbad"]
    (tmp_path / "a.tsv").write_text("\n".join(rows))
    report = check_file(tmp_path / "a.tsv")
    found = {name: (each.count, each.lines) for name, each in report.findings.items()}
    assert found == {
        "source same as target": (1, [2]),
        "empty": (1, [3]),
        "repeated": (1, [4]),
        "one side over 3 times as long": (1, [5]),
        "damaged characters (U+FFFD)": (1, [6]),
    }
    assert report.words["source"] == {"2–3": 2, "1": 3, "0": 1} and report.count == 6


def test_labels_are_counted(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,x\nb,y\nc,x\n")
    assert check_file(tmp_path / "a.csv").labels == {"x": 2, "y": 1}
    (tmp_path / "b.conll").write_text("1 The DET\n2 cat NOUN\n\n1 A DET\n")
    report = check_file(tmp_path / "b.conll", label="3")
    assert report.labels == {"DET": 2, "NOUN": 1} and report.count == 2


def test_texts_and_pairs_overlap_line_by_line(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.tsv").write_text("un\tTwo\n")
    found = find_overlap([(tmp_path / "a.txt", None)], [(tmp_path / "b.tsv", None)])
    assert [(o.found, o.total) for o in found.values()] == [(1, 2)]


def test_a_report_as_people_read_it(tmp_path):
    (tmp_path / "train.txt").write_text("one line\nanother line\n\none line\n")
    (tmp_path / "test.txt").write_text("a fresh line\nOne  line\n")
    report = regard.data.check(tmp_path / "train.txt", test=tmp_path / "test.txt")
    for said in (
        "lines     4",
        "1 of 4 (25.0%; line 3)",
        "1 of 4 (25.0%; line 4)",
        "█",
        "1 of 2 (50.0%; line 2)",
    ):
        assert said in str(report)
    assert report.to_dict()["files"][0]["findings"]["repeated"] == {"count": 1, "lines": [4]}
    (shared,) = report.overlap.values()
    assert shared.found == 1 and shared.lines == (2,)


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"fine\n\xff bad\n", "byte 5"), (b"", "an empty file")],
)
def test_a_broken_file_exits_3_and_the_others_are_reported(tmp_path, data, said, capsys):
    (tmp_path / "good.txt").write_text("fine\n")
    (tmp_path / "bad.txt").write_bytes(data)
    code = main(["data", "check", str(tmp_path / "bad.txt"), str(tmp_path / "good.txt")])
    caught = capsys.readouterr()
    assert code == 3 and said in caught.err and "good.txt (text)" in caught.out


def test_two_files_as_pairs(tmp_path):
    (tmp_path / "a.fr").write_text("un\ndeux\n")
    (tmp_path / "a.en").write_text("one\n")
    source, target = tmp_path / "a.fr", tmp_path / "a.en"
    (error,) = regard.data.check(source, target=target).errors
    assert "2 lines in" in error
    with pytest.raises(UsageError, match="2 files and 1 after --target"):
        regard.data.check([source, source], target=target)


def test_nul_bytes_are_found_with_their_lines(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"one\nt\0wo\nthree\n\0\n")
    report = check_file(file)
    found = report.findings["NUL bytes (U+0000)"]
    assert found.count == 2 and found.lines == [2, 4] and "NUL bytes (U+0000)" in str(report)


def test_speech_is_marked(tmp_path):
    (tmp_path / "talk.txt").write_text("so um I I went\nit was fine\n")
    report = check_file(tmp_path / "talk.txt")
    assert "line 1: so {um} [I] I went" in str(report)
    assert report.to_dict()["speech"] == [{"line": 1, "text": "so {um} [I] I went"}]
    assert {name: report.findings[name].lines for name in ("fillers", "restarts")} == {
        "fillers": [1],
        "restarts": [1],
    }
