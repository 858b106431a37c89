"""`regard demo`: what it shows is so."""

from __future__ import annotations

from datetime import date, datetime

import pytest

import regard
from regard.demonstrations import make_dates
from regard.errors import UsageError


def test_dates_are_right_and_no_day_comes_twice():
    pairs = make_dates(300, seed=1)
    assert len({target for _, target in pairs}) == 300 and make_dates(300, seed=1) == pairs
    for source, target in pairs:
        words = source.replace(",", "").split()
        forms = ("%A %d %B %Y", "%d %B %Y", "%B %d %Y")
        form = forms[0] if len(words) == 4 else forms[1] if words[0].isdigit() else forms[2]
        assert datetime.strptime(" ".join(words), form).date() == date.fromisoformat(target)


def test_a_demonstration_leaves_a_model_and_says_what_to_try(tmp_path):
    shown = regard.demo(steps=2, out=tmp_path / "demo")
    assert shown.asked == 200 and 0 <= shown.right <= 200 and len(shown.answers) == 8
    assert "try next:\n  regard translate" in str(shown)
    kit = regard.load(tmp_path / "demo/run/final")
    assert kit.tokenizer is not None and kit.model.config.target is not None
    assert str(tmp_path / "demo/run/final") in shown.next[0]
    with pytest.raises(UsageError, match="is there already"):
        regard.demo(out=tmp_path / "demo")


@pytest.mark.slow
def test_dates_are_learnt(tmp_path):
    assert regard.demo(out=tmp_path / "demo").right >= 190
