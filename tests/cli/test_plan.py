"""`regard plan`: the table, the JSON, what fits and what does not. Nothing here reads a clock."""

from __future__ import annotations

import json
from collections import namedtuple

import pytest
import torch

from regard.cli import plan
from regard.cli.timing import Timer
from regard.cli.watch import Watch
from regard.core.config import StackConfig
from regard.interop.families import bind
from regard.kit import Kit
from regard.model import presets
from regard.model.batch import Batch
from regard.model.config import ModelConfig
from regard.model.cost import LOOK, MLP, PARTS, RunShape, count_disk
from regard.model.model import Model
from regard.model.presets import preset
from regard.train.checkpoint import optimizer_tensors, write_checkpoint

SMALL = ("--dim", 32, "--depth", 2, "--heads", 4, "--vocab", 100)


@pytest.fixture
def still(monkeypatch):
    """A timer that does not run anything."""

    class Still:
        def __init__(self, config, run, device, train, dtype):
            self.parts = [*PARTS, *(["optimiser"] if train else [])]

        def times(self, step):
            return dict.fromkeys(self.parts, 0.5)

    monkeypatch.setattr(plan, "Timer", Still)


def test_the_table(here, still):
    code, out, err = here("plan", "gpt2", "--batch", 4, "--length", 512)
    assert (code, err) == (0, "")
    assert "batch 4, 512 tokens in the decoder, float32" in out
    assert all(part in out for part in PARTS) and "124,439,808" in out and "3.00 s" in out


def test_json_of_a_training_step(here, still):
    code, out, _ = here("plan", "gpt2", "--train", "--json", "--dtype", "bfloat16")
    found = json.loads(out)
    assert code == 0 and found["run"]["train"] and found["run"]["dtype"] == "bfloat16"
    assert found["total"]["weight_bytes"] == 2 * 124_439_808
    assert found["total"]["optimiser_bytes"] == 4 * 124_439_808
    assert found["total"]["seconds"] == 3.5 and found["parts"]["optimiser"]["seconds"] == 0.5
    assert found["total"]["peak_bytes"] > 8 * 124_439_808


def test_the_short_names_of_the_row(here, still):
    code, out, _ = here("plan", "--n", 8192, "--d", 1024, "--json")
    found = json.loads(out)
    assert code == 0 and found["run"]["tokens"] == {"decoder": 8192}
    assert found["parts"]["scores and values"]["flops"] == 12 * 4 * 8192**2 * 1024


def test_what_does_not_fit_names_what_does(here, still):
    code, out, err = here("plan", "gpt2", "--batch", 64, "--length", 1024, "--memory", 4)
    assert (code, err) == (0, "") and "NO: there are 4.0 GiB; the largest batch" in out
    arguments = ("--batch", 64, "--length", 1024, "--memory", 4, "--require-fit")
    code, out, err = here("plan", "gpt2", *arguments)
    assert code == 4 and "expected: at most 4.0 GiB" in err and "--batch" in err
    batch = int(err.split("--batch ")[1].split()[0])
    assert here("plan", "gpt2", "--batch", batch, *arguments[2:])[0] == 0
    assert here("plan", "gpt2", "--batch", batch + 1, *arguments[2:])[0] == 4
    code, out, _ = here("plan", "gpt2", "--length", 1024, "--memory", 0.53)
    assert code == 0 and "--batch 1 --length" in out
    assert "no batch fits" in here("plan", "gpt2", "--memory", 0.1)[1]


def test_a_whole_run(here, still, monkeypatch):
    flags = ("plan", *SMALL, "--train", "--steps", 1000, "--json")
    whole = json.loads(here(*flags, "--watts", 72)[1])["whole"]
    assert whole["seconds"] == 1000 * 0.5 * (len(PARTS) + 1)
    assert whole["joules"] == 72 * whole["seconds"]
    several = json.loads(here(*flags, "--keep", 5)[1])["whole"]
    assert several["disk_bytes"] - whole["disk_bytes"] == 2 * whole["checkpoint_bytes"]
    monkeypatch.setattr(plan, "find_watts", lambda device: None)
    assert "energy  not known: give --watts" in here(*flags[:-1])[1]
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(
        plan.shutil, "disk_usage", lambda path: usage(1, 1, whole["disk_bytes"] - 1)
    )
    assert "NOT ENOUGH" in here(*flags[:-1])[1]
    code, _, err = here(*flags, "--require-fit")
    assert code == 4 and "of disk" in err
    for wrong in (("--watts", 0), ("--watts", "nan"), ("--memory", -1), ("--memory", "inf")):
        code, _, err = here(*flags, *wrong)
        assert code == 2 and "is not a number above 0" in err


def test_a_checkpoint_is_as_large_as_planned(tmp_path):
    """A real one, with the state of a real optimizer."""
    config = presets.gpt2(64, 3, 4, vocab=200, length=32)
    model = Model.fresh(config, seed=0)
    optimizer = torch.optim.AdamW(model.parameters())
    model(Batch(torch.zeros(1, 4, dtype=torch.long))).sum().backward()
    optimizer.step()
    kit = Kit(model, binding=bind("GPT2LMHeadModel"))
    tensors = {"optimizer": dict(optimizer_tensors(model, optimizer))}
    made = write_checkpoint(tmp_path, 1, kit.save, tensors, {})
    size = sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
    checkpoint, whole = count_disk(config, RunShape(1, 4, 4, 4), True, keep=3)
    assert checkpoint == pytest.approx(size, rel=0.15)
    assert whole == 5 * checkpoint + checkpoint // 3
    assert count_disk(config, RunShape(1, 4, 4, 4), False, keep=3) == (checkpoint // 3,) * 2


def test_a_folder_can_be_planned_for_real(here, folders):
    for kind in ("decoder", "encoder", "pair", "picture"):
        code, out, err = here("plan", folders / kind, "--length", 12, "--json", "--no-progress")
        found = json.loads(out)
        assert (code, err) == (0, "") and found["fits"]
        assert all(part["seconds"] >= 0 for part in found["parts"].values())
        assert found["total"]["seconds"] > 0


def test_a_training_step_can_be_planned_for_real(here):
    code, out, _ = here("plan", *SMALL, "--length", 16, "--batch", 2, "--train", "--json")
    parts = json.loads(out)["parts"]
    assert code == 0 and parts["optimiser"]["seconds"] > 0 and parts["MLP"]["seconds"] > 0


class Clock(Watch):
    """A stopwatch on which every call takes one second; it still runs the work."""

    ticks = 0.0

    def now(self) -> float:
        Clock.ticks += 1.0
        return Clock.ticks


def test_time_grows_with_depth_and_batch_where_rows_were_cut(monkeypatch):
    """With a slow machine every piece is cut down; what is scaled up is linear in rows."""
    monkeypatch.setattr("regard.cli.timing.Watch", Clock)

    def times(depth, batch):
        stack = preset("llama-15m").decoder
        config = ModelConfig(preset("llama-15m").front, decoder=StackConfig(stack.block, depth))
        timer = Timer(config, RunShape(batch, 64), "cpu", False)
        timer._speed = 1e6  # FLOP/s: one row of one block is too much already
        with torch.no_grad():
            return timer.times()

    once, deep, wide = times(2, 1), times(4, 1), times(2, 3)
    for part in (MLP, LOOK):
        assert deep[part] == pytest.approx(2 * once[part]), part
        assert wide[part] == pytest.approx(3 * once[part]), part
    assert set(once) == set(PARTS)
