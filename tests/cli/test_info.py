"""`regard info`, `regard list` and `regard doctor`."""

from __future__ import annotations

import json

import pytest
import torch

from regard.cli import doctor
from regard.cli.info import letters
from regard.core.tap import taps
from regard.interop.folder import FolderSource
from regard.kit import Kit
from regard.model.model import empty_model
from regard.model.presets import PRESETS


def test_a_folder_without_reading_its_weights(folders, here, monkeypatch):
    monkeypatch.setattr(FolderSource, "tensor", None)
    code, out, err = here("info", folders / "decoder", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    size = (folders / "decoder" / "model.safetensors").stat().st_size
    assert found["architecture"] == "GPT2LMHeadModel" and found["family"] == "gpt2"
    assert found["parameters"] == 16 * (50 + 40) + 2 * (12 * 16**2 + 13 * 16) + 32
    assert found["bytes_on_disk"] == size and found["bytes_float32"] == 4 * found["parameters"]
    assert found["input"] == {**dict(kind="text", vocab=50, context_length=40, positions="learned")}
    wanted = dict(dim=16, depth=2, heads=2, kv_heads=2, head_dim=8, hidden=64, causal=True)
    assert wanted.items() <= found["decoder"].items()
    assert found["tokenizer"] is None and found["parity"] is None


@pytest.mark.parametrize("kind", ["encoder", "pair", "picture"])
def test_every_kind_prints(kind, folders, here):
    code, out, err = here("info", folders / kind)
    assert (code, err) == (0, "")
    assert "parameters" in out and "not measured" in out and "heads" in out


def test_a_preset(here):
    code, out, _ = here("info", "gpt2")
    assert code == 0 and "124,439,808" in out and "474.7 MiB in float32" in out


def test_taps_are_listed_with_their_shapes(folders, here):
    code, out, _ = here("info", folders / "decoder", "--taps")
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert code == 0
    assert ["decoder.blocks.1.attn.pattern", "(B, H, T, S)"] in lines
    assert ["decoder.blocks.0.mlp.post", "(B, T, M)"] in lines
    assert ["logits", "(B, T, V)"] in lines


@pytest.mark.parametrize("kind", ["decoder", "encoder", "pair", "picture"])
def test_the_letters_are_the_shapes_that_taps_see(kind, folders):
    import regard
    from regard.cli.properties import Tester

    kit: Kit = regard.load(folders / kind)
    tester = Tester(kit, 0)
    target = None if tester.target is None else tester.target[:, :6]
    _, seen = kit.run(tester.inputs, target, taps="*")
    stack = kit.model.config.last.block
    own = seen[next(name for name in seen if name.endswith("embed"))].shape[1]
    sizes = dict(B=3, T=own, S=own, D=16, H=2, G=2, K=8, M=stack.hidden)
    sizes["V"] = kit.model.config.head.size
    if target is not None:
        sizes |= dict(T=6, S=9)
    assert len(seen) == len(taps(kit.model))
    for name, x in seen.items():
        shape = dict(sizes)
        if target is not None and name.startswith("decoder.") and ".attn." in name:
            shape["S"] = 6  # its own sequence is what self-attention looks at
        assert x.shape == tuple(shape[letter] for letter in letters(name, kit.model.config)), name


def test_every_preset_has_an_outline():
    from regard.model.presets import preset

    for name in PRESETS:
        model = empty_model(preset(name))
        assert all(parameter.device == torch.device("meta") for parameter in model.parameters())


def test_list(here):
    code, out, _ = here("list", "--json")
    found = json.loads(out)
    assert code == 0
    assert {p["name"]: p["parameters"] for p in found["presets"]}["gpt2"] == 124_439_808
    assert "GPT2LMHeadModel" in found["architectures"]["gpt2"]


def test_doctor(here, monkeypatch):
    monkeypatch.setattr(doctor, "measure_speed", lambda device: 12.34)
    code, out, err = here("doctor", "--json", "--quiet")
    found = json.loads(out)
    assert (code, err) == (0, "") and found["ok"]
    assert torch.__version__.startswith(found["packages"]["torch"])  # a build adds +cu130
    assert found["speed"] == {"device": found["speed"]["device"], "float32_gflops": 12.3}
    assert set(found["optional"]) == set(doctor.OPTIONAL)
    code, out, _ = here("doctor")
    assert code == 0 and "12.3 GFLOP/s" in out and "free disk" in out


def test_doctor_names_what_is_missing(here, monkeypatch):
    there = doctor.find_version
    gone = ("torch", "rich")
    monkeypatch.setattr(doctor, "find_version", lambda n: None if n in gone else there(n))
    code, out, err = here("doctor")
    assert code == 1 and "MISSING" in out and "not installed" in out
    assert "to fix: pip install torch" in err
