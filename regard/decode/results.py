"""What `regard.generate`, `score`, `fill` and `embed` return."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from regard.result import Grid, Result, Row, grid_of, grid_of_values, plain, shown


class SearchCost(Row):
    """What an answer took."""

    read: int
    """Tokens of the prompt, or of the source of an encoder-decoder."""
    written: int
    """New tokens."""
    seconds: float = shown(compare=False)
    """Of its batch, divided by the texts in it."""


class Continuation(Row):
    """One of the best continuations of a search."""

    text: str
    logprob: float
    score: float
    """What ranks it: logprob over the length penalty."""
    finished: bool
    tokens: list[int] = shown(table=False)


class Generation(Result):
    """What a model wrote after a text."""

    tokens: list[int]
    """New ids, the one that ended the text included."""
    text: str
    logprob: float
    """Natural log of the probability of all new tokens."""
    finished: bool
    """Whether it ended by itself, not by the limit on length."""
    cost: SearchCost
    top: list[Continuation] = field(default_factory=list)
    """The best, the text first, where several were asked for."""
    watched: bool = shown(json=False, default=False)
    """Whether the text was told while it was written."""

    def parts(self) -> Iterator[str | Grid]:
        """The text itself, unless it has been told; of several each with its score."""
        if self.top:
            yield "\n".join(f"{each.score:8.4f}  {each.text}" for each in self.top)
        else:
            yield "" if self.watched else self.text

    def to_dict(self) -> dict[str, Any]:
        """The fields; the best of several where they were asked for."""
        fields = super().to_dict()
        return fields if self.top else {n: value for n, value in fields.items() if n != "top"}


class TokenChoice(Row):
    """A token that was written, and what else was likely there."""

    token: str
    probability: float = shown("{:.4f}")
    others: dict[str, float] = shown("{:.4f}")


class ChatReply(Result):
    """What a model answered."""

    reply: str
    tokens: list[int]
    """New ids, the one that ended the answer included."""
    logprobs: list[float]
    """Natural logs of their probabilities."""
    logprob: float
    finished: bool
    """Whether it ended by itself, not by the limit on length."""
    read: int
    """Tokens of the conversation that were read for this answer."""
    context: int
    """Tokens of the conversation before it."""
    choices: list[TokenChoice] | None = shown(optional=True, default=None)
    watched: bool = shown(json=False, default=False)
    """Whether the text was told while it was written."""

    def parts(self) -> Iterator[str | Grid]:
        """The answer, unless it has been told; token by token where that was asked for."""
        yield "" if self.watched else self.reply
        if self.choices:
            yield grid_of("", self.choices)


class TokenScores(Result):
    """How likely a model finds each token of a text."""

    tokens: list[int]
    pieces: list[str]
    """Each as people read it; part of a character as the vocabulary spells it."""
    logprobs: list[float | None]
    """Natural logs; None where a token has none, such as the first."""
    text: str = shown(json=False, default="")

    @property
    def known(self) -> list[float]:
        """The log-probabilities that are there."""
        return [value for value in self.logprobs if value is not None]

    @property
    def logprob(self) -> float:
        """Of the whole text."""
        return sum(self.known)

    @property
    def impossible(self) -> int:
        """Tokens of probability 0: n-grams that were not seen, nor smoothed."""
        return self.known.count(-math.inf)

    @property
    def perplexity(self) -> float | None:
        """exp of the mean negative log-probability of a token; None where none has one."""
        if not self.known:
            return None
        loss = -self.logprob / len(self.known)
        return math.exp(loss) if loss < 700 else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Tokens, pieces and log-probabilities, and what they come to."""
        sums: dict[str, Any] = {"logprob": plain(self.logprob)}
        sums |= {"impossible": self.impossible} if self.impossible else {}
        return super().to_dict() | sums | {"perplexity": plain(self.perplexity)}

    def parts(self) -> Iterator[str | Grid]:
        """A row for each token, and what they come to."""
        chances = [None if value is None else math.exp(value) for value in self.logprobs]
        rows = zip(self.pieces, self.logprobs, chances, strict=True)
        yield grid_of_values(self.text or "an empty text", ("token", "log p", "p"), rows, "{:.4f}")
        if self.known:
            total = f"sum {self.logprob:.4f}, {len(self.known)} tokens"
            yield f"  {total}, perplexity {self.perplexity:.4f}"
        if self.impossible:
            yield f"  {self.impossible} of them have probability 0: not seen, nor smoothed"


class GapWord(Row):
    """A word for a gap."""

    word: str
    id: int = shown(table=False)
    probability: float = shown("{:.4f}")


class FilledGaps(Result):
    """The likeliest words for each gap in a text."""

    text: str
    masks: list[list[GapWord]]
    """Of each gap, the likeliest first."""

    def parts(self) -> Iterator[str | Grid]:
        """A table for each gap."""
        for number, words in enumerate(self.masks, 1):
            yield grid_of(self.text if number == 1 else f"gap {number}", words)


class Embedding(Result):
    """The vector of a text."""

    line: int
    """Which of the texts it is, from 1."""
    vector: list[float]

    def parts(self) -> Iterator[str | Grid]:
        """The numbers, with blanks between them."""
        yield " ".join(f"{value:.9g}" for value in self.vector)


class WordUse(Row):
    """Where a word stands."""

    file: str
    line: int


class LeftOut(WordUse):
    """A line that was not looked at."""

    why: str


class SenseLayer(Row):
    """The vectors of a word's uses in one layer; a file is a sense."""

    layer: str
    cosines: list[list[float | None]]
    """Mean cosine of the uses of each file with those of each."""
    by_use: list[list[float | None]]
    """Of each use with the others of each file."""
    nearest: list[list[dict[str, Any]]]
    """Words and cosines next to the uses of each file."""


class WordSenses(Result):
    """What context makes of {word}, by {model}."""

    model: str
    word: str
    files: list[str]
    uses: list[WordUse]
    layers: list[SenseLayer]
    left_out: list[LeftOut]

    def parts(self) -> Iterator[str | Grid]:
        """Mean cosines of the uses in each file with those in each; then the words next to them."""
        places = [(layer, k, file) for layer in self.layers for k, file in enumerate(self.files)]
        title = f"{self.word} by {self.model}: mean cosines of its uses"
        cosines = [(layer.layer, file, *layer.cosines[k]) for layer, k, file in places]
        yield grid_of_values(title, ("layer", "in", *self.files), cosines, "{:.3f}")
        near = [" ".join(n["word"] for n in layer.nearest[k]) for layer, k, _ in places]
        words = [
            (layer.layer, file, some) for (layer, _, file), some in zip(places, near, strict=True)
        ]
        yield grid_of_values(f"words next to {self.word}", ("layer", "in", "nearest words"), words)
