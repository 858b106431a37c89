"""Two gloo processes: the losses of one, exact resume, one stop for all, one word for all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.loading import load
from tests.train.distributed_runs import CUT, EVEN
from tests.train.runs import Killed, kill_at, load_model, make_trainer

ROOT = Path(__file__).resolve().parents[2]
KINDS = ["lm", "seq2seq"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def together(folder, kinds=KINDS, size=2):
    """Run distributed_runs.py on processes as torchrun would start them; what each found."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
    command = [sys.executable, "-m", "tests.train.distributed_runs", str(folder), *kinds]
    started = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | place | {"RANK": str(n), "LOCAL_RANK": str(n), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
        )
        for n in range(size)
    ]
    said = []
    try:
        for process in started:
            said.append(process.communicate(timeout=240)[1].decode()[-3000:])
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert [process.returncode for process in started] == [0] * size, "\n".join(said)
    return [json.loads((folder / f"found-{n}.json").read_text()) for n in range(size)]


def alone(folder, kinds=KINDS):
    """One process: a whole run of each kind, and two cut ones for the others to go on with."""
    (folder / "alone").mkdir()
    for kind in kinds:
        make_trainer(kind, folder / "alone", str(folder / kind), **EVEN).run()
        for shard in (False, True):
            name = str(folder / f"one-{kind}-{shard}")
            trainer = kill_at(make_trainer(kind, folder / "alone", name, **EVEN), CUT, 1)
            with pytest.raises(Killed):
                trainer.run()
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The folder of all runs."""
    return alone(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def found(base):
    """What both processes found."""
    return together(base)


def lines(folder):
    kept = ("step", "loss", "nll", "norm", "lr", "valid_nll", "valid_tokens", "count", "best")
    made = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in kept if name in line} for line in made]


def assert_same_run(one, other):
    """The same steps with the same losses (1e-5), and nearly the same weights at the end."""
    mine, theirs = lines(one), lines(other)
    assert len(mine) == EVEN["steps"] + 3 and len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert a == pytest.approx(b, rel=0, abs=1e-5)
    last = f"step-{EVEN['steps']:06d}"
    weights = dict(load(other / "checkpoints" / last).model.named_parameters())
    for name, parameter in load(one / "checkpoints" / last).model.named_parameters():
        torch.testing.assert_close(parameter, weights[name], rtol=0, atol=1e-4)


@pytest.mark.parametrize("how", ["copy", "shard"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_as_one(kind, how, base, found):
    assert_same_run(base / kind, base / f"{kind}-{how}")


@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_ends_with_the_same_bits(kind, shard, base, found):
    seen = found[0][f"{kind}-{shard}"]
    assert seen["began"] == 4 and seen["hash"] == seen["resumed"]
    name = f"{kind}-{'shard' if shard else 'copy'}"
    assert lines(base / f"{name}-again") == lines(base / f"{name}-drop")
    assert lines(base / f"{name}-drop") != lines(base / name)  # dropout was there


@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_with_another_number_of_processes(kind, shard, base, found, tmp_path):
    assert found[0][f"{kind}-{shard}"]["taken"][0] == 4  # two went on where one had stopped
    assert_same_run(base / kind, base / f"one-{kind}-{shard}")
    said = []
    left = str(base / f"{kind}-{'shard' if shard else 'copy'}-left")
    trainer = make_trainer(kind, tmp_path, left, job={"say": said.append}, **EVEN)
    assert trainer.restore(load_model).name == "step-000004"
    assert said == ["1 processes, 2 before: the same batches, but not the same bits"]
    trainer.run()
    assert_same_run(base / kind, Path(left))


def test_the_running_mean_is_gathered(base, found):
    from regard.train.checkpoint import read_checkpoint

    for kind in KINDS:
        last = f"checkpoints/step-{EVEN['steps']:06d}"
        alone = read_checkpoint(base / kind / last)[0]
        for how in ("copy", "shard"):
            two = read_checkpoint(base / f"{kind}-{how}" / last)[0]
            assert two.keys() >= {"process-0", "process-1"}
            for name in ("mean", "optimizer"):
                assert two[name].keys() == alone[name].keys()
                for key, tensor in two[name].items():
                    torch.testing.assert_close(tensor, alone[name][key], rtol=0, atol=1e-4)


def test_a_signal_to_one_stops_all_at_one_step(base, found):
    assert found[0]["stop"] == found[1]["stop"] == 3
    assert (base / "stopped" / "checkpoints" / "step-000003").is_dir()


@pytest.mark.parametrize("shard", [False, True])
def test_a_bad_number_of_one_stops_all(shard, base, found):
    messages = [one[f"spoil-{shard}"] for one in found]
    assert messages[0] == messages[1]
    assert "training step 3: loss nan" in messages[0]
    assert "the output of decoder.blocks.1.mlp.down" in messages[0]
    kept = load_model(base / f"spoilt-{shard}" / "checkpoints" / "step-000002")
    assert all(bool(torch.isfinite(p).all()) for p in kept.parameters())


def test_the_first_process_goes_first_and_speaks_for_all(found):
    assert [one["files"] for one in found] == [0, 1]
    assert found[0]["lead"].startswith("RegardError") and found[1]["lead"] == "SystemExit(1)"


@pytest.mark.slow
def test_three_processes_and_masked_tokens(tmp_path):
    # Sums of three depend on their order, which DDP changes after its first backward pass.
    alone(tmp_path, ["mlm"])
    found = together(tmp_path, ["mlm"], size=3)
    for shard, how in ((False, "copy"), (True, "shard")):
        assert_same_run(tmp_path / "mlm", tmp_path / f"mlm-{how}")
        assert_same_run(tmp_path / "mlm", tmp_path / f"one-mlm-{shard}")
        seen = found[0][f"mlm-{shard}"]
        assert seen["hash"] == seen["resumed"]
