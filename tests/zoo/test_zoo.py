"""Models that come with the package: found by name, listed, missed with a sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

import regard
from regard import zoo
from regard.cli.main import main
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.model import presets
from regard.model.model import Model
from regard.model.presets import PRESETS
from regard.tokens.trainers import train_tokenizer


def save(folder: Path, seed: int) -> Kit:
    words = train_tokenizer(["un chat noir", "a black cat"], "chars", wrap="eos")
    kit = Kit(Model.fresh(presets.transformer(8, 1, 2, words.size, pre=True), seed), words)
    kit.save(folder, stored="int8")
    return regard.load(folder)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo of the test's own, and a working directory beside it."""
    home, work = tmp_path / "zoo", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setattr(zoo, "HOME", home)
    monkeypatch.chdir(work)
    return home


def same(first: Kit, second: Kit) -> bool:
    pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_name_opens_the_folder_and_a_local_folder_comes_first(home: Path) -> None:
    inside = save(home / "fr-en", 1)
    assert same(regard.load("fr-en"), inside)
    local = save(Path("fr-en"), 2)
    assert not same(local, inside)
    assert same(regard.load("fr-en"), local) and same(regard.load(Path("fr-en")), local)
    os.rename("fr-en", "elsewhere")
    assert same(regard.load("fr-en"), inside)


def test_the_commands_know_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kit = save(home / "fr-en", 1)
    assert main(["models", "--json"]) == 0
    rows = {row["name"]: row["folder"] for row in json.loads(capsys.readouterr().out)["models"]}
    assert rows == {"fr-en": str(home / "fr-en")}
    assert main(["models"]) == 0 and "French into English" in capsys.readouterr().out
    assert main(["info", "fr-en", "--json"]) == 0
    count = sum(p.numel() for p in kit.model.parameters())
    assert json.loads(capsys.readouterr().out)["parameters"] == count
    assert main(["translate", "un chat", "--model", "fr-en", "--max-new", "5"]) == 0
    wanted = kit.translate("un chat", max_new=5)
    assert capsys.readouterr().out == f"{wanted}\n"


def test_what_is_not_here(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="there is none"):
        regard.load("fr-en")
    save(home / "fr-en", 1)
    with pytest.raises(UsageError, match="there are: fr-en"):
        regard.load("de-en")
    with pytest.raises(UsageError, match="did you mean fr-en"):
        regard.load("FR_EN")
    assert main(["info", "de-en"]) == 2 and "fr-en" in capsys.readouterr().err
    with pytest.raises(DataError, match="no such file or folder"):
        regard.load("some/de-en")
    (home / "fr-en" / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"neither model\.safetensors"):
        regard.load("fr-en")


def test_no_name_is_a_preset_too() -> None:
    assert not set(zoo.KNOWN) & set(PRESETS)
    assert all(zoo.PAIR.fullmatch(name) for name in zoo.KNOWN)
