"""Lines of code in the package: no blanks, comments or docstrings, which are free.

    python tools/size.py    prints them per room; exits 1 when there are too many

CEILING holds with every feature in it, and is never raised: a feature is paid for by deleting.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

CEILING = 37_000
EMPTY = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Lines that hold code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {
        line
        for token in tokens
        if token.type not in EMPTY
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                if isinstance(child.value.value, str):  # a docstring
                    lines -= set(range(child.lineno, (child.end_lineno or child.lineno) + 1))
    return len(lines)


def count_rooms(root: Path) -> Counter[str]:
    """Lines of code of each room of the package."""
    rooms: Counter[str] = Counter()
    for file in sorted((root / "regard").rglob("*.py")):
        room, *inside = file.relative_to(root / "regard").parts
        rooms[room if inside else "(top)"] += code_lines(file.read_text(encoding="utf-8"))
    return rooms


def main(root: Path) -> int:
    """Print the table; 1 when there are more lines than there may be."""
    rooms = count_rooms(root)
    for room, lines in rooms.most_common():
        print(f"{room:14}{lines:8,}")
    print(f"{'package':14}{rooms.total():8,} of at most {CEILING:,}")
    return int(rooms.total() > CEILING)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
