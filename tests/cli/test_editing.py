"""`--edit` on commands: what is written is what an edited kit writes."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

import regard
from regard.cli.editing import read_edits
from regard.cli.main import main
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.tokens.trainers import train_tokenizer
from tests.look.planted import planted_induction

TEXT = "a b c d e f g h i j k l"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("edit") / "m"
    tokenizer = train_tokenizer([TEXT], "spaced")
    Kit(planted_induction(tokenizer.size, 24), tokenizer).save(place)
    return place


def scores(capsys, folder, *more):
    code = main(["score", str(folder), "a b c d a b c d", "--json", *more])
    said = capsys.readouterr()
    return json.loads(said.out)["logprobs"] if code == 0 else said.err


def test_an_edit_of_the_command_is_that_of_the_library(folder, capsys, tmp_path):
    kit = regard.load(folder)
    ids = kit.tokenizer.encode("a b c d a b c d")
    vector = torch.randn(kit.model.config.front.dim, generator=torch.Generator().manual_seed(0))
    save_file({"v": vector}, tmp_path / "v.safetensors")
    plain = scores(capsys, folder)
    for flag, edits in (
        ("decoder.blocks.1.attn.z=zero,head=2", {"decoder.blocks.1.attn.z": regard.zero(head=2)}),
        ("blocks.*.attn.z=zero,head=1+2", {"blocks.*.attn.z": regard.zero(head=[1, 2])}),
        ("*.0.attn.z=mean", {"*.0.attn.z": regard.mean()}),
        (
            f"*.1.resid_post=add,file={tmp_path}/v.safetensors,scale=0.5",
            {"*.1.resid_post": regard.add(0.5 * vector)},
        ),
    ):
        found = scores(capsys, folder, "--edit", flag)
        with kit.edit(edits):
            logs = kit.logits([ids[:-1]]).log_softmax(-1)[0]  # the last is predicted, not read
        wanted = [float(logs[n, id]) for n, id in enumerate(ids[1:])]
        assert found[1:] == pytest.approx(wanted, abs=1e-4), flag
        assert found[1:] != pytest.approx(plain[1:], abs=1e-2), flag


def test_edits_add_up_and_reach_generation(folder, capsys):
    words = ["generate", str(folder), "a b c d a b", "--greedy", "--max-new", "2", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["text"].strip() == "c d"
    assert main([*words, "--edit", "*.1.attn.z=zero,head=2", "--edit", "*.0.attn.z=zero"]) == 0
    assert json.loads(capsys.readouterr().out)["text"].strip() != "c d"


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("zero", "TAP=zero"),
        ("=zero", "TAP=zero"),
        ("*.z=zeo", "did you mean zero"),
        ("*.z=zero,haed=1", "head=, position=, neuron= after zero"),
        ("*.z=zero,head=x", "joined by +"),
        ("*.z=zero,scale=2", "after zero"),
        ("*.z=add", "the vector to add"),
        ("*.z=patch", "the vector to patch"),
        ("*.z=resample", "whose rows are drawn"),
        ("*.z=resample,file=nowhere", "a folder of `regard extract`"),
        ("*.z=resample,minus=x", "file=, seed= after resample"),
        ("*.z=add,file=nowhere", "no such file"),
        ("*.attn.z=zero,head=9", "heads 0 to 3"),
        ("*.resid_post=zero,neuron=999", "neuron [999] at decoder.blocks.0.resid_post"),
        ("*.mlp.out=zero,neuron=999", "neuron [999]"),
        ("embed=zero,neuron=999", "neuron [999]"),
        ("logits=zero,neuron=999", "neuron [999]"),
        ("*.attn.y=zero", "no tap is called"),
    ],
)
def test_bad_edits(folder, capsys, flag, told):
    assert told in scores(capsys, folder, "--edit", flag)


def test_files_that_hold_no_vector(tmp_path):
    (tmp_path / "a").write_bytes(b"junk")
    with pytest.raises(DataError, match="one tensor"):
        read_edits([f"t=add,file={tmp_path}/a"])
    save_file({"a": torch.zeros(2), "b": torch.zeros(2)}, tmp_path / "b")
    with pytest.raises(DataError, match="2 tensors"):
        read_edits([f"t=add,file={tmp_path}/b"])
    save_file({"a": torch.zeros(2)}, tmp_path / "c")
    save_file({"a": torch.zeros(3)}, tmp_path / "d")
    with pytest.raises(DataError, match=r"\[2\] less \[3\]"):
        read_edits([f"t=add,file={tmp_path}/c,minus={tmp_path}/d"])
    with pytest.raises(UsageError, match="a number"):
        read_edits([f"t=add,file={tmp_path}/c,scale=much"])


def test_a_vector_made_by_extract(folder, capsys, tmp_path):
    """Two sets of prompts, their means' difference added while a text is scored and written."""
    kit, taps = regard.load(folder), ["*.0.resid_post", "*.1.resid_post"]
    sets = {"toward": ["a b c", "d e"], "away": ["f g h i", "k"]}
    for name, lines in sets.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
        words = ["extract", str(folder), f"{tmp_path}/{name}.txt", "--position", "last"]
        assert main([*words, "--out", f"{tmp_path}/{name}", "--tap", *taps]) == 0
    capsys.readouterr()
    tap = "decoder.blocks.1.resid_post"
    rows = [[kit.run(text, taps=tap)[1][tap][0, -1] for text in lines] for lines in sets.values()]
    vector = torch.stack(rows[0]).mean(0) - torch.stack(rows[1]).mean(0)
    made = regard.steering_vector(kit.board, *(kit.batch(x) for x in sets.values()), tap)
    torch.testing.assert_close(made, vector, atol=1e-5, rtol=1e-5)
    flag = f"*.1.resid_post=add,file={tmp_path}/toward,minus={tmp_path}/away,scale=3"
    found = scores(capsys, folder, "--edit", flag)
    ids = kit.tokenizer.encode("a b c d a b c d")
    with kit.edit({tap: regard.add(3 * vector)}):
        logs = kit.logits([ids[:-1]]).log_softmax(-1)[0]
    assert found[1:] == pytest.approx([float(logs[n, i]) for n, i in enumerate(ids[1:])], abs=1e-4)
    assert found[1:] != pytest.approx(scores(capsys, folder)[1:], abs=1e-2)
    words = ["generate", str(folder), "a b c d a b", "--greedy", "--max-new", "2", "--json"]
    assert main([*words, "--edit", f"{flag},position=5+6"]) == 0
    steered = json.loads(capsys.readouterr().out)["text"]
    with kit.edit({tap: regard.add(3 * vector, position=[5, 6])}):
        assert kit.generate("a b c d a b", 2) == steered
    assert "2 taps" in scores(capsys, folder, "--edit", flag.replace("*.1.resid", "*.resid"))


def test_values_of_a_corpus_stand_in_for_a_texts_own(folder, capsys, tmp_path):
    """Resampled, each position takes a row that was drawn; patched, the mean; while writing too."""
    kit, tap = regard.load(folder), "decoder.blocks.1.attn.z"
    (tmp_path / "corpus.txt").write_text("a b c\nf e d c\nk l\n")
    words = ["extract", str(folder), f"{tmp_path}/corpus.txt", "--out", f"{tmp_path}/z"]
    assert main([*words, "--tap", tap]) == 0
    capsys.readouterr()
    bank = regard.Extracted(tmp_path / "z").tensor(tap)
    order = torch.randperm(len(bank), generator=torch.Generator().manual_seed(3))
    ids = kit.tokenizer.encode("a b c d a b c d")
    drawn = bank[order].unflatten(1, (4, -1))[torch.arange(len(ids) - 1) % len(bank)]
    for flag, value in (
        (f"{tap}=resample,file={tmp_path}/z,seed=3,head=2", drawn),
        (f"{tap}=patch,file={tmp_path}/z,head=2", bank.mean(0).unflatten(0, (4, -1))),
    ):
        found = scores(capsys, folder, "--edit", flag)
        with kit.edit({tap: regard.patch(value, head=2)}):
            logs = kit.logits([ids[:-1]]).log_softmax(-1)[0]
        wanted = [float(logs[n, id]) for n, id in enumerate(ids[1:])]
        assert found[1:] == pytest.approx(wanted, abs=1e-4)
        assert found[1:] != pytest.approx(scores(capsys, folder)[1:], abs=1e-2)
    # column by column, with a cache, a text is edited as it is when run at once
    with kit.edit({tap: regard.resample_from(bank, 3)}):
        text = "a b c d a b"
        for _ in range(3):
            text += " " + kit.tokenizer.decode([int(kit.logits(text)[0, -1].argmax())])
        assert kit.generate("a b c d a b", 3).split() == text.split()[6:]
