"""Every command says what it said when its file was written, but for rounding and the clock."""

from __future__ import annotations

import json

import pytest

from tests.golden.cases import CASES
from tests.golden.run import EXPECTED, differences, observe

MARKED = [
    pytest.param(case, id=case.id, marks=[pytest.mark.slow] if case.slow else []) for case in CASES
]


@pytest.mark.parametrize("case", MARKED)
def test_a_command_says_what_it_said(case, places):
    expected = json.loads((EXPECTED / f"{case.id}.json").read_text())
    wrong = list(differences(observe(case, places), expected, case.tolerance))
    assert not wrong, f"regard {case.line}\n" + "\n".join(wrong[:20])


def test_every_case_has_a_file_and_every_file_a_case():
    names = [case.id for case in CASES]
    assert len(names) == len(set(names))
    assert sorted(names) == sorted(file.stem for file in EXPECTED.glob("*.json"))
