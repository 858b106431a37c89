import torch

from regard.decode.greedy import greedy


def counting(vocab: int):
    """A step whose next token is the last one plus one, and a log of what it was asked."""
    asked: list[list[list[int]]] = []

    def step(ids: torch.Tensor) -> torch.Tensor:
        asked.append(ids.tolist())
        return torch.nn.functional.one_hot((ids[:, -1] + 1) % vocab, vocab).float()

    return step, asked


def test_follows_the_best_token_and_sends_new_columns_only() -> None:
    step, asked = counting(10)
    made = greedy(step, torch.tensor([[1, 2], [5, 6]]), 3)
    assert made.tolist() == [[3, 4, 5], [7, 8, 9]]
    assert asked == [[[1, 2], [5, 6]], [[3], [7]], [[4], [8]]]


def test_a_row_that_met_a_stop_is_padded_and_the_loop_ends_early() -> None:
    step, asked = counting(10)
    made = greedy(step, torch.tensor([[2], [5]]), 50, stop={4, 9}, pad=0)
    assert made.tolist() == [[3, 4, 0, 0], [6, 7, 8, 9]]
    assert len(asked) == 4


def test_no_tokens_asked_for() -> None:
    step, asked = counting(10)
    assert greedy(step, torch.tensor([[2]]), 0).shape == (1, 0)
    assert not asked
