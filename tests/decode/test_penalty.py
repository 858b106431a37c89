"""Length penalties."""

import pytest

from regard.decode.beam import length_penalty
from regard.errors import UsageError


@pytest.mark.parametrize(("n", "value"), [(5, 1.3587), (10, 1.7329), (20, 2.3544), (50, 3.7786)])
def test_gnmt(n, value):
    assert length_penalty("gnmt", 0.6)(n) == pytest.approx(value, abs=5e-5)
    assert length_penalty()(n) == length_penalty("gnmt", 0.6)(n)


def test_others():
    assert length_penalty("none")(7) == 1
    assert length_penalty("length", 1.0)(7) == 7
    assert length_penalty("length", 0.5)(9) == 3
    assert length_penalty("gnmt", 0.0)(9) == 1


@pytest.mark.parametrize("alpha", [-0.1, float("nan")])
def test_alpha_has_a_floor(alpha):
    with pytest.raises(UsageError, match="expected: 0 or more"):
        length_penalty("gnmt", alpha)


def test_unknown_kind():
    with pytest.raises(UsageError, match="none, length, gnmt"):
        length_penalty("wu")
