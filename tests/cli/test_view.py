"""`regard look`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch

from regard.cli.legacy import join_verb
from regard.errors import UsageError
from regard.loading import load
from regard.look.edit import zero
from regard.look.steer import head_mask
from tests.cli.small_folders import masker, pair, stdin, writer  # noqa: F401

TEXT = "the cat sat on the mat"


def test_a_decoder(here, writer, tmp_path):  # noqa: F811
    out = tmp_path / "look.html"
    code, said, err = here("look", writer, TEXT, "--out", out, "--json")
    found, kit = json.loads(said), load(writer)
    assert (code, err) == (0, "") and "".join(found["tokens"]["text"]) == TEXT
    assert found["page"] == str(out) and "Content-Security-Policy" in out.read_text("utf-8")
    _, seen = kit.run(TEXT, taps="*pattern")
    plain = kit.logits(TEXT)[0, -1].log_softmax(-1)
    best = int(plain.argmax())
    (stack,) = found["stacks"]
    assert [(h["block"], h["head"]) for h in stack["heads"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in stack["heads"]:
        where = f"decoder.blocks.{head['block']}.attn"
        pattern = seen[f"{where}.pattern"][0, head["head"]]
        link = head["link"]
        assert link["weight"] == pytest.approx(float(pattern[link["query"], link["key"]]))
        with kit.edit({f"{where}.z": zero(head=head["head"])}):
            changed = kit.logits(TEXT)[0, -1].log_softmax(-1)
        assert head["effect"] == pytest.approx(float(changed[best] - plain[best]), abs=1e-4)
    assert found["forecast"][0]["probability"] == pytest.approx(float(plain.max().exp()), abs=1e-5)
    mean = torch.cat([p[0] for p in seen.values()]).mean(0)
    assert found["links"][-1][0]["key"] == int(mean[-1].argmax())


def test_an_edit_is_seen(here, writer, tmp_path):  # noqa: F811
    """Effects are then those of the edited model."""
    edit = ("--edit", "*.0.attn.z=zero")
    code, said, _ = here("look", writer, TEXT, "--out", tmp_path / "a.html", "--json", *edit)
    found, kit, taps = json.loads(said), load(writer), "decoder.blocks.0.attn.z"
    with kit.edit({taps: zero()}):
        plain = kit.logits(TEXT)[0, -1].log_softmax(-1)
        with kit.edit({"decoder.blocks.1.attn.z": zero(head=1)}):
            changed = kit.logits(TEXT)[0, -1].log_softmax(-1)
    best, effects = int(plain.argmax()), [h["effect"] for h in found["stacks"][0]["heads"]]
    assert found["forecast"][0]["probability"] == pytest.approx(float(plain.max().exp()), abs=1e-5)
    assert code == 0 and effects[:2] == [0, 0]
    assert effects[3] == pytest.approx(float(changed[best] - plain[best]), abs=1e-4)


def test_in_the_terminal(here, writer, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    code, out, err = here("look", writer, TEXT, "--head", "1.0", "--no-effects")
    lines = out.splitlines()
    assert (code, err) == (0, "") and lines[-1].startswith("page: regard-look.html (")
    assert "head 1.0" in out and "if off" not in out and max(map(len, lines[:-1])) <= 100
    again = here("look", writer, "the dog", "--head", "1.0")
    assert again[0] == 0 and "if off" in again[1]  # a page may be written again


def test_a_pair_translates_first(here, pair, tmp_path):  # noqa: F811
    out = tmp_path / "look.html"
    code, said, _ = here("look", pair, "the cat", "--out", out, "--json")
    found = json.loads(said)
    assert code == 0 and [stack["stack"] for stack in found["stacks"]] == [
        "encoder",
        "decoder",
        "cross",
    ]
    assert found["stack"] == "cross" and len(found["links"]) == len(found["tokens"]["target"])
    flags = "--out", out, "--json", "--stack", "encoder"
    given = here("look", pair, "the cat", *flags, "the dog sat")  # flags may stand between them
    found = json.loads(given[1])
    assert "".join(found["tokens"]["target"][1:]) == "the dog sat" and found["stack"] == "encoder"
    with_kit = load(pair)
    ids = [[0, *with_kit.tokenizer.encode("the dog sat")[:-1]]]
    logits = with_kit.logits(with_kit.tokenizer.encode("the cat"), ids)[0, -1]
    assert found["forecast"][0]["probability"] == pytest.approx(
        float(logits.softmax(-1).max()), abs=1e-5
    )


def test_a_masked_model_and_a_picture(here, masker, tmp_path):  # noqa: F811
    pytest.importorskip("matplotlib")
    files = ["--out", tmp_path / "a.html", "--png", tmp_path / "a.png"]
    for more in ([], ["--head", "1.1"]):
        code, out, _ = here("look", masker, TEXT, *files, *more)
        assert code == 0 and re.search(r"picture: .*a\.png\npage: .*a\.html", out)
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (["--head", "9.0"], 2, "0.0 to 1.1"),
        (["--head", "three"], 2, "block.head, such as 5.3"),
        (["--stack", "cross"], 2, "one of decoder"),
        (["a target"], 2, "an encoder-decoder"),
        (["a", "b"], 2, "3 texts"),
        (["--max-tokens", "2"], 3, "at most 2"),
        (["--out", "no/such/folder.html"], 2, "no folder no/such"),
        (["--out", "a.png"], 2, "a picture's name"),
        (["--out", "."], 2, "is a folder"),
    ],
)
def test_refusals(here, writer, tmp_path, monkeypatch, arguments, code, said):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    found = here("look", writer, TEXT, *arguments)
    assert found[0] == code and said in found[2] and found[1] == ""
    assert list(tmp_path.iterdir()) == []


def test_stdin(here, writer, tmp_path, stdin):  # noqa: F811
    stdin("the cat\nsat\n")
    found = json.loads(here("look", writer, "--out", tmp_path / "a.html", "--json")[1])
    assert "".join(found["tokens"]["text"]) == "the cat\nsat"


def test_a_long_text_says_what_it_takes_or_what_fits(here, pair, tmp_path, monkeypatch):  # noqa: F811
    words = ["look", pair, "the cat", "the dog sat", "--out", tmp_path / "a.html", "--no-effects"]
    monkeypatch.setattr("regard.cli.view.LONGEST", 3)
    code, _, err = here(*words)
    assert code == 0 and " tokens: about " in err and "of a core" in err
    monkeypatch.setattr("regard.cli.lengths.free_memory", lambda device: 4_000)
    code, out, err = here(*words)
    assert (code, out) == (3, "") and "which fit into 3.9 KiB" in err


def test_texts_that_do_not_fit(here, writer, tmp_path):  # noqa: F811
    out = ["--out", tmp_path / "a.html"]
    code, _, err = here("look", writer, TEXT * 20, *out)
    assert code == 3 and "at most 40, which this model reads" in err
    code, _, err = here("look", writer, "", *out)
    assert code == 3 and "an empty text" in err
    code, _, err = here("look", "fr-en", "mot " * 6000, *out)
    assert code == 3 and "a source of 6," in err and "at most 5,000" in err


def test_a_model_without_attention(here, tmp_path):
    text = tmp_path / "tale.txt"
    text.write_text("the cat sat on the mat\n" * 30)
    sizes = ["--dim", 8, "--steps", 1, "--batch-tokens", 64, "--length", 8, "--tokens", "chars"]
    assert here("train", "lstm", text, "--out", tmp_path / "run", *sizes, "-q")[0] == 0
    code, _, err = here("look", tmp_path / "run" / "final", "the cat", "--out", tmp_path / "a.html")
    assert code == 2 and "additive attention" in err
    with pytest.raises(UsageError, match="without attention"):
        head_mask(load(tmp_path / "run" / "final").board, ["0.1"])


def test_a_folder_called_as_a_verb(here, writer, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    shutil.copytree(writer, tmp_path / "heads")
    assert join_verb(["look", "./heads", TEXT])[0] == "look"
    assert here("look", "./heads", TEXT, "--no-effects")[0] == 0
