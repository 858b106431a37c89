"""A rule as a program of ten lines that anybody can run on the files."""

from __future__ import annotations

from regard.data.tabular import kind_of
from regard.lang.lines import Cut
from regard.lang.rules import Rule

FILE = "open(name, encoding='utf-8-sig', newline='\\n')"
ROWS = {
    "": FILE,
    "csv": f"csv.DictReader({FILE})",
    "tsv": "(dict(zip(head, cells)) for lines in [(line.removesuffix('\\n').removesuffix('\\r')"
    f".split('\\t') for line in {FILE} if line.strip('\\r\\n'))] for head in [next(lines)] "
    "for cells in lines)",
    "jsonl": f"map(json.loads, filter(str.strip, {FILE}))",
}
"""How the rows of a file are read, by its kind."""
PACKED = {".gz": "gzip", ".xz": "lzma"}


def checker(rule: Rule, cut: Cut, file: str = "", counted: str = "") -> str:
    """Python that defines `accepts(tokens)`, and counts accepted lines of files such as this."""
    source, rows = rule.source, ROWS.get(kind_of(file), ROWS["csv"]) if cut.column else ROWS[""]
    if packed := PACKED.get(file[-3:].lower()):
        rows = rows.replace("open(name", f"{packed}.open(name, 'rt'")
    used = {"reduce(": "functools", "accumulate(": "itertools"}
    imports = [f"from {home} import {name[:-1]}" for name, home in used.items() if name in source]
    modules = ["sys", *(name for name in ("csv", "json", "gzip", "lzma") if f"{name}." in rows)]
    cell = f"str(row[{cut.column!r}])" if cut.column else "row"
    tokens = f"{cell}.strip()" if cut.chars else f"{cell}.split()"
    told = f"(row[{cut.label_column!r}], accepts({tokens}))" if cut.label_column else None
    title = f"{rule.reading}{counted and f': {counted}'}".replace("\\", "\\\\").replace('"', "'")
    title = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in title)  # no NUL in a program
    lines = [
        f'"""{title}."""',
        "; ".join([f"import {', '.join(modules)}", *imports]),
        "def accepts(tokens):",
        "    x = list(tokens)",
        f"    return bool({source})",
        'if __name__ == "__main__":',
        "    for name in sys.argv[1:]:",
        f"        said = [{told or f'accepts({tokens})'} for row in {rows} if {cell}.strip()]",
        '        print(f"{name}: {sum(said)} of {len(said)} lines accepted")',
    ]
    if told:
        lines[-1] = "        print(name, {pair: said.count(pair) for pair in sorted(set(said))})"
    return "\n".join(lines) + "\n"
