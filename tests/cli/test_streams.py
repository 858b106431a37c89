"""Full disks, closed streams and pipes, wrong numbers: the right exit code and no traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard.cli.main import explain
from regard.errors import DataError, ResourceError
from tests.cli.conftest import ROOT
from tests.cli.small_folders import masker, pair, writer  # noqa: F401

CORPUS = "".join(f"word{n} and another{n * n}\n" for n in range(3000))


def shell(line: str, *words: object) -> tuple[int, str]:
    """A line of bash in which "$@" are words after the command: (exit code, stderr)."""
    command = ["bash", "-c", line, sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus.txt").write_text(CORPUS)
    return tmp_path / "corpus.txt"


def test_a_full_disk_is_exit_4_and_leaves_nothing(corpus: Path, tmp_path: Path) -> None:
    """Files of at most 4 KiB; what was there stays."""
    out = tmp_path / "vocab.json"
    out.write_text("{}")
    few = 'ulimit -f 4; "$0" -m regard "$@"'
    code, err = shell(few, "tokens", "vocab", corpus, "--out", out)
    assert code == 4 and "File too large" in err and "bytes of room" in err
    assert out.read_text() == "{}" and len(list(tmp_path.iterdir())) == 2
    code, err = shell(few, "tokens", "train", corpus, "--out", tmp_path / "tokens", "--size", 400)
    assert code == 4 and "bytes of room" in err and not list((tmp_path / "tokens").iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
def test_no_room_for_the_output(corpus: Path) -> None:
    line = 'unset PYTHONUNBUFFERED; "$0" -m regard "$@" > /dev/full'
    code, err = shell(line, "tokens", "vocab", corpus, "--json")
    assert code == 4 and "writing the output: No space left" in err and "ignored" not in err


def test_closed_streams(corpus: Path) -> None:
    assert shell('"$0" -m regard "$@" >&-', "tokens", "vocab", corpus) == (0, "")
    code, err = shell('"$0" -m regard "$@" <&-', "tokens", "vocab")
    assert code == 3 and "no tokens" in err
    line = 'set -o pipefail; "$0" -m regard "$@" | head -1 > /dev/null'
    assert shell(line, "tokens", "vocab", corpus, "--top", 6000) == (0, "")


def test_what_the_system_refuses() -> None:
    missing = explain(FileNotFoundError(errno.ENOENT, "No such file or directory", "/x/y"))
    assert isinstance(missing, DataError) and "opening /x/y: No such file" in str(missing)
    full = explain(OSError(errno.ENOSPC, "No space left on device", "/x/y"))
    assert isinstance(full, ResourceError) and "writing /x/y" in str(full)


def test_numbers_that_no_machine_holds(here, writer, masker, pair, tmp_path):  # noqa: F811
    drawn = ("generate", writer, "a", "--temperature", 1, "--max-new", 1)
    code, _, err = here(*drawn, "--seed", 10**30)
    assert code == 2 and "64 bits" in err
    code, _, err = here("tokens", "decode", 10**30, "--tokenizer", writer)
    assert code == 3 and "ids of this vocabulary" in err
    code, _, err = here("plan", "--dim", 10**9, "--depth", 10**6)
    assert code == 4 and "no batch fits" in err
    code, _, err = here("fill", masker, "x" * 100_000)
    assert code == 3 and len(err) < 300
    code, _, err = here("translate", "a", "--model", pair, "--begin", "cat sat", "--max-new", 1)
    assert code == 2 and "at most 1 in all" in err


def test_files_of_another_kind(here, tmp_path):
    (tmp_path / "r.json").write_text('{"config": 3, "data": {}, "results": {}}')
    code, _, err = here("replay", tmp_path / "r.json")
    assert code == 3 and "no object 'config'" in err
    (tmp_path / "p.tsv").write_text("a\tb\n")
    code, _, err = here("data", "check", tmp_path / "p.tsv", "--label", "x")
    assert code == 2 and "the column 'x' of a file of kind pairs" in err


def test_words_are_written_as_utf8_whatever_the_locale(tmp_path):
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    words = [sys.executable, "-m", "regard", "tokens", "merges", "été 😀 été"]
    done = subprocess.run(words, capture_output=True, env=environment)
    assert done.returncode == 0 and "😀" in done.stdout.decode()
