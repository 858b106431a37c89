"""regard: one Transformer layer for text, images and sound, with everything in view.

`regard A B` on the command line is `regard.A.B(...)` here: same name, arguments and result.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `__getattr__` reads these lines too: each is done when a name is first used
    from regard import data, evaluate, formal, history, look, nvib, tokens, train, tune
    from regard.ambient import settings
    from regard.core.similarity import attend, attention, kernel_regression
    from regard.core.tap import Tap, taps
    from regard.decode import chat, embed, fill, generate, score
    from regard.decode.conversation import Chat
    from regard.demonstrations import demo
    from regard.errors import RegardError
    from regard.history import ladder
    from regard.interop import check, export
    from regard.kit import Kit
    from regard.loading import build, load
    from regard.look.activation_store import Extracted
    from regard.look.edits import add, mean, patch, zero
    from regard.model import info, models, plan
    from regard.model.batch import onehot
    from regard.native import doctor
    from regard.rules import discover
    from regard.speech import transcribe
    from regard.train import replay, verify
    from regard.train.config import DataConfig, LoRA, PictureConfig, ShapeConfig, TrainConfig
    from regard.translation import translate
    from regard.tune import predict
    from regard.tune.config import HeadTuning, PolicyConfig, PreferenceConfig
    from regard.vision import draw

__version__ = "0.1.0"

__all__ = ["Chat", "DataConfig", "Extracted", "HeadTuning", "Kit", "LoRA", "PictureConfig"]
__all__ += ["PolicyConfig", "PreferenceConfig", "RegardError", "ShapeConfig", "Tap"]
__all__ += ["TrainConfig", "add", "attend", "attention", "build", "chat", "check", "data", "demo"]
__all__ += ["discover", "doctor", "draw", "embed", "evaluate", "export", "fill", "formal"]
__all__ += ["generate", "history", "info", "kernel_regression", "ladder", "load", "look", "mean"]
__all__ += ["models", "nvib", "onehot", "patch", "plan", "predict", "replay", "score", "settings"]
__all__ += ["taps", "tokens", "train", "transcribe", "translate", "tune", "verify", "zero"]


@cache
def _homes() -> dict[str, str]:
    """The module that each public name is imported from, by the lines above."""
    lines = ast.walk(ast.parse(inspect.getsource(sys.modules[__name__])))
    imports = [line for line in lines if isinstance(line, ast.ImportFrom)]
    return {alias.name: str(line.module) for line in imports for alias in line.names}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used: `import regard` itself needs no torch."""
    if name not in __all__:
        names = ", ".join(__all__)
        raise AttributeError(f"module 'regard' has no attribute {name!r}; it has {names}")
    home = _homes()[name]
    if home == "regard":  # a room, whose verbs are reached through its name: regard.tokens.encode
        return import_module(f"regard.{name}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return ["__version__", *__all__]
