"""Viterbi: the exact best sequence of a Markov model by dynamic programming (Viterbi 1967)."""

from __future__ import annotations

from torch import Tensor

from regard.errors import UsageError


def viterbi(start: Tensor, move: Tensor, length: int) -> tuple[list[int], float]:
    """Best sequence of `length` states and its log-probability, in O(length · K²).

    start (K,) and move (K, K) are log-probabilities: of the first state, and of column j after i.
    """
    if length < 1:
        raise UsageError("Viterbi search", f"length = {length}", "1 or more")
    best, back = start, []
    for _ in range(length - 1):
        best, parent = (best[:, None] + move).max(0)  # over the state before
        back.append(parent)
    path = [int(best.argmax())]
    for parent in reversed(back):
        path.append(int(parent[path[-1]]))
    return path[::-1], float(best.max())
