"""Public functions check their arguments, and settings surround them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

import regard
from regard.ambient import current, track
from regard.errors import UsageError
from regard.result import Result
from regard.verbs import FLAT, Amount, Count, File, Natural, Share, verb


@dataclass(frozen=True)
class Sizes:
    steps: Count = 3


class Answer(Result):
    """An answer."""

    value: float


@verb
def work(
    file: File,
    *,
    count: Count = 1,
    natural: Natural | None = None,
    share: Share = 0.5,
    amount: Amount = 1.0,
    kind: Literal["words", "chars"] = "words",
    many: list[Count] = [1],  # noqa: B006
    some: Sequence[Natural] | None = None,
    config: Annotated[Sizes, FLAT] = Sizes(),  # noqa: B008
) -> Answer:
    """Do nothing."""
    return Answer(count + amount)


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"count": 1 << 40},
        {"count": True},
        {"natural": -1},
        {"share": 1.1},
        {"share": float("nan")},
        {"amount": 0},
        {"kind": "wrods"},
        {"many": [1, 0]},
        {"some": [1, -1]},
        {"config": Sizes(steps=0)},
    ],
)
def test_a_value_out_of_bounds_is_refused(wrong):
    with pytest.raises(UsageError, match="calling work"):
        work("a", **wrong)


def test_a_wrong_choice_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean words?"):
        work("a", kind="wrods")


def test_the_result_knows_its_call():
    answer = work("a.txt", count=2, natural=0)
    assert answer.value == 3 and answer.call.files == ["a.txt"]
    assert answer.call.arguments == {"file": "a.txt", "count": 2, "natural": 0}
    assert answer.call.function.endswith("test_verbs.work")


def test_settings_hold_inside_their_block():
    assert (current().seed, current().device) == (0, "auto")
    with regard.settings(seed=3):
        with regard.settings(device="cpu"):
            assert (current().seed, current().device) == (3, "cpu")
        assert current().device == "auto"
    assert current().seed == 0
    for wrong in ({"device": "gpu"}, {"seed": 1 << 70}, {"sede": 1}):
        with pytest.raises(UsageError), regard.settings(**wrong):
            pass


def test_tracking_gives_the_items():
    assert list(track(iter("abc"), "reading")) == ["a", "b", "c"]
