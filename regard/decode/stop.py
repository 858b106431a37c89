"""Stop strings: end a row when its text holds one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence


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
