"""int8 weights in a file: exact where exactness is promised, refused where a pair is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

import regard
from regard.cli.main import main
from regard.errors import DataError, UsageError
from regard.interop.families import bind
from regard.interop.folder import SINGLE, FolderSource, to_whole
from regard.kit import Kit
from regard.model import int8, presets
from regard.model.config import ModelConfig
from regard.model.int8 import Product, int8_map
from regard.model.model import Model
from tests.parity.compare import randomise

SHAPES: dict[str, tuple[ModelConfig, str | None]] = {
    "own": (presets.transformer(12, 2, 3, vocab=17, pre=True), None),
    "marian": (presets.transformer(12, 2, 3, vocab=17), "MarianMTModel"),
    "gpt2, transposed and joined": (presets.gpt2(12, 2, 3, 17, 9), "GPT2LMHeadModel"),
}


def make(name: str) -> Kit:
    config, family = SHAPES[name]
    kit = Kit(Model.fresh(config), None, bind(family) if family else None)
    randomise(kit.model)
    return kit


@pytest.fixture(params=SHAPES)
def kit(request: pytest.FixtureRequest) -> Kit:
    return make(request.param)


def weights(kit: Kit) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in kit.model.named_parameters()}


def test_each_weight_is_within_half_a_step(kit: Kit, tmp_path: Path) -> None:
    kit.save(tmp_path, stored="int8")
    again = regard.load(tmp_path)
    assert again.model.config == kit.model.config
    changed = 0
    for name, weight in weights(again).items():
        old = weights(kit)[name]
        assert weight.dtype == torch.float32
        if weight.dim() == 1 or "positions" in name:  # norms, biases, tables: to the bit
            assert torch.equal(weight, old), name
            continue
        changed += not torch.equal(weight, old)
        step = old.abs().amax(1, keepdim=True).double() / 127
        assert ((weight.double() - old.double()).abs() <= step * (0.5 + 1e-5)).all(), name
    assert changed > 5


def test_stored_again_gives_the_same_files(kit: Kit, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    kit.save(first, stored="int8")
    regard.load(first).save(second, stored="int8")
    for file in (SINGLE, "config.json"):
        assert (first / file).read_bytes() == (second / file).read_bytes()


def packed(weight: Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Tensor]:
    """The whole numbers and steps that an int8 product would compute with."""
    seen: list[tuple[Tensor, Tensor]] = []

    def pack(whole: Tensor, step: Tensor, bias: Tensor | None) -> Product:
        seen.append((whole, step))
        return lambda x: x

    with monkeypatch.context() as patch:
        patch.setattr(int8, "find_kernel", lambda: pack)
        int8_map(weight, None)
    return seen[0]


def test_packed_for_int8_products_it_is_what_the_float_weights_give(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.save(tmp_path, stored="int8")
    again = weights(regard.load(tmp_path))
    for name, weight in weights(kit).items():
        if weight.dim() == 2 and "positions" not in name:
            before, after = packed(weight, monkeypatch), packed(again[name], monkeypatch)
            assert torch.equal(before[0], after[0]) and torch.equal(before[1], after[1]), name


@given(st.integers(0, 2**32 - 1), st.floats(-30, 30))
@settings(max_examples=40, deadline=None)
def test_any_size_of_weight_comes_back_as_the_same_numbers(seed: int, size: float) -> None:
    weight = torch.randn(64, 33, generator=torch.Generator().manual_seed(seed)) * 10**size
    weight[0], weight[1, 1:] = 0, 0
    whole, peak = to_whole(weight)
    again = whole.float() / 127 * peak
    assert all(torch.equal(a, b) for a, b in zip(to_whole(again), (whole, peak), strict=True))
    assert torch.equal(again.abs().amax(1), weight.abs().amax(1))
    with pytest.MonkeyPatch.context() as patch:
        before, after = packed(weight, patch), packed(again, patch)
    assert torch.equal(before[0], after[0]) and torch.equal(before[1], after[1])
    assert torch.equal(before[0][:, :33], whole)  # the one rule for both


def test_the_file_is_a_quarter_and_float_again_opens_in_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    kit = Kit(Model.fresh(presets.transformer(64, 2, 4, 300)), None, bind("MarianMTModel"))
    kit.save(tmp_path / "float")
    kit.save(tmp_path / "int8", stored="int8")
    sizes = [(tmp_path / name / SINGLE).stat().st_size for name in ("float", "int8")]
    assert sizes[1] < 0.32 * sizes[0]
    both = set.intersection(*(set(load_file(tmp_path / n / SINGLE)) for n in ("float", "int8")))
    assert all("bias" in name or "norm" in name for name in both)  # none is a matrix of numbers
    regard.load(tmp_path / "int8").save(tmp_path / "again")
    again = regard.load(tmp_path / "int8", precision=None)
    assert "stored" not in json.loads((tmp_path / "again" / "config.json").read_text())
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "again").eval()
    source, target = torch.randint(2, 300, (2, 3, 7))
    with torch.no_grad():
        logits = theirs(source, decoder_input_ids=target).logits
    assert torch.allclose(again.logits(source, target), logits, atol=1e-4)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make("own").save(tmp_path / "float")
    assert main(["export", "int8", str(tmp_path / "float"), str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["form"] == "int8"
    assert "transformers does not" in (tmp_path / "out" / "README.md").read_text()
    make("own").save(tmp_path / "wanted", stored="int8")
    for file in (SINGLE, "config.json"):
        made = (tmp_path / "out" / file).read_bytes()
        assert made == (tmp_path / "wanted" / file).read_bytes()


def drop(end: str) -> Callable[[dict[str, Tensor]], None]:
    def run(held: dict[str, Tensor]) -> None:
        del held[next(n for n in sorted(held) if n.endswith(end))]

    return run


def change(end: str, edit: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], None]:
    def run(held: dict[str, Tensor]) -> None:
        name = next(n for n in sorted(held) if n.endswith(end))
        held[name] = edit(held[name]).contiguous()

    return run


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (drop(".peak"), "weight.peak"),
        (drop(".int8"), "missing"),
        (change(".peak", lambda t: t[:-1]), "must match the size"),
        (change(".int8", lambda t: t[:-1]), "misshapen (1)"),
    ],
)
def test_broken_pairs(
    edit: Callable[[dict[str, Tensor]], None], found: str, tmp_path: Path
) -> None:
    make("own").save(tmp_path, stored="int8")
    held = load_file(tmp_path / SINGLE)
    edit(held)
    save_file(held, tmp_path / SINGLE)
    with pytest.raises(DataError) as caught:
        regard.load(tmp_path)
    assert found in caught.value.found


def test_an_unknown_way_to_store(tmp_path: Path) -> None:
    kit = make("own")
    with pytest.raises(UsageError, match="int4"):
        kit.save(tmp_path, stored="int4")
    kit.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"stored": "int4"}))
    with pytest.raises(DataError, match="stored = 'int4'"):
        FolderSource(tmp_path)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_weights_that_are_not_finite_are_refused(value: float) -> None:
    weight = torch.ones(3, 4)
    weight[1, 2] = value
    with pytest.raises(DataError, match="finite"):
        to_whole(weight)


@pytest.mark.parametrize("stored", [None, "int8"])
def test_loaded_weights_have_memory_of_their_own(
    kit: Kit, stored: str | None, tmp_path: Path
) -> None:
    kit.save(tmp_path, stored=stored)
    storages = [p.untyped_storage() for p in regard.load(tmp_path).model.parameters()]
    assert all(storage.resizable() for storage in storages)  # what is mapped cannot be
    assert len({storage.data_ptr() for storage in storages}) == len(storages)
