"""The command line, in this process and in one of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small models run faster on one thread, in processes of their own too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(before)


@pytest.fixture
def regard():
    """The command in a process of its own: (exit code, stdout, stderr)."""

    def call(*arguments, env=None, code=None):
        command = [sys.executable, *(["-c", code] if code else ["-m", "regard"]), *arguments]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=env
        )
        return done.returncode, done.stdout, done.stderr

    return call


@pytest.fixture
def here(capsys):
    """The command in this process, which has its libraries loaded: the same three."""
    from regard.cli.main import main

    def call(*arguments):
        code = main([str(word) for word in arguments])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return call
