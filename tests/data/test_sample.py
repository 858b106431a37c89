"""A sample that is evenly spaced, of any stream."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.sample import evenly


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 19, 20, 21, 22, 100, 1000, 1023])
def test_evenly(count: int) -> None:
    found = evenly(iter(range(count)), 10)
    assert len(found) == min(count, 10)
    if count <= 10:
        assert found == list(range(count))
        return
    gaps = np.diff([*found, count])
    assert found[0] == 0 and gaps.min() >= 1
    assert gaps.max() <= 2 * count / 10 + 1
