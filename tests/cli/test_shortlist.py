"""`regard train shortlist`, and what translating makes of the file it writes."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load as load_parts

from regard.decode import step
from regard.decode.shortlist import SHORTLIST_FILE, ShortlistHead
from regard.errors import DataError
from regard.loading import load
from regard.look.edits import zero
from regard.translation.config import TranslateConfig
from regard.translation.translator import Translator
from tests.cli.small_folders import pair, writer  # noqa: F401

Here = Callable[..., tuple[int, str, str]]
FRENCH = "le chat chien dort mange sur tapis rouge".split()
ENGLISH = "the cat dog sleeps eats on mat red".split()
SOURCE = "le chat dort sur le tapis"


@pytest.fixture
def folder(pair: Path, tmp_path: Path) -> Path:  # noqa: F811
    return Path(shutil.copytree(pair, tmp_path / "pair"))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Sentences of a few words, in two languages."""
    draw, lines = random.Random(0), list[str]()
    for _ in range(200):
        words = [draw.randrange(len(FRENCH)) for _ in range(draw.randint(2, 6))]
        lines.append("\t".join(" ".join(side[n] for n in words) for side in (FRENCH, ENGLISH)))
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join([*lines, "\tno source", "x " * 300 + "\tlong"]) + "\n")
    return file


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each search with a shortlist."""
    made, real = list[int](), ShortlistHead

    def count(*given: Any) -> Any:
        made.append(1)
        return real(*given)

    monkeypatch.setattr(step, "ShortlistHead", count)
    return made


def test_end_to_end(here: Here, folder: Path, pairs: Path, used: list[int]) -> None:
    flags = ("--model", folder, "--max-new", 9)
    full = here("translate", SOURCE, *flags)
    assert not used
    few = ("--top", 2, "--always", 5, "--json")
    code, out, err = here("train", "shortlist", folder, pairs, *few)
    said = json.loads(out)
    assert code == 0 and err == "" and said["file"] == str(folder / SHORTLIST_FILE)
    kit = load(folder)
    assert kit.shortlist is not None and kit.tokenizer is not None
    assert said["bytes"] == (folder / SHORTLIST_FILE).stat().st_size
    assert said["words"] == kit.model.config.head.size and said["always"] == len(
        kit.shortlist.always
    )
    assert said["always"] < said["length"] < said["words"]
    assert said["pairs"] == 190 and said["held_out"] == 10 and 0.9 < said["share"] <= 1
    assert max(load_parts((folder / SHORTLIST_FILE).read_bytes())["sizes"]) <= 3  # and itself
    code, out, err = here("translate", SOURCE, *flags)
    assert (code, err, len(used)) == (0, "", 1)
    (answer,) = Translator(kit, TranslateConfig(max_new=9)).translate([SOURCE])
    allowed = set(kit.shortlist.choose(kit.batch([SOURCE]).inputs).words()[0].tolist())
    assert (
        set(answer.translations[0].tokens) <= allowed and out.strip() == answer.translations[0].text
    )
    used.clear()
    assert here("translate", SOURCE, *flags, "--no-shortlist") == full
    assert here("translate", SOURCE, *flags, "--strict")[0] == 0 and not used
    code, out, _ = here("train", "shortlist", folder, pairs)
    assert code == 0 and "on average" in out and "%" in out


def test_who_scores_all_words(folder: Path, pairs: Path, here: Here, used: list[int]) -> None:
    assert here("train", "shortlist", folder, pairs)[0] == 0
    kit = load(folder)
    list(kit.translate([SOURCE, "le chien"], max_new=5))
    kit.translate(SOURCE, beams=1, max_new=5)
    assert len(used) == 2
    kit.translate(SOURCE, explain=True, max_new=5)  # of the same translation
    kit.translate(SOURCE, alternatives=2, max_new=5)  # the first of them is the same too
    assert len(used) == 4
    kit.translate(SOURCE, shortlist=False, max_new=5)
    kit.translate(SOURCE, strict=True, max_new=5)
    kit.translate(SOURCE, must=["cat"], max_new=9)
    kit.translate(SOURCE, ban=["cat"], max_new=5)
    kit.translate(SOURCE, begin="cat", max_new=9)
    with kit.edit({"logits": zero()}):
        kit.translate(SOURCE, max_new=5)
    kit.driver = "fixed"
    kit.translate(SOURCE, max_new=5)
    assert len(used) == 4
    kit.driver = "auto"
    with kit.edit({"decoder.blocks.0.attn.out": zero()}):
        kit.translate(SOURCE, max_new=5)
    assert len(used) == 5


def test_answers_do_not_depend_on_neighbours(folder: Path, pairs: Path, here: Here) -> None:
    assert here("train", "shortlist", folder, pairs, "--always", 5)[0] == 0
    kit = load(folder, precision="int8")
    texts = [line.partition("\t")[0] for line in pairs.read_text().splitlines()[:20]]
    for beams in (1, 4):
        together = [found.text for found in kit.translate(texts, beams=beams, max_new=8)]
        assert together == [kit.translate(text, beams=beams, max_new=8).text for text in texts]


def test_the_file_travels(folder: Path, pairs: Path, here: Here, tmp_path: Path) -> None:
    assert here("train", "shortlist", folder, pairs)[0] == 0
    load(folder).save(tmp_path / "copy")
    held = (folder / SHORTLIST_FILE).read_bytes()
    assert (tmp_path / "copy" / SHORTLIST_FILE).read_bytes() == held


def test_a_broken_file(folder: Path, pairs: Path, here: Here) -> None:
    (folder / SHORTLIST_FILE).write_bytes(b"nothing")
    code, out, err = here("translate", SOURCE, "--model", folder)
    assert code == DataError.exit_code and out == "" and "to fix: `regard train shortlist`" in err
    assert here("translate", SOURCE, "--model", folder, "--no-shortlist")[0] == 0
    assert here("train", "shortlist", folder, pairs)[0] == 0  # which mends it
    assert here("translate", SOURCE, "--model", folder)[0] == 0


def test_what_cannot_be(
    here: Here,
    folder: Path,
    writer: Path,  # noqa: F811
    folders: Path,
    pairs: Path,
    tmp_path: Path,  # noqa: F811
) -> None:
    code, _, err = here("train", "shortlist", folder, tmp_path / "none.tsv")
    assert code == DataError.exit_code and "none.tsv" in err
    code, _, err = here("train", "shortlist", writer, pairs)
    assert code == 2 and "expected: an encoder-decoder" in err
    code, _, err = here("train", "shortlist", folders / "pair", pairs)
    assert code == 3 and "no tokenizer" in err
    code, _, err = here("train", "shortlist", tmp_path / "nowhere", pairs)
    assert code != 0 and "nowhere" in err
    code, _, err = here("train", "shortlist", folder, pairs, "--always", 0)
    assert code == 2 and "from 1 up" in err
    one = tmp_path / "one.tsv"
    one.write_text("le chat\tthe cat\n")
    code, _, err = here("train", "shortlist", folder, one)
    assert code == DataError.exit_code and "1 pairs" in err
    assert not (folder / SHORTLIST_FILE).exists()
