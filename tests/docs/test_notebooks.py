"""The notebooks run, every cell ends with a table or a picture, and each shows what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).resolve().parents[2]
PROMISED = {
    "attention_from_first_principles": [
        r"prediction at 4\.21: -1\.5547",
        r"\(1\.36, 1\.79\)\s+0\.0874",
        r"Jurafsky and Martin\s+\d\d%",
    ],
    "find_the_rule": [
        r"every olifant has leeuw before it and leeuw after it, and olifant occurs\s+26/26",
        r"contains leeuw … olifant … leeuw in this order\s+25/26",
        r"expected\s+1\.55",
        r"leeuw olifant leeuw olifant leeuw\s+yes\s+no\s+yes",
        r"first block\s+13 of 13\s+second block\s+0 of 13",
        r"found\s+rule\s+right\s+p\s+contains a b side by side\s+60/60",
        r"nothing claimed",
    ],
    "look_inside": [
        r"as it is\s+French",
        r"Germany\s+German ",
        r"Japan\s+Japanese ",
        r"of 149 taps",
    ],
    "the_ladder": [r"1-gram.*\s+2-gram", r"\n  8 +0\.0\d+ +0\.[12]\d* +0\.[12]\d* +\S+ +0\.[6-9]"],
    "train_and_translate": [r"where does the old boy eat", r"bleu\s+(9\d|100)", r"red couch"],
}


RUN = """
import sys, nbclient, nbformat
book = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(book, timeout=600, kernel_name="python3").execute()
nbformat.write(book, sys.argv[2])
"""


def run(name: str, folder: Path) -> str:
    """Run a notebook in a process and a kernel of its own; what its cells show, as plain text."""
    path, out = ROOT / "examples" / f"{name}.ipynb", folder / f"{name}.ipynb"
    places = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", RUN, str(path), str(out)]
    env = os.environ | {"PYTHONPATH": places}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    return "\n".join(shown(nbformat.read(out, 4)))


def shown(book) -> list[str]:
    """The texts of all outputs; each cell of code has one, a table or a picture, and it is last."""
    texts = []
    for cell in book.cells:
        if cell.cell_type == "code":
            assert cell.outputs, cell.source
            kinds = [output.output_type for output in cell.outputs]
            assert kinds[-1] in ("execute_result", "display_data"), (kinds, cell.source)
            last = cell.outputs[-1].data
            assert {"text/html", "image/png"} & set(last), cell.source
            texts.append(last["text/plain"])
    return texts


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What all notebooks show, two of them at a time."""
    folder = tmp_path_factory.mktemp("notebooks")
    with ThreadPoolExecutor(2) as pool:
        started = {name: pool.submit(run, name, folder) for name in PROMISED}
        return {name: one.result() for name, one in started.items()}


def test_no_notebook_is_left_out():
    assert {path.stem for path in (ROOT / "examples").glob("*.ipynb")} == set(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
def test_a_notebook_is_kept_as_it_ran(name):
    path = ROOT / "examples" / f"{name}.ipynb"
    book = nbformat.read(path, 4)
    assert path.stat().st_size < 300_000
    texts = "\n".join(shown(book))
    assert all(re.search(words, texts) for words in PROMISED[name])
    for cell in book.cells:
        streams = [o for o in cell.get("outputs", ()) if o.output_type in ("stream", "error")]
        assert not streams, cell.source


@pytest.mark.parametrize("name", PROMISED)
def test_a_notebook_runs_and_shows_what_it_promises(name, outputs):
    for words in PROMISED[name]:
        assert re.search(words, outputs[name]), f"no {words!r} in\n{outputs[name]}"
