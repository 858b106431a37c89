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


def test_the_package_may_only_shrink_until_it_is_under_the_goal(tree, capsys, monkeypatch):
    root = tree(regard__a_py="x = 1\n" * 9, tools__a_py="")
    (root / "tools/size.txt").write_text("8\n")
    monkeypatch.setattr(size, "HOUSE", 5)
    assert size.main(root) == 1
    assert "9 lines of code, at most 8" in capsys.readouterr().err
    (root / "regard/a.py").write_text("x = 1\n" * 7)
    assert size.main(root, "--keep") == 0 and (root / "tools/size.txt").read_text() == "7\n"
    (root / "tools/size.txt").write_text("5\n")  # once under the goal: the ceiling
    monkeypatch.setattr(size, "CEILING", 7)
    assert size.main(root) == 0
    monkeypatch.setattr(size, "CEILING", 6)
    assert size.main(root) == 1


HEAD = "| concept | paper | where | test | example |\n|---|---|---|---|---|\n"
GOOD = "| one | A 2017 | `core/a.py: A.f` | `core/test_a.py: test_a` | – |\n"


def test_atlas_that_holds(tree, capsys):
    root = tree(
        regard__core__a_py="class A:\n    def f(self): ...\nSIZE = 3\n",
        tests__core__test_a_py="def test_a(): ...\n",
        examples__a_py="",
    )
    more = "| two | B | `core/a.py: SIZE`, `core/a.py` | `core/test_a.py` | `examples/a.py` |\n"
    tree(docs__atlas_md="# Atlas\n\n" + HEAD + GOOD + more + "\n| other | table |\n|---|---|\n")
    assert atlas.main(root) == 0
    assert "2 rows, 0 wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (GOOD.replace("A.f", "A.g"), "where: no A.g in core/a.py"),
        (GOOD.replace("core/a.py", "core/b.py"), "where: no file core/b.py"),
        (GOOD.replace("test_a`", "test_b`"), "test: no test_b in core/test_a.py"),
        (GOOD.replace("–", "`examples/none.py`"), "example: no file examples/none.py"),
        (GOOD.replace("`core/test_a.py: test_a`", "–"), "test: no name in back quotes"),
        ("| one | A 2017 |\n", "where: no name in back quotes"),
    ],
)
def test_atlas_that_does_not(row, why, tree, capsys):
    root = tree(
        regard__core__a_py="class A:\n    def f(self): ...\n",
        tests__core__test_a_py="def test_a(): ...\n",
        docs__atlas_md=HEAD + row,
    )
    assert atlas.main(root) == 1
    assert f"docs/atlas.md:3: one: {why}" in capsys.readouterr().err


def test_atlas_missing_or_empty(tree, capsys):
    root = tree(regard__a_py="")
    assert atlas.main(root) == 1 and "missing" in capsys.readouterr().err
    tree(docs__atlas_md="# nothing\n")
    assert atlas.main(root) == 1 and "no table" in capsys.readouterr().err
