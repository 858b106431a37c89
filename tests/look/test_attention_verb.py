"""`regard.look.attention`: what it finds, for every kind of model, and what it refuses."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.errors import DataError, UsageError
from regard.look.edits import zero
from regard.model.presets import recurrent_lm
from regard.model.recurrent import Recurrent
from tests.cli.small_folders import masker, pair, writer  # noqa: F401

TEXT = "the cat sat on the mat"


def test_a_decoder(writer, tmp_path):  # noqa: F811
    maps, kit = regard.look.attention(writer, TEXT), regard.load(writer)
    found = maps.to_dict()
    assert "".join(found["tokens"]["text"]) == TEXT and maps.heading == f"{writer}: {TEXT}"
    maps.save(tmp_path / "look.html")
    page = (tmp_path / "look.html").read_text("utf-8")
    assert "Content-Security-Policy" in page and "regard.look.attention(" in page
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


def test_an_edit_is_seen_and_taken_back(writer):  # noqa: F811
    """Effects are then those of the edited model."""
    kit, taps = regard.load(writer), "decoder.blocks.0.attn.z"
    found = regard.look.attention(kit, TEXT, edit=["*.0.attn.z=zero"]).to_dict()
    assert not any(tap.fn for tap in kit.hooked.taps.values())
    with kit.edit({taps: zero()}):
        plain = kit.logits(TEXT)[0, -1].log_softmax(-1)
        with kit.edit({"decoder.blocks.1.attn.z": zero(head=1)}):
            changed = kit.logits(TEXT)[0, -1].log_softmax(-1)
    best, effects = int(plain.argmax()), [h["effect"] for h in found["stacks"][0]["heads"]]
    assert found["forecast"][0]["probability"] == pytest.approx(float(plain.max().exp()), abs=1e-5)
    assert effects[:2] == pytest.approx([0, 0], abs=1e-5)
    assert effects[3] == pytest.approx(float(changed[best] - plain[best]), abs=1e-4)


def test_a_pair_translates_first(pair):  # noqa: F811
    kit = regard.load(pair)
    found = regard.look.attention(kit, "the cat").to_dict()
    assert [stack["stack"] for stack in found["stacks"]] == ["encoder", "decoder", "cross"]
    assert found["stack"] == "cross" and len(found["links"]) == len(found["tokens"]["target"])
    found = regard.look.attention(kit, "the cat", target="the dog sat", stack="encoder").to_dict()
    assert "".join(found["tokens"]["target"][1:]) == "the dog sat" and found["stack"] == "encoder"
    ids = [[0, *kit.tokenizer.encode("the dog sat")[:-1]]]
    logits = kit.logits(kit.tokenizer.encode("the cat"), ids)[0, -1]
    assert found["forecast"][0]["probability"] == pytest.approx(
        float(logits.softmax(-1).max()), abs=1e-5
    )


def test_a_masked_model_and_a_picture(masker, tmp_path):  # noqa: F811
    pytest.importorskip("matplotlib")
    for head in (None, "1.1"):
        maps = regard.look.attention(masker, TEXT, head=head, effects=False)
        maps.save(tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
        assert "if off" not in str(maps) and ("head 1.1" in str(maps)) == (head is not None)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"head": "9.0"}, UsageError, "0.0 to 1.1"),
        ({"head": "three"}, UsageError, "block.head, such as 5.3"),
        ({"stack": "cross"}, UsageError, "one of decoder"),
        ({"stack": "corss"}, UsageError, "did you mean cross"),
        ({"target": "a target"}, UsageError, "an encoder-decoder"),
        ({"text": TEXT * 20}, DataError, "at most 40, which this model reads"),
        ({"text": ""}, DataError, "an empty text"),
    ],
)
def test_refusals(writer, changes, error, said):  # noqa: F811
    with pytest.raises(error, match=said):
        regard.look.attention(writer, **({"text": TEXT} | changes))


def test_a_long_text_says_what_fits(pair, monkeypatch):  # noqa: F811
    call = {"target": "the dog sat", "effects": False}
    monkeypatch.setattr("regard.look.text_limits.free_memory", lambda device: 4_000)
    with pytest.raises(DataError, match="which fit into 3.9 KiB"):
        regard.look.attention(pair, "the cat", **call)


def test_the_translator_in_the_box_says_what_fits():
    with pytest.raises(DataError, match=r"a source of 6,.*\n.*at most 5,000"):
        regard.look.attention("fr-en", "mot " * 6000)


def test_a_model_without_attention(writer):  # noqa: F811
    tokenizer = regard.load(writer).tokenizer
    model = Recurrent.fresh(recurrent_lm("lstm", 8, 8, 1, tokenizer.size))
    kit = regard.Kit(model, tokenizer)
    with pytest.raises(UsageError, match="additive attention"):
        regard.look.attention(kit, "the cat")
    with pytest.raises(UsageError, match="without attention"):
        regard.look.heads(kit)
    with pytest.raises(UsageError, match="recurrent"):
        regard.look.lens(kit, "the cat")
