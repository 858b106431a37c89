"""`regard A B … --json` prints what `regard.A.B(…).to_dict()` is, also when it is called again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import reduce
from pathlib import Path

import pytest

import regard
from regard.ambient import current, settings
from regard.cli import app
from regard.cli.commands import COMMANDS
from regard.result import Result
from tests.golden.cases import CASES
from tests.golden.run import EXPECTED, call, comparable, differences, parse

SLOW = {"verify", "demo"}  # minutes; seconds that differ
WRITTEN = ("out", "folder", "weights", "last_weights")  # where this call wrote, not that one


def first_case(name):
    """The first case of a command that succeeds on what the command line says alone."""
    for case in CASES:
        words = " ".join(case.argv[: len(name.split())])
        if words == name and not case.stdin and "--out {run}" not in case.line:
            if json.loads((EXPECTED / f"{case.id}.json").read_text())["exit"] == 0:
                return case
    return None


NAMES = [command.name for command in COMMANDS if command.name not in SLOW]


@pytest.mark.parametrize("name", NAMES)
def test_both_doors_give_the_same(name, places, monkeypatch):
    case = first_case(name)
    assert case is not None, f"no golden case of {name} succeeds"
    asked = {}

    def keep(function, arguments):
        for name, value in arguments.items():
            arguments[name] = list(value) if isinstance(value, Iterator) else value  # read twice
        asked.update(arguments=dict(arguments), settings=asdict(current()))

    monkeypatch.setattr(app, "check_arguments", keep)
    out = Path(places["tmp"], "doors", case.id)
    out.parent.mkdir(exist_ok=True)
    code, said, error = call([word.format(out=out, **places) for word in case.argv])
    assert code == 0, error
    arguments = asked["arguments"]
    if arguments.get("out") is not None:
        arguments["out"] = str(arguments["out"]).replace(case.id, f"{case.id}-again")
    with settings(**asked["settings"]):
        result = reduce(getattr, name.split(), regard)(**arguments)
        again = [each.to_dict() for each in result] if is_stream(result) else result.to_dict()
    printed = parse(said)
    if isinstance(again, list) and not isinstance(printed, list):
        printed = [printed]  # a stream of one
    ignore = (*case.ignore, *WRITTEN)
    one, other = (comparable(side, ignore, places["tmp"]) for side in (printed, plain(again)))
    wrong = list(differences(other, one, case.tolerance))
    assert not wrong, f"regard {case.line}\n" + "\n".join(wrong[:20])


def is_stream(result):
    """Whether a verb gave results one after the other."""
    return isinstance(result, Iterator) and not isinstance(result, Result)


def plain(value):
    """As JSON has it."""
    return json.loads(json.dumps(value))
