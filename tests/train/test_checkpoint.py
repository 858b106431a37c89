"""Checkpoints: whole or not there, the newest good one, nothing lost."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
import torch
from safetensors import SafetensorError

from regard.errors import DataError, ResourceError
from regard.train import checkpoint
from regard.train.checkpoint import (
    average_checkpoints,
    find_checkpoint,
    generator_states,
    last_checkpoints,
    optimizer_tensors,
    prune,
    restore_generators,
    restore_optimizer,
    step_of,
    write_checkpoint,
)
from regard.train.optim import build_optimizer
from tests.train.runs import load_model, make_trainer


def write(runs, step, text="weights"):
    def save(folder):
        (folder / "model.safetensors").write_text(text)

    runs.mkdir(exist_ok=True)
    return write_checkpoint(runs, step, save, {"optimizer": {"a": torch.ones(3)}}, {"step": step})


def steps(runs):
    return sorted(step_of(path) for path in runs.glob("step-*"))


def test_the_newest_whole_one_is_found_by_number_not_by_name(tmp_path):
    for step in (5, 999_999, 1_000_000):
        write(tmp_path, step)
    assert find_checkpoint(tmp_path, pytest.fail) == tmp_path / "step-1000000"


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "model.safetensors").write_text("weighty"),
        lambda path: (path / "trainer" / "optimizer.safetensors").write_bytes(b""),
        lambda path: (path / "trainer" / "state.json").unlink(),
        lambda path: (path / "trainer" / "whole.json").unlink(),
        lambda path: (path / "trainer" / "whole.json").write_text('{"model.saf'),
    ],
)
def test_a_damaged_one_is_left_aside_and_named(damage, tmp_path):
    write(tmp_path, 1)
    damage(write(tmp_path, 2))
    wrong = []
    assert find_checkpoint(tmp_path, wrong.append) == tmp_path / "step-000001"
    assert len(wrong) == 1 and "step-000002" in wrong[0]


def test_a_trainer_takes_the_one_before_and_says_so(tmp_path):
    make_trainer("lm", tmp_path, steps=6, keep=3).run()
    newest = tmp_path / "run" / "checkpoints" / "step-000006"
    model = newest / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    said = []
    again = make_trainer("lm", tmp_path, steps=6, job={"say": said.append})
    taken = again.restore(load_model)
    assert taken.name != newest.name and again.state.step == step_of(taken)
    assert any("step-000006: model.safetensors is damaged" in text for text in said)


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device"),
        ResourceError("writing", "No space left on device"),
    ],
)
def test_a_full_disk_leaves_the_one_before_and_no_rest(error, tmp_path):
    write(tmp_path, 1)

    def save(folder):
        (folder / "half").write_text("x")
        raise error

    with pytest.raises(ResourceError, match="No space left") as caught:
        write_checkpoint(tmp_path, 2, save, {"optimizer": {"a": torch.ones(3)}}, {})
    assert caught.value.exit_code == 4 and "--resume" in caught.value.fix
    assert find_checkpoint(tmp_path, pytest.fail) == tmp_path / "step-000001"
    assert not list(tmp_path.glob(".part-*"))


def test_a_file_that_may_not_grow_is_a_full_disk_too(tmp_path):
    code = f"""
import resource, sys, torch
from pathlib import Path
from regard.train.checkpoint import write_checkpoint
sys.dont_write_bytecode = True  # or what is imported first is kept cut off, and fails next time
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
big = {{"optimizer": {{"a": torch.ones(100_000)}}}}
try:
    write_checkpoint(Path({str(tmp_path)!r}), 2, lambda folder: None, big, {{}})
except Exception as error:
    print(type(error).__name__)
"""
    write(tmp_path, 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "ResourceError", done.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    assert find_checkpoint(tmp_path, pytest.fail) == tmp_path / "step-000001"


def test_pruning_keeps_the_newest_the_regular_and_the_best(tmp_path):
    for step in (5, 7, 10, 13, 15, 20, 21):
        write(tmp_path, step)
    prune(tmp_path, step=21, keep=2, best=7, every=5)
    assert steps(tmp_path) == [7, 15, 20, 21]


def test_pruning_is_not_misled_by_later_checkpoints_that_are_damaged(tmp_path):
    for step in (5, 10, 15, 20, 60, 80, 100):
        write(tmp_path, step)
    prune(tmp_path, step=20, keep=2, best=None, every=5)
    assert steps(tmp_path) == [15, 20, 60, 80, 100]
    prune(tmp_path, step=100, keep=2, best=None, every=5)
    assert steps(tmp_path) == [80, 100]


def test_a_killed_writer_leaves_no_checkpoint(tmp_path, monkeypatch):
    write(tmp_path, 1)

    class Kill(BaseException):
        pass

    def die(*paths):
        raise Kill

    monkeypatch.setattr(checkpoint.os, "replace", die)
    with pytest.raises(Kill):
        write(tmp_path, 2)
    assert steps(tmp_path) == [1] and list(tmp_path.glob(".part-*"))
    assert checkpoint.find_checkpoint(tmp_path, print) == tmp_path / "step-000001"
    assert not list(tmp_path.glob(".part-*"))


def test_the_optimizer_comes_back_exactly(tmp_path):
    trainer = make_trainer("lm", tmp_path, steps=3)
    trainer.run()
    held = dict(optimizer_tensors(trainer.model, trainer.optimizer))
    other = build_optimizer(trainer.model, trainer.config)
    restore_optimizer(trainer.model, other, held)
    again = dict(optimizer_tensors(trainer.model, other))
    assert held.keys() == again.keys() and all(torch.equal(held[k], again[k]) for k in held)
    assert any(name.startswith("exp_avg_sq/") for name in held)


def test_the_generator_comes_back():
    held = generator_states()
    drawn = torch.rand(3).tolist()
    restore_generators(held)
    assert drawn == torch.rand(3).tolist()


# The mean of checkpoints --------------------------------------------------------------------------


def test_the_mean_is_taken_in_float64(tmp_path):
    values = [1.0, 1e8, -1e8, 2.0]  # float32 sums would lose the small ones

    def load(path):
        model = torch.nn.Linear(1, 1, bias=False)
        return model.requires_grad_(False).apply(lambda m: m.weight.fill_(float(path.name)))

    mean = average_checkpoints([tmp_path / str(value) for value in values], load)
    assert mean.weight.dtype == torch.float32 and mean.weight.tolist() == [[0.75]]


def test_the_last_checkpoints_of_a_run_are_averaged(tmp_path):
    trainer = make_trainer("lm", tmp_path, steps=11, keep=1, average=3, save_every=3)
    trainer.run()
    folders = last_checkpoints(trainer.checkpoints, 3, 3, 11)
    assert [step_of(folder) for folder in folders] == [6, 9, 11]
    held = [dict(load_model(folder).named_parameters()) for folder in folders]
    for name, tensor in average_checkpoints(folders, load_model).named_parameters():
        wanted = torch.stack([h[name].double() for h in held]).mean(0).float()
        torch.testing.assert_close(tensor, wanted, rtol=1e-6, atol=0)


def test_nothing_to_average(tmp_path):
    with pytest.raises(DataError, match="no whole one"):
        last_checkpoints(tmp_path, 2, 1, 5)
