"""`regard.look.lens`: against transformers and by closed forms, and wrong calls."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.errors import DataError
from regard.look.labels import token_label
from tests.cli.small_folders import masker, pair, writer  # noqa: F401

TEXT = "the cat sat on the"


def test_layers_are_those_of_transformers(writer):  # noqa: F811
    import transformers

    found, kit = regard.look.lens(writer, TEXT, target="mat"), regard.load(writer)
    token = found.target.id
    assert kit.tokenizer.decode([token]) == " mat"
    model = transformers.GPT2LMHeadModel.from_pretrained(writer).eval()
    ids = torch.tensor([kit.tokenizer.encode(TEXT)])
    with torch.no_grad():
        whole = model(ids, output_hidden_states=True)
        # transformers gives the last one after its norm, the others before it
        streams = [model.transformer.ln_f(h) for h in whole.hidden_states[:-1]]
        streams.append(whole.hidden_states[-1])
        scores = torch.stack([model.lm_head(x)[0, -1] for x in streams]).softmax(-1)
    assert [row.layer for row in found.layers] == ["embedding", "block 0", "block 1"]
    for row, wanted in zip(found.layers, scores, strict=True):
        assert row.probability == pytest.approx(float(wanted[token]), abs=1e-5)
        assert row.rank == 1 + int((wanted > wanted[token]).sum())
        assert row.likeliest == token_label(kit.tokenizer, int(wanted.argmax()))
    goal = float(whole.logits[0, -1, token])
    assert found.goal == pytest.approx(goal, abs=1e-4) and abs(found.error) < 1e-4
    assert sum(part.value for part in found.contributions) == pytest.approx(goal, abs=1e-3)
    assert {(p.block, p.head) for p in found.contributions if p.kind == "head"} == {
        (block, head) for block in range(2) for head in range(2)
    }


def test_the_tables(writer):  # noqa: F811
    call = {"target": "mat", "against": "the", "top": 4}
    found = regard.look.lens(writer, TEXT, **call)
    lines = [line.split() for line in str(found).splitlines()]
    assert lines[0] == TEXT.split() and [found.target.piece, found.against.piece] == [
        " mat",
        " the",
    ]
    assert ["logit", f"{found.goal:.4g}"] in lines and any("embedding" in line for line in lines)
    listed = str(found).partition("who wrote the logit")[2].splitlines()[2:]
    values = [abs(float(line.split()[-1])) for line in listed]
    assert values == sorted(values, reverse=True) and len(values) == 4
    assert len(found.to_dict()["parts"]) > 4
    apart = regard.look.lens(writer, TEXT, **call, neurons=True)
    assert apart.goal == pytest.approx(found.goal) and abs(apart.error) < 1e-4
    thought = sum(part.value for part in found.contributions if part.kind == "mlp")
    neurons = [part for part in apart.contributions if part.layer.endswith("mlp")]
    assert len(neurons) > 8 and sum(p.value for p in neurons) == pytest.approx(thought, abs=1e-4)


def test_without_a_target_it_is_the_likeliest(writer):  # noqa: F811
    found = regard.look.lens(writer, TEXT)
    assert found.target.id == int(regard.load(writer).logits(TEXT)[0, -1].argmax())
    assert found.layers[-1].rank == 1 and found.against is None


def test_a_gap_of_a_post_norm_model_has_layers_but_no_parts(masker):  # noqa: F811
    text = "the cat <mask> on the mat"
    found, kit = regard.look.lens(masker, text, target="sat"), regard.load(masker)
    assert found.target.piece == " sat" and "post-norm" in str(found)
    ids = kit.tokenizer.encode(text.replace("<mask>", "[MASK]"), allow_special=True)
    gap = ids.index(kit.tokenizer.specials["mask"])
    wanted = float(kit.logits([ids])[0, gap].softmax(-1)[found.target.id])
    assert found.layers[-1].probability == pytest.approx(wanted, abs=1e-5)
    data = found.to_dict()
    assert data["parts"] is None and "post-norm" in data["why"] and "goal" not in data


def test_the_next_word_of_a_translation(pair):  # noqa: F811
    found, kit = regard.look.lens(pair, "the cat\tthe dog"), regard.load(pair)
    target = [[kit.tokenizer.specials["pad"], *kit.tokenizer.encode("the dog", special=False)]]
    scores = kit.logits(["the cat"], target)[0, -1, : kit.tokenizer.size]
    assert found.target.id == int(scores.argmax()) and abs(found.error) < 1e-4
    assert any(part.kind == "cross" for part in found.contributions)
    assert regard.look.lens(kit, "the cat").layers


def test_wrong_calls(writer, masker):  # noqa: F811
    with pytest.raises(DataError, match="no token of this model"):
        regard.look.lens(writer, TEXT, target="")
    with pytest.raises(DataError, match="at most 40"):
        regard.look.lens(writer, TEXT * 20)
    with pytest.raises(DataError, match=r"looking through the logit lens: no \[MASK\]"):
        regard.look.lens(masker, "the cat")
