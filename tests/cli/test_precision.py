"""`--precision` of the verbs that run a model: it reaches the matrix products."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.kit import Kit
from regard.loading import load_kit
from regard.model.precision import PackedLinear
from tests.cli.small_folders import masker, pair, writer  # noqa: F401

PROMPT = "the cat"
Here = Callable[..., tuple[int, str, str]]


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
    here: Here,
    writer: Path,  # noqa: F811
    pair: Path,  # noqa: F811
    masker: Path,  # noqa: F811
    opened: list[Kit],
    precision: str,
) -> None:
    flags = ("--precision", precision, "--json", "-q")
    for command in (
        ("generate", writer, PROMPT, "--max-new", 3),
        ("translate", PROMPT, "--model", pair, "--max-new", 3),
        ("score", writer, PROMPT),
        ("fill", masker, "the [MASK] sat"),
    ):
        code, out, err = here(*command, *flags)
        assert (code, err) == (0, "") and json.loads(out)
    wanted = set() if precision == "auto" else {precision}
    assert [precisions(kit) for kit in opened] == [wanted] * 4


def test_int8_is_near_the_plain_model(here: Here, writer: Path) -> None:  # noqa: F811
    plain, int8 = (
        json.loads(here("score", writer, PROMPT, "--precision", name, "--json")[1])["logprob"]
        for name in ("auto", "int8")
    )
    assert int8 == pytest.approx(plain, rel=0.1) and int8 != plain


def test_another_precision_is_refused(here: Here, writer: Path) -> None:  # noqa: F811
    code, _, err = here("generate", writer, PROMPT, "--precision", "int4")
    assert code == 2 and "int8" in err
