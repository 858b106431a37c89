"""What the verbs of `regard.tokens` return."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from regard.result import Grid, Result, Row, grid_of_values, human, shown


class Encoding(Result):
    """A text as tokens."""

    ids: list[int]
    pieces: list[str] | None = shown(optional=True, default=None)
    """How the vocabulary spells each, such as 'Ġthe' or '##ing'; None in a stream of texts."""
    offsets: list[tuple[int, int]] | None = shown(optional=True, default=None)
    """Where each stands in the text, in characters; added control tokens have (0, 0)."""
    text: str = shown(json=False, default="")

    def parts(self) -> Iterator[str | Grid]:
        """A row for each token, or the ids alone."""
        if self.pieces is None or self.offsets is None:
            yield str(self)
            return
        texts = [self.text[start:end] for start, end in self.offsets]  # none for added tokens
        spelt = list(zip(self.pieces, texts, strict=True))
        title = " · ".join((text.strip() or "␣") if text else piece for piece, text in spelt)
        places = zip(spelt, self.ids, self.offsets, strict=True)
        rows = [(piece, repr(text), *map(str, (id, *at))) for (piece, text), id, at in places]
        yield Grid(title or "no tokens", ("piece", "text", "id", "from", "to"), rows, left=range(2))

    def __str__(self) -> str:
        """The ids with blanks between them, which `tokens decode` reads."""
        return " ".join(map(str, self.ids))


class Decoded(Result):
    """The text of tokens."""

    text: str

    def parts(self) -> Iterator[str | Grid]:
        """The text itself."""
        yield self.text


class Cut(Row):
    """One word of a text and why it was cut as it was.

    Bytes that make whole characters are written as text, a blank as ␣.
    """

    word: str
    pieces: list[str]
    steps: list[str]
    """What led there, a line each."""


class Cuts(Result):
    """Why each word of a text was cut as it was."""

    text: str
    words: list[Cut]

    def parts(self) -> Iterator[str | Grid]:
        """Each word with its pieces, and the steps that led there."""
        for cut in self.words:
            yield f"{cut.word}  →  {' · '.join(cut.pieces)}"
            yield from (f"    {step}" for step in cut.steps)


class TrainedTokenizer(Result):
    """{kind}, {size:,} ids, in {out}."""

    out: str
    size: int
    specials: dict[str, int]
    tokens_per_word: float | None = None
    """How much longer texts are in tokens than in words between blanks, in their first lines."""
    kind: str = shown(json=False, default="")

    def parts(self) -> Iterator[str | Grid]:
        """One line."""
        factor = self.tokens_per_word
        yield self.title() + ("" if factor is None else f"; {factor:.2f} tokens for a word")


class Special(Row):
    """A control token."""

    id: int
    piece: str

    def __str__(self) -> str:
        return f"{self.piece} ({self.id})"


class TokenizerInfo(Result):
    """{name}."""

    kind: str
    size: int
    specials: dict[str, Special] = shown(title="control tokens")
    around: list[str] = shown(title="around each text")
    tokens_per_word: float | None = shown("{:.2f}")
    """How much longer texts are in tokens than in words between blanks; None without texts."""
    name: str = shown(json=False, table=False)


class Merge(Row):
    """Two pieces that became one, and how often they stood side by side."""

    pair: tuple[str, str]
    count: int


class Merges(Result):
    """The merges of byte pair encoding on a small text."""

    merges: list[Merge]
    words: list[list[str]]
    """The words of the text, cut into the pieces that the merges leave."""

    def parts(self) -> Iterator[str | Grid]:
        """The merges in their order, then the words."""
        for number, merge in enumerate(self.merges, 1):
            yield f"{number:4}  {merge.pair[0]}+{merge.pair[1]}  ({merge.count}×)"
        yield " / ".join(" ".join(word) for word in self.words)


class Vocabulary(Result):
    """{kind}."""

    kind: str
    tokens: int
    types: int
    kept: int
    coverage: float
    """The share of all tokens that those kept make up."""
    words: dict[str, int]
    """The most frequent and their counts."""

    def parts(self) -> Iterator[str | Grid]:
        """Sums, then the most frequent with what they cover together."""
        kept = f"{self.kept:,}, which cover {self.coverage:.2%}"
        sums = [("in all", human(self.tokens)), ("different", human(self.types)), ("kept", kept)]
        yield Grid(self.title(), ("", ""), sums, left=range(2))
        covered = [count / self.tokens for count in accumulate(self.words.values())]
        rows = zip(map(repr, self.words), self.words.values(), covered, strict=True)
        title, columns = f"the {len(covered)} most frequent", (self.kind, "count", "covered so far")
        yield grid_of_values(title, columns, rows, "{:.2%}")
