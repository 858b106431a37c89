"""The atlas: concept → paper → code → test, made from the docstrings that cite a paper.

    python tools/atlas.py           writes docs/atlas.md
    python tools/atlas.py --check   exits 1 when that file is out of date

A docstring of a module, class, function or constant that cites a paper in parentheses, such as
(Vaswani et al. 2017, eq. 1), is a row: its first sentence is the concept. The tests are those that
import the name, else its module; an idea that no test imports is tested with its room.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAPER = re.compile(r"\s*\(((?:after |as in )?[A-ZÀ-Ž][^()]*?\b(?:1[6-9]|20)\d\d\b[^()]*)\)")
HEAD = """# Atlas: concept → paper → code → test

Made by `tools/atlas.py` from docstrings that cite a paper. Paths are under `regard/` and `tests/`.
"""


class Row(NamedTuple):
    """One cited idea."""

    room: str
    concept: str
    papers: str
    place: str
    tests: tuple[str, ...]


def cited(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(name, docstring) of each class, method, function and constant below a body."""
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield prefix + node.name, ast.get_docstring(node) or ""
            if isinstance(node, ast.ClassDef):
                yield from cited(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(following, ast.Expr):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and isinstance(following.value, ast.Constant):
                yield prefix + target.id, str(following.value.value)


def find_tests(root: Path, module: str, name: str, path: str) -> tuple[str, ...]:
    """Test files that import a name from a module, else those that import the module or face it."""
    first, tests = name.split(".")[0], root / "tests"
    names, modules = [], []
    for file in sorted(tests.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        where = file.relative_to(tests).as_posix()
        block = re.search(rf"from {re.escape(module)} import (\([^)]*\)|[^\n]*)", text)
        if first and block and re.search(rf"\b{re.escape(first)}\b", block[1]):
            names.append(where)
        elif module in text or file.stem == f"test_{Path(path).stem}":
            modules.append(where)
    return tuple((names or modules)[:3]) or (f"{path.split('/')[0]}/",)


def collect(root: Path) -> list[Row]:
    """A row for each docstring that cites a paper."""
    rows = []
    for file in sorted((root / "regard").rglob("*.py")):
        path = file.relative_to(root / "regard").as_posix()
        tree = ast.parse(file.read_text(encoding="utf-8"))
        module = ".".join(("regard", *Path(path).with_suffix("").parts)).removesuffix(".__init__")
        for name, doc in [("", ast.get_docstring(tree) or ""), *cited(tree.body)]:
            papers = PAPER.findall(" ".join(doc.split()))
            if papers:
                first = PAPER.sub("", " ".join(doc.split()))
                concept = re.split(r"(?<=[\w)\]'’])[.:;] |\.$", first)[0].replace("|", "\\|")
                room = path.split("/")[0] if "/" in path else "top level"
                place = f"{path}: {name}" if name else path
                tests = find_tests(root, module, name, path)
                rows.append(Row(room, concept, "; ".join(dict.fromkeys(papers)), place, tests))
    return rows


def write(rows: list[Row]) -> str:
    """The atlas as Markdown, a table for each room."""
    lines = [HEAD]
    for room in dict.fromkeys(row.room for row in rows):
        lines += [f"## {room}\n", "| concept | paper | where | test |", "|---|---|---|---|"]
        for row in rows:
            if row.room == room:
                tests = ", ".join(f"`{test}`" for test in row.tests)
                lines.append(f"| {row.concept} | {row.papers} | `{row.place}` | {tests} |")
        lines.append("")
    return "\n".join(lines)


def main(root: Path, *options: str) -> int:
    """Write or check the atlas under root."""
    rows, atlas = collect(root), root / "docs" / "atlas.md"
    text = write(rows)
    stale = not atlas.is_file() or atlas.read_text(encoding="utf-8") != text
    if "--check" not in options:
        atlas.write_text(text, encoding="utf-8")
    elif stale:
        print("docs/atlas.md is out of date: python tools/atlas.py", file=sys.stderr)
    print(f"atlas: {len(rows)} rows")
    return int("--check" in options and stale)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent, *sys.argv[1:]))
