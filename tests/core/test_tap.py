"""Tap: idle it is the identity, attached it is heard, listed it has its owner's path."""

import torch
from torch import nn

from regard.core.tap import Tap, Taps, taps


def test_an_idle_tap_returns_the_very_tensor():
    x = torch.ones(2)
    assert Tap()(x) is x


def test_an_attached_function_replaces_the_tensor():
    tap = Tap()
    tap.fn = lambda x: x + 1
    assert torch.equal(tap(torch.ones(2)), torch.full((2,), 2.0))


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(2, 2)
        self.at = Taps("q", "out")


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part()])
        self.at = Taps("end")


def test_taps_are_listed_by_path_and_apart_from_projections():
    model = Whole()
    found = taps(model)
    assert set(found) == {"end", "parts.0.q", "parts.0.out", "parts.1.q", "parts.1.out"}
    assert found["parts.1.q"] is model.parts[1].at.q
    assert isinstance(model.parts[1].q, nn.Linear)


def test_taps_are_no_part_of_the_state():
    assert set(Part().state_dict()) == {"q.weight", "q.bias"}


def test_another_attribute_called_at_is_no_tap():
    model = Whole()
    model.parts[0].at = "elsewhere"
    assert set(taps(model)) == {"end", "parts.1.q", "parts.1.out"}
