"""Lines as they arrive: whole, numbered, and told apart from bytes that are no text."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.cli.lines import Line, argument, chunk_groups, line_groups
from regard.errors import DataError, UsageError


def reader(chunks: list[bytes]) -> Callable[[], bytes]:
    rest = iter(chunks)
    return lambda: next(rest, b"")


def read(chunks: list[bytes], size: int = 100) -> list[list[Line]]:
    return list(chunk_groups(reader(chunks), "file", size))


def test_lines_do_not_depend_on_the_chunks() -> None:
    text = "un\n\ndeux é\r\n trois\n日本\n\n fin".encode()
    lines = ["un", "", "deux é", " trois", "日本", "", " fin"]
    draw = random.Random(0)
    for _ in range(200):
        at = sorted(draw.sample(range(1, len(text)), draw.randrange(1, 8)))
        chunks = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
        size = draw.randrange(1, 5)
        groups = read(chunks, size)
        assert [line.text for group in groups for line in group] == lines
        assert max(map(len, groups)) <= size


def test_what_has_arrived_is_given_at_once() -> None:
    """A slow pipe: after each chunk its whole lines, before the next is asked for."""
    asked: list[int] = []

    def slow() -> bytes:
        asked.append(1)
        return [b"one\ntw", b"o\n", b""][len(asked) - 1]

    found = chunk_groups(slow, "stdin", 100)
    assert next(found) == [Line("one")] and len(asked) == 1
    assert next(found) == [Line("two")] and len(asked) == 2


def test_a_line_that_is_not_utf8_is_named_and_the_others_are_read() -> None:
    (group,) = read([b"ok\nno \xe9t\xe9\nok\xff\nfin\n"])
    assert [line.text for line in group] == ["ok", "", "", "fin"]
    assert group[1].fault == "file, line 2, byte 6 (0xe9) is not UTF-8"
    assert "line 3" in group[2].fault and not group[3].fault


def test_the_number_goes_on_over_chunks_and_the_mark_is_dropped() -> None:
    groups = read([b"\xef\xbb\xbfa\nb\n", b"c\n\xff\n"])
    assert groups[0][0] == Line("a") and "line 4, byte 9 " in groups[1][1].fault


def test_files(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "b.gz"
    plain.write_bytes(b"a\nb")
    packed.write_bytes(gzip.compress(b"c\n\xff\n"))
    found = [line for group in line_groups(None, [str(plain), str(packed)], 10) for line in group]
    assert [line.text for line in found] == ["a", "b", "c", ""]
    assert f"{packed}, line 2" in found[3].fault
    packed.write_bytes(gzip.compress(b"c\n" * 999)[:-9])
    with pytest.raises(DataError, match="a whole file"):
        list(line_groups(None, [str(packed)], 10))
    with pytest.raises(DataError, match="no such file"):
        list(line_groups(None, [str(tmp_path / "none")], 10))
    with pytest.raises(UsageError):
        line_groups(["a"], ["b"], 10)


def test_arguments() -> None:
    assert argument("", 1) == Line("") and argument("é", 1) == Line("é")
    assert argument("\udce9", 3).fault == "text 3: not UTF-8"


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
