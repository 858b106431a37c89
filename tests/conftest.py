"""What tests of every room share: the command line in this process, and its stdin."""

from __future__ import annotations

import io
import sys

import pytest


@pytest.fixture
def run_regard(capsys):
    """The command line in this process: (exit code, stdout, stderr)."""
    from regard.cli.main import main

    def call(*arguments):
        code = main([str(word) for word in arguments])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return call


@pytest.fixture
def give_stdin(monkeypatch):
    """Let stdin hold these bytes."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))

    return give
