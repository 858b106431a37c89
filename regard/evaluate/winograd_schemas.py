"""Winograd schemas by a language model: put each candidate in, and see which text is likelier.

The partial score is the log-probability of what follows the candidate, the full score that of the
whole text (Trinh and Le 2018). A masked model hides the candidate's tokens one at a time (Salazar
2020) and takes their mean, or hides all tokens of the text in turn and adds them up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from regard.data.schemas import Schema, pair_up
from regard.data.statistics import share_interval
from regard.decode.scoring import score_masked, score_rows
from regard.errors import DataError, UsageError
from regard.model.batch import like_lengths
from regard.model.model import Model
from regard.tokens.tokenizer import Tokenizer

Lines = Callable[[Sequence[list[int]]], list[list[float | None]]]
"""Rows of ids → the log-probability of each id given those before it; None where there is none."""
Tell = Callable[[int], None]
TOKENS = 512  # of a batch, padding included
DOING = "scoring Winograd schemas"


class Judged(NamedTuple):
    """What a model makes of one schema."""

    schema: Schema
    scores: tuple[float, float]

    @property
    def right(self) -> bool:
        """Whether the right candidate scores higher; a tie is not right."""
        return self.scores[self.schema.answer] > self.scores[1 - self.schema.answer]


class Share(NamedTuple):
    """Right ones of those asked."""

    right: int
    asked: int

    @property
    def accuracy(self) -> float:
        """The share; 0 where nothing was asked."""
        return self.right / self.asked if self.asked else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the share."""
        return share_interval(self.right, self.asked)


class Report(NamedTuple):
    """Single schemas, pairs of which both members must be right, and what has no pair."""

    single: Share
    pairs: Share
    alone: int
    """Schemas without their twin: not counted in pairs."""
    ties: int
    """Schemas whose candidates score the same."""


def report(judged: Sequence[Judged]) -> Report:
    """Count."""
    pairs = pair_up([each.schema for each in judged])
    both = sum(judged[a].right and judged[b].right for a, b in pairs)
    ties = sum(each.scores[0] == each.scores[1] for each in judged)
    single = Share(sum(each.right for each in judged), len(judged))
    return Report(single, Share(both, len(pairs)), len(judged) - 2 * len(pairs), ties)


def lines_of(model: Model) -> Lines:
    """How a decoder scores rows."""

    def score(rows: Sequence[list[int]]) -> list[list[float | None]]:
        found = score_rows(model, rows)
        return [[None, *line] if row else [] for row, line in zip(rows, found, strict=True)]

    return score


def judge(
    model: Model,
    tokenizer: Tokenizer,
    schemas: Sequence[Schema],
    full: bool = False,
    room: int | None = None,
    tell: Tell = lambda done: None,
) -> list[Judged]:
    """Both candidates of each schema, by a decoder or a masked model; `room`: tokens at most."""
    if model.decoder is not None and model.encoder is None:
        return judge_lines(lines_of(model), tokenizer, schemas, full, room, tell)
    mask = tokenizer.specials.get("mask")
    if model.decoder is not None or mask is None or model.config.head.take != "all":
        found = "an encoder-decoder" if model.decoder is not None else "a model without [MASK]"
        raise UsageError(DOING, found, "a language model: a decoder, or an encoder with a mask")
    made = []
    for done, schema in enumerate(schemas):
        tell(done)
        a, b = (masked(model, tokenizer, mask, schema, n, full, room) for n in (0, 1))
        made.append(Judged(schema, (a, b)))
    return made


def judge_lines(
    lines: Lines,
    tokenizer: Tokenizer,
    schemas: Sequence[Schema],
    full: bool = False,
    room: int | None = None,
    tell: Tell = lambda done: None,
) -> list[Judged]:
    """The same by anything that scores from left to right, texts of like length together."""
    texts = [(n, candidate) for n in range(len(schemas)) for candidate in (0, 1)]
    rows = [read(tokenizer, schemas[n], candidate, room) for n, candidate in texts]
    wanted = [
        list(range(len(row))) if full else following(tokenizer, schemas[n], candidate, len(row))
        for row, (n, candidate) in zip(rows, texts, strict=True)
    ]
    sums, done = [0.0] * len(rows), 0
    for some in like_lengths([len(row) for row in rows], TOKENS):
        for k, line in zip(some, lines([rows[k] for k in some]), strict=True):
            sums[k] = sum(value for at in wanted[k] if (value := line[at]) is not None)
        done += len(some)
        tell(done // 2)
    return [Judged(s, (sums[2 * n], sums[2 * n + 1])) for n, s in enumerate(schemas)]


def read(tokenizer: Tokenizer, schema: Schema, candidate: int, room: int | None) -> list[int]:
    """Ids of the text with a candidate."""
    ids = tokenizer.encode(schema.text(candidate))
    if room is not None and len(ids) > room:
        found = f"{len(ids)} tokens in {schema.place}"
        raise DataError(DOING, found, f"at most {room}", "leave it out, or take another model")
    return ids


def following(tokenizer: Tokenizer, schema: Schema, candidate: int, count: int) -> list[int]:
    """Places of the tokens that end after the candidate."""
    _, end = schema.span(candidate)
    spans = tokenizer.offsets(schema.text(candidate))
    found = [n for n, (_, last) in enumerate(spans[:count]) if last > end]
    if not found:
        fix = "score whole texts with --full"
        raise DataError(DOING, f"nothing after the gap in {schema.place}", "words there", fix)
    return found


def masked(
    model: Model,
    tokenizer: Tokenizer,
    mask: int,
    schema: Schema,
    candidate: int,
    full: bool,
    room: int | None,
) -> float:
    """Mean pseudo-log-likelihood of the candidate's tokens, or the sum over the whole text."""
    row = read(tokenizer, schema, candidate, room)
    start, end = schema.span(candidate)
    spans = tokenizer.offsets(schema.text(candidate))
    own = [n for n, (first, last) in enumerate(spans) if first < end and last > start]
    places = None if full else own
    found = score_masked(model, row, mask, tokenizer.specials.values(), places)
    known = [value for value in found if value is not None]
    if not known:
        raise DataError(DOING, f"no token of {schema.candidates[candidate]!r}", "known words")
    return sum(known) if full else sum(known) / len(known)
