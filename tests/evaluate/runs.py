"""A text, and folders as runs leave them, for the tests of evaluations."""

from __future__ import annotations

import shutil

import pytest

from regard.files import file_hash
from regard.receipt import write_receipt

TEXT = "the cat sat on the mat, and the dog sat on the log.\nParis is the capital of France.\n" * 4


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "test.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("the cat\tle chat\nthe dog\tle chien noir\nParis is\tParis est là\n")
    return path


@pytest.fixture
def run(tmp_path):
    """Puts a folder where a run leaves it, with a receipt that names training files."""

    def make(folder, files, valid=()):
        final = tmp_path / "run" / "final"
        shutil.copytree(folder, final)
        names = {"files": [f.name for f in files], "valid": [f"data/{f.name}" for f in valid]}
        data = {str(f): file_hash(f) for f in (*files, *valid)}
        receipt = {"config": names, "data": data, "results": {}}
        write_receipt(final.parent / "receipt.json", receipt)
        return final

    return make
