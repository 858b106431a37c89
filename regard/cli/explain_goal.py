"""What `regard explain` explains: a text as a batch and an answer as a goal, by kind of model."""

from __future__ import annotations

from typing import NamedTuple

import torch

from regard.cli.show import Show
from regard.errors import DataError, UsageError, did_you_mean
from regard.kit import Kit
from regard.look.answer_tokens import AskedText, find_token, read_asked
from regard.look.labels import token_label
from regard.look.masked_input import Baseline
from regard.look.patching import Goal
from regard.look.text_limits import check_length, max_tokens_of
from regard.model.batch import Batch
from regard.model.fronts import TextFront
from regard.tokens.tokenizer import Tokenizer

DOING = "explaining"
FIXED = ("bos", "eos", "pad", "cls", "sep", "mask")  # tokens that are not the user's words


class Question(NamedTuple):
    """One input and the number that is explained."""

    batch: Batch
    goal: Goal
    ids: list[int]
    """MaskedInput of the input."""
    players: list[int]
    """Columns of the words that may be absent."""
    target: str
    """The answer that is explained, as it is shown."""
    against: str | None

    @property
    def name(self) -> str:
        """The goal in words."""
        return f"logit of {self.target!r}" + (f" − {self.against!r}" if self.against else "")


class Words(NamedTuple):
    """How the answers of a model are named."""

    show: Show
    tokenizer: Tokenizer
    labels: dict[int, str]
    """Classes; empty where answers are tokens."""
    before: str = ""
    """What stands before the answer."""

    def name(self, id: int) -> str:
        """An answer as it is shown."""
        if self.labels:
            return self.labels[id]
        return token_label(self.tokenizer, id)

    def find(self, word: str) -> int:
        """The answer that a user names: a class by label or number, or the word's first token."""
        if self.labels:
            return self.find_class(word)
        return find_token(self.tokenizer, self.before, word, self.show.note)

    def find_class(self, word: str) -> int:
        """The number of a class."""
        names = {name: id for id, name in self.labels.items()}
        if word in names:
            return names[word]
        if word.isdecimal() and int(word) in self.labels:
            return int(word)
        fix = did_you_mean(word, names)
        raise UsageError(DOING, f"no class is called {word!r}", f"one of {', '.join(names)}", fix)


def ask(kit: Kit, text: str, target: str | None, against: str | None, show: Show) -> Question:
    """The question that a command asks a model."""
    if not text.strip():
        raise DataError(DOING, "an empty text", "at least one word")
    max_tokens_of(kit, DOING)  # says so where it reads no text
    if kit.model.config.head.size is None:
        raise UsageError(DOING, "a model that gives vectors only", "one that answers")
    if kit.model.config.head.take == "first":
        ids = check_length(kit, kit.text_tokenizer.encode(text), DOING, text)
        given = kit.config.get("id2label") or {}
        labels = {n: str(given.get(str(n), n)) for n in range(kit.model.config.head.size)}
        words = Words(show, kit.text_tokenizer, labels)
        return settle(kit, AskedText(ids, ""), words, (target, against))
    pair = kit.model.config.target is not None
    asked = read_asked(kit, text, DOING, (target or "") if pair else "")
    if asked.gap is not None and (gaps := asked.ids.count(asked.ids[asked.gap])) > 1:
        show.note(f"{gaps} gaps: the first is explained")
    words = Words(show, kit.text_tokenizer, {}, asked.before)
    return settle(kit, asked, words, (None if pair else target, against))


def settle(
    kit: Kit, text: AskedText, words: Words, answers: tuple[str | None, str | None]
) -> Question:
    """The question, with the likeliest answer where none is named."""
    fixed = {id for role, id in kit.text_tokenizer.specials.items() if role in FIXED}
    players = [n for n, id in enumerate(text.ids) if id not in fixed]
    if not players:
        raise DataError(DOING, "a text without words", "at least one word")
    batch = kit.batch([text.ids], None if text.written is None else [text.written])
    target, against = (None if word is None else words.find(word) for word in answers)
    if target is None:
        with torch.no_grad():
            logits = kit.model(batch)[0]
        scores = logits if logits.dim() == 1 else logits[-1 if text.gap is None else text.gap]
        size = len(scores) if words.labels else min(len(scores), kit.text_tokenizer.size)
        scores = scores[:size].clone()
        if against is not None:
            scores[against] = -torch.inf
        target = int(scores.argmax())
    if target == against:
        raise UsageError(DOING, f"{words.name(target)!r} against itself", "two different words")
    bad = None if against is None else torch.tensor([against])
    goal = Goal(torch.tensor([target]), bad, None if text.gap is None else torch.tensor([text.gap]))
    shown = None if against is None else words.name(against)
    return Question(batch, goal, text.ids, players, words.name(target), shown)


def baseline_of(kit: Kit, asked: str | None) -> tuple[Baseline, str]:
    """What an absent token is, and its name.

    Without a wish: the mask token where there is one, else zero. Where no positions are added, a
    norm of zero would be all slope, and a token that means little stands in.
    """
    specials = kit.text_tokenizer.specials
    if asked is None:
        front = kit.model.front
        bare = bool(kit.model.stacks) and isinstance(front, TextFront) and front.positions is None
        roles = ("mask", "pad", "unk", "eos", "bos") if bare else ("mask",)
        asked = next((role for role in roles if role in specials), "zero")
    if asked in ("zero", "drop"):
        return ("zero", "zero") if asked == "zero" else ("drop", "left out")
    if asked in specials:
        return specials[asked], kit.text_tokenizer.pieces([specials[asked]], "source")[0]
    if asked in ("pad", "mask"):
        expected = f"zero, drop, {', '.join(specials) or 'or'} or a token"
        raise UsageError(DOING, f"a tokenizer without {asked} token", expected)
    found = kit.text_tokenizer.engine.id(asked)
    ids = kit.text_tokenizer.encode(asked, special=False) if found is None else [found]
    if len(ids) != 1 or ids[0] == specials.get("unk"):
        known = ("zero", "drop", *specials)
        fix = did_you_mean(asked, known, 1)
        raise UsageError(DOING, f"--baseline {asked!r} is {len(ids)} tokens", "one token", fix)
    return ids[0], kit.text_tokenizer.pieces(ids, "source")[0]
