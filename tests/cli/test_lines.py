"""Lines as they arrive, from the command, files or stdin; one that is not UTF-8 is told apart."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.cli.streams import ArrivingLines, Line, checked, read_texts
from regard.errors import DataError, UsageError
from regard.verbs import group_texts


def read(chunks: list[bytes], size: int = 100) -> list[list[Line]]:
    return list(group_texts(ArrivingLines(chunks, "file"), size))


def test_lines_do_not_depend_on_the_chunks() -> None:
    text = "un\n\ndeux é\r\n trois\n日本\n\n fin".encode()
    lines = ["un", "", "deux é", " trois", "日本", "", " fin"]
    draw = random.Random(0)
    for _ in range(200):
        at = sorted(draw.sample(range(1, len(text)), draw.randrange(1, 8)))
        chunks = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
        size = draw.randrange(1, 5)
        groups = read(chunks, size)
        assert [line for group in groups for line in group] == lines
        assert max(map(len, groups)) <= size
        assert list(ArrivingLines(chunks, "file")) == lines


def test_what_has_arrived_is_given_at_once() -> None:
    """A slow pipe: after each chunk its whole lines, before the next is asked for."""
    asked: list[int] = []

    def slow() -> Iterator[bytes]:
        for chunk in (b"one\ntw", b"o\n"):
            asked.append(1)
            yield chunk

    groups = group_texts(ArrivingLines(slow(), "stdin"), 100)
    assert next(groups) == ["one"] and len(asked) == 1
    assert next(groups) == ["two"] and len(asked) == 2


def test_a_line_that_is_not_utf8_is_named_and_the_others_are_read() -> None:
    (group,) = read([b"ok\nno \xe9t\xe9\nok\xff\nfin\n"])
    assert (group[0], group[3]) == ("ok", "fin") and "line 3" in str(group[2])
    assert "file, line 2, byte 6 (0xe9) is not UTF-8" in str(group[1])
    groups = read([b"\xef\xbb\xbfa\nb\n", b"c\n\xff\n"])  # the mark of a file's beginning
    assert groups[0][0] == "a" and "line 4, byte 9 " in str(groups[1][1])


def test_files(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "b.gz"
    plain.write_bytes(b"a\nb")
    packed.write_bytes(gzip.compress(b"c\n\xff\n"))
    *lines, last = read_texts([], [str(plain), str(packed)])
    assert lines == ["a", "b", "c"] and f"{packed}, line 2" in str(last)
    packed.write_bytes(gzip.compress(b"c\n" * 999)[:-9])
    with pytest.raises(DataError, match="a whole file"):
        list(read_texts([], [str(packed)]))
    with pytest.raises(DataError, match="no such file"):
        list(read_texts([], [str(tmp_path / "none")]))
    with pytest.raises(UsageError):
        read_texts(["a"], ["b"])
    assert checked("é") == "é"
    with pytest.raises(DataError, match="not UTF-8"):
        checked("\udce9")


def test_a_bad_line_stops_no_other(tmp_path, capsys, monkeypatch):
    """`generate`, `score` and `fill` name the line, do the rest, and end with exit code 3."""
    from regard.cli.main import main
    from regard.kit import Kit
    from regard.tokens.trainers import train_tokenizer
    from tests.look.planted import planted_induction

    tokenizer = train_tokenizer(["a b c d e f"], "spaced")
    Kit(planted_induction(tokenizer.size, 24), tokenizer).save(tmp_path / "m")
    for verb in (["generate", "--max-new", "2"], ["score"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a b\n\xff\nc d\n")))
        assert main([verb[0], str(tmp_path / "m"), *verb[1:], "--json"]) == 3
        said = capsys.readouterr()
        rows = [json.loads(line) for line in said.out.splitlines()]
        assert len(rows) == 3 and "error" in rows[1] and "line 2" in said.err
        assert "tokens" in rows[0] and "tokens" in rows[2]
