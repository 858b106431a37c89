"""Constraints on what may be written, as processes: for greedy, sampling and beam alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import torch
from torch import Tensor

from regard.decode.step import Process
from regard.errors import UsageError

NEVER = -torch.inf


def ban(tokens: Collection[int]) -> Process:
    """Never these tokens."""
    banned = torch.tensor(sorted(tokens), dtype=torch.long)

    def process(logits: Tensor, history: Tensor) -> Tensor:
        return logits.index_fill(-1, banned.to(logits.device), NEVER)

    return process


def ban_phrases(phrases: Iterable[Sequence[int]]) -> Process:
    """Never these sequences of tokens: what would complete one is forbidden."""
    listed = [tuple(phrase) for phrase in phrases if phrase]

    def process(logits: Tensor, history: Tensor) -> Tensor:
        banned = torch.zeros_like(logits, dtype=torch.bool)
        length = history.shape[1]
        for *begun, last in listed:
            if length >= len(begun):
                tail = history[:, length - len(begun) :]  # (N, n); of one token none is left
                banned[:, last] |= (tail == history.new_tensor(begun)).all(-1)
        return logits.masked_fill(banned, NEVER)

    return process


def at_least(length: int, eos: Collection[int]) -> Process:
    """No end before `length` tokens."""
    no_end = ban(eos)

    def process(logits: Tensor, history: Tensor) -> Tensor:
        return no_end(logits, history) if history.shape[1] < length else logits

    return process


def begin_with(tokens: Sequence[int]) -> Process:
    """Force the first tokens; what follows is free. `alternatives` branch off this way."""

    def process(logits: Tensor, history: Tensor) -> Tensor:
        if history.shape[1] >= len(tokens):
            return logits
        others = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
        others[tokens[history.shape[1]]] = False
        return logits.masked_fill(others, NEVER)  # what is forced keeps its own probability

    return process


def no_repeat(size: int) -> Process:
    """No sequence of `size` tokens twice."""
    if size < 1:
        raise UsageError("decoding", f"no repeat of {size} tokens", "1 or more")

    def process(logits: Tensor, history: Tensor) -> Tensor:
        if history.shape[1] < size:
            return logits
        grams = history.unfold(1, size, 1)  # (N, n, size)
        tail = history[:, history.shape[1] - size + 1 :]
        again = (grams[:, :, :-1] == tail[:, None]).all(-1)  # (N, n)
        banned = torch.zeros_like(logits, dtype=torch.bool)
        row, place = again.nonzero(as_tuple=True)
        banned[row, grams[row, place, -1]] = True
        return logits.masked_fill(banned, NEVER)

    return process


def prefix_constraint(allowed: Callable[[list[int]], Collection[int]]) -> Process:
    """Only the tokens that `allowed(tokens so far)` names: a trie, an automaton, a grammar."""

    def process(logits: Tensor, history: Tensor) -> Tensor:
        open_ = torch.zeros_like(logits, dtype=torch.bool)
        for row, tokens in enumerate(history.tolist()):
            open_[row, list(allowed(tokens))] = True
        return logits.masked_fill(~open_, NEVER)

    return process
