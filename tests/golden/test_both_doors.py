"""`regard A B … --json` prints what `regard.A.B(…)` returns, called once more from Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard
from regard.ambient import current
from regard.cli import app
from regard.cli.commands import TABLE, Command
from regard.result import Result
from tests.golden.cases import CASES
from tests.golden.run import EXPECTED, call, comparable, differences


def command_of(case) -> Command | None:
    """The command of the table that a case runs."""
    words = [word for word in case.argv if not word.startswith("-")]
    return TABLE.get(" ".join(words[:2])) or TABLE.get(words[0])


def works(case) -> bool:
    """Whether a case prints one result, and writes nothing that is in the way the second time."""
    expected = json.loads((EXPECTED / f"{case.id}.json").read_text())
    printed = isinstance(expected.get("out"), dict) and expected["exit"] == 0
    return printed and not case.stdin and not any("{out}" in word for word in case.argv)


PAIRS = [(case, command_of(case)) for case in CASES if not case.slow and works(case)]
FIRST = {command.name: (case, command) for case, command in reversed(PAIRS) if command}


@pytest.mark.parametrize("name", sorted(FIRST))
def test_both_doors_give_the_same(name, places, monkeypatch):
    case, command = FIRST[name]
    function, calls = command.load(), []

    def noted(function, arguments, result):
        calls.append((arguments, current()))
        return result

    monkeypatch.setattr(app, "note_call", noted)
    out = Path(places["tmp"], "doors", case.id)
    code, printed, error = call([word.format(out=out, **places) for word in case.argv])
    assert code == 0, error
    arguments, around = calls[0]
    with regard.settings(seed=around.seed, device=around.device, quiet=True):
        result = function(**arguments)
    if isinstance(result, Iterator):
        (result,) = result
    assert isinstance(result, Result) and result._repr_html_() and str(result)
    base = places["tmp"]
    shown, returned = json.loads(printed), json.loads(json.dumps(result.to_dict()))
    pair = (comparable(value, case.ignore, base) for value in (returned, shown))
    assert not list(differences(*pair, case.tolerance))
