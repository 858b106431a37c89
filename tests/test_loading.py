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


def precisions(kit: Kit) -> set[str]:
    """What the linear maps of a model compute in."""
    packed = (m for m in kit.model.modules() if isinstance(m, PackedLinear))
    return {linear.precision for linear in packed}


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
    wanted = set() if precision == "auto" else {precision}
    assert [precisions(kit) for kit in opened] == [wanted] * 4


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
