"""`regard demo`: what it shows is so."""

from __future__ import annotations

import math
from datetime import date, datetime

import pytest

import regard
from regard.demonstrations import compare_warm_ups, make_dates, train_on_dates
from regard.errors import UsageError


def test_the_variance_of_a_score_is_the_width_and_scaling_keeps_the_slope():
    rows = regard.demo("scale").rows
    for row in rows:
        assert row.variance == pytest.approx(row.dim, rel=0.1)
        assert row.scaled_variance == pytest.approx(1, rel=0.1)
    assert rows[-1].gradient < rows[0].gradient / 3  # a softmax that is sure has no slope
    assert rows[-1].scaled_gradient == pytest.approx(rows[0].scaled_gradient, rel=0.1)


def test_dates_are_right_and_no_day_comes_twice():
    pairs = make_dates(300, seed=1)
    assert len({target for _, target in pairs}) == 300 and make_dates(300, seed=1) == pairs
    for source, target in pairs:
        words = source.replace(",", "").split()
        forms = ("%A %d %B %Y", "%d %B %Y", "%B %d %Y")
        form = forms[0] if len(words) == 4 else forms[1] if words[0].isdigit() else forms[2]
        assert datetime.strptime(" ".join(words), form).date() == date.fromisoformat(target)


def test_a_demonstration_leaves_a_model_and_says_what_to_try(tmp_path):
    shown = train_on_dates(tmp_path / "demo", steps=2)
    assert shown.asked == 200 and 0 <= shown.right <= 200 and len(shown.answers) == 8
    assert "try next:\n  regard translate" in str(shown)
    kit = regard.load(tmp_path / "demo/run/final")
    assert kit.tokenizer is not None and kit.model.config.target is not None
    assert str(tmp_path / "demo/run/final") in shown.next[0]
    with pytest.raises(UsageError, match="is there already"):
        regard.demo(out=tmp_path / "demo")


def test_a_name_that_is_none_is_told():
    with pytest.raises(UsageError, match="name = 'scales'") as caught:
        regard.demo("scales")
    assert caught.value.fix == "did you mean scale?"


def test_all_runs_of_the_warm_up_are_listed():
    shown = compare_warm_ups(steps=2)
    assert [(run.start, run.norm, run.warm_up) for run in shown.runs] == [
        ("Xavier", "post", 0),
        ("Xavier", "post", 1),
        ("Xavier", "pre", 0),
        ("Xavier", "pre", 1),
        ("small", "post", 0),
        ("small", "post", 1),
    ]
    assert shown.chance == pytest.approx(math.log(32)) and "not all do" in shown.verdict


@pytest.mark.slow
def test_dates_are_learnt(tmp_path):
    assert regard.demo(out=tmp_path / "demo").right >= 190


@pytest.mark.slow
def test_post_norm_needs_a_warm_up_from_the_weights_of_2017_only():
    losses = {(run.start, run.norm, run.warm_up > 0): run.loss for run in compare_warm_ups().runs}
    assert losses.pop(("Xavier", "post", False)) > 1.7
    assert max(losses.values()) < 0.5
