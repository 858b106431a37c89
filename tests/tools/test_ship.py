"""recipes/ship.py: from a run to the folder that ships."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

import regard
from regard.data.word_frequencies import WORDS_FILE, WRITTEN_FILE, WordCounts
from regard.kit import Kit
from regard.model import presets
from regard.model.model import Model
from regard.tokens.trainers import train_tokenizer
from regard.zoo import HOME

ROOT = Path(__file__).resolve().parents[2]
PAIRS = ["the cat sleeps\tle chat dort", "the dog sleeps\tle chien dort"] * 3


def test_a_run_becomes_a_folder_that_translates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, memory, out = tmp_path / "pairs.tsv", tmp_path / "memory.tsv", tmp_path / "out"
    pairs.write_text("\n".join(PAIRS) + "\n")
    memory.write_bytes(b"any")
    letters = train_tokenizer(PAIRS, "chars", wrap="eos")
    kit = Kit(Model.fresh(presets.transformer(8, 1, 2, letters.size, pre=True), 1), letters)
    # What a run that began with the model of the other direction holds.
    kit.config = kit.fresh_config() | {"languages": ["fr", "en"], "hints": True}
    kit.files = {"numbers.json": (HOME / "fr-en" / "numbers.json").read_bytes()}
    kit.save(tmp_path / "run" / "final")
    words = f"ship.py {tmp_path / 'run'} {out} --languages en fr --train {pairs}"
    monkeypatch.setattr(sys, "argv", [*words.split(), "--files", str(memory), "--test", str(pairs)])
    runpy.run_path(str(ROOT / "recipes" / "ship.py"), run_name="__main__")
    assert capsys.readouterr().out.count("BLEU") == 3
    config = json.loads((out / "config.json").read_text())
    assert config["languages"] == ["en", "fr"] and config["alignment"] and config["hints"] is True
    assert config["stored"] == "int8" and (out / "shortlist.safetensors").is_file()
    assert (out / "numbers.json").read_bytes() == (HOME / "en-fr" / "numbers.json").read_bytes()
    assert (out / memory.name).read_bytes() == b"any"
    assert WordCounts((out / WORDS_FILE).read_bytes())["cat"] == 3
    assert (out / WRITTEN_FILE).read_bytes() == b"chat\nchien\ndort\n"
    before = regard.load(tmp_path / "run", precision="int8").translate("the cat", max_new=9)
    (out / "written.txt").rename(tmp_path / "written.txt")  # or made-up words are replaced
    how = {"max_new": 9, "shortlist": False}
    assert regard.translate("the cat", model=str(out), to="fr", **how).text == before.text
