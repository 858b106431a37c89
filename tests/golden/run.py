"""Run a command in this process, and compare what it says with what it said before."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

EXPECTED = Path(__file__).with_name("expected")
PACKAGE = str(Path(__file__).resolve().parents[2] / "regard")
KINDS = {1: "RegardError", 2: "UsageError", 3: "DataError", 4: "ResourceError"}
"""The kind of error that each exit code stands for."""
LONGEST = 12  # items of a list that are kept as they are
KEPT = 4  # of a longer one; the rest becomes a digest


def call(arguments: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
    """Run the command line: exit code, stdout, stderr."""
    from regard.cli.main import main

    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(arguments))
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else 1
    finally:
        sys.stdin = before
    return code, out.getvalue(), err.getvalue()


def observe(case: Any, places: dict[str, str]) -> dict[str, Any]:
    """What a case gives: exit code, the kind of error, and what stdout holds, made comparable."""
    out = Path(places["tmp"], "out", case.id)
    out.parent.mkdir(exist_ok=True)
    arguments = [word.format(out=out, **places) for word in case.argv]
    code, said, error = call(arguments, case.stdin)
    seen: dict[str, Any] = {"exit": code}
    if code in KINDS and re.search("^error: ", error, re.MULTILINE):
        seen["error"] = KINDS[code]
    elif code:
        seen["stderr"] = error[-2000:]  # unexpected: shown, never recorded on purpose
    if said:
        seen["out"] = shorten(comparable(parse(said), case.ignore, places["tmp"]))
    return seen


def parse(said: str) -> Any:
    """Stdout as JSON, as JSON lines, or as it is."""
    try:
        return json.loads(said)
    except json.JSONDecodeError:
        pass
    try:
        return [json.loads(line) for line in said.splitlines()]
    except json.JSONDecodeError:
        return said


# What is not compared -----------------------------------------------------------------------------

VOLATILE = re.compile(
    r"(.*_)?(seconds?|per_s|s|joules?|watts?|energy|time|started|ended|date|speed|rss|device"
    r"|hash|sha256|hashes|versions?|host|machine|platform|python|torch|threads|cores"
    r"|disk_free|memory_free)"
)
"""Names of figures that differ from run to run, or from machine to machine."""
PARTS = {r"\b[0-9a-f]{64}\b": "{hash}", r"\bversion:[\d.]+": "version:{version}"}
"""The same inside of texts, and what stands there instead."""


def comparable(value: Any, ignore: Sequence[str], base: str) -> Any:
    """Without what is volatile, with places of files written as {tmp}."""
    if isinstance(value, dict):
        return {
            name.replace(base, "{tmp}"): comparable(inside, ignore, base)
            for name, inside in value.items()
            if name not in ignore and not VOLATILE.fullmatch(name)
        }
    if isinstance(value, list):
        return [comparable(inside, ignore, base) for inside in value]
    if not isinstance(value, str):
        return value
    for pattern, name in PARTS.items():
        value = re.sub(pattern, name, value)
    return value.replace(base, "{tmp}").replace(PACKAGE, "{package}")


def shorten(value: Any) -> Any:
    """Long lists as their first items and a digest of the rest, so that files stay small."""
    if isinstance(value, dict):
        return {name: shorten(inside) for name, inside in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) <= LONGEST:
        return [shorten(inside) for inside in value]
    leaves = list(leaves_of(value))
    words = "\n".join(repr(leaf) for leaf in leaves if not isinstance(leaf, float))
    digest = {
        "items": len(value),
        "floats": math.fsum(abs(leaf) for leaf in leaves if isinstance(leaf, float)),
        "others": hashlib.sha256(words.encode()).hexdigest()[:12],
    }
    return [*map(shorten, value[:KEPT]), digest]


def leaves_of(value: Any) -> Iterator[Any]:
    """Every value below one, and the names it stands under, in a fixed order."""
    if isinstance(value, dict):
        for name in sorted(value):
            yield name
            yield from leaves_of(value[name])
    elif isinstance(value, list):
        for inside in value:
            yield from leaves_of(inside)
    else:
        yield value


def differences(got: Any, expected: Any, tolerance: float, at: str = "") -> Iterator[str]:
    """Where two values differ, in words; floats may differ by a share of their size."""
    if isinstance(got, dict) and isinstance(expected, dict):
        for name in sorted({*got, *expected}):
            if name not in got or name not in expected:
                yield f"{at}.{name} is {'missing' if name in expected else 'new'}"
            else:
                yield from differences(got[name], expected[name], tolerance, f"{at}.{name}")
    elif isinstance(got, list) and isinstance(expected, list):
        if len(got) != len(expected):
            yield f"{at} has {len(got)} items, not {len(expected)}"
        for n, pair in enumerate(zip(got, expected, strict=False)):
            yield from differences(*pair, tolerance, f"{at}[{n}]")
    elif is_number(got) and is_number(expected) and float in (type(got), type(expected)):
        if not math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance / 10):
            yield f"{at} is {got}, not {expected}"
    elif got != expected or type(got) is not type(expected):
        yield f"{at} is {got!r}, not {expected!r}"


def is_number(value: Any) -> bool:
    """Whether it is a float or an int; a bool is neither."""
    return isinstance(value, int | float) and not isinstance(value, bool)
