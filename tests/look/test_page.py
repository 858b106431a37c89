"""The page: whole, without network, and its data is what it was given."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from regard.look.page import AlignedSentence, AlignedWord, alignment_page
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


def section(size: int) -> AlignedSentence:
    source = [AlignedWord(" ", f"<s{n}>", f'"hint" & {n}', 0.5) for n in range(size)]
    target = [AlignedWord(" ", f"t{n}</script>", "sure") for n in range(size)]
    weights = [[float(s == t) for s in range(size)] for t in range(size)]
    links = [(n, n) for n in range(size)]
    return AlignedSentence(source, target, weights, links, ["a < note"], ["other & one (30%)"])


def test_words_and_weights_come_back() -> None:
    made = section(3)
    read = Reader(alignment_page("A <title>", [made, section(2)]))
    assert read.open == []
    assert read.words[:6] == [w.text for w in (*made.source, *made.target)]
    first, second = (attrs for tag, attrs in read.tags if tag == "section")
    assert json.loads(first["data-weights"] or "") == [[[n, 1.0]] for n in range(3)]
    assert json.loads(second["data-links"] or "") == [[0, 0], [1, 1]]
    hints = [attrs["data-hint"] for tag, attrs in read.tags if tag == "span"]
    assert hints[0] == '"hint" & 0'


def test_nothing_is_fetched() -> None:
    text = alignment_page("title", [section(3)])
    assert "default-src 'none'" in text
    read = Reader(text)
    assert {tag for tag, _ in read.tags}.isdisjoint({"link", "img", "iframe", "object"})
    assert not any({"src", "href"} & set(attrs) for _, attrs in read.tags)
    assert "http" not in text.replace("http-equiv", "") and "@import" not in text


def test_long_sentences_stay_small() -> None:
    assert len(alignment_page("title", [section(200)])) < 100_000


def test_picture() -> None:
    pytest.importorskip("matplotlib")
    made = draw_alignments([section(3), section(5), section(300)])
    assert made is not None and len(made.axes) == 2
    assert draw_alignments([section(300)]) is None
    priced = section(1)._replace(source=[AlignedWord(" ", "5$/6_$", "", 0.5)])  # no formula
    both = draw_alignments([priced])
    assert both is not None
    both.canvas.draw()
