"""Constraints on what may be written: bans, beginnings, stop strings, words that must be there.

Most are processes, for greedy, sampling and beam alike; words that must be there need a search of
their own (Hokamp and Liu 2017).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.decode.beam import BeamConfig
from regard.decode.step import Hypothesis, Process, apply_processes
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.kit import Kit

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


def spell_word(kit: Kit, word: str) -> list[tuple[int, ...]]:
    """How a word is cut inside a text, and at its beginning."""
    doing, tokenizer = "spelling a word", kit.tokenizer
    if tokenizer is None or not word.strip():
        raise UsageError(doing, f"the word {word!r}", "a word, and a tokenizer that cuts it")
    first, inside, before = (
        tuple(tokenizer.encode(text, special=False, side="target"))
        for text in (word, f"a {word}", "a")
    )
    after = inside[len(before) :] if inside[: len(before)] == before else first
    while len(after) > 1 and not kit.text([after[0]]).strip():  # a space of its own
        after = after[1:]
    if tokenizer.specials.get("unk") in first:
        raise UsageError(doing, f"{word!r}, which the vocabulary cannot write", "another word")
    return [after, first]


def find_words(kit: Kit, tokens: list[int], words: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """The shortest runs of tokens that spell one of the words, however they are cut."""
    for word in words:
        whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        if whole.search(kit.text(tokens)):
            end = next(n for n in range(1, len(tokens) + 1) if whole.search(kit.text(tokens[:n])))
            starts = range(end - 1, -1, -1)
            yield tuple(next(tokens[n:end] for n in starts if word in kit.text(tokens[n:end])))


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


# Lexical constraints ------------------------------------------------------------------------------

Phrase = tuple[int, ...]
Joins = Callable[[int, int], bool]
"""Whether a token goes on with the word of the token before it."""


class Prefix(NamedTuple):
    """A living prefix and the row of the step that it grew from."""

    tokens: tuple[int, ...]
    logprob: float
    parent: int


class Banks(NamedTuple):
    """The prefixes of one source, and what has ended."""

    live: list[Prefix]
    done: list[Hypothesis]
    column: Tensor  # (N, t) read next
    parent: Tensor | None  # (1, N) row of the model that each prefix grew from
    over: Tensor  # (1,)


class LexicalSearch:
    """Beam search for the best hypotheses of one source that hold every phrase, best first.

    Prefixes that hold as many tokens of the phrases compete with each other only, `width` of each
    kind, so those that have begun an unlikely word are not pushed out by those that have not.
    A phrase after which its last word goes on does not count.
    """

    width, key, watch = 1, None, None

    def __init__(
        self,
        config: BeamConfig,
        eos: Collection[int],
        phrases: Sequence[Sequence[int]],
        joins: Joins,
        processes: Sequence[Process] = (),
    ) -> None:
        self.config, self.eos, self.processes = config, eos, processes
        self.phrases, self.joins = [tuple(phrase) for phrase in phrases], joins
        if any(not phrase or set(phrase) & set(eos) for phrase in self.phrases):
            raise UsageError("constrained search", "an empty phrase, or one with an end", "words")

    def begin(self, column: Tensor, limits: Sequence[int], columns: int) -> Banks:
        """The empty prefix of one source."""
        if len(column) != 1:
            raise UsageError("constrained search", f"{len(column)} sources", "one at a time")
        (self.limit,) = limits
        needed = max(1, sum(map(len, self.phrases)))
        if self.limit < needed:
            wrong = f"at most {self.limit} new tokens"
            raise UsageError("constrained search", wrong, f"{needed} or more")
        return Banks([Prefix((), 0.0, 0)], [], column, None, torch.zeros(1, dtype=torch.bool))

    def advance(self, state: Banks, logits: Tensor) -> Banks:
        """Grow each prefix by a token and keep the best of each kind."""
        config, length = self.config, len(state.live[0].tokens) + 1
        log = logits.float().log_softmax(-1)
        tokens = [prefix.tokens for prefix in state.live]
        history = torch.tensor(tokens, dtype=torch.long, device=log.device)
        log = apply_processes(self.processes, log, history.view(len(tokens), length - 1))
        banks: dict[int, list[Prefix]] = defaultdict(list)
        whole, done = sum(map(len, self.phrases)), list(state.done)
        for prefix in self.expand(state.live, log):
            held = sum(held_tokens(prefix.tokens, phrase, self.joins) for phrase in self.phrases)
            if prefix.tokens[-1] not in self.eos:
                banks[held].append(prefix)
            elif held == whole:
                score = prefix.logprob / config.penalty(length)
                done.append(Hypothesis(list(prefix.tokens), prefix.logprob, score, True))
        live = [p for held in sorted(banks) for p in likeliest(banks[held])[: config.width]]
        done = sorted(done, key=lambda h: -h.score)[: config.count]
        bound = max((p.logprob for p in live), default=-torch.inf) / config.penalty(self.limit)
        full = len(done) == config.count and done[-1].score >= bound
        over = torch.tensor([not live or length == self.limit or full])
        column = state.column.new_tensor([[p.tokens[-1]] for p in live])
        return Banks(live, done, column, state.column.new_tensor([[p.parent for p in live]]), over)

    def expand(self, live: Sequence[Prefix], log: Tensor) -> list[Prefix]:
        """Each prefix with its likeliest tokens and those that go on with a missing phrase."""
        top = log.topk(min(2 * self.config.width, log.shape[-1]), -1).indices.tolist()
        grown = []
        for row, (prefix, likely) in enumerate(zip(live, top, strict=True)):
            missing = [p for p in self.phrases if not holds(prefix.tokens, p, self.joins)]
            going = [phrase[held_tokens(prefix.tokens, phrase, self.joins)] for phrase in missing]
            for token in dict.fromkeys([*likely, *going, *(phrase[0] for phrase in missing)]):
                value = prefix.logprob + float(log[row, token])
                if value > -torch.inf:
                    grown.append(Prefix((*prefix.tokens, token), value, row))
        return grown

    def read(self, state: Banks, over: list[int]) -> list[tuple[int, list[Hypothesis]]]:
        """What has ended and then what lives, as far as it holds every phrase."""
        answers = list(state.done)
        for p in likeliest(state.live):
            whole = all(holds(p.tokens, phrase, self.joins) for phrase in self.phrases)
            if whole and len(answers) < self.config.count:
                score = p.logprob / self.config.penalty(len(p.tokens))
                answers.append(Hypothesis(list(p.tokens), p.logprob, score, False))
        return [(0, answers)]


def likeliest(prefixes: Sequence[Prefix]) -> list[Prefix]:
    """Likeliest first; of equals the lowest tokens."""
    return sorted(prefixes, key=lambda p: (-p.logprob, p.tokens))


def holds(tokens: Phrase, phrase: Phrase, joins: Joins) -> bool:
    """Whether the phrase stands in the tokens, its last word whole as far as they go."""
    size = len(phrase)
    return any(
        tokens[n : n + size] == phrase
        and (n + size == len(tokens) or not joins(phrase[-1], tokens[n + size]))
        for n in range(len(tokens) - size + 1)
    )


def held_tokens(tokens: Phrase, phrase: Phrase, joins: Joins) -> int:
    """How much of a phrase is there: all of it, or what the tokens end with."""
    if holds(tokens, phrase, joins):
        return len(phrase)
    sizes = range(min(len(phrase) - 1, len(tokens)), 0, -1)
    return next((n for n in sizes if tokens[-n:] == phrase[:n]), 0)
