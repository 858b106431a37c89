"""A model without memory: the shapes of a real one, made without torch's compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from regard.model import presets
from regard.model.config import ModelConfig
from regard.model.model import Model, empty_model

ROOT = Path(__file__).resolve().parents[2]
SHAPES = [
    presets.transformer(8, 1, 2, 11),
    presets.gpt2(8, 2, 2, 11, 9),
    presets.vit(8, 1, 2, patch=4, side=8, classes=3),
    presets.whisper(8, 1, 2, 11),
]


@pytest.mark.parametrize("config", SHAPES, ids=lambda c: c.front.kind)
def test_names_and_shapes_are_those_of_a_real_model(config: ModelConfig) -> None:
    made = {name: p.shape for name, p in Model(config).named_parameters()}
    empty = dict(empty_model(config).named_parameters())
    assert {name: p.shape for name, p in empty.items()} == made
    assert all(p.is_meta for p in empty.values())


def test_opening_a_folder_loads_no_compiler(tmp_path: Path) -> None:
    from regard.kit import Kit

    Kit(Model.fresh(SHAPES[0])).save(tmp_path, stored="int8")
    code = (
        "import sys, regard; regard.load(sys.argv[1]);"
        "print('torch._dynamo' in sys.modules, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "False True\n", done.stderr[-2000:]
