"""Edits as commands write them: each is the edit of the library that it names."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

import regard
from regard.errors import DataError, RegardError, UsageError
from regard.kit import Kit
from regard.look.edits import parse_edits
from regard.tokens.trainers import train_tokenizer
from tests.look.planted import planted_induction

TEXT = "a b c d e f g h i j k l"
READ = "a b c d a b c d"


@pytest.fixture(scope="module")
def kit():
    tokenizer = train_tokenizer([TEXT], "spaced")
    return Kit(planted_induction(tokenizer.size, 24), tokenizer)


def scores(kit, edits=()):
    with kit.edit(edits):
        return kit.logits(READ)


def test_words_are_the_edits_of_the_library(kit, tmp_path):
    vector = torch.randn(kit.model.config.front.dim, generator=torch.Generator().manual_seed(0))
    save_file({"v": vector}, tmp_path / "v.safetensors")
    plain = scores(kit)
    for words, edits in (
        ("decoder.blocks.1.attn.z=zero,head=2", {"decoder.blocks.1.attn.z": regard.zero(head=2)}),
        ("blocks.*.attn.z=zero,head=1+2", {"blocks.*.attn.z": regard.zero(head=[1, 2])}),
        (
            "*.1.attn.z=zero,head=-2,position=-1+1",
            {"*.1.attn.z": regard.zero(head=2, position=[1, 7])},
        ),
        ("*.0.attn.z=mean", {"*.0.attn.z": regard.mean()}),
        (
            f"*.1.resid_post=add,file={tmp_path}/v.safetensors,scale=0.5",
            {"*.1.resid_post": regard.add(0.5 * vector)},
        ),
    ):
        found = scores(kit, [words])
        assert torch.equal(found, scores(kit, edits)), words
        assert not torch.allclose(found, plain, atol=1e-2), words


def test_edits_add_up_and_reach_generation(kit):
    assert kit.generate("a b c d a b", 2).text.strip() == "c d"
    with kit.edit(["*.1.attn.z=zero,head=2", "*.0.attn.z=zero"]):
        assert kit.generate("a b c d a b", 2).text.strip() != "c d"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("zero", "TAP=zero"),
        ("=zero", "TAP=zero"),
        ("*.z=zeo", "did you mean zero"),
        ("*.z=zero,haed=1", "head=, position=, neuron= after zero"),
        ("*.z=zero,head=x", "joined by +"),
        ("*.z=zero,scale=2", "after zero"),
        ("*.z=add", "the vector to add"),
        ("*.z=patch", "the vector to patch"),
        ("*.z=patch,scale=2", "file= after patch"),
        ("*.z=add,file=nowhere", "no such file"),
        ("*.attn.z=zero,head=9", "heads 0 to 3"),
        ("*.resid_post=zero,neuron=999", "neuron [999] at decoder.blocks.0.resid_post"),
        ("*.mlp.out=zero,neuron=999", "neuron [999]"),
        ("embed=zero,neuron=999", "neuron [999]"),
        ("logits=zero,neuron=999", "neuron [999]"),
        ("*.attn.y=zero", "no tap is called"),
    ],
)
def test_bad_edits(kit, words, told):
    with pytest.raises(RegardError) as error, kit.edit([words]):
        pass
    assert told in str(error.value)


def test_files_that_hold_no_vector(kit, tmp_path):
    (tmp_path / "a").write_bytes(b"junk")
    with pytest.raises(DataError, match="one tensor"):
        parse_edits([f"t=add,file={tmp_path}/a"])
    save_file({"a": torch.zeros(2), "b": torch.zeros(2)}, tmp_path / "b")
    with pytest.raises(DataError, match="2 tensors"):
        parse_edits([f"t=add,file={tmp_path}/b"])
    save_file({"a": torch.zeros(2)}, tmp_path / "c")
    with pytest.raises(UsageError, match="a number"):
        parse_edits([f"t=add,file={tmp_path}/c,scale=much"])
    with pytest.raises(UsageError, match=r"shape \(2,\) at resid_post"):
        scores(kit, [f"*.resid_post=add,file={tmp_path}/c"])


def test_a_vector_made_by_extract(kit, tmp_path):
    """Two sets of prompts: one's mean is added, the other's taken away, in scoring and writing."""
    taps, tap = ["*.0.resid_post", "*.1.resid_post"], "decoder.blocks.1.resid_post"
    sets = {"toward": ["a b c", "d e"], "away": ["f g h i", "k"]}
    for name, lines in sets.items():
        regard.look.extract(kit, lines, tap=taps, out=tmp_path / name, position="last")
    rows = [[kit.run(text, taps=tap)[1][tap][0, -1] for text in lines] for lines in sets.values()]
    vector = torch.stack(rows[0]).mean(0) - torch.stack(rows[1]).mean(0)
    add = f"*.1.resid_post=add,file={tmp_path}"
    words = [f"{add}/toward,scale=3", f"{add}/away,scale=-3"]
    found = scores(kit, words)
    torch.testing.assert_close(
        found, scores(kit, {tap: regard.add(3 * vector)}), atol=1e-4, rtol=1e-4
    )
    assert not torch.allclose(found, scores(kit), atol=1e-2)
    with kit.edit([f"{word},position=5+6" for word in words]):
        steered = kit.generate("a b c d a b", 2).text
    with kit.edit({tap: regard.add(3 * vector, position=[5, 6])}):
        assert kit.generate("a b c d a b", 2).text == steered
    with pytest.raises(UsageError, match="2 taps"):
        scores(kit, [words[0].replace("*.1.resid", "*.resid")])


def test_the_mean_of_a_corpus_stands_in_for_a_texts_own(kit, tmp_path):
    tap = "decoder.blocks.1.attn.z"
    regard.look.extract(kit, ["a b c", "f e d c", "k l"], tap=[tap], out=tmp_path / "z")
    mean = regard.Extracted(tmp_path / "z").tensor(tap).mean(0).unflatten(0, (4, -1))
    found = scores(kit, [f"{tap}=patch,file={tmp_path}/z,head=2"])
    wanted = scores(kit, {tap: regard.patch(mean, head=2)})
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found, scores(kit), atol=1e-2)
    # column by column, with a cache, a text is edited as it is when run at once
    with kit.edit({tap: regard.patch(mean)}):
        text = "a b c d a b"
        for _ in range(3):
            text += " " + kit.tokenizer.decode([int(kit.logits(text)[0, -1].argmax())])
        assert kit.generate("a b c d a b", 3).text.split() == text.split()[6:]
