"""Lines as they arrive: whole, numbered, and told apart from bytes that are no text."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from regard.cli.streams import ArrivingLines, read_texts, read_whole
from regard.errors import DataError, UsageError


def read(chunks: list[bytes]) -> list[str | DataError]:
    return list(ArrivingLines(iter(chunks), "file"))


def test_lines_do_not_depend_on_the_chunks() -> None:
    text = "un\n\ndeux é\r\n trois\n日本\n\n fin".encode()
    lines = ["un", "", "deux é", " trois", "日本", "", " fin"]
    draw = random.Random(0)
    for _ in range(200):
        at = sorted(draw.sample(range(1, len(text)), draw.randrange(1, 8)))
        chunks = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
        assert read(chunks) == lines
        arriving, size = ArrivingLines(iter(chunks), "file"), draw.randrange(1, 5)
        groups = list(iter(partial(arriving.take, size), []))
        assert [line for group in groups for line in group] == lines
        assert max(map(len, groups)) <= size


def test_what_has_arrived_is_given_at_once() -> None:
    """A slow pipe: after each chunk its whole lines, before the next is asked for."""
    asked: list[int] = []

    def slow() -> Iterator[bytes]:
        for chunk in (b"one\ntw", b"o\n"):
            asked.append(1)
            yield chunk

    lines = ArrivingLines(slow(), "stdin")
    assert lines.take(100) == ["one"] and len(asked) == 1
    assert lines.take(100) == ["two"] and len(asked) == 2


def test_a_line_that_is_not_utf8_is_named_and_the_others_are_read() -> None:
    first, bad, worse, last = read([b"ok\nno \xe9t\xe9\nok\xff\nfin\n"])
    assert (first, last) == ("ok", "fin")
    assert bad.found == "file, line 2, byte 6 (0xe9) is not UTF-8" and "line 3" in worse.found


def test_the_number_goes_on_over_chunks_and_the_mark_is_dropped() -> None:
    lines = read([b"\xef\xbb\xbfa\nb\n", b"c\n\xff\n"])
    assert lines[:3] == ["a", "b", "c"] and "line 4, byte 9 " in lines[3].found


def test_files(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "b.gz"
    plain.write_bytes(b"a\nb")
    packed.write_bytes(gzip.compress(b"c\n\xff\n"))
    *lines, bad = read_texts([], [str(plain), str(packed)])
    assert lines == ["a", "b", "c"] and f"{packed}, line 2" in bad.found
    packed.write_bytes(gzip.compress(b"c\n" * 999)[:-9])
    with pytest.raises(DataError, match="a whole file"):
        list(read_texts([], [str(packed)]))
    with pytest.raises(DataError, match="no such file"):
        list(read_texts([], [str(tmp_path / "none")]))
    with pytest.raises(UsageError):
        read_texts(["a"], ["b"])


def test_words_of_the_command() -> None:
    assert read_texts(["", "é"], None) == ["", "é"] and read_whole(["a", "b"], None) == "a b"
    with pytest.raises(DataError, match="not UTF-8"):
        read_texts(["\udce9"], None)


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
