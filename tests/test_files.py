"""Files on disk: whole or not at all, and errors that say where."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from regard.errors import DataError, ResourceError
from regard.files import cannot_write, file_hash, parse_json, read_json, write_whole


def test_the_hash_is_sha256_of_the_bytes(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(data)
    assert file_hash(tmp_path / "a") == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("before", ["", "\ufeff", "é"])
@pytest.mark.parametrize("start", [0, 8])
def test_broken_json_is_told_by_its_byte(before: str, start: int) -> None:
    """Counted in bytes of the file, whatever characters stand before."""
    bom = before == "\ufeff"
    text = before + '{"a":\n 1, }' if bom or not before else f'{{"{before}":\n 1, }}'
    raw = text.encode()
    with pytest.raises(DataError) as caught:
        parse_json(raw, "x.json", start=start)
    byte = int(caught.value.found.split()[1].rstrip(":")) - start
    # Python's versions differ on which of the two it blames: the comma, or what follows it.
    assert raw[byte : byte + 1] in (b",", b"}") and "line 2" in caught.value.found


def test_json_of_another_kind_or_none(tmp_path: Path) -> None:
    assert parse_json(b"\xef\xbb\xbf[1]", "x", list) == [1]
    with pytest.raises(DataError, match="type list"):
        parse_json(b"[1]", "x")
    with pytest.raises(DataError, match="byte 9: not UTF-8"):
        parse_json(b'{"a": "b\xff"}', "x", start=1)
    with pytest.raises(DataError, match="byte 11: not UTF-8"):  # the mark counts too
        parse_json(b'\xef\xbb\xbf{"a": "b\xff"}', "x")
    with pytest.raises(DataError, match="broken JSON"):
        parse_json(b"[" * 200_000, "x", list)
    with pytest.raises(DataError, match="no such file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(DataError, match="directory"):
        read_json(tmp_path)


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_a_file_is_all_new_or_all_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"old")

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, broken, full)
    with pytest.raises(ResourceError, match=r"bytes are free\)\n  expected: 3 bytes"):
        write_whole(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert path.read_bytes() == b"old"


def test_only_a_full_disk_is_a_lack_of_resources(tmp_path: Path) -> None:
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        error = cannot_write(tmp_path / "no" / "such", OSError(code, "full"), "5 bytes")
        assert isinstance(error, ResourceError) and "5 bytes" in str(error)
    denied = cannot_write(tmp_path, OSError(errno.EACCES, "Permission denied"), "5 bytes")
    assert isinstance(denied, DataError) and "Permission denied" in json.dumps(str(denied))
