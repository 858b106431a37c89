"""Recurrent models on a GPU: the numbers of a CPU, by the same functions."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.decode.beam import BeamConfig
from regard.kit import Kit
from regard.model.batch import Batch
from regard.model.config import CELLS
from tests.model import test_bahdanau as pairs
from tests.model import test_recurrent as texts
from tests.train.runs import write_pairs, write_text
from tests.train.small_runs import split_configs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
DEVICE = torch.device("cuda")
REAL = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]]).bool()  # padding on either side


def run_twice(model, run, heard):
    """What `run` makes of a model on a CPU and on the GPU, in float64, where no TF32 interferes."""
    model = model.double()
    if heard:
        texts.listen(model)
    wanted = run(model, torch.device("cpu"))
    return wanted, run(model.to(DEVICE), DEVICE).cpu()


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("heard", [False, True])
def test_a_language_model_says_the_same(kind, heard):
    ids = torch.randint(0, 11, (3, 12), generator=torch.Generator().manual_seed(2))

    def run(model, device):
        past = model.carry(3)  # the state goes on from part to part
        parts = [model(Batch(part.to(device)), past) for part in ids.split([1, 5, 6], 1)]
        padded = model(Batch(ids[:, :4], mask=REAL).to(device), past)
        return torch.cat([*parts, padded * REAL[..., None].to(device)], 1)

    wanted, found = run_twice(texts.make_model(kind), run, heard)
    assert (found - wanted).abs().max() <= 1e-9


@pytest.mark.parametrize(("cell", "attention"), pairs.KINDS)
@pytest.mark.parametrize("heard", [False, True])
def test_a_translator_says_the_same(cell, attention, heard):
    source, target = torch.tensor([[3, 1, 4, 1], [2, 7, 0, 0], [0, 0, 9, 5]]), torch.arange(9)

    def run(model, device):
        return model(Batch(source, target.view(3, 3), source_mask=REAL).to(device))

    wanted, found = run_twice(pairs.make_model(cell, attention), run, heard)
    assert (found - wanted).abs().max() <= 1e-9


@pytest.mark.parametrize(("cell", "attention"), pairs.KINDS)
def test_beams_write_the_same(cell, attention):
    def search(model, device):
        kit = Kit(model, config={"decoder_start_token_id": 0})
        found = kit.search(kit.batch([[3, 1, 4], [2], [9, 5]]), 6, BeamConfig(4, 4))
        return torch.tensor([answer.logprob for row in found for answer in row])

    wanted, found = run_twice(pairs.make_model(cell, attention), search, False)
    assert (found - wanted).abs().max() <= 1e-5


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_is_trained_resumed_and_measured(precision, tmp_path):
    text, out = write_text(tmp_path / "text.txt", 60), tmp_path / "run"
    sizes = dict(dim=16, depth=2, length=8, batch_tokens=64, tokens="words", dropout=0.1)
    how = split_configs(sizes | dict(precision=precision, save_every=3, steps=6))
    with regard.settings(device=DEVICE.type, quiet=True):
        run = regard.train.lstm(text, out=out, **how)
        assert regard.train.lstm(text, resume=out, **how).weights == run.weights
    test = tmp_path / "test.txt"
    test.write_text("the cat sees the old dog\nred house tree\n")
    losses = []
    for device in ("cpu", DEVICE.type):
        with regard.settings(device=device):
            losses.append(regard.evaluate.lm(run.path, test, precision="fp32").loss)
    assert losses[0] == pytest.approx(losses[1], abs=1e-2)  # TF32 on the GPU
    assert regard.load(run.path, device=DEVICE.type).generate("the cat", 5)


@pytest.mark.parametrize("attention", ["additive", "none"])
def test_pairs_are_trained_and_translated(attention, tmp_path):
    file, out = write_pairs(tmp_path / "pairs.tsv", 60), tmp_path / "run"
    how = dict(dim=16, batch_tokens=256, steps=4, tokens="words", attention=attention)
    with regard.settings(device=DEVICE.type, quiet=True):
        run = regard.train.seq2seq(file, out=out, **split_configs(how))
    kit = regard.load(run.path, device=DEVICE.type)
    assert len(list(kit.translate(["the cat", "red"]))) == 2
