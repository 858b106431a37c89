"""parity.json: what is in it, how it is written, and when nothing can be measured."""

from __future__ import annotations

import json
import os
import sys

import pytest
import torch
from gguf import GGMLQuantizationType as Kind

import regard
from regard.errors import ResourceError
from regard.interop import parity
from regard.interop.parity import BAR, batches, draw
from regard.kit import Kit
from regard.model import presets
from regard.model.config import HeadConfig, RecurrentConfig, TextConfig
from regard.model.recurrent import Recurrent
from tests.interop.test_gguf_file import CLASSES, tiny, write

TINY = {
    "decoder": presets.gpt2(16, 1, 2, vocab=50, length=40),
    "encoder": presets.bert(16, 1, 2, vocab=50, length=40),
    "pair": presets.transformer(16, 1, 2, vocab=50),
    "picture": presets.vit(16, 1, 2, patch=4, side=8, classes=5),
    "sound": presets.whisper(16, 1, 2, vocab=50, mels=8, seconds=1),
}


def test_it_is_written_whole_or_not_at_all(decoder, monkeypatch):
    regard.check(decoder)
    kept = json.loads((decoder / "parity.json").read_text())
    wanted = {"max_difference", "relative", "dtype", "versions", "date", "batches", "passed"}
    names = sorted(file.name for file in decoder.iterdir())
    assert wanted <= set(kept) and kept["bar"] == BAR

    def full(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ResourceError, match="No space left"):
        regard.check(decoder)
    assert json.loads((decoder / "parity.json").read_text()) == kept
    assert sorted(file.name for file in decoder.iterdir()) == names


@pytest.mark.parametrize("arch", CLASSES)
def test_a_gguf_file_is_compared_too(arch, tmp_path, run_regard):
    file = tmp_path / "m.gguf"
    write(file, tiny(arch, tied=False), kind=Kind.Q8_0)
    code, out, err = run_regard("check", file, "--json")
    parity = json.loads(out)["parity"]
    assert code == 0 and err == "" and parity["passed"] and parity["relative"] <= BAR
    assert json.loads((tmp_path / "m.parity.json").read_text()) == parity
    assert regard.info(str(file)).parity["passed"]


def test_where_nothing_can_be_compared_the_promises_are_tested(decoder, tmp_path, monkeypatch):
    kit = regard.load(decoder)
    kit.save(tmp_path / "int8", stored="int8")
    report = regard.check(tmp_path / "int8")
    assert report.parity is None and "int8" in report.reason and len(report.properties) == 12
    Kit(kit.model).save(tmp_path / "own")
    report = regard.check(tmp_path / "own")
    assert report.reason == "transformers has no such architecture" and report.exit_code == 0
    assert report.to_dict()["parity"] == {"measured": False, "reason": report.reason}
    cells = Kit(Recurrent(RecurrentConfig(TextConfig(8, 20), HeadConfig(20), hidden=8)))
    (only,) = regard.check(cells).properties
    assert only.passed is None and "recurrent" in only.detail
    monkeypatch.setattr(parity, "find_spec", lambda name: None)
    report = regard.check(decoder)
    assert report.reason == "transformers is not installed" and report.properties


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
