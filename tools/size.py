"""Lines of code in the package: no blanks, comments or docstrings, which are free.

    python tools/size.py          prints them per room; exits 1 when there are too many
    python tools/size.py --keep   remembers a smaller size in tools/size.txt

Until the package has come under HOUSE it may only shrink: the last size is kept beside this file.
From then on CEILING holds, with every feature in it. Neither is ever raised.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

HOUSE, CEILING = 28_500, 37_000
KEPT = "tools/size.txt"
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


def main(root: Path, *options: str) -> int:
    """Print the table; 1 when there are more lines than there may be."""
    rooms, kept = count_rooms(root), root / KEPT
    total = rooms.total()
    last = int(kept.read_text()) if kept.is_file() else total
    most = CEILING if last <= HOUSE else last
    for room, lines in rooms.most_common():
        print(f"{room:14}{lines:8,}")
    print(f"{'package':14}{total:8,} of at most {most:,}")
    if "--keep" in options and total < last:
        kept.write_text(f"{total}\n")
    if total > most:
        print(f"too long: {total:,} lines of code, at most {most:,}", file=sys.stderr)
    return int(total > most)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent, *sys.argv[1:]))
