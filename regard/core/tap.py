"""Taps: named places in the model where an activation can be read or replaced at no cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

TapFunction = Callable[[Tensor], Tensor]


class Tap:
    """A place in the model where an activation can be read or replaced; idle unless `fn` is set."""

    __slots__ = ("fn", "hook")

    def __init__(self) -> None:
        self.fn: TapFunction | None = None
        self.hook: Any = None  # that of `look/hooks.py`, which is `fn` while it has work

    def __call__(self, x: Tensor) -> Tensor:
        """`x` itself, or what the attached function makes of it."""
        return x if self.fn is None else self.fn(x)


class Taps:
    """The taps of one module: `self.at = Taps("q", "k")`, then `q = self.at.q(q)`.

    A namespace of its own keeps the tap `attn.q` apart from the projection `attn.q`.
    """

    def __init__(self, *names: str) -> None:
        for name in names:
            setattr(self, name, Tap())

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tap: ...


def taps(model: nn.Module) -> dict[str, Tap]:
    """All taps of a model in order of their modules: name (path of the owner + place) → Tap."""
    places: dict[str, Tap] = {}
    for path, module in model.named_modules():
        here = vars(module).get("at")
        if isinstance(here, Taps):
            places |= {f"{path}.{name}".lstrip("."): tap for name, tap in vars(here).items()}
    return places
