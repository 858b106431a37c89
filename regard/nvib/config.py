"""How strongly a model is regularised after training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from regard.errors import UsageError

DOING = "regularising a model"


@dataclass(frozen=True)
class Temperatures:
    """Where an attention lies between what it was (1, 0, large) and its prior."""

    mu: float = 1.0
    """Means of what is attended to: 1 is each vector itself, 0 the mean of the prior."""
    sigma: float = 0.0
    """Standard deviations, in those of the prior: 0 is none."""
    alpha: float = 10.0
    """How much more than the prior a vector weighs: in the standard deviations of |x|²/(2√E)."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not isfinite(value) or (name == "sigma" and value < 0):
                wanted = "a number from 0 up" if name == "sigma" else "a finite number"
                raise UsageError(DOING, f"{name} = {value!r}", wanted)


Strength = float | Temperatures | Mapping[str, float | Temperatures]
"""From 0 (nothing is changed) to 1; or the temperatures themselves; or either for each kind of
attention: {"encoder": 0.2, "cross": …, "decoder": …}, those that are not named stay as they are."""
