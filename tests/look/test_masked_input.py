"""The value of a subset of tokens is the model on that text."""

from __future__ import annotations

import pytest
import torch

from regard.look.attribution import deletion_and_insertion
from regard.look.hooks import HookedModel
from regard.look.lime import fit_lime
from regard.look.masked_input import MaskedInput
from regard.look.patching import Goal
from regard.look.shap import exact_shapley, shapley_values
from regard.model.batch import Batch
from regard.model.presets import recurrent_lm
from regard.model.recurrent import model_class
from tests.properties.small_models import example, randomise, small_kit

IDS = [4, 9, 2, 7, 30]
KEPT = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]]).bool()


def goal_of(kit, goal, *rows):
    batch = kit.batch(*rows)
    with torch.no_grad():
        return float(goal(kit.model(batch), batch)[0])


def test_a_token_in_place_of_those_absent():
    kit, goal = small_kit("gpt2"), Goal(torch.tensor([3]), torch.tensor([8]))
    found = MaskedInput(kit.hooked, kit.batch([IDS]), goal, 13, rows=2)(KEPT)
    for kept, value in zip(KEPT.tolist(), found.tolist(), strict=True):
        row = [id if there else 13 for id, there in zip(IDS, kept, strict=True)]
        assert value == pytest.approx(goal_of(kit, goal, [row]), abs=1e-5)
    assert found.dtype == torch.float64


def test_zero_is_the_model_with_a_zero_row_in_its_table():
    kit, goal = small_kit("gpt2"), Goal(torch.tensor([3]))
    value = MaskedInput(kit.hooked, kit.batch([IDS]), goal, "zero")(KEPT)
    head = kit.model.head.out.weight.detach().clone()
    with torch.no_grad():
        kit.model.head.out.weight = torch.nn.Parameter(head)  # no longer tied
        kit.model.front.tokens.weight[13] = 0
    for kept, found in zip(KEPT.tolist(), value.tolist(), strict=True):
        row = [id if there else 13 for id, there in zip(IDS, kept, strict=True)]
        assert found == pytest.approx(goal_of(kit, goal, [row]), abs=1e-4)


def test_players_are_the_only_ones_that_go():
    kit, goal = small_kit("gpt2"), Goal(torch.tensor([3]))
    some = MaskedInput(kit.hooked, kit.batch([IDS]), goal, 13, players=[1, 3])
    found = some(torch.tensor([[False, True], [False, False]]))
    assert float(found[0]) == pytest.approx(goal_of(kit, goal, [[4, 13, 2, 7, 30]]), abs=1e-5)
    assert float(found[1]) == pytest.approx(goal_of(kit, goal, [[4, 13, 2, 13, 30]]), abs=1e-5)


def test_pictures_lose_patches():
    kit, goal = small_kit("vit"), Goal(torch.tensor([3]))
    batch = kit.batch(example(kit, 6).inputs[None])
    all_of = MaskedInput(kit.hooked, batch, goal)
    kept = torch.ones(2, 17).bool()
    kept[1] = False
    blank = kit.batch(torch.zeros_like(batch.inputs))
    with torch.no_grad():
        wanted = [float(goal(kit.model(b), b)[0]) for b in (batch, blank)]
    assert all_of(kept).tolist() == pytest.approx(wanted, abs=1e-5)


def test_a_recurrent_model_by_lime_and_shap():
    config = recurrent_lm("lstm", 12, 16, 1, 40)
    model = model_class(config).fresh(config)
    randomise(model)
    goal = Goal(torch.tensor([3]))
    for baseline in ("zero", 5):
        value = MaskedInput(HookedModel(model), Batch(torch.tensor([IDS])), goal, baseline)
        fair = shapley_values(value, 5)
        assert float(fair.scores.sum()) == pytest.approx(fair.value - fair.baseline_value, rel=1e-6)
        fit = fit_lime(value, 5, samples=64)
        assert fit.r2 > 0.5 and fit.value == pytest.approx(fair.value)
        assert deletion_and_insertion(value, fair.scores).deletion[0] == pytest.approx(fair.value)


def test_efficiency_on_a_model():
    kit, goal = small_kit("bert"), Goal(torch.tensor([3]), at=torch.tensor([2]))
    players = [0, 1, 3, 4]
    fair = exact_shapley(MaskedInput(kit.hooked, kit.batch([IDS]), goal, 13, players), 4)
    assert fair.value == pytest.approx(goal_of(kit, goal, [IDS]), abs=1e-5)
    assert fair.baseline_value == pytest.approx(goal_of(kit, goal, [[13, 13, 2, 13, 13]]), abs=1e-5)
    assert float(fair.scores.sum()) == pytest.approx(fair.value - fair.baseline_value, rel=1e-6)
