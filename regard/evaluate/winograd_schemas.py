"""Winograd schemas: a sentence with a pronoun and two candidates, and its twin that turns it round.

Each candidate is put in, and the likelier text is the answer. The partial score is the
log-probability of what follows the candidate, the full score that of the whole text (Trinh and Le
2018). A masked model hides the candidate's tokens one at a time (Salazar 2020) and takes their
mean, or hides all tokens of the text in turn and adds them up.

Read from the XML of the Winograd Schema Challenge (Levesque 2012), XWinograd's table (Tikhonov
2021), WinoGrande's lines (Sakaguchi 2020), or a table (.tsv, .csv, .jsonl) with the columns

    text     the sentence, with _ in the place of the pronoun
    a, b     the candidates, as they are to stand there
    answer   a or b
    pair     optional: a name that the two members of a pair share
    group    optional: what accuracy is counted by
"""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.ambient import track
from regard.data.statistics import share_interval
from regard.data.tabular import TableRow, kind_of, read_table
from regard.data.text_files import find_files, read_lines
from regard.decode.scoring import score_masked, score_rows
from regard.errors import DataError, UsageError
from regard.evaluate.results import Accuracy, JudgedSchema, SchemaScores, WinogradScores
from regard.history.ngram_model import NgramModel
from regard.model.batch import like_lengths
from regard.model.model import Model
from regard.tokens.tokenizer import Tokenizer

DOING = "scoring Winograd schemas"
TOKENS = 512  # of a batch, padding included
XWINOGRAD = 7  # cells of a line: language, source, ?, sentence, its words, pronoun, candidates
ANSWERS = {"a": 0, "b": 1, "1": 0, "2": 1}
NAMES = {"text": "sentence", "a": "option1", "b": "option2", "pair": "qID"}  # as WinoGrande has it
THINGS = frozenset("it its they them their".split())
POSSESSIVE = frozenset("my his her its our their".split())
SMALL = frozenset(  # small letters unless they begin a sentence
    "the a an my his her its our their this that these those some each every "
    "le la les un une des du ce cet cette ces mon ma mes son sa ses leur leurs".split()
)


class Schema(NamedTuple):
    """A sentence with a gap and what may stand there."""

    place: str
    """Where it stands in the file, in words."""
    before: str
    after: str
    candidates: tuple[str, str]
    """As they are put between the two."""
    answer: int
    """Which of them is right, 0 or 1."""
    pair: str | None = None
    """A name that two schemas share; None: neighbours with the same candidates are a pair."""
    group: str = ""

    def text(self, candidate: int) -> str:
        """The sentence with a candidate in it."""
        return self.before + self.candidates[candidate] + self.after

    def span(self, candidate: int) -> tuple[int, int]:
        """Where the candidate stands in that text."""
        start = len(self.before)
        return start, start + len(self.candidates[candidate])


def read_schemas(path: Path | str) -> list[Schema]:
    """The schemas of a file; a line that is none is an error that names it."""
    cells = next(iter(read_lines(path)), "").split("\t") if kind_of(path) == "tsv" else []
    if kind_of(path) == "xml":
        schemas = list(read_challenge(path))
    elif len(cells) == XWINOGRAD and cells[4].startswith("["):
        lines = enumerate(read_lines(path), 1)
        schemas = [read_xwinograd(path, n, line) for n, line in lines if line.strip()]
    else:
        schemas = [read_row(path, row) for row in read_table(path)]
    if not schemas:
        raise DataError(f"reading {path}", "no schemas", "sentences with two candidates")
    return schemas


def wrong(path: Path | str, place: str, found: str, expected: str) -> DataError:
    """What is wrong with one schema."""
    return DataError(f"reading {path}", f"{place}: {found}", expected)


# A table of our own, or WinoGrande's ------------------------------------------------------------


def read_row(path: Path | str, row: TableRow) -> Schema:
    """A row with text, a, b, answer."""
    place, cells = f"line {row.line}", row.cells

    def cell(name: str, usual: Any = None) -> str:
        value = cells.get(name, cells.get(NAMES.get(name, name), usual))
        if not isinstance(value, str) or (usual is None and not value.strip()):
            lacking = f"no {name}" if value is None else f"{name} {value!r}"
            columns = "text, a, b and answer, or WinoGrande's sentence, option1, option2, answer"
            raise wrong(path, place, lacking, columns)
        return value

    text, answer = cell("text"), cell("answer").strip().lower()
    if text.count("_") != 1:
        raise wrong(path, place, f"{text.count('_')} times _ in {text[:60]!r}", "one, as the gap")
    if answer not in ANSWERS:
        raise wrong(path, place, f"answer {answer!r}", "a or b")
    candidates = cell("a").strip(), cell("b").strip()
    check_candidates(path, place, candidates)
    before, _, after = text.partition("_")
    pair = cell("pair", "").strip()
    if "qID" in cells and "pair" not in cells:
        pair = pair.rpartition("-")[0]  # the members of WinoGrande's twins end in -1 and -2
    return Schema(
        place, before, after, candidates, ANSWERS[answer], pair or None, cell("group", "")
    )


def check_candidates(path: Path | str, place: str, candidates: Sequence[str]) -> None:
    """Two that differ."""
    if len(candidates) != 2 or candidates[0].casefold() == candidates[1].casefold():
        raise wrong(path, place, f"candidates {list(candidates)}", "two that differ")


# The Winograd Schema Challenge ------------------------------------------------------------------


def read_challenge(path: Path | str) -> Iterator[Schema]:
    """WSC273 and WSC285 as their authors give them."""
    (file,) = find_files(path)
    try:
        root = ElementTree.parse(file).getroot()
    except (ElementTree.ParseError, ValueError) as error:
        raise DataError(f"reading {path}", str(error), "XML of the challenge") from None
    for number, schema in enumerate(root.iter("schema"), 1):
        place = f"schema {number}"
        first, pronoun, rest = (squeezed(schema, f"text/{n}") for n in ("txt1", "pron", "txt2"))
        named = [" ".join("".join(each.itertext()).split()) for each in schema.iter("answer")]
        answer = squeezed(schema, "correctAnswer").strip(" .").lower()
        check_candidates(path, place, named)
        if answer not in ANSWERS or not pronoun:
            fault = f"pronoun {pronoun!r}, answer {answer!r}"
            raise wrong(path, place, fault, "a pronoun, and A or B")
        before = first + (" " if first and not first.endswith(("(", "“", "‘")) else "")
        after = rest if re.match(r"[.,;:!?)'’”]", rest) else f" {rest}" if rest else ""
        a, b = (fitted(name, before, pronoun, after) for name in named)
        yield Schema(place, before, after, (a, b), ANSWERS[answer])


def squeezed(schema: ElementTree.Element, name: str) -> str:
    """The text of a part, with single blanks."""
    part = schema.find(name)
    return "" if part is None else " ".join("".join(part.itertext()).split())


def fitted(name: str, before: str, pronoun: str, after: str) -> str:
    """A candidate in the pronoun's place: small or capital, with 's for English possessives.

    *Her* before a word is taken for a possessive, and before a mark for an object.
    """
    begins = not before.strip() or before.rstrip(" \"”'’").endswith((".", "!", "?"))
    owner = pronoun.lower() not in THINGS  # Susan of Susan's door, but Tina's drawing
    first, blank, rest = (name.removesuffix("'s") if owner else name).partition(" ")
    if begins:
        first = first[:1].upper() + first[1:]
    elif first.lower() in SMALL:
        first = first.lower()
    owns = pronoun.lower() in POSSESSIVE and after[:1] == " "
    return first + blank + rest + ("'s" if owns else "")


# XWinograd --------------------------------------------------------------------------------------


def read_xwinograd(path: Path | str, number: int, line: str) -> Schema:
    """A line of XWinograd; its group is the language and the source."""
    place = f"line {number}"
    try:
        language, source, _, text, *packed = line.split("\t")
        words, (pronoun, (first, _), _), both = map(json.loads, packed)
        named, right = [each[0] for each in both], [bool(each[3]) for each in both]
        start = find_word(text, words, first, pronoun)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        expected = "language, source, ?, sentence, words, pronoun, candidates"
        raise wrong(path, place, str(error), expected) from None
    check_candidates(path, place, named)
    if sorted(right) != [False, True]:
        raise wrong(path, place, f"{sum(right)} right candidates", "one")
    before, after = text[:start], text[start + len(pronoun) :]
    a, b = (fitted(name, before, pronoun, after) for name in named)
    return Schema(place, before, after, (a, b), right.index(True), group=f"{language} {source}")


def find_word(text: str, words: Sequence[str], place: int, word: str) -> int:
    """Where the word of this place begins; words that the text writes otherwise are passed over."""
    at = 0
    for other in words[:place]:
        begin = text.find(other, at)
        at = begin + len(other) if begin >= 0 and begin - at < 3 else at
    begin = text.find(word, at)
    if begin < 0:
        raise ValueError(f"{word!r} is not in {text[:60]!r}")
    return begin


# Pairs ------------------------------------------------------------------------------------------


def pair_up(schemas: Sequence[Schema]) -> list[tuple[int, int]]:
    """Places of the two members of each pair: the same name, or neighbours that are twins."""
    named: dict[str, list[int]] = {}
    pairs, n = list[tuple[int, int]](), 0
    for place, schema in enumerate(schemas):
        if schema.pair is not None:
            named.setdefault(schema.pair, []).append(place)
    for name, members in named.items():
        if len(members) > 2:
            where = ", ".join(schemas[member].place for member in members)
            raise DataError("pairing schemas", f"pair {name!r} in {where}", "two members")
        pairs += [(members[0], members[1])] if len(members) == 2 else []
    while n + 1 < len(schemas):
        one, other = schemas[n], schemas[n + 1]
        both = [[name.casefold() for name in schema.candidates] for schema in (one, other)]
        unnamed = one.pair is None and other.pair is None and one.group == other.group
        twins = unnamed and sorted(both[0]) == sorted(both[1])
        twins = twins and both[0][one.answer] != both[1][other.answer]
        pairs += [(n, n + 1)] if twins else []
        n += 2 if twins else 1
    return sorted(pairs)


# Judging ------------------------------------------------------------------------------------------


class Judged(NamedTuple):
    """What a model makes of one schema."""

    schema: Schema
    scores: tuple[float, float]

    @property
    def right(self) -> bool:
        """Whether the right candidate scores higher; a tie is not right."""
        return self.scores[self.schema.answer] > self.scores[1 - self.schema.answer]

    def row(self) -> JudgedSchema:
        """As a result has it."""
        schema = self.schema
        text, answer = f"{schema.before}_{schema.after}", "ab"[schema.answer]
        return JudgedSchema(schema.place, text, schema.candidates, answer, self.scores, self.right)


def score_schemas(judged: Sequence[Judged]) -> SchemaScores:
    """Accuracy of single schemas, and of pairs of which both members must be right."""
    pairs = pair_up([each.schema for each in judged])
    both = sum(judged[a].right and judged[b].right for a, b in pairs)
    ties = sum(each.scores[0] == each.scores[1] for each in judged)
    single = accuracy(sum(each.right for each in judged), len(judged))
    return SchemaScores(single, accuracy(both, len(pairs)), len(judged) - 2 * len(pairs), ties)


def accuracy(right: int, asked: int) -> Accuracy:
    """A share of right answers; 0 where nothing was asked."""
    return Accuracy(right / asked if asked else 0.0, right, asked, *share_interval(right, asked))


def winograd_scores(judged: Sequence[Judged], full: bool, model: str, file: str) -> WinogradScores:
    """All that is known of the schemas, group by group and one by one."""
    groups: dict[str, list[Judged]] = {}
    for each in judged:
        groups.setdefault(each.schema.group, []).append(each)
    return WinogradScores(
        **vars(score_schemas(judged)),
        score="full" if full else "partial",
        groups={name: score_schemas(members) for name, members in groups.items()},
        schemas=[each.row() for each in judged],
        pairs_at=pair_up([each.schema for each in judged]),
        model=model,
        file=file,
    )


def judge(
    model: Model | NgramModel,
    tokenizer: Tokenizer,
    schemas: Sequence[Schema],
    full: bool = False,
    room: int | None = None,
) -> list[Judged]:
    """Both candidates of each schema; `room`: tokens at most.

    By a decoder or n-grams from left to right, texts of like length together; or by a masked model.
    """
    texts = [(schema, candidate) for schema in schemas for candidate in (0, 1)]
    rows = [encode_text(tokenizer, *text, room) for text in texts]
    scores = [0.0] * len(rows)
    if isinstance(model, NgramModel) or (model.decoder is not None and model.encoder is None):
        wanted = [
            range(len(row)) if full else following(tokenizer, *text, len(row))
            for row, text in zip(rows, texts, strict=True)
        ]
        batches = list(like_lengths([len(row) for row in rows], TOKENS))
        for some in track(batches, "batches of Winograd schemas"):
            batch = [rows[k] for k in some]
            if isinstance(model, NgramModel):
                lines = [model.tables.logprobs(np.array(row, np.int64)).tolist() for row in batch]
            else:  # the first token of a text has no probability
                lines = [[math.nan, *line] for line in score_rows(model, batch)]
            for k, line in zip(some, lines, strict=True):
                scores[k] = sum(line[at] for at in wanted[k] if not math.isnan(line[at]))
    else:
        mask = tokenizer.specials.get("mask")
        if model.decoder is not None or mask is None or model.config.head.take != "all":
            fault = "an encoder-decoder" if model.decoder is not None else "a model without [MASK]"
            raise UsageError(DOING, fault, "a language model: a decoder, or an encoder with a mask")
        for k, text in enumerate(track(texts, "texts of Winograd schemas")):
            scores[k] = score_gap(model, tokenizer, mask, rows[k], *text, full)
    return [Judged(s, (scores[2 * n], scores[2 * n + 1])) for n, s in enumerate(schemas)]


def encode_text(
    tokenizer: Tokenizer, schema: Schema, candidate: int, room: int | None
) -> list[int]:
    """Ids of the text with a candidate."""
    ids = tokenizer.encode(schema.text(candidate))
    if room is not None and len(ids) > room:
        fault = f"{len(ids)} tokens in {schema.place}"
        raise DataError(DOING, fault, f"at most {room}", "leave it out, or take another model")
    return ids


def following(tokenizer: Tokenizer, schema: Schema, candidate: int, count: int) -> list[int]:
    """Places of the tokens that end after the candidate."""
    _, end = schema.span(candidate)
    spans = tokenizer.offsets(schema.text(candidate))
    after = [n for n, (_, last) in enumerate(spans[:count]) if last > end]
    if not after:
        fix = "score whole texts with --full"
        raise DataError(DOING, f"nothing after the gap in {schema.place}", "words there", fix)
    return after


def score_gap(
    model: Model,
    tokenizer: Tokenizer,
    mask: int,
    row: list[int],
    schema: Schema,
    candidate: int,
    full: bool,
) -> float:
    """Mean pseudo-log-likelihood of the candidate's tokens, or the sum over the whole text."""
    start, end = schema.span(candidate)
    spans = tokenizer.offsets(schema.text(candidate))
    own = [n for n, (first, last) in enumerate(spans) if first < end and last > start]
    places = None if full else own
    scores = score_masked(model, row, mask, tokenizer.specials.values(), places)
    known = [value for value in scores if value is not None]
    if not known:
        raise DataError(DOING, f"no token of {schema.candidates[candidate]!r}", "known words")
    return sum(known) if full else sum(known) / len(known)
