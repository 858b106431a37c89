"""Translating: beam search with wishes, several answers, and alternatives for each word."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol

import torch

from regard.decode.alternatives import after_each, alternatives, extend
from regard.decode.beam import BeamConfig
from regard.decode.constrain import ban_phrases, begin_with
from regard.decode.generate import Ends
from regard.decode.lexical import lexical_beam
from regard.decode.model_step import ModelStep
from regard.decode.penalty import length_penalty
from regard.decode.step import Hypothesis, Limit, Process
from regard.decode.write import without_end
from regard.errors import UsageError, check_names
from regard.look.activations import following
from regard.look.hooks import Board
from regard.model.batch import Batch
from regard.model.model import Model
from regard.tokens.tokenizer import Tokenizer

DOING = "translating"
MANY = 200  # alternatives; with more, a sentence takes minutes
Row = Sequence[int]
Phrases = set[tuple[int, ...]]


@dataclass(frozen=True)
class TranslateConfig:
    """How to translate."""

    beams: int = 4
    """Width of the beam."""
    count: int = 1
    """Translations of each text."""
    alpha: float = 0.6
    """Strength of the length penalty (Wu 2016)."""
    limit: int | None = None
    """Tokens at most; None is 50 more than the source has (Vaswani 2017)."""
    must: tuple[str, ...] = ()
    """Words that each translation holds."""
    ban: tuple[str, ...] = ()
    """Words that none holds."""
    begin: str = ""
    """What each translation begins with."""
    shortlist: bool = True
    """On a CPU, score only the words that the folder's shortlist allows, where it has one and one
    answer without wishes is asked for; log-probabilities are then shares among these words."""
    batch: int | None = None
    """Sentences that are translated together; None is as many as suit the beam."""
    coin: bool | None = None
    """Whether words may be made up that training never wrote, where the folder lists what it did;
    None: only where one translation is asked for, since another search takes as long again."""

    def __post_init__(self) -> None:
        for name in ("beams", "count", "limit", "batch"):
            value = getattr(self, name)
            wrong = isinstance(value, bool) or not isinstance(value, int) or value < 1
            if wrong and not (value is None and name in ("limit", "batch")):
                label = "alternatives" if name == "count" else name
                raise UsageError(DOING, f"{label} = {value!r}", "a whole number from 1 up")
        if self.count > MANY:
            expected = f"at most {MANY}: the beam holds all of them at each step"
            raise UsageError(DOING, f"alternatives = {self.count:,}", expected)
        if not math.isfinite(self.alpha) or abs(self.alpha) > 100:
            raise UsageError(DOING, f"alpha = {self.alpha}", "a number from -100 to 100")

    @property
    def keeps_whole(self) -> bool:
        """Whether a wish is for the whole of a translation, so that its source is not cut."""
        return bool(self.must or self.begin)

    @property
    def may_coin(self) -> bool:
        """Whether words may be made up."""
        return self.count == 1 if self.coin is None else self.coin

    @property
    def width(self) -> int:
        """Prefixes kept per source: the beam has room for all translations asked for."""
        return max(self.beams, self.count)

    def beam(self) -> BeamConfig:
        """The plain search."""
        return BeamConfig(self.width, self.count, length_penalty("gnmt", self.alpha))


def translate_config(values: dict[str, Any]) -> TranslateConfig:
    """A TranslateConfig from its fields by name; an unknown one fails with the nearest."""
    given = dict(values)
    if "max_new" in given:  # as the command line calls it
        given["limit"] = given.pop("max_new")
    check_names(given, TranslateConfig.__dataclass_fields__, DOING, "a field of TranslateConfig")
    for name in {"must", "ban"} & set(given):
        given[name] = (given[name],) if isinstance(given[name], str) else tuple(given[name])
    return TranslateConfig(**given)


class Translation(NamedTuple):
    """One answer."""

    text: str
    logprob: float
    tokens: list[int]


class Other(NamedTuple):
    """Another word for a place, and the translation that goes on from it."""

    text: str
    logprob: float
    translation: str


class Word(NamedTuple):
    """A word of a translation: its tokens' log-probability, and what else could stand there."""

    text: str
    logprob: float
    others: list[Other]


class Searcher(Protocol):
    """What translating needs of a Kit."""

    model: Model
    board: Board
    strict: bool
    config: dict[str, Any]

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Cuts words into tokens."""

    @property
    def stops(self) -> set[int]:
        """Ids that end a text."""

    @property
    def written(self) -> Collection[str] | None:
        """The words that training wrote, in lower case, where the folder lists them."""

    @property
    def room(self) -> int | None:
        """The most positions of the decoder."""

    def batch(self, inputs: Any, target: Any = None) -> Batch:
        """Sources as a batch."""

    def score(self, batch: Batch, cache: None, strict: bool | None) -> Any:
        """Logits."""

    def search(
        self,
        batch: Batch,
        limit: Limit,
        how: BeamConfig | None = None,
        ends: Ends | None = None,
        strict: bool | None = None,
        processes: Sequence[Process] = (),
        shortlist: bool = False,
    ) -> list[list[Hypothesis]]:
        """Hypotheses of each row."""

    def check_room(self, count: int) -> None:
        """Whether there are so many positions."""

    def text(self, tokens: list[int]) -> str:
        """The text of tokens, without the end."""


def translate(
    kit: Searcher, rows: Sequence[Row], how: TranslateConfig, strict: bool | None = None
) -> list[list[Translation]]:
    """Translations of each source, best first and each text once.

    Of several, the first is what a search for one would find; the others leave it at one place
    and go on as is likeliest from there. Where these are too few, the beam has more.
    """
    config, banned = how.beam(), spellings(kit, how.ban)
    limits = limits_for(kit, rows, how.limit)
    wishes = Wishes(kit, how, [spell(kit, word)[0] for word in how.must], strict)
    found = wishes.search(rows, limits, config, banned)
    if how.count > 1 and not how.must:
        for row, limit, answers in zip(rows, limits, found, strict=True):
            answers[1:] = [*wishes.branches(row, limit, answers[0], config, banned), *answers[1:]]
    return [distinct(kit, row, how.count) for row in found]


def distinct(kit: Searcher, found: Sequence[Hypothesis], count: int) -> list[Translation]:
    """The first, and the likeliest of the rest: other words rather than other stops and capitals.

    Two cuts into tokens may spell the same text, which is there once.
    """
    texts: dict[str, Translation] = {}
    for h in found:
        text = kit.text(h.tokens)
        texts.setdefault(" ".join(text.split()), Translation(text, h.logprob, h.tokens))
    heard: set[str] = set()
    new, alike = list[Translation](), list[Translation]()
    for text, answer in texts.items():
        words = " ".join(re.findall(r"\w+", text.casefold()))
        (alike if words in heard else new).append(answer)
        heard.add(words)
    first, *rest = [*new, *alike][:count]
    return [first, *sorted(rest, key=lambda answer: -answer.logprob)]


def shares(translations: Sequence[Translation]) -> list[float]:
    """The probability of each among these."""
    best = max(t.logprob for t in translations)
    weights = [math.exp(t.logprob - best) for t in translations]
    return [weight / sum(weights) for weight in weights]


def limits_for(kit: Searcher, rows: Sequence[Row], limit: int | None) -> list[int]:
    """The most new tokens of each row: no more than the decoder has positions for."""
    limits = [len(row) + 50 if limit is None else limit for row in rows]
    return limits if kit.room is None else [min(n, kit.room - 1) for n in limits]


class Wishes:
    """A search whose answers begin as wished, hold some words and lack others."""

    def __init__(
        self, kit: Searcher, how: TranslateConfig, phrases: Sequence[Row], strict: bool | None
    ) -> None:
        self.kit, self.how, self.phrases, self.strict = kit, how, phrases, strict
        self.begin = list(spell(kit, how.begin)[-1]) if how.begin else []

    def search(
        self, rows: Sequence[Row], limits: Sequence[int], config: BeamConfig, banned: Phrases
    ) -> list[list[Hypothesis]]:
        """Hypotheses of each row, at least one."""
        if len(self.begin) > min(limits):
            found_ = f"a beginning of {len(self.begin)} tokens, and at most {min(limits)} in all"
            raise UsageError(DOING, found_, "room for it", "a shorter beginning, a larger limit")
        if self.phrases:
            found = [
                self.lexical(row, limit, config, banned)
                for row, limit in zip(rows, limits, strict=True)
            ]
        else:
            batch, rules = self.kit.batch([list(row) for row in rows]), self.processes(banned)
            few = self.how.shortlist and self.how.count == 1 and not rules
            # A beam of one would go on after the end for a better score; it is greedy instead.
            how = None if config.width == 1 and not rules else config
            found = self.kit.search(batch, list(limits), how, None, self.strict, rules, few)
        for n, row in enumerate(found):
            again = {span for h in row for span in self.spelt(h.tokens)} - banned
            if again:  # another cut of a banned word; alone, so that no neighbour matters
                found[n] = self.search([rows[n]], [limits[n]], config, banned | again)[0]
            elif not row:
                wanted = f"at most {limits[n]} tokens with what must and must not be there"
                raise UsageError(DOING, f"no answer to text {n + 1}", wanted, "ask for less")
        return found

    def lexical(
        self, row: Row, limit: int, config: BeamConfig, banned: Phrases
    ) -> list[Hypothesis]:
        """One source's hypotheses that hold the words."""
        batch = self.kit.batch([list(row)])
        self.kit.check_room(batch.ids.shape[1] + limit)
        strict = self.kit.strict if self.strict is None else self.strict
        rules = self.processes(banned)
        stops, joins = self.kit.stops, cache(self.joins)
        with following(self.kit.board, batch, strict) as follower:
            step = ModelStep(self.kit.model, batch, limit, strict, follower)
            words = self.phrases
            found = lexical_beam(step, batch.ids, limit, stops, config, words, rules, joins)
            if follower is not None:
                follower.finish([found[0].tokens if found else []])
        return found

    def joins(self, last: int, token: int) -> bool:
        """Whether a token goes on with the word or number of the one before."""
        before, after = self.kit.text([last]), self.kit.text([last, token])
        return bool(re.match(r"\w|[.,:]\d", after[len(before) :])) and before[-1:].isalnum()

    @torch.no_grad()
    def branches(
        self, row: Row, limit: int, best: Hypothesis, config: BeamConfig, banned: Phrases
    ) -> list[Hypothesis]:
        """Answers that leave the best one where another word is nearly as likely, best first.

        Diverse beams (Vijayakumar 2018) were tried: they punish the end of a sentence too, and
        go on after its full stop.
        """
        kit, count, stops = self.kit, self.how.count, self.kit.stops
        tokens = without_end(best.tokens, stops)
        if not tokens:
            return []
        batch, log = path(kit, row, tokens, self.strict)
        own = torch.tensor(tokens, device=log.device)[:, None]
        open_ = log[: len(tokens)].scatter(1, own, -torch.inf)
        open_[:, sorted(stops)] = -torch.inf
        regret = log[: len(tokens)].gather(1, own)[:, 0] - open_.amax(1)
        regret[: len(self.begin)] = torch.inf  # these words are given
        free = min(len(tokens) - len(self.begin), limit, 2 * count)
        places = sorted(regret.topk(max(0, free), largest=False).indices.tolist())
        rules = bans(banned)  # what it begins with is written already

        def go_on(longer: Batch, limits: list[int]) -> list[list[Hypothesis]]:
            return kit.search(longer, limits, BeamConfig(2), None, self.strict, rules)

        found = alternatives(log, batch, tokens, places, limit, go_on, stops, 3)
        return sorted(
            (
                replace(h, score=h.logprob / config.penalty(len(h.tokens)))
                for place, answers in zip(places, found, strict=True)
                for h in answers
                if h.tokens[place] not in stops and not any(self.spelt(h.tokens))
            ),
            key=lambda h: -h.score,
        )

    def processes(self, banned: Phrases) -> list[Process]:
        """The rules of the search."""
        return [*([begin_with(self.begin)] if self.begin else []), *bans(banned)]

    def spelt(self, tokens: list[int]) -> Iterator[tuple[int, ...]]:
        """The shortest runs of tokens that spell a banned word."""
        for word in self.how.ban:
            whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
            if whole.search(self.kit.text(tokens)):
                sizes = range(1, len(tokens) + 1)
                end = next(n for n in sizes if whole.search(self.kit.text(tokens[:n])))
                starts = range(end - 1, -1, -1)
                yield tuple(
                    next(tokens[n:end] for n in starts if word in self.kit.text(tokens[n:end]))
                )


def bans(banned: Phrases) -> list[Process]:
    """The rule that no banned phrase is written, if there is any."""
    return [ban_phrases(sorted(banned))] if banned else []


def spell(kit: Searcher, word: str) -> list[tuple[int, ...]]:
    """How a word is cut inside a text, and at its beginning."""
    tokenizer = kit.tokenizer
    if tokenizer is None or not word.strip():
        raise UsageError(DOING, f"the word {word!r}", "a word, and a tokenizer that cuts it")

    def cut(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, special=False, side="target"))

    first, inside = cut(word), cut(f"a {word}")
    before = cut("a")
    after = inside[len(before) :] if inside[: len(before)] == before else first
    while len(after) > 1 and not kit.text([after[0]]).strip():  # a space of its own
        after = after[1:]
    if tokenizer.specials.get("unk") in first:
        raise UsageError(DOING, f"{word!r}, which the vocabulary cannot write", "another word")
    return [after, first]


def spellings(kit: Searcher, words: Sequence[str]) -> Phrases:
    """All usual cuts of words."""
    return {phrase for word in words for phrase in spell(kit, word)}


@torch.no_grad()
def given(kit: Searcher, row: Row, text: str, strict: bool | None) -> Translation:
    """A text as the translation of a source, with its log-probability."""
    tokens, end = [*spell(kit, text)[-1]], sorted(kit.stops)[:1]
    log = path(kit, row, tokens, strict)[1]
    logprob = sum(float(log[n, token]) for n, token in enumerate([*tokens, *end]))
    return Translation(text, logprob, [*tokens, *end])


def path(
    kit: Searcher, row: Row, tokens: list[int], strict: bool | None
) -> tuple[Batch, torch.Tensor]:
    """(the source as a batch, log-probabilities (n + 1, V) of what comes after each token)."""
    batch = kit.batch([list(row)])
    scores = kit.score(extend(batch, [tokens]), None, strict)
    return batch, after_each(scores, batch, len(tokens))
