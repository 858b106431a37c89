"""The two checkers of `make check`, on small trees made for the purpose."""

from __future__ import annotations

import importlib.util
import subprocess
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


def test_size_counts_each_folder(tree, capsys):
    root = tree(regard__core__a_py="x = 1\n" * 30, regard__core__reference_py="x = 1\n" * 200)
    assert size.main(root) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["30", "200", "230"]


def test_a_long_file_a_large_core_and_a_large_package_fail(tree, capsys):
    root = tree(regard__a_py="\n" * 401)
    assert size.main(root) == 1
    assert "regard/a.py: 401 lines, at most 400" in capsys.readouterr().err
    many = {f"regard/core/{i}.py": 400 for i in range(4)}
    assert size.excess(many) == ["regard/core without reference.py: 1600 lines, at most 1500"]
    assert size.excess({f"regard/data/{i}.py": 400 for i in range(size.PACKAGE // 400 + 1)})
    assert not size.excess({"regard/core/a.py": 400, size.ORACLE: 400})


def test_size_shows_the_change_in_a_git_checkout(tree, capsys):
    root = tree(regard__a_py="x = 1\n" * 3)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for step in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-C", str(root), *step], check=True)
    tree(regard__a_py="x = 1\n" * 5, regard__core__new_py="x = 1\n")
    assert size.main(root) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0][-1] == "HEAD" and rows[1][-1] == "+2" and rows[2][-1] == "+1"
    assert rows[-1][-1] == "+3"


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
