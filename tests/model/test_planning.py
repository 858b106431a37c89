"""`regard.plan`: the table, what fits and what does not. Nothing here reads a clock."""

from __future__ import annotations

import json
import math
from collections import namedtuple

import pytest
import torch

import regard
from regard.core.config import StackConfig
from regard.errors import ResourceError, UsageError
from regard.interop.families import bind
from regard.kit import Kit
from regard.model import planning, presets
from regard.model.batch import Batch
from regard.model.config import ModelConfig
from regard.model.cost import LOOK, MLP, PARTS, RunShape, count_params, disk_of
from regard.model.model import Model
from regard.model.presets import preset
from regard.model.timing import Stopwatch, Timer
from regard.train.checkpoint import optimizer_tensors, write_checkpoint

SMALL = dict(dim=32, depth=2, heads=4, vocab=100)


@pytest.fixture
def still(monkeypatch):
    """A timer that does not run anything."""

    class Still:
        def __init__(self, config, run, device, train, dtype):
            self.parts = [*PARTS, *(["optimiser"] if train else [])]

        def times(self):
            return dict.fromkeys(self.parts, 0.5)

    monkeypatch.setattr(planning, "Timer", Still)


def test_the_table(still):
    text = str(regard.plan("gpt2", batch=4, length=512))
    assert "tokens  decoder 512" in text and "a run of gpt2" in text
    assert all(part in text for part in PARTS) and "124,439,808" in text and "3.00 s" in text


def test_a_training_step(still):
    plan = regard.plan("gpt2", train=True, dtype="bfloat16")
    assert plan.run.train and plan.run.dtype == "bfloat16"
    assert plan.total.weight_bytes == 2 * 124_439_808
    assert plan.total.optimiser_bytes == 4 * 124_439_808
    assert plan.total.seconds == 3.5 and plan.costs["optimiser"].seconds == 0.5
    assert plan.total.peak_bytes > 8 * 124_439_808
    assert plan.to_dict()["parts"]["optimiser"]["bytes"] == plan.total.optimiser_bytes


def test_the_short_names_of_the_row(run_regard, still):
    code, out, _ = run_regard("plan", "--n", 8192, "--d", 1024, "--json")
    plan = json.loads(out)
    assert code == 0 and plan["run"]["tokens"] == {"decoder": 8192}
    assert plan["parts"]["scores and values"]["flops"] == 12 * 4 * 8192**2 * 1024


def test_an_opened_model_is_its_shape(still, folders):
    kit = regard.load(folders / "decoder")
    opened, closed = regard.plan(kit).to_dict(), regard.plan(folders / "decoder").to_dict()
    assert opened["parts"] == closed["parts"] and opened["total"] == closed["total"]
    with pytest.raises(UsageError, match="one of the two"):
        regard.plan(kit, dim=32)
    with pytest.raises(UsageError, match="no model"):
        regard.plan(batch=4)


def test_what_does_not_fit_names_what_does(still):
    sizes = dict(batch=64, length=1024, memory=4)
    plan = regard.plan("gpt2", **sizes)
    lines = [line.split(maxsplit=1) for line in str(plan).splitlines()]
    assert not plan.fits and ["fits", "no"] in lines and "the largest batch" in str(plan)
    with pytest.raises(ResourceError) as caught:
        regard.plan("gpt2", **sizes, require_fit=True)
    assert caught.value.expected == "at most 4.0 GiB"
    batch = int(caught.value.fix.split("--batch ")[1])
    assert regard.plan("gpt2", **sizes | dict(batch=batch), require_fit=True).fits
    assert not regard.plan("gpt2", **sizes | dict(batch=batch + 1)).fits
    assert "--batch 1 --length" in regard.plan("gpt2", length=1024, memory=0.53).suggestion
    assert "no batch fits" in regard.plan("gpt2", memory=0.1).suggestion


def test_a_whole_run(still, monkeypatch):
    run = dict(**SMALL, train=True, steps=1000)
    whole = regard.plan(**run, watts=72).whole
    assert whole.seconds == 1000 * 0.5 * (len(PARTS) + 1)
    assert whole.joules == 72 * whole.seconds
    several = regard.plan(**run, keep=5).whole
    assert several.disk_bytes - whole.disk_bytes == 2 * whole.checkpoint_bytes
    monkeypatch.setattr(planning, "find_watts", lambda device: None)
    assert regard.plan(**run).whole.joules is None
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(
        planning.shutil, "disk_usage", lambda path: usage(1, 1, whole.disk_bytes - 1)
    )
    with pytest.raises(ResourceError, match="of disk"):
        regard.plan(**run, require_fit=True)
    for wrong in (dict(watts=0), dict(watts=math.nan), dict(memory=-1), dict(memory=math.inf)):
        with pytest.raises(UsageError, match="a number above 0"):
            regard.plan(**run, **wrong)


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
    weights = 4 * count_params(config)
    checkpoint, whole = disk_of(weights, 2 * weights, keep=3)
    assert checkpoint == pytest.approx(size, rel=0.15)
    assert whole == 5 * checkpoint + checkpoint // 3
    assert disk_of(weights, 0, keep=3) == (checkpoint // 3,) * 2


def test_a_folder_can_be_planned_for_real(folders):
    for kind in ("decoder", "encoder", "pair", "picture"):
        plan = regard.plan(folders / kind, length=12)
        assert plan.fits and plan.total.seconds > 0
        assert all(part.seconds >= 0 for part in plan.costs.values())


def test_a_training_step_can_be_planned_for_real():
    costs = regard.plan(**SMALL, length=16, batch=2, train=True).costs
    assert costs["optimiser"].seconds > 0 and costs["MLP"].seconds > 0


class Clock(Stopwatch):
    """A stopwatch on which every call takes one second; it still runs the work."""

    ticks = 0.0

    def now(self) -> float:
        Clock.ticks += 1.0
        return Clock.ticks


def test_time_grows_with_depth_and_batch_where_rows_were_cut(monkeypatch):
    """With a slow machine every piece is cut down; what is scaled up is linear in rows."""
    monkeypatch.setattr("regard.model.timing.Stopwatch", Clock)

    def times(depth, batch):
        stack = preset("llama-15m").decoder
        config = ModelConfig(preset("llama-15m").front, decoder=StackConfig(stack.block, depth))
        timer = Timer(config, RunShape(batch, 64), "cpu", False)
        timer.budget = 1e6  # FLOPs: one row of one block is too much already
        with torch.no_grad():
            return timer.times()

    once, deep, wide = times(2, 1), times(4, 1), times(2, 3)
    for part in (MLP, LOOK):
        assert deep[part] == pytest.approx(2 * once[part]), part
        assert wide[part] == pytest.approx(3 * once[part]), part
    assert set(once) == set(PARTS)
