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
from regard.tokens import train_tokenizer
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
        ("*.z=add,file=nowhere", "no such file"),
        ("*.attn.z=zero,head=9", "heads 0 to 3"),
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
    with pytest.raises(UsageError, match="a number"):
        read_edits([f"t=add,file={tmp_path}/c,scale=much"])
