"""Stop strings: end a row when its text holds one of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from regard.decode.step import Process


class StopText:
    """True once the text of the tokens contains a stop string; only the end is decoded again."""

    def __init__(self, decode: Callable[[list[int]], str], strings: Sequence[str]) -> None:
        self.decode, self.strings = decode, [text for text in strings if text]
        # A token is at least one byte of text, and a stop string may start inside the first token.
        self.window = max((len(text.encode()) for text in self.strings), default=0) + 4

    def __call__(self, tokens: list[int]) -> bool:
        """Whether these tokens end here."""
        tail = self.decode(tokens[-self.window :]) if self.strings else ""
        return any(text in tail for text in self.strings)

    def cut(self, text: str) -> str:
        """The text before the first stop string."""
        places = [text.find(stop) for stop in self.strings if stop in text]
        return text[: min(places)] if places else text


def end_after(stop: Callable[[list[int]], bool], eos: Collection[int]) -> Process:
    """For a beam: a prefix that should stop can only end, at no cost to its log-probability."""
    ends = torch.tensor(sorted(eos)[:1], dtype=torch.long)

    def process(logits: Tensor, history: Tensor) -> Tensor:
        over = torch.tensor([stop(tokens) for tokens in history.tolist()], device=logits.device)
        end = torch.full_like(logits[:1], -torch.inf).index_fill(-1, ends.to(logits.device), 0.0)
        return torch.where(over[:, None], end, logits)

    return process
