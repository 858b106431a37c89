"""The mean of checkpoints."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.errors import DataError
from regard.train.checkpoint import average_folders, last_checkpoints, step_of, write_average
from tests.train.runs import load_model, make_trainer


def test_the_mean_is_taken_in_float64(tmp_path):
    values = [1.0, 1e8, -1e8, 2.0]  # float32 sums would lose the small ones
    for number, value in enumerate(values):
        (tmp_path / f"{number}").mkdir()
        save_file({"w": torch.tensor([value, 0.5])}, tmp_path / f"{number}" / "model.safetensors")
    mean = average_folders([tmp_path / f"{number}" for number in range(4)])("w")
    assert mean.dtype == torch.float32 and mean.tolist() == [0.75, 0.5]
    with pytest.raises(DataError, match="no tensor 'v'"):
        average_folders([tmp_path / "0"])("v")
    with pytest.raises(DataError, match="no safetensors"):
        average_folders([tmp_path])


def test_the_last_checkpoints_of_a_run_are_averaged(tmp_path):
    trainer = make_trainer("lm", tmp_path, steps=11, keep=1, average=3, save_every=3)
    trainer.run()
    folders = last_checkpoints(trainer.checkpoints, 3, 3, 11)
    assert [step_of(folder) for folder in folders] == [6, 9, 11]
    out = tmp_path / "mean"
    shutil.copytree(folders[-1], out)
    write_average(folders, out)
    held = [load_file(folder / "model.safetensors") for folder in folders]
    for name, tensor in load_file(out / "model.safetensors").items():
        wanted = torch.stack([h[name].double() for h in held]).mean(0).float()
        torch.testing.assert_close(tensor, wanted, rtol=1e-6, atol=0)
    assert load_model(out) is not None


def test_nothing_to_average(tmp_path):
    with pytest.raises(DataError, match="no whole one"):
        last_checkpoints(tmp_path, 2, 1, 5)
