"""The two checkers of `make check`, on small trees made for the purpose."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def tool(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


size, atlas = tool("size"), tool("atlas")


@pytest.fixture
def tree(tmp_path):
    def write(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_md", ".md").replace("_py", ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_size_counts_code_alone(tree, capsys):
    text = '"""Doc.\n\nMore."""\n\n# why\nx = 1\n\n\ndef f():\n    """Doc."""\n'
    text += "    return (\n        x  # here\n    )\n"
    root = tree(regard__core__a_py=text, regard__a_py="x = 1\n")
    assert size.main(root) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["core", "5"], ["(top)", "1"], ["package", "6"]]


def test_the_package_has_a_ceiling(tree, monkeypatch):
    root = tree(regard__a_py="x = 1\n" * 7)
    monkeypatch.setattr(size, "CEILING", 7)
    assert size.main(root) == 0
    monkeypatch.setattr(size, "CEILING", 6)
    assert size.main(root) == 1


SOURCE = '''"""Words of a text (Zipf 1949). More."""

SIZE = 3
"""How many there are at most (Heaps 1978)."""


class A:
    """Attention | pooled: eq. 1 (Vaswani et al. 2017, eq. 1; after Bahdanau 2015).

    The rest (2017 was long ago).
    """

    def f(self):
        """Nothing cited."""
'''


def test_the_atlas_is_made_from_citations(tree, capsys):
    root = tree(
        regard__core__a_py=SOURCE,
        tests__core__test_a_py="from regard.core.a import (\n    A,\n)\n",
        tests__core__test_b_py="import regard.core.a\n",
        docs__atlas_md="",
    )
    assert atlas.main(root, "--check") == 1 and "out of date" in capsys.readouterr().err
    assert atlas.main(root) == 0 and atlas.main(root, "--check") == 0
    lines = (root / "docs/atlas.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert rows == [
        "| Words of a text | Zipf 1949 | `core/a.py` | `core/test_a.py`, `core/test_b.py` |",
        "| How many there are at most | Heaps 1978 | `core/a.py: SIZE` |"
        " `core/test_a.py`, `core/test_b.py` |",
        "| Attention \\| pooled | Vaswani et al. 2017, eq. 1; after Bahdanau 2015 |"
        " `core/a.py: A` | `core/test_a.py` |",
    ]
