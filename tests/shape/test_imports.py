"""Who may import whom (ARCHITECTURE section 4), read from the source with ast."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEVELS = """
errors
files ambient energy heap seed
result
receipt
verbs
zoo
core tokens
native
model data
nvib/config nvib/results
nvib/bottleneck
nvib/denoising
nvib/autoencoder
history
interop decode train
look
history/predictors
history/shannon
history/rungs
tune nvib evaluate formal speech
model_kinds
translation
kit
loading
train/frozen_encoder
train/kinds
tune/policy_rollouts
tune/alignment
train/runs
train/reproduction
tune/prediction speech/long_form nvib/text_autoencoder
tune/classification
vision graphs
speech/sound_files
speech/sound_classes
vision/picture_maps
rules serve demonstrations
mechanism __init__
cli
__main__
"""
"""A part of the package may import what stands on lines above its own."""
LEVEL = {name: n for n, line in enumerate(LEVELS.split("\n")[1:]) for name in line.split()}
UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def part(path: str) -> str:
    """What has a level: the file itself, or else its folder: core/block.py is core."""
    names = path.removesuffix(".py").split("/")
    ways = ("/".join(names[:count]) for count in range(len(names), 0, -1))
    return next((way for way in ways if way in LEVEL), names[0])


def imported(node: ast.Import | ast.ImportFrom, path: str) -> list[str]:
    """Full dotted names an import statement may load; `from a import b` gives a.b."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:  # relative: one dot is the folder of the file
        folders = ["regard", *path.split("/")[:-1]]
        stem = folders[: len(folders) - node.level + 1]
        base = ".".join([*stem, base] if base else stem)
    return [f"{base}.{alias.name}" for alias in node.names]


def at_run_time(tree: ast.AST) -> set[ast.AST]:
    """Nodes that run when the module is imported: not in functions, not for type checkers only."""
    found: set[ast.AST] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        found |= {node} | at_run_time(node)
    return found


def for_types(tree: ast.AST) -> set[ast.AST]:
    """Nodes that only type checkers read."""
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    typed = (block for block in blocks if "TYPE_CHECKING" in ast.unparse(block.test))
    return {node for block in typed for inner in block.body for node in ast.walk(inner)}


def import_fault(name: str, path: str, eager: bool) -> str | None:
    """Why the file at `path` may not import `name`, or None.

    A room's face, its __init__.py and results.py, may call upward inside its functions.
    """
    top, own = name.split(".")[0], part(path)
    upward = path.endswith(("/__init__.py", "/results.py")) and not eager
    if top == "regard" and name != "regard.__version__" and not upward:
        target = part(name.removeprefix("regard.").replace(".", "/")) if "." in name else "__init__"
        target = target if target in LEVEL else "__init__"  # from regard import load
        if own == "core" and target not in ("core", "errors"):
            return f"core imports nothing from regard but errors, not {target}"
        if target != own and LEVEL[target] >= LEVEL[own]:
            return f"{own} (level {LEVEL[own]}) imports {target} (level {LEVEL[target]})"
    if (
        LEVEL[own] <= LEVEL["verbs"]
        and eager
        and top != "regard"
        and top not in sys.stdlib_module_names | {"__future__"}
    ):
        return f"level 0 uses the standard library only, not {top}"
    if (
        top == "torch"
        and eager
        and (own in ("tokens", "verbs", "result") or path.startswith("cli/main"))
    ):
        return f"{path} must not load torch"
    if top == "transformers" and (eager or path != "interop/parity.py"):
        return "transformers belongs to tests, and to functions of interop/parity.py"
    if top in UNSAFE or name == "torch.load":
        return f"{name} can run code found in a file"
    return None


def violations(source: str, path: str) -> list[str]:
    """Each breach of the rules in one file, as `regard/path:line: why: the line`."""
    if part(path) not in LEVEL:
        return [f"regard/{path}:1: {part(path)} has no level in tests/shape/test_imports.py"]
    tree, lines, found = ast.parse(source), source.splitlines(), []
    eager, typed = at_run_time(tree), for_types(tree)
    for node in ast.walk(tree):
        why: list[str | None] = []
        if node in typed:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            why = [import_fault(name, path, node in eager) for name in imported(node, path)]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.load":
            why = ["torch.load can run code found in a file"]
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            if ast.unparse(node.value) != "False":
                why = ["allow_pickle can run code found in a file"]
        for reason in filter(None, why):
            line = lines[node.lineno - 1].strip()
            found.append(f"regard/{path}:{node.lineno}: {reason}: {line}")
    return found


def test_every_import_points_towards_level_zero():
    files = sorted((ROOT / "regard").rglob("*.py"))
    assert files
    found = []
    for file in files:
        path = file.relative_to(ROOT / "regard").as_posix()
        found += violations(file.read_text(encoding="utf-8"), path)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("errors.py", "import torch"),
        ("core/block.py", "from regard.seed import fix"),
        ("core/block.py", "from ..model import Model"),
        ("core/block.py", "from regard import model"),
        ("tokens/train.py", "from regard.core import Block"),
        ("tokens/train.py", "import torch.nn as nn"),
        ("tokens/train.py", "class A:\n    import torch"),
        (
            "model/model.py",
            "def f():\n    from regard.tokens import x\n    from regard.data import y",
        ),
        ("model/model.py", "from regard import load"),
        ("data/text.py", "import regard.history.ngrams"),
        ("decode/beam.py", "from regard.look.hooks import HookedModel"),
        ("cli/main.py", "import torch"),
        ("look/hooks.py", "import pickle"),
        ("look/hooks.py", "import torch\nx = torch.load('a')"),
        ("look/hooks.py", "from torch import load"),
        ("look/hooks.py", "import numpy\nnumpy.load('a', allow_pickle=True)"),
        ("interop/parity.py", "import transformers"),
        ("interop/folder.py", "def f():\n    import transformers"),
        ("unheard/of.py", ""),
        ("tokens/__init__.py", "from regard.kit import Kit"),
    ],
)
def test_a_breach_is_found(path, source):
    assert violations(source, path)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/block.py", "import torch\nfrom regard.core.mlp import MLP\nfrom .tap import Tap"),
        ("tokens/train.py", "from regard.errors import DataError\nfrom regard import errors"),
        ("tokens/train.py", "def f():\n    import torch"),
        ("history/ngram.py", "from regard.data import text"),
        ("train/trainer.py", "from regard.core import Block\nfrom regard.model.model import Model"),
        ("kit.py", "from regard.look import capture"),
        ("interop/folder.py", "from regard import __version__"),
        ("interop/parity.py", "def f():\n    from transformers import AutoModel"),
        ("cli/main.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("__init__.py", "from regard.kit import Kit"),
        ("tokens/__init__.py", "def f():\n    from regard.kit import Kit"),
    ],
)
def test_what_is_allowed_passes(path, source):
    assert violations(source, path) == []
