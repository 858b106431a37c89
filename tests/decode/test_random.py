"""Numbers that belong to a seed, a row and a step."""

from __future__ import annotations

import torch

from regard.decode.sampling import draw, mix, uniform


def reference(x):
    """SplitMix64's finaliser in Python's own whole numbers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def test_mixer():
    given = [0, 1, 0x9E3779B97F4A7C15, 2**63, 2**64 - 1, 123456789]
    signed = torch.tensor([x - 2**64 if x >= 2**63 else x for x in given])
    assert [x % 2**64 for x in mix(signed).tolist()] == [reference(x) for x in given]


def test_a_number_depends_on_seed_row_and_step_alone():
    rows = torch.arange(100)
    whole = uniform(3, rows, 7)
    assert torch.equal(uniform(3, rows[[5, 90]], 7), whole[[5, 90]])
    assert not torch.equal(uniform(4, rows, 7), whole) and not torch.equal(
        uniform(3, rows, 8), whole
    )
    assert uniform(-1, rows, 0).min() >= 0  # any 64-bit seed


def test_evenly_spread_over_rows_steps_and_seeds():
    for numbers in (
        uniform(0, torch.arange(100_000), 0),
        torch.cat([uniform(0, torch.tensor([0]), step) for step in range(5000)]),
        torch.cat([uniform(seed, torch.tensor([0]), 0) for seed in range(5000)]),
    ):
        assert numbers.min() >= 0 and numbers.max() < 1
        count = torch.histc(numbers, 50, 0, 1)
        expected = len(numbers) / 50
        assert ((count - expected) ** 2 / expected).sum() < 85.4  # 49 degrees, p = .001


def test_rows_and_steps_are_not_correlated():
    table = torch.stack([uniform(1, torch.arange(2000), step) for step in range(4)])
    assert (torch.corrcoef(table) - torch.eye(4)).abs().max() < 0.08
    shifted = torch.stack([table[0, :-1], table[0, 1:], table[1, :-1]])
    assert (torch.corrcoef(shifted) - torch.eye(3)).abs().max() < 0.08


def test_draw_lays_tokens_out_by_id():
    logits = torch.tensor([[0.25, 0.0, 0.5, 0.25, 0.0]]).log().expand(7, 5)
    numbers = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 0.9999, 1.0], dtype=torch.double)
    assert draw(logits, numbers).tolist() == [0, 0, 2, 2, 3, 3, 3]
    first = torch.tensor([[0.0, 1.0]]).log()
    assert draw(first, torch.zeros(1, dtype=torch.double)).tolist() == [1]
