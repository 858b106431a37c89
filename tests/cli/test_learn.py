"""`regard lang learn` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.cli.learn import mean
from regard.cli.learn import test_lengths as lengths_of
from regard.cli.main import main


def test_a_table_and_a_line_for_each_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs.jsonl"
    command = "lang learn parity --models gru --steps 3 --train-length 5 --test-length 12".split()
    assert main([*command, "--rows", "8", "--seeds", "2", "--out", str(out)]) == 0
    table = capsys.readouterr().out
    assert "parity  gru" in table and "2 seeds, best (mean)" in table and "6–12" in table
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["seed"] for line in lines] == [0, 1]
    assert lines[0]["task"] == "parity" and lines[0]["published"] is None
    assert set(lines[0]["lengths"]) == {"5", "10"} or "12" in lines[0]["lengths"]


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    command = "lang learn even-pairs --models rnn --steps 2 --train-length 4 --test-length 9 --json"
    assert main(command.split()) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["published"] == 100 and run["steps"] == 2 and 0 <= run["far"] <= 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("lang learn parity --models rotry", "did you mean rotary?"),
        ("lang learn parit", "did you mean parity?"),
        ("lang learn parity --train-length 40 --test-length 30", "longer sequences"),
    ],
)
def test_mistakes_are_named(command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    assert said in capsys.readouterr().err


def test_lengths_reach_the_end_and_each_stands_for_those_before_it() -> None:
    assert lengths_of(40, 500)[:3] == [40, 45, 50] and lengths_of(40, 500)[-1] == 500
    assert lengths_of(5, 8) == [5, 8]
    assert mean({40: 0.0, 50: 1.0, 100: 0.5}, 40, 100) == pytest.approx((10 + 25) / 60)
    assert mean({40: 1.0}, 40, 100) is None
