"""parity.json: what is in it, how it is written, and when nothing can be measured."""

from __future__ import annotations

import json
import os
import sys

import pytest
import torch

from regard.errors import DataError, ResourceError
from regard.interop import parity
from regard.interop.families import bind
from regard.interop.parity import BAR, Parity, batches, draw, why_not, write_parity
from regard.model import presets
from regard.model.config import TextConfig

FOUND = Parity(
    "GPT2LMHeadModel",
    *(True, 1e-6, 1e-6, 1.0, BAR, 5, 0, "float32", "cpu"),
    {"regard": "0.1.0", "torch": "2.13.0", "transformers": "5.22.2"},
    "2026-01-01T00:00:00+00:00",
)
TINY = {
    "decoder": presets.gpt2(16, 1, 2, vocab=50, length=40),
    "encoder": presets.bert(16, 1, 2, vocab=50, length=40),
    "pair": presets.transformer(16, 1, 2, vocab=50),
    "picture": presets.vit(16, 1, 2, patch=4, side=8, classes=5),
    "sound": presets.whisper(16, 1, 2, vocab=50, mels=8, seconds=1),
}


def test_it_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    write_parity(tmp_path, FOUND)
    kept = json.loads((tmp_path / "parity.json").read_text())
    wanted = {"max_difference", "relative", "dtype", "versions", "date", "batches", "passed"}
    assert wanted <= set(kept) and kept["versions"]["torch"] == "2.13.0"
    assert [file.name for file in tmp_path.iterdir()] == ["parity.json"]

    def full(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ResourceError, match="No space left"):
        write_parity(tmp_path, FOUND)
    assert json.loads((tmp_path / "parity.json").read_text()) == kept
    assert [file.name for file in tmp_path.iterdir()] == ["parity.json"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"writing .*parity\.json"):
        write_parity(tmp_path / "nothing", FOUND)


def test_why_nothing_is_measured(tmp_path, monkeypatch):
    class Source:
        path = tmp_path

    binding = bind("GPT2LMHeadModel")
    assert why_not(Source(), binding) is None
    assert "no such architecture" in why_not(Source(), None)
    Source.path = tmp_path / "model.gguf"
    assert "folders only" in why_not(Source(), binding)
    monkeypatch.setattr(parity, "find_spec", lambda name: None)
    assert why_not(Source(), binding) == "transformers is not installed"


@pytest.mark.parametrize("kind", TINY)
def test_batches_cover_padding_where_there_is_any(kind):
    config = TINY[kind]
    made = list(batches(config, torch.Generator().manual_seed(0), pad=0))
    assert len(made) == (3 if kind == "picture" else 5)
    masked = [batch for batch in made if batch.mask is not None]
    assert len(masked) == (0 if kind == "picture" else 2)
    for batch in masked:
        lengths = batch.mask.sum(-1).tolist()
        assert len(set(lengths)) > 1 or len(lengths) < 3
        assert not batch.ids[~batch.mask].any() and batch.ids[batch.mask].all()
    if kind == "encoder":
        assert any(batch.segments is not None and batch.segments.any() for batch in made)


def test_the_padding_id_is_never_drawn_and_all_others_are():
    front = TextConfig(4, 7)
    ids, _ = draw(front, 50, 50, torch.Generator().manual_seed(0), pad=3)
    assert set(ids.flatten().tolist()) == {0, 1, 2, 4, 5, 6}


def test_transformers_is_not_imported_here():
    assert "transformers" not in vars(parity) and sys.modules[parity.__name__] is parity
