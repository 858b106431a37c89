"""`regard look heads`: the table and the object against the library, and wrong calls."""

from __future__ import annotations

import json

import pytest
import torch

from regard.kit import Kit
from regard.loading import load
from regard.look.heads import head_scores
from regard.tokens.trainers import train_tokenizer
from tests.cli.small_folders import masker, pair, writer  # noqa: F401
from tests.look.planted import planted_induction


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A folder with a planted induction head, on letters."""
    folder = tmp_path_factory.mktemp("planted")
    made = train_tokenizer(["abcdefghijklmnopqrstuvwx"], "chars", 30, specials=())
    Kit(planted_induction(made.size, 50), made).save(folder)
    return folder


def test_the_planted_head_comes_first(here, planted):
    code, out, err = here("look", "heads", planted, "--sort", "induction", "--top", 3)
    lines = out.splitlines()
    assert (code, err) == (0, "") and "8 heads on 4 × 2 × 24 random tokens" in lines[0]
    assert (
        lines[1].split() == "block head previous duplicate induction entropy distance norm".split()
    )
    assert lines[2].split()[:2] == ["1", "2"] and float(lines[2].split()[4]) > 0.9
    assert len(lines) == 5
    code, out, _ = here("look", "heads", planted, "--sort", "previous", "--top", 1, "--json")
    (first,) = json.loads(out)["heads"]
    assert (first["block"], first["head"]) == (0, 1) and first["previous"] > 0.9


def test_all_heads_as_the_model_has_them_and_by_seed(here, planted):
    found = json.loads(here("look", "heads", planted, "--json", "--length", 9)[1])
    assert [(h["block"], h["head"]) for h in found["heads"]] == [
        (block, head) for block in range(2) for head in range(4)
    ]
    assert found["length"] == 9 and found["seed"] == 0
    again = json.loads(here("look", "heads", planted, "--json", "--length", 9)[1])
    other = json.loads(here("look", "heads", planted, "--json", "--length", 9, "--seed", 1)[1])
    assert again == found and other["heads"] != found["heads"]


def test_measured_on_texts(here, planted, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("abcabcabc\n\nhello\n")
    code, out, _ = here("look", "heads", planted, "--file", file, "--batch", 1, "--json")
    kit = load(planted)
    with torch.no_grad():
        wanted = head_scores(kit.board, None, [kit.batch("abcabcabc"), kit.batch("hello")])
    for found, expected in zip(json.loads(out)["heads"], wanted, strict=True):
        assert found["entropy"] == pytest.approx(expected.entropy, abs=1e-5)
        assert found["norm"] == pytest.approx(expected.norm, rel=1e-4)
        assert found["induction"] is not None
    together = json.loads(here("look", "heads", planted, "--file", file, "--json")[1])
    assert together["heads"][0]["norm"] == pytest.approx(wanted[0].norm, rel=1e-4)
    _, out, _ = here("look", "heads", planted, "--text", "abcabcabc")
    assert "entropy, distance, norm on abcabcabc" in out


def test_encoders_and_pairs(here, masker, pair):  # noqa: F811
    code, out, _ = here("look", "heads", masker)
    assert code == 0 and len(out.splitlines()) == 6  # 2 blocks of 2 heads
    code, out, _ = here("look", "heads", pair, "--text", "the cat\tthe dog sat")
    rows = [line.split() for line in out.splitlines()[2:]]
    assert code == 0 and [row[0] for row in rows].count("cross") == 4 and len(rows) == 12
    assert next(row for row in rows if row[0] == "cross")[3:6] == ["–"] * 3
    assert here("look", "heads", pair, "--text", "the cat")[0] == 0  # a target may be missing
    _, out, _ = here("look", "heads", pair, "--top", 1)  # of one part, which is named all the same
    assert out.splitlines()[2].split()[:3] == ["encoder", "0", "0"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--length", "26"], 2, "at most 24"),
        (["--length", "1"], 2, "2 to 24"),
        (["--sort", "size"], 2, "invalid choice: 'size'"),
        (["--top", "0"], 2, "from 1 up"),
        (["--file", "nowhere.txt"], 3, "no such file"),
        (["--text", " "], 3, "no text in --text"),
        (["--text", "a", "--file", "b"], 2, "not allowed with"),
        (["--text", "a" * 60], 3, "at most 50"),
    ],
)
def test_wrong_calls(arguments, code, said, here, planted):
    found, out, err = here("look", "heads", planted, *arguments)
    assert (found, out) == (code, "") and said in err and "Traceback" not in err


def test_a_model_without_heads(here, tmp_path):
    from regard.model.presets import recurrent_lm
    from regard.model.recurrent import Recurrent

    made = train_tokenizer(["abc"], "chars", 30, specials=())
    Kit(Recurrent.fresh(recurrent_lm("lstm", 8, 8, 1, made.size)), made).save(tmp_path / "lstm")
    for arguments in (("heads",), ("lens", "abc")):
        verb, *text = arguments
        code, _, err = here("look", verb, tmp_path / "lstm", *text)
        assert code == 2 and ("without attention" in err or "recurrent" in err)
