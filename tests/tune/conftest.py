"""A tiny Llama that reads letters, and pairs of answers for it: those of bench/dpo_trl.py."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def dpo_trl():
    path = Path(__file__).parents[2] / "bench" / "dpo_trl.py"
    spec = importlib.util.spec_from_file_location("dpo_trl", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def inputs(dpo_trl, tmp_path_factory):
    """(folder of the model, pairs.jsonl)"""
    return dpo_trl.make_inputs(tmp_path_factory.mktemp("inputs"))
