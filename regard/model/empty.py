"""A model without memory: names and shapes, to be filled or only looked at."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from regard.model.config import ModelConfig
from regard.model.model import Model


def empty_model(config: ModelConfig, kind: type[Model] = Model) -> Model:
    """The model of a shape on the meta device."""
    with torch.device("meta"), Undrawn():
        return kind(config).eval()


class Undrawn(TorchFunctionMode):
    """Parameters are not drawn: to draw on the meta device, torch loads its compiler (1 to 2 s)."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return given["tensor"] if "tensor" in given else args[0]
        return func(*args, **given)
