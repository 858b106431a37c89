"""Learning rates by step."""

from __future__ import annotations

import pytest

from regard.errors import UsageError
from regard.train.optim import SCHEDULES, build_schedule


@pytest.mark.parametrize(("step", "rate"), [(4000, 6.99e-4), (1, 1.747e-7), (100_000, 1.398e-4)])
def test_the_values_of_2017(step, rate):
    peak = 512**-0.5 * 4000**-0.5
    made = peak * build_schedule("inverse_sqrt", 4000, 100_000)(step)
    assert made == pytest.approx(rate, rel=5e-4)
    assert made == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5), rel=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_all_warm_up_to_the_peak_and_stay_positive(name):
    rate = build_schedule(name, 10, 100, 0.1)
    assert rate(5) == pytest.approx(0.5) and rate(10) == pytest.approx(1.0)
    assert all(0 < rate(step) <= 1 for step in range(1, 101))


@pytest.mark.parametrize("name", ["cosine", "wsd"])
def test_those_that_fall_end_at_the_floor(name):
    rate = build_schedule(name, 10, 100, 0.1)
    assert rate(100) == pytest.approx(0.1)
    assert build_schedule(name, 0, 5, 0.0)(5) == pytest.approx(0, abs=1e-12)


def test_wsd_is_stable_up_to_its_last_fifth():
    rate = build_schedule("wsd", 10, 100)
    assert rate(80) == 1.0 and rate(81) < 1.0


def test_an_unknown_name_has_a_neighbour():
    with pytest.raises(UsageError, match="did you mean cosine"):
        build_schedule("cosin", 1, 2)
