"""One call for greedy, sampling and beam; it agrees with the searches themselves."""

from __future__ import annotations

import pytest
import torch

from regard.decode.beam import BeamConfig, length_penalty
from regard.decode.constraints import ban
from regard.decode.loop import run_search
from regard.decode.sampling import Ends, SampleConfig
from regard.decode.step import without_end
from regard.errors import UsageError
from tests.properties.small_models import example, small_kit
from tests.properties.threads import one_thread  # noqa: F401


@pytest.fixture
def given():
    kit = small_kit("transformer")
    one = example(kit, 1, 0, 7)
    return kit.model, kit.batch(one.inputs[None], one.target[None])


def test_hypotheses_of_each_kind(given):
    model, batch = given
    greedy = run_search(model, batch, 6)
    assert len(greedy) == len(greedy[0]) == 1 and len(greedy[0][0].tokens) == 6
    one = run_search(model, batch, 6, BeamConfig(1, 1, length_penalty("none")))
    assert one[0][0].tokens == greedy[0][0].tokens
    assert one[0][0].logprob == pytest.approx(greedy[0][0].logprob, abs=1e-4)
    assert len(run_search(model, batch, 6, BeamConfig(4, 3), Ends({0}))[0]) == 3
    cold = run_search(model, batch, 6, SampleConfig(temperature=0))
    assert cold[0][0].tokens == greedy[0][0].tokens


def test_processes_and_penalties_reach_every_search(given):
    model, batch = given
    banned = set(run_search(model, batch, 6)[0][0].tokens)
    for how in (None, SampleConfig(), BeamConfig()):
        found = run_search(model, batch, 6, how, processes=[ban(banned)])[0][0]
        assert not banned & set(found.tokens)
    often = run_search(model, batch, 9, SampleConfig(temperature=0, presence=1e6))[0][0]
    assert len(set(often.tokens)) == 9


def test_a_limit_of_each_row(given):
    model, _ = given
    sources, target = torch.randint(3, 60, (2, 5)), torch.zeros(2, 1, dtype=torch.long)
    from regard.model.batch import Batch

    for how in (None, BeamConfig(2)):
        found = run_search(model, Batch(sources, target), [2, 5], how)
        assert [len(row[0].tokens) for row in found] == [2, 5]
    with pytest.raises(UsageError, match="1 or more"):
        run_search(model, Batch(sources, target), 0)


def test_without_end():
    assert without_end([4, 5, 2], {2}) == [4, 5] and without_end([4, 2, 5], {2}) == [4, 2, 5]
    assert without_end([], {2}) == [] and without_end([2], {2}) == []
