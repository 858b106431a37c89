"""Runs with --lora: what is trained and written, exact resuming, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

import regard
from regard.errors import UsageError
from regard.files import file_hash
from regard.tune import lora
from tests.tune.test_lora import adapter_parameters

TRAIN = regard.TrainConfig(
    **dict(steps=12, length=16, batch_tokens=64, warm_up=2, lr=0.01, accumulate=2),
    **dict(save_every=4, eval_every=6, log_every=1, dropout=0.1, workers=0),
)
LORA = regard.LoRA(r=2, dropout=0.1, targets=("*.attn.{q,v}", "*.mlp.up"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A text, pairs, and small models of three kinds, each trained for two steps."""
    place = tmp_path_factory.mktemp("lora")
    lines = [f"the cat number {n} sees a {'red' if n % 3 else 'blue'} house" for n in range(60)]
    (place / "text.txt").write_text("\n".join(lines))
    (place / "pairs.tsv").write_text("\n".join(f"{line}\t{line[::-1]}" for line in lines))
    short = regard.TrainConfig(steps=2, length=64, batch_tokens=64, eval_every=0, optimizer="adamw")
    with regard.settings(device="cpu", quiet=True, progress=False):
        for kind, tokens in (("lm", "chars"), ("mlm", "wordpiece"), ("seq2seq", "chars")):
            shape = regard.ShapeConfig(dim=16, depth=2, heads=2)
            getattr(regard.train, kind)(
                place / ("pairs.tsv" if kind == "seq2seq" else "text.txt"),
                **dict(out=place / kind, config=short, shape=shape),
                data=regard.DataConfig(tokens=tokens),
            )
    return place


def start(place, out, kind="lm", **named):
    file = place / ("pairs.tsv" if kind == "seq2seq" else "text.txt")
    data = regard.DataConfig(init=str(place / kind))
    with regard.settings(device="cpu", quiet=True, progress=False):
        config = named.pop("config", TRAIN)
        named = {"lora": LORA, "data": data} | named
        return getattr(regard.train, kind)(file, out=out, config=config, **named)


@pytest.mark.parametrize("kind", ["lm", "mlm", "seq2seq"])
def test_final_of_a_run_is_the_adapter(place, tmp_path, kind):
    config = regard.TrainConfig(**{n: getattr(TRAIN, n) for n in TRAIN.given} | {"length": 64})
    base = {p: file_hash(p) for p in (place / kind / "final").iterdir()}
    run = start(place, tmp_path / "run", kind, config=config)
    assert {p: file_hash(p) for p in base} == base
    names = {p.name for p in (tmp_path / "run" / "final").iterdir()}
    assert names == {"adapter_config.json", "adapter_model.safetensors", "config.json"}
    step = tmp_path / "run" / "checkpoints" / "step-000012"
    assert {p.name for p in step.iterdir()} == names | {"trainer"}
    kit, plain = run.kit, regard.load(place / kind)
    held = dict(kit.model.named_parameters())
    for name, parameter in plain.model.named_parameters():
        assert torch.equal(held[name], parameter), name
    trained = adapter_parameters(kit.model)
    assert trained and all(parameter.any() for parameter in trained.values())
    optimizer = regard.train.checkpoint.load_file(step / "trainer" / "optimizer.safetensors")
    assert {name.partition("/")[2] for name in optimizer} == set(trained)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert " of them trained (" in log and "%)" in log
    settings = (tmp_path / "run" / "config.toml").read_text()
    assert 'lora = "r=2,dropout=0.1,targets=*.attn.{q,v},*.mlp.up"  # flag' in settings
    kit.switch(None)
    again = regard.load(tmp_path / "run")
    assert again.adapters == {"default": 1.0}


@pytest.mark.parametrize(
    "text", ["r=2,dropout=0.2", pytest.param("r=2,dora,targets=*.attn.*", marks=pytest.mark.slow)]
)
def test_a_killed_run_ends_with_the_same_bits(place, tmp_path, text):
    whole = start(place, tmp_path / "whole", lora=text)
    code = f"""
import regard
from pathlib import Path
from tests.tune.test_lora_runs import start
start(Path({str(place)!r}), {str(tmp_path / "killed")!r}, lora={text!r})
"""
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": "."})
    metrics = tmp_path / "killed" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and metrics.read_text().count('"loss"') >= 6):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    killed = start(place, None, lora=text, resume=tmp_path / "killed")
    assert (killed.weights, killed.last_weights) == (whole.weights, whole.last_weights)
    curves = [[(m["step"], m.get("loss")) for m in run.metrics] for run in (whole, killed)]
    assert curves[0] == curves[1]
    files = [run.path / "adapter_model.safetensors" for run in (whole, killed)]
    assert files[0].read_bytes() == files[1].read_bytes()
    with pytest.raises(UsageError, match="lora = 'r=3', was"):
        start(place, None, lora="r=3", resume=tmp_path / "killed")


def test_the_running_mean_and_averages_are_of_the_adapter(place, tmp_path):
    given = {n: getattr(TRAIN, n) for n in TRAIN.given}
    for more in ({"ema": 0.9}, {"average": 2}):
        out = tmp_path / next(iter(more))
        run = start(place, out, config=regard.TrainConfig(**given | more))
        assert lora.adapted(run.kit.model) and run.weights != run.last_weights


def test_gpt2_s_joined_maps_resume_too(place, tmp_path):
    """c_attn is q, k and v of ours: one adapter on disk, three in training."""
    with regard.settings(device="cpu", quiet=True, progress=False):
        regard.train.lm(
            place / "text.txt",
            out=tmp_path / "base",
            config=regard.TrainConfig(steps=1, length=16, batch_tokens=64, eval_every=0),
            shape=regard.ShapeConfig(family="gpt2", dim=16, depth=1, heads=2),
            data=regard.DataConfig(tokens="chars"),
        )
    data = regard.DataConfig(init=str(tmp_path / "base"))
    given = {n: getattr(TRAIN, n) for n in TRAIN.given}
    whole = start(place, tmp_path / "whole", data=data)
    start(place, tmp_path / "part", data=data, config=regard.TrainConfig(**given | {"steps": 8}))
    config = json.loads((tmp_path / "part" / "final" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["c_attn", "c_fc"] and config["fan_in_fan_out"]
    # A cosine that ends elsewhere is another run: only shapes and restoring are looked at.
    longer = start(place, None, data=data, resume=tmp_path / "part")
    shapes = [{n: p.shape for n, p in run.kit.model.named_parameters()} for run in (whole, longer)]
    assert shapes[0] == shapes[1] and longer.steps == 12


def test_an_adapter_is_trained_further(place, tmp_path):
    first = start(place, tmp_path / "first")
    data = regard.DataConfig(init=str(tmp_path / "first" / "final"))
    second = start(place, tmp_path / "second", data=data, lora=None)
    assert second.kit.base == first.kit.base and second.weights != first.weights
    assert set(adapter_parameters(second.kit.model)) == set(adapter_parameters(first.kit.model))
    with pytest.raises(UsageError, match="which is an adapter"):
        start(place, tmp_path / "third", data=data)


def test_bad_settings_are_refused_before_any_work(place, tmp_path):
    with pytest.raises(UsageError, match="without init"):
        start(place, tmp_path / "a", data=regard.DataConfig())
    with pytest.raises(UsageError, match="r = 17 for decoder.blocks.0.attn.q.*16 × 16"):
        start(place, tmp_path / "a", lora=regard.LoRA(r=17))
    with pytest.raises(UsageError, match="shard"):
        given = {n: getattr(TRAIN, n) for n in TRAIN.given}
        start(place, tmp_path / "a", config=regard.TrainConfig(**given, shard=True))
    assert not (tmp_path / "a").exists()


def test_a_dry_run_counts_what_is_trained(place, tmp_path):
    plan, full = (start(place, tmp_path / "a", dry_run=True, lora=x) for x in ("r=2", None))
    trained = 2 * 2 * 2 * (16 + 16)
    assert plan.model["trained"] == trained
    assert plan.model["share"] == trained / plan.model["parameters"]
    assert plan.disk_bytes < full.disk_bytes and plan.memory_bytes < full.memory_bytes


def test_the_command_line_trains_and_merges(place, tmp_path, run_regard):
    code, out, err = run_regard(
        *("train", "lm", place / "text.txt", "--init", place / "lm", "--out", tmp_path / "run"),
        *("--lora", "r=2,alpha=8", "--steps", 4, "--length", 16, "--batch-tokens", 64, "--json"),
    )
    assert code == 0, err
    code, out, err = run_regard("generate", tmp_path / "run", "the cat", "--max-new", 4, "--json")
    assert code == 0, err
    code, out, err = run_regard(
        "tune", "merge", tmp_path / "run", "--out", tmp_path / "w", "--json"
    )
    assert code == 0 and json.loads(out)["drift"] <= 1e-4 and "merged − unmerged" in err
    assert regard.load(tmp_path / "w").adapters == {}
    config = json.loads((tmp_path / "run" / "final" / "adapter_config.json").read_text())
    assert config["lora_alpha"] == 8 and config["base_model_name_or_path"] == str(
        place / "lm" / "final"
    )
