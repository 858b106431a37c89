"""Check that every file, symbol, test and example named in docs/atlas.md exists.

A row reads

    | concept | paper | `core/mlp.py: MLP` | `core/test_mlp.py` | `examples/mlp.py` |

with `where` under regard/, `test` under tests/ and `example` under the repository; a cell may hold
several names, each in back quotes, and a dash for none (not in `where` and `test`). A symbol may be
dotted (`Block.forward`). Exits 1 with the offending rows.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

COLUMNS = ["concept", "paper", "where", "test", "example"]  # further columns are free
PLACES = {"where": "regard", "test": "tests", "example": "."}
NONE = {"", "-", "–", "—"}


def rows(text: str) -> list[tuple[int, dict[str, str]]]:
    """Line number and cells of each row of the tables that have the columns of the atlas."""
    found, inside = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|"):
            inside = False
        elif [cell.lower() for cell in cells[:5]] == COLUMNS:
            inside = True
        elif inside and set(line) - set("|-: "):  # not the ruler below the header
            cells += [""] * (5 - len(cells))
            found.append((number, dict(zip(COLUMNS, cells, strict=False))))
    return found


def symbols(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Names defined in a module or class body, methods as Class.method."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                names |= symbols(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {prefix + target.id for target in targets if isinstance(target, ast.Name)}
    return names


def fault(reference: str, folder: Path) -> str | None:
    """What is wrong with `path` or `path: symbol`, or None."""
    path, _, symbol = (part.strip() for part in reference.partition(":"))
    file = folder / path
    if not file.is_file():
        return f"no file {path}"
    if symbol and symbol not in symbols(ast.parse(file.read_text(encoding="utf-8")).body):
        return f"no {symbol} in {path}"
    return None


def faults(cells: dict[str, str], root: Path) -> list[str]:
    """All that is wrong with one row."""
    found = []
    for column, place in PLACES.items():
        references = re.findall(r"`([^`]+)`", cells[column])
        if not references and (column != "example" or cells[column] not in NONE):
            found.append(f"{column}: no name in back quotes")
        for reference in references:
            wrong = fault(reference, root / place)
            found += [f"{column}: {wrong}"] if wrong else []
    return found


def main(root: Path) -> int:
    """Check the atlas under root; 1 when it is missing, empty or wrong."""
    atlas = root / "docs" / "atlas.md"
    if not atlas.is_file():
        print(f"{atlas}: missing", file=sys.stderr)
        return 1
    table = rows(atlas.read_text(encoding="utf-8"))
    wrong = [(number, cells, faults(cells, root)) for number, cells in table]
    for number, cells, found in wrong:
        for sentence in found:
            print(f"docs/atlas.md:{number}: {cells['concept']}: {sentence}", file=sys.stderr)
    if not table:
        print(f"docs/atlas.md: no table with columns {' | '.join(COLUMNS)}", file=sys.stderr)
    bad = sum(bool(found) for _, _, found in wrong)
    print(f"atlas: {len(table)} rows, {bad} wrong")
    return 1 if bad or not table else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
