"""HTML as tests read it, and pictures of alignments."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from regard.errors import UsageError
from regard.look.picture import draw_alignments


class Reader(HTMLParser):
    """Tags in order; those that are open must close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "span":
            self.words.append(data)


def test_picture() -> None:
    pytest.importorskip("matplotlib")

    def sentence(size):
        words = [f"5$/{n}_$" for n in range(size)]  # no formula
        weights = [[float(s == t) for s in range(size)] for t in range(size)]
        return words, words, weights, [(n, n) for n in range(size)]

    made = draw_alignments([sentence(3), sentence(5), sentence(300)])
    assert len(made.axes) == 2
    made.canvas.draw()
    with pytest.raises(UsageError, match="no sentence that fits"):
        draw_alignments([sentence(300)])
