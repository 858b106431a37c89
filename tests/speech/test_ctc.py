"""CTC against closed forms, torch and brute force over all paths."""

import itertools
import math
from collections import defaultdict

import pytest
import torch

from regard.data.windows import IGNORED
from regard.model.batch import Batch
from regard.speech.ctc import collapse, ctc_loss, edit_distance, prefix_beam


def every_text(logs):
    """log p of each text, by all its paths."""
    texts = defaultdict(float)
    for path in itertools.product(range(logs.shape[1]), repeat=len(logs)):
        texts[collapse(path)] += math.exp(sum(float(logs[t, n]) for t, n in enumerate(path)))
    return {text: math.log(p) for text, p in texts.items()}


def random_logs(frames, letters, seed=0):
    drawn = torch.randn(frames, letters, generator=torch.Generator().manual_seed(seed))
    return drawn.double().log_softmax(-1)


class Given(torch.nn.Module):
    """A model whose scores are given."""

    def forward(self, batch):
        return batch.inputs


def loss_of(scores, labels, training=False):
    model = Given().train(training)
    return ctc_loss(model, Batch(scores), labels, prepare=lambda x, dice: (x, None))


def test_two_frames_by_hand():
    logs = torch.tensor([[0.4, 0.6], [0.3, 0.7]]).log()
    found = dict(prefix_beam(logs, 4))
    assert math.exp(found[(1,)]) == pytest.approx(0.88) and math.exp(found[()]) == pytest.approx(
        0.12
    )
    assert math.exp(-float(loss_of(logs[None], torch.tensor([[1]])).sum)) == pytest.approx(0.88)


@pytest.mark.parametrize(("frames", "count", "paths"), [(3, 1, 6), (4, 2, 15), (5, 2, 35)])
def test_alignments_are_as_many_as_the_binomial_says(frames, count, paths):
    logs = torch.zeros(frames, count + 1)  # each path weighs 1
    found = dict(prefix_beam(logs, 10_000))
    assert (
        round(math.exp(found[tuple(range(1, count + 1))]))
        == paths
        == math.comb(frames + count, 2 * count)
    )


@pytest.mark.parametrize("seed", range(4))
def test_search_and_loss_are_the_sum_over_all_paths(seed):
    logs = random_logs(5, 3, seed)
    expected, found = every_text(logs), dict(prefix_beam(logs, 10_000))
    for text, log in found.items():
        assert log == pytest.approx(expected.get(text, -math.inf), abs=1e-9)
    assert set(expected) <= set(found)
    for text in [(1,), (1, 1), (2, 1), (2, 2, 1)]:
        loss = loss_of(logs.float()[None], torch.tensor([text]))
        assert float(loss.sum) == pytest.approx(-expected[text], abs=1e-5)
    best = max(expected, key=expected.get)
    assert prefix_beam(logs, 10_000)[0][0] == best
    assert prefix_beam(logs, 3)[0][1] <= expected[best] + 1e-9


def test_a_batch_of_several_lengths_is_torch_s_loss():
    scores = torch.randn(3, 9, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    labels = torch.tensor([[1, 2, 2], [4, IGNORED, IGNORED], [IGNORED] * 3])
    loss = loss_of(scores, labels, True)
    expected = torch.nn.functional.ctc_loss(
        scores.log_softmax(-1).transpose(0, 1),
        torch.tensor([1, 2, 2, 4]),
        torch.tensor([9, 9, 9]),
        torch.tensor([3, 1, 0]),
        reduction="sum",
    )
    assert torch.allclose(loss.sum, expected) and int(loss.tokens) == 3 and not loss.figures
    loss.sum.backward()
    assert scores.grad.sum(-1).abs().max() < 1e-5  # a shift of all scores of a frame does nothing


def test_too_few_frames_cost_nothing_and_right_ones_are_counted():
    short = loss_of(torch.zeros(1, 2, 3), torch.tensor([[1, 1]]))  # needs a blank between
    assert float(short.sum) == 0
    path = torch.nn.functional.one_hot(torch.tensor([[0, 1, 1, 0, 1], [2, 2, 0, 0, 1]]), 3) * 9.0
    labels = torch.tensor([[1, 1], [2, IGNORED]])
    assert float(loss_of(path, labels).figures["accuracy"]) == 1


def test_a_language_model_decides_between_alike_letters():
    logs = torch.tensor([[0.1, 0.5, 0.4]]).log()
    assert prefix_beam(logs, 3)[0][0] == (1,)
    prefers = {(2,): 1.0}
    assert prefix_beam(logs, 3, lambda text: prefers.get(text, 0.0))[0][0] == (2,)


@pytest.mark.parametrize(
    ("a", "b", "count"),
    [("", "ab", 2), ("kitten", "sitting", 3), ("abc", "abc", 0), ("12", "2", 1)],
)
def test_edit_distance(a, b, count):
    assert edit_distance(a, b) == edit_distance(b, a) == count
