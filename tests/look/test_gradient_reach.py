"""The gradient of a loss by earlier states."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.look.gradient_reach import gradient_by_lag
from regard.model.batch import Batch
from regard.model.config import CELLS
from regard.model.model import Model
from regard.model.presets import llama, recurrent_lm
from regard.model.recurrent import Past, Recurrent
from tests.model.test_recurrent import make_model, randomise
from tests.properties.threads import one_thread  # noqa: F401


def ids_of(rows=3, length=7):
    return torch.randint(0, 11, (rows, length), generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("kind", CELLS)
def test_it_is_the_gradient_of_a_run_that_begins_there(kind):
    model, ids = make_model(kind).double(), ids_of()
    found = gradient_by_lag(model, ids)
    assert len(found) == 5
    for lag, value in enumerate(found, 1):
        past = model.cache(3)
        with torch.no_grad():
            model(Batch(ids[:, : 6 - lag]), past)
        leaves = [part.clone().requires_grad_() for state in past.states for part in state]
        parts = iter(leaves)
        rest = Past([tuple(next(parts) for _ in state) for state in past.states], 3)
        scores = model(Batch(ids[:, 6 - lag : 6]), rest)[:, -1]
        F.cross_entropy(scores, ids[:, -1], reduction="sum").backward()
        norm = torch.stack([part.grad for part in leaves], 1).flatten(1).norm(dim=1).mean()
        assert value == pytest.approx(float(norm), rel=1e-9)


def test_in_a_transformer_it_is_the_gradient_of_an_embedding():
    model, ids = Model(llama(8, 2, 2, 2, 16, 11, 16)), ids_of()
    randomise(model)
    model.double()
    found = gradient_by_lag(model, ids)
    x = model.front.tokens(ids[:, :6]).detach().requires_grad_()
    model.front.tokens.register_forward_hook(lambda *_: x)
    F.cross_entropy(model(Batch(ids[:, :6]))[:, -1], ids[:, -1], reduction="sum").backward()
    norms = x.grad.norm(dim=-1).mean(0).flip(0).tolist()[1:]
    assert found == pytest.approx(norms, rel=1e-9)
    assert all(tap.fn is None for tap in vars(model.decoder.blocks[0].at).values())


def test_a_linear_rnn_forgets_by_its_radius_at_every_step():
    model, radius = Recurrent(recurrent_lm("rnn", 4, 6, 1, 11)), 0.7
    randomise(model)
    cell = model.decoder.cells[0]
    with torch.no_grad():
        for parameter in (model.front.tokens.weight, cell.bias_ih_l0, cell.bias_hh_l0):
            parameter.zero_()  # all states are 0, where tanh is linear
        cell.weight_hh_l0.copy_(radius * torch.linalg.qr(cell.weight_hh_l0)[0])
    found = gradient_by_lag(model, ids_of(length=40))
    assert [b / a for a, b in zip(found, found[1:], strict=False)] == pytest.approx(
        [radius] * 37, rel=1e-6
    )


def test_kinds_of_fresh_models_side_by_side(tmp_path):
    sizes = dict(length=40, dim=16, rows=4)
    found = regard.look.gradients(**sizes)
    curves = {model.name: model.gradient for model in found.models}
    assert list(curves) == ["mlp", "rnn", "lstm", "gru", "transformer"]
    assert [value > 0 for value in curves["mlp"]] == [True] * 4 + [False] * 35  # its window
    assert found.lags == list(range(1, 40)) and all(len(c) == 39 for c in curves.values())
    fall = {name: curve[-1] / curve[0] for name, curve in curves.items()}
    assert fall["rnn"] < fall["lstm"] / 100 and fall["transformer"] > 0.1 > fall["lstm"]
    pytest.importorskip("matplotlib")
    found.save(tmp_path / "g.png")
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    table = str(regard.look.gradients(kinds=["gru", "rnn"], **sizes))
    assert "gru" in table and "lstm" not in table and "\n  39" in table
