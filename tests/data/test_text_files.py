"""Text files in pieces and lines: packing, encoding, order, places to cut, progress."""

from __future__ import annotations

import gzip
import importlib.util
import lzma
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import text_files as files
from regard.data.text_files import cut_at_blanks, evenly, read_lines, read_parts, read_pieces
from regard.errors import DataError

TEXT = "Je suis un château.\r\nnaïve 🎉 e\u0301\n\n日本語\0 end"
LINES = ["Je suis un château.", "naïve 🎉 e\u0301", "", "日本語\0 end"]


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_plain_and_packed_read_the_same(tmp_path, pack):
    file = write(tmp_path / "a", pack(TEXT.encode()))  # by its first bytes, whatever its name
    assert "".join(read_pieces(file)) == TEXT
    assert list(read_lines(file)) == LINES
    assert list(read_parts([file])) == ["Je suis un château.\r\n", *TEXT.splitlines(True)[1:]]


def test_zstd_says_how_to_unpack_it(tmp_path):
    with pytest.raises(DataError, match="zstd -d "):
        list(read_lines(write(tmp_path / "a.zst", b"\x28\xb5\x2f\xfd\x00")))


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_packed_file_cut_short_is_told(tmp_path, pack):
    file = write(tmp_path / "a.gz", pack(os.urandom(1000).hex().encode())[:-20])
    with pytest.raises(DataError, match="a.gz"):
        list(read_pieces(file))


@pytest.mark.parametrize("size", [1, 3, 7, 1 << 20])
def test_invalid_utf8_names_file_and_byte(tmp_path, monkeypatch, size):
    monkeypatch.setattr(files, "CHUNK", size)
    start = "é€🎉 abc\n".encode()
    for name, data in (("bad", b"\xff\xfe"), ("cut", "€".encode()[:2])):
        file = write(tmp_path / name, start + data)
        with pytest.raises(DataError) as caught:
            list(read_lines(file))
        assert str(file) in str(caught.value) and f"byte {len(start)} " in caught.value.found


def test_the_way_out_of_another_encoding_names_it(tmp_path):
    for code, data in (("utf-16", "é".encode("utf-16")), ("latin1", "é\n".encode("latin1"))):
        with pytest.raises(DataError, match=f"iconv -f {code} "):
            list(read_lines(write(tmp_path / code, data)))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_chunks_may_end_inside_a_character(tmp_path, monkeypatch, size):
    monkeypatch.setattr(files, "CHUNK", size)
    file = write(tmp_path / "a", TEXT)
    assert "".join(read_pieces(file)) == TEXT
    assert list(read_lines(file)) == LINES


def test_folders_are_walked_in_sorted_order_without_hidden_files(tmp_path):
    for name in ("b.txt", "a/z.txt", "a/y.txt", ".hidden", ".git/x", "c.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        write(path, f"{name}\n")
    assert list(read_lines(tmp_path)) == ["a/y.txt", "a/z.txt", "b.txt", "c.txt"]
    assert list(read_lines([tmp_path / "c.txt", tmp_path / "a"]))[0] == "c.txt"


def test_missing_file_and_empty_folder(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        list(read_lines([tmp_path / "none"]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="without files"):
        list(read_lines(tmp_path / "empty"))


def test_only_the_first_mark_is_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 3)  # the second begins a chunk
    assert list(read_lines(write(tmp_path / "a", "\ufeffone\ufefftwo"))) == ["one\ufefftwo"]


def test_small_matters(tmp_path):
    assert list(read_lines(write(tmp_path / "a", ""))) == []
    assert list(read_lines(write(tmp_path / "a", "\n"))) == [""]
    assert list(read_lines(write(tmp_path / "a", "\ufeffone\n\ufefftwo"))) == ["one", "\ufefftwo"]
    assert list(read_lines(write(tmp_path / "a", "a\u2028b\x0bc\n"))) == ["a\u2028b\x0bc"]


@given(st.lists(st.text("ab \n\té", max_size=8)))
def test_pieces_end_where_a_word_ends_and_blanks_begin(texts):
    pieces = list(cut_at_blanks(texts))
    assert "".join(pieces) == "".join(texts)
    for before, after in zip(pieces, pieces[1:], strict=False):
        assert not before[-1].isspace() and after[0].isspace()


def test_a_text_without_blanks_still_streams(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 10)
    for read in (read_pieces, read_parts):
        pieces = list(read(write(tmp_path / "a", "x" * 1000)))
        assert "".join(pieces) == "x" * 1000 and max(map(len, pieces)) <= 50
    assert next(read_parts(write(tmp_path / "a", "one two  " * 10))).endswith("one")


def test_a_pipe_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: write(tmp_path / "pipe", TEXT))
    writer.start()
    assert list(read_lines(tmp_path / "pipe")) == LINES
    writer.join()


def test_no_torch_is_loaded():
    code = "import sys, regard.data.text_files; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert importlib.util.find_spec("torch")  # it is there, only not loaded


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 19, 20, 21, 22, 100, 1000, 1023])
def test_evenly(count: int) -> None:
    found = evenly(iter(range(count)), 10)
    assert len(found) == min(count, 10)
    if count <= 10:
        assert found == list(range(count))
        return
    gaps = np.diff([*found, count])
    assert found[0] == 0 and gaps.min() >= 1
    assert gaps.max() <= 2 * count / 10 + 1
