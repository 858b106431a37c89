"""Greedy decoding and the loop that it shares with sampling."""

from __future__ import annotations

import pytest
import torch

from regard.decode.constraints import ban, begin_with
from regard.decode.sampling import Ends, generate
from regard.errors import UsageError
from tests.decode.toy import Toy, hashed, scored, table_rule

START = torch.tensor([[0]])


def counting(vocab):
    """The next token is the last one plus one."""

    def rule(tokens, first):
        last = tokens[-1] if tokens else first
        return torch.nn.functional.one_hot(torch.tensor((last + 1) % vocab), vocab).float() * 9

    return rule


def test_greedy_is_not_the_best():
    """p(a) = .6, p(b) = .4; after a the best is .4, after b it is 1: .24 where .4 was possible."""
    rule = table_rule({(): [0.6, 0.4], (0,): [0.4, 0.6 - 0.2], (1,): [1.0, 0.0]})
    found = generate(Toy(rule), START, 2)[0]
    assert found.tokens == [0, 0] and not found.finished
    assert found.logprob == pytest.approx(scored(rule, [0, 0]), abs=1e-6)
    assert scored(rule, [1, 0]) > found.logprob


def test_ties_go_to_the_lowest_id():
    assert generate(Toy(lambda tokens, first: torch.zeros(5)), START, 3)[0].tokens == [0, 0, 0]


def test_rows_end_at_their_own_end_and_leave_the_batch():
    toy, seen = Toy(counting(10)), []
    ends = Ends({4, 9}, watch=lambda row, token: seen.append((row, token)))
    found = generate(toy, torch.tensor([[2], [5]]), 50, ends=ends)
    assert [h.tokens for h in found] == [[3, 4], [6, 7, 8, 9]]
    assert all(h.finished and h.score == h.logprob for h in found)
    assert toy.asked == [2, 2, 1, 1]
    assert seen == [(0, 3), (1, 6), (0, 4), (1, 7), (1, 8), (1, 9)]


def test_limit_of_all_and_of_each():
    found = generate(Toy(counting(9)), torch.tensor([[0], [3], [5]]), [1, 3, 2])
    assert [h.tokens for h in found] == [[1], [4, 5, 6], [6, 7]]
    assert not any(h.finished for h in found)
    for limit in (0, -1, [1, 0, 2]):
        with pytest.raises(UsageError, match="new tokens\n  expected: 1 or more"):
            generate(Toy(counting(9)), torch.tensor([[0], [3], [5]]), limit)


def test_a_look_at_the_tokens_can_end_a_row():
    ends = Ends(stop=lambda tokens: sum(tokens) > 6)
    found = generate(Toy(counting(9)), torch.tensor([[0], [6]]), 9, ends=ends)
    assert [h.tokens for h in found] == [[1, 2, 3, 4], [7]] and all(h.finished for h in found)


def test_log_probabilities_are_the_model_s_whatever_the_constraints():
    rule = hashed(6, 3)
    found = generate(Toy(rule), START, 5, processes=[begin_with([5, 2]), ban({1})])[0]
    assert found.tokens[:2] == [5, 2] and 1 not in found.tokens
    assert found.logprob == pytest.approx(scored(rule, found.tokens), abs=1e-5)


def test_batch_equals_per_row():
    rule = hashed(7, 1)
    start = torch.arange(6)[:, None]
    together = generate(Toy(rule), start, 9, ends=Ends({0}))
    for row, found in enumerate(together):
        assert found == generate(Toy(rule), start[row : row + 1], 9, ends=Ends({0}))[0]


def test_constraints_that_leave_nothing():
    with pytest.raises(UsageError, match="no token is allowed next in row 0"):
        generate(Toy(hashed(3, 0)), START, 4, processes=[ban({0, 1, 2})])
