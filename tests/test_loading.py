"""What verbs open: in which precision, on which device, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.loading import load_kit, open_kit
from regard.model import presets
from regard.model.precision import PackedLinear
from tests.cli.small_folders import masker, pair, writer  # noqa: F401

PROMPT = "the cat"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Kit]:
    """The kits that verbs open."""
    kits: list[Kit] = []

    def keep(*args: Any, **options: Any) -> Kit:
        kits.append(load_kit(*args, **options))
        return kits[-1]

    monkeypatch.setattr("regard.loading.load_kit", keep)
    return kits


def precision_of(kit: Kit) -> str:
    """What the linear maps of a model compute in."""
    packed = any(isinstance(m, PackedLinear) for m in kit.model.modules())
    return "int8" if packed else {torch.float32: "fp32", torch.bfloat16: "bf16"}[kit.dtype]


@pytest.mark.parametrize("precision", ["auto", "fp32", "bf16", "int8"])
def test_generate_translate_score_and_fill(
    writer: Path,  # noqa: F811
    pair: Path,  # noqa: F811
    masker: Path,  # noqa: F811
    opened: list[Kit],
    precision: str,
) -> None:
    flags: dict[str, Any] = {"precision": precision}
    assert regard.generate(writer, PROMPT, max_new=3, **flags)
    assert regard.translate(PROMPT, model=pair, max_new=3, **flags)
    assert regard.score(writer, PROMPT, **flags)
    assert regard.fill(masker, "the [MASK] sat", **flags)
    wanted = "fp32" if precision == "auto" else precision
    assert [precision_of(kit) for kit in opened] == [wanted] * 4


def test_int8_is_near_the_plain_model(writer: Path) -> None:  # noqa: F811
    plain = regard.score(writer, PROMPT).logprob
    int8 = regard.score(writer, PROMPT, precision="int8").logprob
    assert int8 == pytest.approx(plain, rel=0.1) and int8 != plain


def test_another_precision_is_refused(writer: Path) -> None:  # noqa: F811
    with pytest.raises(UsageError, match="int8"):
        regard.generate(writer, PROMPT, precision="int4")


def test_an_opened_model_is_itself(writer: Path) -> None:  # noqa: F811
    kit = regard.load(writer)
    assert open_kit(kit) is kit and kit.path == writer
    assert regard.score(kit, PROMPT).logprob == regard.score(writer, PROMPT).logprob


def test_a_shape_without_weights_or_a_tokenizer(folders: Path) -> None:
    with pytest.raises(UsageError, match="a shape without weights"):
        open_kit("gpt2")
    with pytest.raises(DataError, match="no tokenizer"):
        open_kit(folders / "decoder")


def test_the_settings_choose_the_device(writer: Path) -> None:  # noqa: F811
    with regard.settings(device="cpu"):
        assert regard.load(writer).device.type == "cpu"


def test_a_shape_of_ones_own_is_built():
    config = presets.gpt2(16, 2, 2, vocab=50, length=32)
    kit = regard.build(config, seed=3)
    assert kit.model.config == config and kit.logits([[1, 2, 3]]).shape == (1, 3, 50)
    again = regard.build(config, seed=3)
    assert torch.equal(kit.logits([[1, 2]]), again.logits([[1, 2]]))


@pytest.mark.parametrize("wrong", [None, 3, {"front": {}}, presets.gpt2])
def test_what_is_neither_a_name_nor_a_shape_is_told(wrong):
    with pytest.raises(UsageError, match="building a model") as caught:
        regard.build(wrong)
    assert "ModelConfig" in caught.value.expected


def test_what_counts_opens_too_and_every_verb_takes_it(tmp_path):
    from regard.history.config import Word2VecConfig

    (tmp_path / "a.txt").write_text("the cat sat on the mat\nthe dog saw the cat\n" * 5)
    (tmp_path / "test.txt").write_text("the dog sat on the cat\n")
    (tmp_path / "pairs.tsv").write_text("le chat\tthe cat\nle chien\tthe dog\nun chat\ta cat\n" * 3)
    (tmp_path / "test.tsv").write_text("un chien\ta dog\n")
    regard.train.ngram(tmp_path / "a.txt", out=tmp_path / "words", order=2)
    regard.train.ngram(tmp_path / "a.txt", out=tmp_path / "chars", order=3, tokens="chars")
    small = Word2VecConfig(dim=4, min_count=1, epochs=1)
    regard.train.w2v(tmp_path / "a.txt", out=tmp_path / "vectors", config=small)
    regard.train.ibm1(tmp_path / "pairs.tsv", out=tmp_path / "ibm1")
    words, chars, vectors, translator = (
        regard.load(tmp_path / name) for name in ("words", "chars", "vectors", "ibm1")
    )
    for model, said in (
        (words, "<n-grams up to 2 words, 10 in all>"),
        (vectors, "<vectors of 7 words, 4 numbers each>"),
        (translator, "<translator by ibm1, 4 to 4 words>"),
    ):
        assert repr(model) == said
        assert regard.info(model).to_dict() == regard.info(model.path).to_dict()
    test = tmp_path / "test.txt"
    for verb, *rest in (
        (regard.score, "the cat"),
        (regard.evaluate.lm, test),
        (regard.history.sample,),
    ):
        assert verb(words, *rest) == verb(tmp_path / "words", *rest)
    for model in (words, tmp_path / "words"):
        coded = regard.history.entropy(test, model=model, order=2).coded[1]
        assert coded.by == str(tmp_path / "words")
    options = dict(auto=True, letters=20, alphabet="as-is", orders=[1])
    played = regard.history.guess(tmp_path / "a.txt", model=[chars], **options)
    assert played.players[-1].player == str(tmp_path / "chars")
    assert regard.export("arpa", words, tmp_path / "m.arpa").bytes > 0
    assert regard.evaluate.lm(regard.load(tmp_path / "m.arpa"), test).tokens == 7
    assert "cat" in vectors and vectors["cat"].shape == (4,) and "zebra" not in vectors
    assert regard.history.neighbours(vectors, "cat").neighbours
    assert regard.translate("le chien", model=translator).text == "the dog"
    scores = [
        regard.evaluate.translate(m, tmp_path / "test.tsv") for m in (translator, tmp_path / "ibm1")
    ]
    assert scores[0] == scores[1]
