"""Losses from preferences and rewards, against values by hand, plain loops and closed forms."""

import math

import pytest
import torch
from torch import Tensor

from regard.tune.preference_losses import (
    adapt_beta,
    clipped_policy_loss,
    clipped_value_loss,
    comparison_loss,
    generalized_advantages,
    group_advantages,
    ranking_loss,
    whiten,
)

REFERENCE = torch.tensor([[-3.0, -2.0], [-8.0, -9.0]], dtype=torch.float64)
POLICY = torch.tensor([[-2.0, -4.0], [-9.0, -7.0]], dtype=torch.float64)  # margins 3 and -3


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


def test_dpo_starts_at_ln_2_exactly():
    policy = torch.randn(7, 2)
    loss = comparison_loss(policy, policy, beta=0.1)
    assert loss.tolist() == [torch.tensor(math.log(2)).item()] * 7


def test_dpo_raises_the_chosen_and_lowers_the_rejected_by_how_wrong_it_is():
    policy = POLICY.clone().requires_grad_()
    comparison_loss(policy, REFERENCE, beta=0.5).sum().backward()
    for row, margin in enumerate((3.0, -3.0)):
        weight = 0.5 / (1 + math.exp(0.5 * margin))  # β σ(r̂ of the rejected − r̂ of the chosen)
        assert policy.grad[row].tolist() == pytest.approx([-weight, weight], rel=1e-12)


def test_a_constant_on_all_answers_of_a_prompt_changes_nothing():
    shifted = comparison_loss(POLICY + 5, REFERENCE, 0.3)
    assert torch.allclose(shifted, comparison_loss(POLICY, REFERENCE, 0.3), atol=1e-15)


def test_dpo_ipo_and_cdpo_by_hand():
    dpo = comparison_loss(POLICY, REFERENCE, 0.5).tolist()
    assert dpo == pytest.approx([-log_sigmoid(1.5), -log_sigmoid(-1.5)])
    ipo = comparison_loss(POLICY, REFERENCE, 0.25, "ipo").tolist()
    assert ipo == pytest.approx([(3 - 2) ** 2, (-3 - 2) ** 2])
    cdpo = comparison_loss(POLICY, REFERENCE, 0.5, flipped=0.1)[0].item()
    assert cdpo == pytest.approx(-0.9 * log_sigmoid(1.5) - 0.1 * log_sigmoid(-1.5))


def test_tabular_dpo_with_all_the_data_there_is_reaches_the_tilted_reference():
    torch.manual_seed(0)
    rewards, beta = torch.randn(6, dtype=torch.float64), 0.7
    reference = torch.randn(6, dtype=torch.float64).log_softmax(-1)
    logits = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    first, second = torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij")
    pairs = torch.stack([first, second], -1).flatten(0, 1)
    often = torch.sigmoid(rewards[pairs[:, 0]] - rewards[pairs[:, 1]])  # how often it is chosen
    optimizer = torch.optim.LBFGS([logits], max_iter=500, tolerance_grad=1e-12)

    def closure() -> Tensor:
        optimizer.zero_grad()
        policy = logits.log_softmax(-1)
        loss = (often * comparison_loss(policy[pairs], reference[pairs], beta)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    best = (reference + rewards / beta).softmax(-1)
    assert torch.allclose(logits.softmax(-1), best, atol=1e-6)


def test_bradley_terry_is_a_mean_over_pairs_of_each_prompt():
    scores = torch.tensor([[2.0, 1.0, -1.0], [0.5, 0.0, 9.0]])
    real = torch.tensor([[True, True, True], [True, True, False]])
    three = -(log_sigmoid(1) + log_sigmoid(3) + log_sigmoid(2)) / 3
    assert ranking_loss(scores, real).tolist() == pytest.approx([three, -log_sigmoid(0.5)])


def test_ppo_has_no_gradient_past_the_clip_on_the_side_that_would_go_further():
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1], requires_grad=True)
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0])
    loss = clipped_policy_loss(ratio, advantage, 0.2)
    assert loss.tolist() == pytest.approx([-1.2, 1.5, -0.5, 0.8, -2.2])
    loss.sum().backward()
    assert ratio.grad.tolist() == [0, 1, -1, 0, -2]


def test_value_loss_takes_the_worse_of_free_and_clipped():
    values, before = torch.tensor([1.0, 0.1]), torch.tensor([0.0, 0.0])
    returns = torch.tensor([1.0, 1.0])
    loss = clipped_value_loss(values, before, returns, 0.2)
    assert loss.tolist() == pytest.approx([0.5 * 0.8**2, 0.5 * 0.9**2])


@pytest.mark.parametrize("gamma, decay", [(1.0, 0.95), (0.9, 0.5), (1.0, 1.0), (0.99, 0.0)])
def test_gae_equals_a_plain_loop(gamma, decay):
    torch.manual_seed(1)
    rewards, values = torch.randn(5, 9, dtype=torch.float64), torch.randn(5, 9, dtype=torch.float64)
    starts, stops = [0, 2, 3, 0, 8], [9, 9, 5, 1, 9]
    real = torch.zeros(5, 9, dtype=torch.bool)
    for row, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        real[row, start:stop] = True
    advantages = generalized_advantages(rewards, values, real, gamma, decay)
    for row, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        for t in range(start, stop):
            total = 0.0
            for k in range(t, stop):
                after = values[row, k + 1].item() if k + 1 < stop else 0.0
                delta = rewards[row, k].item() + gamma * after - values[row, k].item()
                total += (gamma * decay) ** (k - t) * delta
            assert advantages[row, t].item() == pytest.approx(total, abs=1e-12)
    assert (advantages[~real] == 0).all()


def test_group_advantages_know_only_their_own_group():
    rewards = torch.tensor([[1.0, 2.0, 3.0], [10.0, 10.0, 10.0]])
    scaled = group_advantages(rewards)
    assert scaled[0].tolist() == pytest.approx([-1, 0, 1], abs=1e-5)
    assert scaled[1].tolist() == [0, 0, 0]
    assert group_advantages(4 * rewards, scale=False)[0].tolist() == [-4, 0, 4]


def test_whitening_counts_real_tokens_only():
    values = torch.tensor([[1.0, 3.0, 100.0], [5.0, 7.0, -100.0]])
    real = torch.tensor([[True, True, False], [True, True, False]])
    white = whiten(values, real)
    assert white[real].mean().item() == pytest.approx(0, abs=1e-6)
    assert white[real].std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert (white[~real] == 0).all()


def test_beta_settles_where_a_policy_that_lags_has_its_divergence():
    """A policy that moves a fiftieth of its way to 1 / 2 β² nats each rollout, from another β."""
    for beta in (0.01, 5.0):
        before = now = 0.0
        for _ in range(1500):
            beta = adapt_beta(beta, before, now, 4.0)
            before, now = now, now + (1 / (2 * beta**2) - now) / 50
        assert now == pytest.approx(4.0, rel=0.02)
        assert beta == pytest.approx(8**-0.5, rel=0.02)
    assert adapt_beta(0.1, 600.0, 6.0, 6.0) == pytest.approx(0.1 * math.exp(-0.2))
